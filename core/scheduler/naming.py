"""Names of actors: who hosts them, which of two claims stands, and who waits for an answer.

The head remembers what nodes tell it and nothing else: after its start the nodes report what they host, and until
all are back nobody is told that a name is free or unknown. Of two claims the one with the higher incarnation stands;
between equal ones, the one that was there. A detached actor whose node was lost keeps its entry, without a node.

Collections and their invariants:

- ``_entries``: the claims that stand, by (namespace, name); their records together take ``_records_nbytes``.
- ``_hosted``: the keys of the entries with a node, by node.
- ``_waiting``: requests that came before the nodes were back, in order, one per (node, request).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .cluster_commands import (
    Command,
    KillActor,
    NameAnswer,
    NameClaim,
    NameEntry,
    NameGranted,
    NameRefused,
    TryLater,
)
from .kept import LAST_INCARNATION

#: Names there may be at a time; an entry without its record takes about 500 bytes.
NAMES = 100_000

#: Bytes of one creation record (a pickled class and its arguments; what is large lies in the store), and of all.
RECORD_NBYTES = 1 << 20
RECORDS_NBYTES = 1 << 28

#: Characters of a namespace or a name.
NAME_LENGTH = 255

#: Requests that wait for the nodes to be back; their records take RECORDS_NBYTES at most.
WAITING = 10_000

_TAKEN = "the name is taken"
_FULL = "the table of names is full"

Key = tuple[str, str]


def fault_of_claim(claim: NameClaim) -> str:
    """Say what is wrong with a claim, or nothing."""
    if not claim.name or len(claim.name) > NAME_LENGTH or len(claim.namespace) > NAME_LENGTH:
        return f"a name has 1 to {NAME_LENGTH} characters, and a namespace no more"
    if len(claim.record) > RECORD_NBYTES:
        return f"its record has {len(claim.record)} bytes; {RECORD_NBYTES} are kept"
    if not 0 < claim.owner <= LAST_INCARNATION or not 0 < claim.incarnation <= LAST_INCARNATION:
        return "its owner or incarnation is out of range"
    return ""


class Naming:
    """Part of the head's machine: the table of names."""

    __slots__ = ("_commands", "_counts", "_entries", "_hosted", "_is_answering", "_records_nbytes", "_waiting",
                 "_waiting_nbytes")  # fmt: skip

    def __init__(self, commands: list[Command], counts: Counter[str]) -> None:
        self._commands = commands
        self._counts = counts
        self._is_answering = False
        self._entries: dict[Key, NameEntry] = {}
        self._hosted: dict[int, dict[Key, None]] = {}
        self._records_nbytes = 0
        self._waiting: dict[tuple[int, int], NameClaim | Key] = {}
        self._waiting_nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting(self) -> int:
        """Requests that wait for the nodes to be back."""
        return len(self._waiting)

    def start_answering(self) -> None:
        """Answer what has been asked so far, in order, and all that comes, from now on."""
        self._is_answering = True
        waiting, self._waiting, self._waiting_nbytes = self._waiting, {}, 0
        for (node, request), wanted in waiting.items():
            self._do(node, request, wanted)

    def claim(self, node: int, request: int, claim: NameClaim) -> None:
        """Give a name to an actor that a node is about to start, or refuse it; a repeated claim is granted again."""
        fault = fault_of_claim(claim)
        if fault:
            self._commands.append(NameRefused(node, request, fault, None))
        else:
            self._do(node, request, claim)

    def look_up(self, node: int, request: int, namespace: str, name: str) -> None:
        """Answer who hosts the actor of a name."""
        self._do(node, request, (namespace[: NAME_LENGTH + 1], name[: NAME_LENGTH + 1]))

    def report(self, node: int, claims: Iterable[NameClaim]) -> None:
        """Take a node's word for all names that its actors have; what it does not name any more has ended."""
        claims = list(claims)
        reported = {(claim.namespace, claim.name) for claim in claims}
        for key in [key for key in self._hosted.get(node, ()) if key not in reported]:
            self._drop(key)
        for claim in claims:
            reason = fault_of_claim(claim) or self._file(node, claim)
            if reason is _TAKEN:
                self._commands.append(_kill(node, claim))
            elif reason:
                self._counts["unfiled_report"] += 1

    def release(self, node: int, namespace: str, name: str, owner: int, incarnation: int) -> None:
        """Free the name of an actor that has ended: its node says so, or any node when it has none any more."""
        entry = self._entries.get((namespace, name))
        actor = (entry.claim.owner, entry.claim.incarnation) if entry is not None else None
        if entry is None or entry.node not in (node, 0) or actor != (owner, incarnation):
            self._counts["late_released"] += 1
        else:
            self._drop((namespace, name))

    def forget_requests(self, node: int) -> None:
        """Drop what a node asked for and does not wait for any more."""
        if self._waiting:
            self._waiting = {key: wanted for key, wanted in self._waiting.items() if key[0] != node}
            self._waiting_nbytes = sum(map(_record_nbytes, self._waiting.values()))

    def drop_node(self, node: int) -> None:
        """A node is gone: its actors are too, and only detached ones keep their names."""
        self.forget_requests(node)
        for key in list(self._hosted.get(node, ())):
            entry = self._entries[key]
            self._drop(key)
            if entry.claim.is_detached:
                self._enter(key, NameEntry(entry.claim, 0))

    def _do(self, node: int, request: int, wanted: NameClaim | Key) -> None:
        if not self._is_answering:
            self._let_wait(node, request, wanted)
        elif not isinstance(wanted, NameClaim):
            self._commands.append(NameAnswer(node, request, self._entries.get(wanted)))
        elif not (reason := self._file(node, wanted)):
            self._commands.append(NameGranted(node, request))
        else:
            holder = self._entries.get((wanted.namespace, wanted.name))
            self._commands.append(NameRefused(node, request, reason, holder))

    def _let_wait(self, node: int, request: int, wanted: NameClaim | Key) -> None:
        if (node, request) in self._waiting:
            return
        nbytes = self._waiting_nbytes + _record_nbytes(wanted)
        if len(self._waiting) >= WAITING or nbytes > RECORDS_NBYTES:
            self._commands.append(TryLater(node, request))
            return
        self._waiting[node, request] = wanted
        self._waiting_nbytes = nbytes

    def _file(self, node: int, claim: NameClaim) -> str:
        """Enter a claim, or say why not; whose claim falls is told to end the actor."""
        key = claim.namespace, claim.name
        held = self._entries.get(key)
        if held is not None:
            if held.node == node and _is_same(held.claim, claim):
                return ""
            if held.claim.incarnation >= claim.incarnation:
                return _TAKEN
        if self._is_full(claim):
            return _FULL
        if held is not None:
            if held.node:
                self._commands.append(_kill(held.node, held.claim))
            self._drop(key)
        self._enter(key, NameEntry(claim, node))
        return ""

    def _is_full(self, claim: NameClaim) -> bool:
        held = self._entries.get((claim.namespace, claim.name))
        freed = len(held.claim.record) if held is not None else 0
        if self._records_nbytes - freed + len(claim.record) > RECORDS_NBYTES:
            return True
        return held is None and len(self._entries) >= NAMES

    def _enter(self, key: Key, entry: NameEntry) -> None:
        self._entries[key] = entry
        self._records_nbytes += len(entry.claim.record)
        if entry.node:
            self._hosted.setdefault(entry.node, {})[key] = None

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key)
        self._records_nbytes -= len(entry.claim.record)
        if entry.node:
            del self._hosted[entry.node][key]
            if not self._hosted[entry.node]:
                del self._hosted[entry.node]

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        assert self._records_nbytes == sum(len(entry.claim.record) for entry in self._entries.values())
        assert all(key == (entry.claim.namespace, entry.claim.name) for key, entry in self._entries.items())
        assert all(entry.node or entry.claim.is_detached for entry in self._entries.values())
        hosted = {(entry.node, key) for key, entry in self._entries.items() if entry.node}
        assert hosted == {(node, key) for node, keys in self._hosted.items() for key in keys}
        assert all(self._hosted.values()) and len(self._entries) <= NAMES and len(self._waiting) <= WAITING
        assert not (self._is_answering and self._waiting), "somebody waits although all nodes are back"
        assert self._waiting_nbytes == sum(map(_record_nbytes, self._waiting.values())) <= RECORDS_NBYTES
        assert self._records_nbytes <= RECORDS_NBYTES

    def nodes(self) -> set[int]:
        """The nodes that have a name or wait for an answer."""
        return {*self._hosted, *(node for node, _ in self._waiting)}


def _is_same(held: NameClaim, claim: NameClaim) -> bool:
    return held.owner == claim.owner and held.incarnation == claim.incarnation


def _record_nbytes(wanted: NameClaim | Key) -> int:
    return len(wanted.record) if isinstance(wanted, NameClaim) else 0


def _kill(node: int, claim: NameClaim) -> KillActor:
    return KillActor(node, claim.namespace, claim.name, claim.owner, claim.incarnation)
