"""The node's table of extents: who may still need which stored bytes.

An extent is announced by the writer of its segment, *freed* when its owner's count of references is zero, and pinned
once per descriptor handed to a process. It is reclaimed when it is freed and has no pins left. Messages of owner,
writer and readers come over different links, so a FREE may overtake the ANNOUNCE it belongs to, and anything may come
twice or after a death: such messages are counted in ``ignored`` and change nothing.

A *replica* is a copy of an object that lies at another node, written by this node itself. It is cache: one without pins
may be evicted at any time. Processes count pins by what a descriptor says, and one of another node says nothing of this
one, so only words about pulled objects pin and unpin a replica, and all others pass it by.

Collections and their invariants:

- ``_entries``: announced and not reclaimed; each lies in exactly one segment's ``extents``.
- ``_pins``: process -> object -> count > 0; the sum over processes of one object is its entry's ``pins``.
- ``_replicas``: the entries that are replicas, the one that was asked for last at the end; whether it ever was.
- ``_freed_early`` and ``_gone``: memory of the last frees without an object, and of the last deaths; bounded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container
from typing import NamedTuple, TypeVar

from ..ids import ObjectId

#: How many frees without an object and how many deaths are remembered. A message that is older than so many others
#: finds nothing any more and would leak one extent until its owner ends; an entry costs about 150 bytes.
REMEMBERED = 10_000

Key = tuple[int, int, int]  # owner, seq, version
_K = TypeVar("_K")


class Reclaim(NamedTuple):
    """Tell the writer that it may use the extent's space again."""

    writer: int
    segment: int
    offset: int


class ReleasePages(NamedTuple):
    """Give pages back to the system: nobody will use them again, since their writer is gone or has parted with them."""

    segment: int
    offset: int
    nbytes: int


class DropSegment(NamedTuple):
    """Close a segment of a writer that is gone: no extent is left in it."""

    segment: int


Command = Reclaim | ReleasePages | DropSegment


class _Segment:
    __slots__ = ("extents", "nbytes", "used", "writer")

    def __init__(self, writer: int, nbytes: int) -> None:
        self.writer: int | None = writer  # None: it died
        self.nbytes = nbytes
        self.used = 0
        self.extents: dict[int, Key] = {}  # by offset


class _Entry:
    __slots__ = ("freed", "is_kept", "is_replica", "nbytes", "offset", "owner", "pins", "segment")

    def __init__(self, owner: int, segment: int, offset: int, nbytes: int, is_replica: bool) -> None:
        # Who counts the references: the owner in the object's name, or who took it over; of a replica, the root.
        self.owner = owner
        self.segment = segment
        self.offset = offset
        self.nbytes = nbytes
        self.pins = 0
        self.freed = False
        self.is_replica = is_replica
        self.is_kept = False  # a replica that has become the only copy


class Place(NamedTuple):
    """Where an extent lies."""

    segment: int
    offset: int
    nbytes: int


class Extents:
    """Pure machine over leases, announcements, frees and pins of one node. Processes are named by any integer."""

    def __init__(self, budget_nbytes: int) -> None:
        self.budget_nbytes = budget_nbytes
        self.used_nbytes = 0  # segments of living writers, but for what was trimmed; announced extents of dead ones
        self.commands: list[Command] = []
        self.ignored: Counter[str] = Counter()
        self._last_segment = 0
        self._segments: dict[int, _Segment] = {}
        self._entries: dict[Key, _Entry] = {}
        self._pins: dict[int, dict[Key, int]] = {}
        self._replicas: dict[Key, bool] = {}
        self._freed_early: dict[Key, None] = {}
        self._gone: dict[int, None] = {}

    def __repr__(self) -> str:
        counts = f"segments={len(self._segments)} extents={len(self._entries)} pinning={len(self._pins)}"
        return f"<Extents {counts} used={self.used_nbytes} of {self.budget_nbytes}>"

    def take_commands(self) -> list[Command]:
        """Return what is to be done, in order, and forget it."""
        commands, self.commands = self.commands, []
        return commands

    def on_lease(self, writer: int, nbytes: int) -> int | None:
        """Grant a new segment and return its number, or None when the budget has no room (or the writer died)."""
        if writer in self._gone or self.used_nbytes + nbytes > self.budget_nbytes:
            return None
        self._last_segment += 1
        self._segments[self._last_segment] = _Segment(writer, nbytes)
        self.used_nbytes += nbytes
        return self._last_segment

    def on_announced(self, owner: int, seq: int, version: int, segment: int, offset: int, nbytes: int, writer: int, *,
                     root: int | None = None) -> None:  # fmt: skip
        """Enter an extent; a second copy of the same object is given back at once.

        `root`: it is a replica, of use to the processes of this root and gone with it at the latest.
        """
        home = self._segments.get(segment)
        if home is None or home.writer != writer or offset in home.extents:
            self.ignored["announced"] += 1
            return
        key = (owner, seq, version)
        if key in self._entries:
            self.ignored["announced again elsewhere"] += 1
            self.commands.append(Reclaim(writer, segment, offset))
            return
        user = owner if root is None else root
        entry = self._entries[key] = _Entry(user, segment, offset, nbytes, root is not None)
        if root is not None:
            self._replicas[key] = False
        home.extents[offset] = key
        home.used += nbytes
        if key in self._freed_early or user in self._gone:
            self._freed_early.pop(key, None)
            entry.freed = True
            self._settle(key, entry)

    def on_freed(self, owner: int, seq: int, version: int) -> None:
        """Note that the owner's count is zero: nobody gets a new pin any more."""
        key = (owner, seq, version)
        entry = self._entries.get(key)
        if entry is None:
            self.ignored["freed early or again"] += 1
            if owner not in self._gone:
                _remember(self._freed_early, key)
        elif entry.freed:
            self.ignored["freed again"] += 1
        else:
            entry.freed = True
            self._settle(key, entry)

    def on_handed_over(self, oid: ObjectId, version: int, owner: int) -> None:
        """Another process counts the references of an object from now on."""
        entry = self._entries.get((oid[0], oid[1], version))
        if entry is None or entry.is_replica:
            self.ignored["handed over"] += 1
        else:
            entry.owner = owner

    def pin(self, oid: ObjectId, version: int, process: int, *, pulled: bool = False) -> bool:
        """Pin for a process that is about to be given the descriptor; False when the object is not here any more.

        `pulled`: it is given one of this node in return for one of another node.
        """
        key = (oid[0], oid[1], version)
        entry = self._entries.get(key)
        if entry is None or entry.freed or process in self._gone or (entry.is_replica and not pulled):
            return False
        if entry.is_replica:
            del self._replicas[key]
            self._replicas[key] = True
        self._pin(key, entry, process)
        return True

    def inherit(self, oid: ObjectId, version: int, heir: int) -> None:
        """Pin what another process has views of for those that it forks, whether it is freed or not."""
        key = (oid[0], oid[1], version)
        entry = self._entries.get(key)
        if entry is not None:
            self._pin(key, entry, heir)

    def _pin(self, key: Key, entry: _Entry, process: int) -> None:
        entry.pins += 1
        held = self._pins.setdefault(process, {})
        held[key] = held.get(key, 0) + 1

    def unpin(self, oid: ObjectId, version: int, process: int, *, pulled: bool = False) -> None:
        """Take back one pin of a process; `pulled`: one that `pin` gave with the same word."""
        key = (oid[0], oid[1], version)
        held = self._pins.get(process)
        count = held.get(key, 0) if held is not None else 0
        if held is None or not count or (key in self._replicas and not pulled):
            self.ignored["unpinned"] += 1
            return
        if count > 1:
            held[key] = count - 1
        else:
            del held[key]
            if not held:
                del self._pins[process]
        self._unpin(key, 1)

    def find(self, oid: ObjectId, version: int) -> Place | None:
        """Where an object lies, or None when it is not here or has been freed."""
        entry = self._entries.get((oid[0], oid[1], version))
        return None if entry is None or entry.freed else Place(entry.segment, entry.offset, entry.nbytes)

    def keep(self, oid: ObjectId, version: int) -> None:
        """Evict a replica no more: the node that it came from leaves."""
        entry = self._entries.get((oid[0], oid[1], version))
        if entry is not None:
            entry.is_kept = True

    def primaries(self, owners: Container[int]) -> list[tuple[Key, Place]]:
        """What lies here, and perhaps nowhere else, of objects whose references these processes count."""
        return [
            (key, Place(entry.segment, entry.offset, entry.nbytes))
            for key, entry in self._entries.items()
            if entry.owner in owners and not entry.freed and (not entry.is_replica or entry.is_kept)
        ]

    def is_freed(self, oid: ObjectId, version: int) -> bool:
        """Whether the owner has let go of an object, as far as this node remembers."""
        key = (oid[0], oid[1], version)
        entry = self._entries.get(key)
        return key in self._freed_early if entry is None else entry.freed

    def evict(self, *, used_only: bool = False) -> bool:
        """Drop the replica that was asked for longest ago among those without pins; False when there is none.

        `used_only`: but for those that nobody has asked for yet.
        """
        for key, was_used in self._replicas.items():
            entry = self._entries[key]
            if not (entry.pins or entry.is_kept) and (was_used or not used_only):
                entry.freed = True
                self._settle(key, entry)
                return True
        return False

    def on_given_back(self, writer: int, segment: int) -> None:
        """A writer has parted with a segment in which it has nothing."""
        home = self._segments.get(segment)
        if home is None or home.writer != writer or home.extents:
            self.ignored["given back"] += 1
            return
        self.used_nbytes -= home.nbytes
        self._drop_if_empty(segment, home)

    def on_trimmed(self, writer: int, segment: int, offset: int, nbytes: int) -> None:
        """A writer has parted with room of a segment in which it has something."""
        home = self._segments.get(segment)
        if home is None or home.writer != writer or nbytes > home.nbytes - home.used:
            self.ignored["trimmed"] += 1
            return
        home.nbytes -= nbytes
        self.used_nbytes -= nbytes
        self.commands.append(ReleasePages(segment, offset, nbytes))

    def on_process_met(self, process: int) -> None:
        """A process that was taken for gone is here again: a client whose session with this node ended has another."""
        self._gone.pop(process, None)

    def on_process_died(self, process: int) -> None:
        """Drop the pins of a process, the space it leased and did not announce, and all objects it owned."""
        _remember(self._gone, process)
        for segment, home in list(self._segments.items()):
            if home.writer == process:
                home.writer = None
                self.used_nbytes -= home.nbytes - home.used
                self._drop_if_empty(segment, home)
        for key, count in self._pins.pop(process, {}).items():
            self._unpin(key, count)
        for key, entry in list(self._entries.items()):
            if entry.owner == process and not entry.freed:
                entry.freed = True
                self._settle(key, entry)
        for key in [key for key in self._freed_early if key[0] == process]:
            del self._freed_early[key]

    def holders(self) -> list[tuple[int, int]]:
        """(owner, nbytes) of the announced extents, largest first."""
        sizes: Counter[int] = Counter()
        for key, entry in self._entries.items():
            sizes[key[0]] += entry.nbytes
        return sizes.most_common()

    def has_of(self, owners: Container[int]) -> bool:
        """Whether an object whose references one of these counts lies here, other than as a copy."""
        return any(not entry.is_replica and entry.owner in owners for entry in self._entries.values())

    def leased(self) -> list[tuple[int, int]]:
        """(writer, nbytes) of what writers hold beside announced extents, largest first; it may be empty room."""
        sizes: Counter[int] = Counter()
        for segment in self._segments.values():
            if segment.writer is not None and segment.nbytes > segment.used:
                sizes[segment.writer] += segment.nbytes - segment.used
        return sizes.most_common()

    def empty_segments(self) -> list[tuple[int, int]]:
        """(segment, writer) of those without announced extents; their writers may have others in them."""
        return [(s, home.writer) for s, home in self._segments.items() if home.writer is not None and not home.extents]

    def slack_segments(self) -> list[tuple[int, int, int]]:
        """(nbytes beside announced extents, segment, writer) of those that have some of both, most first."""
        slack = [
            (home.nbytes - home.used, s, home.writer)
            for s, home in self._segments.items()
            if home.writer is not None and home.extents and home.nbytes > home.used
        ]
        return sorted(slack, key=lambda entry: -entry[0])

    def _unpin(self, key: Key, count: int) -> None:
        entry = self._entries[key]
        entry.pins -= count
        self._settle(key, entry)

    def _settle(self, key: Key, entry: _Entry) -> None:
        if entry.pins or not entry.freed:
            return
        del self._entries[key]
        self._replicas.pop(key, None)
        home = self._segments[entry.segment]
        del home.extents[entry.offset]
        home.used -= entry.nbytes
        if home.writer is not None:
            self.commands.append(Reclaim(home.writer, entry.segment, entry.offset))
            return
        self.used_nbytes -= entry.nbytes
        if not self._drop_if_empty(entry.segment, home):
            self.commands.append(ReleasePages(entry.segment, entry.offset, entry.nbytes))

    def _drop_if_empty(self, segment: int, home: _Segment) -> bool:
        if home.extents:
            return False
        del self._segments[segment]
        self.commands.append(DropSegment(segment))
        return True

    def check(self) -> None:
        """Raise ``AssertionError`` when an invariant does not hold; for tests."""
        pins: defaultdict[Key, int] = defaultdict(int)
        for held in self._pins.values():
            assert held and min(held.values()) > 0, "empty pins are kept"
            for key, count in held.items():
                pins[key] += count
        placed: dict[Key, tuple[int, int]] = {}
        used = 0
        for segment, home in self._segments.items():
            used += home.used if home.writer is None else home.nbytes
            assert home.writer is not None or home.extents, f"segment {segment} is kept for nothing"
            for offset, key in home.extents.items():
                placed[key] = segment, offset
        for key, entry in self._entries.items():
            assert entry.pins == pins.pop(key, 0), "pins do not add up"
            assert entry.pins or not entry.freed, "not reclaimed"
            assert placed.pop(key, None) == (entry.segment, entry.offset), f"{key} is not where it should be"
            assert entry.is_replica == (key in self._replicas), f"{key} is a replica, or is none"
        assert not pins and not placed, f"pins or places of unknown objects: {pins}, {placed}"
        assert self._replicas.keys() <= self._entries.keys(), "replicas that are not there"
        assert used == self.used_nbytes, f"{self.used_nbytes} bytes counted, {used} in use"


def _remember(memory: dict[_K, None], key: _K) -> None:
    memory[key] = None
    if len(memory) > REMEMBERED:
        del memory[next(iter(memory))]
