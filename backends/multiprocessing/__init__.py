"""`multiprocessing.Pool` on Outboard: change the import, keep the program.

    from outboard.multiprocessing import Pool

`ThreadPool` is the standard one: threads stay in this process.
"""

from multiprocessing import TimeoutError
from multiprocessing.pool import ThreadPool

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
]
