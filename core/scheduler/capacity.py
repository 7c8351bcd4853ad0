"""The head's table of free capacity: which nodes have most room for a demand, without looking at all of them.

A node says what is free when that changes, a second after the fact at worst. Meanwhile what the head has offered of it
counts as *promised*, so that many who ask at once are sent to different nodes. A promise ends with the node's next word
about what is free, or with a beat half a second later: whoever was sent there has shown up by then, or will not.

Collections and their invariants:

- ``_hosts``: nodes that take work, by the order in which they came.
- ``_lists``: per Python minor and resource, one entry (-amount left, order) a host that has it, most left first;
  ``Host.places`` repeats the entry. The memory moved by an insertion is 8 bytes a host, some 0.1 µs for a thousand.
- ``_groups``: hosts with the same minor and totals are counted together; a group of lost hosts stays a while, since
  they come back as new incarnations.

Devices of GPUs are not told apart here: room is an estimate, and the node has the last word.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .resources import CPULESS_PER_SLOT, Demand, Resources

if TYPE_CHECKING:
    from .questions import Question

#: A promise older than this ends with the node's next beat. Smaller sends several askers to one node, larger leaves
#: room unused for that long when an asker does not come. Half of the time between two beats.
PROMISE_SECONDS = 0.5

#: The resource that stands for tasks which need no CPU: so many places a slot.
CPULESS = ""

#: What a task takes of each resource; never empty.
Needs = tuple[tuple[str, int], ...]


def needs_of(demand: Demand) -> Needs:
    """Name what one task with this demand takes."""
    first = ("CPU", demand.cpu) if demand.cpu else (CPULESS, 1)
    return (first, *((("GPU", demand.gpu),) if demand.gpu else ()), *demand.others)


class Host:
    """One node that takes work. ``takers`` are the questions in whose answers it was named last."""

    __slots__ = ("address", "free", "group", "node", "order", "places", "promised", "promised_at", "takers")

    def __init__(self, node: int, address: str, group: Group, order: int, free: dict[str, int]) -> None:
        self.node = node
        self.address = address
        self.group = group
        self.order = order
        self.free = free
        self.promised: dict[str, int] = {}
        self.promised_at = 0.0
        self.places: dict[str, tuple[int, int]] = {}
        self.takers: dict[Question, None] = {}

    def left(self, name: str) -> int:
        """How much of a resource is free and not promised; negative when more was promised than is free."""
        return self.free.get(name, 0) - self.promised.get(name, 0)

    def room(self, needs: Needs) -> int:
        """How many such tasks fit into what is left."""
        free, promised = self.free, self.promised
        return max(0, min((free.get(name, 0) - promised.get(name, 0)) // amount for name, amount in needs))


class Group:
    """Hosts with one Python minor and equal totals; ``back_until`` is when a lost one is not waited for any more."""

    __slots__ = ("back_until", "hosts", "python", "resources", "slots")

    def __init__(self, python: str, slots: int, totals: Mapping[str, int]) -> None:
        self.python = python
        self.slots = slots
        self.resources = Resources(totals)
        self.hosts = 0
        self.back_until = 0.0


GroupKey = tuple[str, int, frozenset[tuple[str, int]]]


class Capacity:
    """Hosts, what is left of them, and the order in which to offer them."""

    __slots__ = ("_groups", "_hosts", "_last_order", "_lists")

    def __init__(self) -> None:
        self._hosts: dict[int, Host] = {}
        self._last_order = 0
        self._lists: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self._groups: dict[GroupKey, Group] = {}

    def add(
        self, node: int, address: str, python: str, slots: int, totals: Mapping[str, int], free: Mapping[str, int]
    ) -> Host:
        """Enter a node that takes work."""
        key = python, slots, frozenset(totals.items())
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(python, slots, totals)
        group.hosts += 1
        self._last_order += 1
        host = self._hosts[self._last_order] = Host(node, address, group, self._last_order, {})
        self.set_free(host, free)
        return host

    def set_free(self, host: Host, free: Mapping[str, int]) -> None:
        """Take a node's word about what is free; promises end with it. Unknown names and impossible amounts drop."""
        totals = host.group.resources.totals
        host.free = {name: min(max(free.get(name, 0), 0), total) for name, total in totals.items()}
        host.free[CPULESS] = CPULESS_PER_SLOT * host.group.slots
        host.promised = {}
        self._place(host)

    def end_promises(self, host: Host, awake: float) -> bool:
        """End promises that are old enough, at a beat; return whether there were any."""
        if not host.promised or awake - host.promised_at < PROMISE_SECONDS:
            return False
        host.promised = {}
        self._place(host)
        return True

    def promise(self, host: Host, needs: Needs, count: int, awake: float) -> None:
        """Count so many tasks as taken there."""
        for name, amount in needs:
            host.promised[name] = host.promised.get(name, 0) + amount * count
        host.promised_at = awake
        self._place(host)

    def remove(self, host: Host, back_until: float) -> bool:
        """Strike off a node; it may come back until then (0: it will not). Return whether a group ended with it."""
        del self._hosts[host.order]
        for name, place in host.places.items():
            self._forget(host.group.python, name, place)
        host.group.hosts -= 1
        host.group.back_until = max(host.group.back_until, back_until)
        return not host.group.hosts and not host.group.back_until and self.expire_groups(0.0)

    def expire_groups(self, awake: float) -> bool:
        """Forget groups whose lost hosts are not waited for any more; return whether there were any."""
        over = [key for key, group in self._groups.items() if not group.hosts and group.back_until <= awake]
        for key in over:
            del self._groups[key]
        return bool(over)

    @property
    def has_hosts(self) -> bool:
        """Whether any node takes work."""
        return bool(self._hosts)

    def choose(self, python: str, needs: Needs, waiting: int, asker: int, at_most: int) -> list[tuple[Host, int]]:
        """Plan where so many tasks find room, on the nodes that have most of the rarest resource first."""
        chosen: list[tuple[Host, int]] = []
        for host in self._candidates(python, needs):
            room = min(host.room(needs), waiting)
            if not room or host.node == asker:
                continue
            chosen.append((host, room))
            waiting -= room
            if not waiting or len(chosen) == at_most:
                break
        return chosen

    def can_meet(self, python: str, demand: Demand) -> bool:
        """Whether a node that is here, or was lost a moment ago, could ever run one such task."""
        return any(group.python == python and group.resources.capacity(demand) for group in self._groups.values())

    def pythons(self) -> tuple[str, ...]:
        """The minors of the nodes that are here; empty when none is."""
        return tuple(sorted({group.python for group in self._groups.values() if group.hosts}))

    def totals(self, python: str, at_most: int) -> tuple[Mapping[str, int], ...]:
        """Different totals of the nodes with this minor, a few."""
        found: list[Mapping[str, int]] = []
        for group in self._groups.values():
            if group.python == python and group.hosts and group.resources.totals not in found:
                found.append(dict(group.resources.totals))
                if len(found) == at_most:
                    break
        return tuple(found)

    def _candidates(self, python: str, needs: Needs) -> Iterator[Host]:
        lists = [(self._lists.get((python, name), []), amount) for name, amount in needs]
        shortest, amount = min(lists, key=lambda entry: len(entry[0]))
        for place in shortest:
            if -place[0] < amount:
                return
            yield self._hosts[place[1]]

    def _place(self, host: Host) -> None:
        """Move a host to where it stands now in each list."""
        python, places = host.group.python, host.places
        for name in host.free:
            place = -host.left(name), host.order
            old = places.get(name)
            if old == place:
                continue
            if old is not None:
                self._forget(python, name, old)
            insort(self._lists.setdefault((python, name), []), place)
            places[name] = place

    def _forget(self, python: str, name: str, place: tuple[int, int]) -> None:
        entries = self._lists[python, name]
        del entries[bisect_left(entries, place)]
        if not entries:
            del self._lists[python, name]

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        placed: dict[tuple[str, str], list[tuple[int, int]]] = {}
        counted = dict.fromkeys(self._groups.values(), 0)
        assert len({host.order for host in self._hosts.values()}) == len(self._hosts)
        for host in self._hosts.values():
            counted[host.group] += 1
            assert host.places == {name: (-host.left(name), host.order) for name in host.free}, host.node
            for name, place in host.places.items():
                placed.setdefault((host.group.python, name), []).append(place)
        assert self._lists == {key: sorted(places) for key, places in placed.items()}
        for key, group in self._groups.items():
            assert group.hosts == counted[group], key
            assert group.hosts or group.back_until, key
