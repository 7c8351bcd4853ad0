"""Who waits at a node for room elsewhere, by what they need; part of the machine in `seeking`.

- ``Shape.wants``: per client the kinds that wait, with their figures, all positive; ``Shape.waiting`` is their sum.
- ``Client.places``: per kind that waits the shape which holds its figure.
- ``Client.away``: those of them that its own node does not take, so that they run elsewhere or nowhere.
- ``Client.nodes``: nodes with which a client has a session (`CONNECTED`), or until when it is not sent there again.
"""

from __future__ import annotations

from collections.abc import Mapping

from .questions import NAMED_NODES
from .resources import Demand

#: Seconds between two words on a shape that nothing hurries, and between two uses of the same answer. Larger spares the
#: head, smaller follows what waits more closely; it is how often nodes say what is free.
CALM_SECONDS = 1.0
#: Seconds between two words when the figure has halved, doubled, or become or ceased to be zero: a client that submits
#: one by one makes two questions instead of ten.
HASTY_SECONDS = 0.02
#: Seconds after which an unanswered question is put once more, in case the answer was lost.
REPEAT_SECONDS = 10.0
CONNECTED = float("inf")

Key = tuple[str, Demand]
#: A node, its address, and how many tasks it has room for.
Offer = tuple[int, str, int]


class Client:
    """Who waits: a client or worker of this node."""

    __slots__ = ("away", "id", "is_told", "nodes", "places")

    def __init__(self, client: int) -> None:
        self.id = client
        self.is_told = False  # that it has nowhere to go
        self.nodes: dict[int, float] = {}
        self.places: dict[int, Shape] = {}  # by kind: where its figure is counted
        self.away: dict[int, Shape] = {}

    @property
    def is_stranded(self) -> bool:
        """Whether something waits that its own node does not take, and no other one is in sight."""
        return bool(self.away) and not self.nodes


class Shape:
    """Tasks of one sort.

    ``asked`` is the figure that the head was told last, 0 while it has no question of this shape; ``quiet_until``: it
    takes none before. ``offers`` is the last answer, by node.
    """

    __slots__ = ("asked", "asked_at", "is_answered", "key", "needs", "offered_at", "offers", "previous", "quiet_until",
                 "request", "used_at", "waiting", "wants")  # fmt: skip

    def __init__(self, key: Key, needs: Mapping[str, int]) -> None:
        self.key = key
        self.needs = dict(needs)
        self.wants: dict[Client, dict[int, int]] = {}
        self.waiting = 0
        self.request = self.previous = 0
        self.asked = 0
        self.asked_at = -CALM_SECONDS
        self.is_answered = False
        self.quiet_until = 0.0
        self.offers: dict[int, tuple[str, int]] = {}
        self.offered_at = 0.0
        self.used_at = -CALM_SECONDS

    def next_word(self) -> float | None:
        """When the head is to be told of this shape; None when it need not hear of it again."""
        waiting, asked = self.waiting, self.asked
        if waiting == asked == 0:
            return None
        if not waiting or not asked or waiting >= 2 * asked or asked >= 2 * waiting:
            pause = HASTY_SECONDS
        elif waiting != asked or self.is_answered:
            pause = CALM_SECONDS
        else:
            pause = REPEAT_SECONDS
        return max(self.asked_at + pause, self.quiet_until)

    def put(self, client: Client, kind: int, figure: int, *, is_home: bool) -> None:
        """Take a client's word how many tasks of a kind wait: more than none."""
        kinds = self.wants.setdefault(client, {})
        self.waiting += figure - kinds.get(kind, 0)
        kinds[kind] = figure
        client.places[kind] = self
        if is_home:
            client.away.pop(kind, None)
        else:
            client.away[kind] = self

    def drop(self, client: Client, kind: int) -> None:
        """Nothing of a kind waits any more."""
        kinds = self.wants[client]
        self.waiting -= kinds.pop(kind)
        if not kinds:
            del self.wants[client]
        del client.places[kind]
        client.away.pop(kind, None)

    def drop_away(self) -> list[tuple[Client, int]]:
        """Nothing waits any more but for what runs at its own node, too; return what did."""
        dropped = [(client, kind) for client, kinds in self.wants.items() for kind in kinds if kind in client.away]
        for client, kind in dropped:
            self.drop(client, kind)
        return dropped

    def take_offers(self, offers: list[Offer], *, is_new: bool) -> None:
        """Keep an answer; a new one replaces what was offered before."""
        if is_new:
            self.offers.clear()
        for node, address, room in offers:
            self.offers.pop(node, None)
            self.offers[node] = address, room
        for node in list(self.offers)[:-NAMED_NODES]:
            del self.offers[node]

    def remembered(self) -> list[Offer]:
        """The last answer."""
        return [(node, address, room) for node, (address, room) in self.offers.items()]

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        assert self.waiting == sum([sum(kinds.values()) for kinds in self.wants.values()]), "the sum of what waits"
        assert all([kinds and min(kinds.values()) > 0 for kinds in self.wants.values()]), "a figure that is none"
        assert len(self.offers) <= NAMED_NODES
