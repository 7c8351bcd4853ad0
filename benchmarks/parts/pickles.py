"""Values to bytes and back, beside plain pickle."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial

from outboard.store import serialize

from .. import functions
from .timing import show


def round_trip(value: object, dumps: Callable[[object], serialize.Pickled]) -> None:
    """Pickle a value with its buffers beside the stream, and load it again."""
    pickled = dumps(value)
    serialize.loads(pickled.stream, pickled.buffers)


def main() -> None:
    """Print the table."""
    values = {
        "arguments of a small call": ((1,), {}),
        "a list of 1,000 numbers": list(range(1_000)),
        "a function of a module": functions.noop,
        "an array of 8 MB": functions.make_array(8_000_000),
    }
    for name, value in values.items():
        show(f"{name}: plain pickle", partial(pickle.dumps, value, protocol=5))
        show(f"{name}: dumps", partial(serialize.dumps, value))
        show(f"{name}: dumps and loads", partial(round_trip, value, serialize.dumps))


if __name__ == "__main__":
    main()
