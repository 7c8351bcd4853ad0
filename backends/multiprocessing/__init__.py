"""`multiprocessing` with a Pool on Outboard: change the import, keep the program.

    from outboard.multiprocessing import Pool
    import outboard.multiprocessing as mp      # Queue, Lock, Manager, Process …: those of multiprocessing itself

Pools, their results and errors, `cpu_count` and `get_context` are ours; every other public name is the standard one.
`ThreadPool` is the standard one too: threads stay in this process.
"""

import importlib as _importlib
import multiprocessing as _standard
from multiprocessing import TimeoutError
from multiprocessing.pool import ThreadPool
from typing import Any as _Any

from .contexts import get_context
from .faults import MaybeEncodingError, RemoteTraceback
from .iterators import IMapIterator, IMapUnorderedIterator
from .pool import Pool, cpu_count
from .results import ApplyResult, AsyncResult, MapResult

__all__ = [
    "ApplyResult",
    "AsyncResult",
    "IMapIterator",
    "IMapUnorderedIterator",
    "MapResult",
    "MaybeEncodingError",
    "Pool",
    "RemoteTraceback",
    "ThreadPool",
    "TimeoutError",
    "cpu_count",
    "get_context",
]
__all__ += [name for name in _standard.__all__ if name not in __all__]


def __getattr__(name: str) -> _Any:
    """Pass on what `multiprocessing` offers besides, submodules included."""
    if not name.startswith("_"):
        try:
            return getattr(_standard, name)
        except AttributeError:
            pass
        try:
            return _importlib.import_module(f"multiprocessing.{name}")
        except ModuleNotFoundError:
            pass
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for name in dir(_standard) if not name.startswith("_"))})
