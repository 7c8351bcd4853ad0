"""What a node's workers have run lately: a bounded ring, for the timeline of a program (`timelines`).

It notes what workers report anyway: that tasks of a packet are done now, and how long they took together.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from .rpc.protos import outboard_pb2 as pb

#: Events that a node keeps, of all programs together: about 2 MB.
EVENTS_KEPT = 10_000

#: Events of one message.
EVENTS_TOLD = 2_000

#: Owner and number of a kind of tasks.
Key = tuple[int, int]


#: Tasks of one packet that have ended: root, name and whether they are calls of an actor, pid, when we heard of it (the
#: node's clock), seconds from the first one's begin to the last one's end, their number, whether the process runs
#: several at a time, whether it died under the one there was. A plain tuple, since each message of a worker makes one.
Ran = tuple[int, tuple[str, bool], int, float, float, int, bool, bool]

NAMELESS = ("", False)


class RunLog:
    """A node's part. Every method is called in its loop's thread."""

    def __init__(self) -> None:
        self._ring: deque[Ran] = deque(maxlen=EVENTS_KEPT)
        self._names: dict[Key, tuple[str, bool]] = {}

    def __len__(self) -> int:
        return len(self._ring)

    def on_kind(self, key: Key, name: str, *, is_call: bool) -> None:
        """A client has described tasks to come."""
        self._names[key] = name, is_call

    def on_kind_dropped(self, key: Key) -> None:
        """None of them will come any more."""
        self._names.pop(key, None)

    def note(self, root: int, key: Key, pid: int, end: float, seconds: float, tasks: int,
             is_concurrent: bool = False, *, has_died: bool = False) -> None:  # fmt: skip
        """Tasks of a kind have ended now, or (`has_died`) one has with its process, nobody knows after how long."""
        self._ring.append((root, self._names.get(key, NAMELESS), pid, end, seconds, tasks, is_concurrent, has_died))

    def tell(self, root: int, now: float) -> Iterator[pb.Timeline]:
        """Give what a root's processes had run here, in messages of which the last one says so."""
        offset = time.time() - now
        events = [
            pb.Timeline.Event(name=name, is_call=is_call, pid=pid, start=end - seconds + offset, seconds=seconds,
                              tasks=tasks, has_died=has_died)
            for _, (name, is_call), pid, end, seconds, tasks, _, has_died in self._in_turn(root)
        ]  # fmt: skip
        for first in range(0, len(events) or 1, EVENTS_TOLD):
            is_last = first + EVENTS_TOLD >= len(events)
            yield pb.Timeline(events=events[first : first + EVENTS_TOLD], is_last=is_last)

    def _in_turn(self, root: int) -> list[Ran]:
        """What a root's processes had run, the oldest first, with ends as early as they can be told to have been.

        What a worker says may lie in its link for a while. Where it runs one packet at a time, it had ended each before
        it began the next, and viewers take what overlaps in one process for calls within calls.
        """
        begins: dict[int, float] = {}
        found = []
        for ran in reversed(self._ring):
            if ran[0] != root:
                continue
            of, what, pid, end, seconds, tasks, is_concurrent, has_died = ran
            if not is_concurrent:
                end = min(end, begins.get(pid, end))
                begins[pid] = end - seconds
            found.append((of, what, pid, end, seconds, tasks, is_concurrent, has_died))
        found.reverse()
        return found
