"""Frames and messages: what one hop costs before any socket."""

from __future__ import annotations

import pickle
from functools import partial

from outboard.rpc import codec
from outboard.rpc.protos import outboard_pb2 as messages

from .timing import show

CALL = pickle.dumps(((1,), {}), protocol=5)
VALUE = pickle.dumps(2, protocol=5)


def submit(count: int) -> bytes:
    """Encode a message that submits so many plain tasks."""
    interval = messages.Interval(kind=1, first=1, calls=[CALL] * count, attempt=1, stride=1)
    encoded: bytes = messages.Submit(intervals=[interval]).SerializeToString()
    return encoded


def finished(count: int) -> bytes:
    """Encode a message that reports so many results."""
    done = messages.Done(first=1, stride=1, values=[VALUE] * count, seconds=1e-5)
    encoded: bytes = messages.Finished(done=[done], packet=1, packet_done=True).SerializeToString()
    return encoded


def main() -> None:
    """Print the table."""
    for count in (1, 100):
        body, result = submit(count), finished(count)
        frame = codec.encode_frame(codec.Frame.SUBMIT, body)
        show(f"{count} tasks: make a Submit message, a task", partial(submit, count), count)
        show(f"{count} tasks: parse it, a task", partial(messages.Submit.FromString, body), count)
        show(f"{count} tasks: make a Finished message, a task", partial(finished, count), count)
        show(f"{count} tasks: parse it, a task", partial(messages.Finished.FromString, result), count)
        show(f"{count} tasks: frame it", partial(codec.encode_frame, codec.Frame.SUBMIT, body))
        show(f"{count} tasks: take it out of its frame", partial(codec.decode, codec.START, frame))


if __name__ == "__main__":
    main()
