"""The machine of a node that seeks room at other nodes for what its clients and workers can send nowhere.

Who waits says how many tasks of a kind it may send nowhere (its credit is counted already, here and elsewhere). Kinds
with the same Python minor and demand are one *shape*; the head is told one figure a shape, however many wait. It names
nodes with room, now or when room appears, and whoever waits there and has fewest nodes gets a session with them. With
no head the last answer is used. Whoever can be sent nowhere at all for a while is told so (`stranded`).

Events are methods; what they decide lies in the machine until the driver takes it. ``now`` is the driver's monotonic
clock in seconds; events without it count as happening at the last time told. Late answers are counted in ``counts``
and dropped. Collections and their invariants, besides those of `wants`:

- ``_shapes``: by Python minor and demand; those for which nothing waits are kept for their last answer, and when they
  were told last, least recently used first, `KEPT_SHAPES` at most.
- ``_requests``: the last two requests of each shape: an answer may cross the next question.
- ``_standing``: how many shapes the head has a question of, `SHAPES_PER_NODE` at most; others wait until one is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from .resources import Demand
from .room import SHAPES_PER_NODE
from .stranded import Stranded
from .wants import CALM_SECONDS, CONNECTED, Client, Key, Offer, Shape

#: Seconds that a session may take to come about; then the client may be sent to that node again. A node is lost after
#: as long.
CONNECT_SECONDS = 5.0
#: Shapes for which nothing waits that are kept.
KEPT_SHAPES = 64


class AskRoom(NamedTuple):
    """Tell the head how many tasks wait for room elsewhere: an absolute figure, 0 when nothing does any more."""

    request: int
    needs: Mapping[str, int]
    python: str
    waiting: int


class Connect(NamedTuple):
    """Open a session of the client's root with a node; the driver answers with ``on_connected``, if it comes about."""

    client: int
    node: int
    address: str


class Refuse(NamedTuple):
    """Tell a client that no node can ever run a kind; ``totals`` are those of some nodes, ``pythons`` of all."""

    client: int
    kind: int
    asked: Mapping[str, int]
    totals: Sequence[Mapping[str, int]]
    pythons: Sequence[str]


class Stay(NamedTuple):
    """Tell a client, once, that its tasks with these needs can be sent nowhere for now."""

    client: int
    needs: Sequence[Mapping[str, int]]


Command = AskRoom | Connect | Refuse | Stay


class Seeking:
    """Tells the head what waits at one node, and sends who waits to the nodes that it names."""

    __slots__ = ("_clients", "_commands", "_has_head", "_last_request", "_node", "_now", "_requests", "_shapes",
                 "_standing", "_stranded", "counts")  # fmt: skip

    def __init__(self, node: int) -> None:
        self._node = node
        self._clients: dict[int, Client] = {}
        self._shapes: dict[Key, Shape] = {}
        self._requests: dict[int, Shape] = {}
        self._commands: list[Command] = []
        self._has_head = False
        self._standing = 0
        self._stranded = Stranded()
        self._last_request = 0
        self._now = 0.0
        self.counts: Counter[str] = Counter()

    @property
    def due(self) -> float | None:
        """When ``on_timer`` is to be called next; None when nothing is to be said or tried."""
        times = [at for shape in self._shapes.values() if (at := self._next_step(shape)) is not None]
        told_at = self._stranded.due
        return min(times if told_at is None else [*times, told_at], default=None)

    def take_commands(self) -> list[Command]:
        """The commands decided since the last call, in order."""
        commands, self._commands = self._commands, []
        return commands

    # -- who waits

    def on_want(
        self, client: int, kind: int, needs: Mapping[str, int], python: str, waiting: int, now: float, *,
        is_home: bool,
    ) -> None:  # fmt: skip
        """So many tasks of a kind can be sent nowhere now: an absolute figure.

        ``needs`` are amounts in 1/10000; ``is_home``: this node itself takes some of them.
        """
        self._now = now
        known = self._clients.get(client)
        if waiting <= 0:
            if known is not None:
                self._drop_want(known, kind)
            return
        key = python, Demand.of(needs)
        if known is None:
            known = self._clients[client] = Client(client)
        elif (old := known.places.get(kind)) is not None and old.key != key:
            self._drop_want(known, kind)
        shape = self._shapes.pop(key, None) or Shape(key, needs)
        self._shapes[key] = shape
        shape.put(known, kind, waiting, is_home=is_home)
        self._clients[client] = known
        self._step(shape)
        if not known.nodes and (not self._has_head or now < shape.offered_at + CALM_SECONDS):
            self._spread(shape, shape.remembered(), [known])
        self._stranded.look_at(known, now)

    def on_kind_dropped(self, client: int, kind: int) -> None:
        """A client has nothing more of a kind."""
        known = self._clients.get(client)
        if known is not None:
            self._drop_want(known, kind)

    def on_client_left(self, client: int) -> None:
        """A client or worker has ended."""
        left = self._clients.get(client)
        if left is None:
            return
        left.nodes.clear()
        for kind in list(left.places):
            self._drop_want(left, kind)
        self._clients.pop(client, None)
        self._stranded.look_at(left, self._now)

    def on_connected(self, client: int, node: int) -> None:
        """A client may send tasks to a further node."""
        known = self._clients.get(client)
        if known is None:
            known = self._clients[client] = Client(client)
        known.nodes[node] = CONNECTED
        self._stranded.look_at(known, self._now)

    def on_disconnected(self, client: int, node: int) -> None:
        """A client's session with a node is over, or has not come about. It may get another one a little later."""
        known = self._clients.get(client)
        if known is not None and node in known.nodes:
            known.nodes[node] = self._now + CALM_SECONDS
            self._tidy(known)

    def on_node_gone(self, node: int) -> None:
        """A node is no member any more."""
        for shape in self._shapes.values():
            shape.offers.pop(node, None)
        for client in list(self._clients.values()):
            client.nodes.pop(node, None)
            self._tidy(client)

    # -- the head

    def on_offers(self, request: int, offers: Iterable[Offer], now: float) -> None:
        """The head names nodes with room for what a request asked about."""
        self._now = now
        shape = self._requests.get(request)
        if shape is None:
            self.counts["late_offers"] += 1
            return
        named = [(node, address, room) for node, address, room in offers if node != self._node and room > 0]
        is_first = request == shape.request and not shape.is_answered
        shape.is_answered = shape.is_answered or is_first
        shape.take_offers(named, is_new=is_first)
        shape.offered_at = shape.used_at = now
        self._spread(shape, named, shape.wants)

    def on_never(
        self, request: int, asked: Mapping[str, int], totals: Sequence[Mapping[str, int]], pythons: Sequence[str]
    ) -> None:
        """The head says that no node can ever run what a request asked about, and has closed the question.

        A node that drains does not count for the head, but goes on with what its own tasks wait for.
        """
        shape = self._requests.get(request)
        if shape is None or request != shape.request:
            self.counts["late_never"] += 1
            return
        self._note_asked(shape, 0)
        shape.offers.clear()
        shape.quiet_until = self._now + CALM_SECONDS
        for client, kind in shape.drop_away():
            self._commands.append(Refuse(client.id, kind, asked, totals, pythons))
            self._tidy(client)
        self._forget_idle()

    def on_try_later(self, request: int, now: float) -> None:
        """The head has dropped a request: its table is full."""
        self._now = now
        shape = self._requests.get(request)
        if shape is None or request != shape.request:
            self.counts["late_try_later"] += 1
            return
        self._note_asked(shape, 0)
        shape.quiet_until = now + CALM_SECONDS

    def on_head_up(self, now: float) -> None:
        """The head has registered this node, for the first time or anew: it knows of nothing that was asked before."""
        self._now = now
        self._has_head = True
        self._forget_questions()
        for shape in list(self._shapes.values()):
            self._step(shape)

    def on_head_down(self, now: float) -> None:
        """The link to the head is broken: until it is back the last answers are used."""
        self._now = now
        self._has_head = False
        self._forget_questions()
        for shape in list(self._shapes.values()):
            self._step(shape)

    def on_timer(self, now: float) -> None:
        """Say and try what is due."""
        self._now = now
        for shape in list(self._shapes.values()):
            self._step(shape)
        for client in list(self._clients.values()):
            self._tidy(client)
        for client in self._stranded.take(now):
            self._commands.append(Stay(client.id, [shape.needs for shape in dict.fromkeys(client.away.values())]))

    # -- what follows

    def _next_step(self, shape: Shape) -> float | None:
        if self._has_head:
            at = shape.next_word()
            is_barred = at is not None and not shape.asked and self._standing >= SHAPES_PER_NODE
            return None if is_barred else at
        return shape.used_at + CALM_SECONDS if shape.waiting and shape.offers else None

    def _step(self, shape: Shape) -> None:
        """Do what is due for a shape: tell the head, or where there is none use its last answer again."""
        at = self._next_step(shape)
        if at is None or at > self._now:
            return
        if self._has_head:
            self._tell(shape)
        else:
            shape.used_at = self._now
            self._spread(shape, shape.remembered(), shape.wants)

    def _tell(self, shape: Shape) -> None:
        """Put the question of a shape, or put it once more as it was when it has not been answered."""
        if shape.waiting != shape.asked or shape.is_answered:
            self._last_request += 1
            self._requests.pop(shape.previous, None)
            shape.previous, shape.request = shape.request, self._last_request
            self._requests[shape.request] = shape
        self._note_asked(shape, shape.waiting)
        shape.asked_at = self._now
        shape.is_answered = False
        self._commands.append(AskRoom(shape.request, shape.needs, shape.key[0], shape.waiting))
        self._forget_idle()

    def _note_asked(self, shape: Shape, figure: int) -> None:
        self._standing += bool(figure) - bool(shape.asked)
        shape.asked = figure

    def _spread(self, shape: Shape, offers: Iterable[Offer], clients: Iterable[Client]) -> None:
        """Send who waits to nodes with room: first who has fewest nodes, then who waits most, and then in turns."""
        sums = [(client, sum(shape.wants[client].values())) for client in clients]
        unmet = dict(sorted(sums, key=lambda pair: (len(pair[0].nodes), -pair[1])))
        for node, address, room in offers:
            free = (client for client in unmet if client.nodes.get(node, 0.0) <= self._now)
            takers = list(islice(free, room))
            for at, taker in enumerate(takers):
                waiting = unmet.pop(taker)
                part = min(waiting, -(-room // (len(takers) - at)))
                room -= part
                if part < waiting:
                    unmet[taker] = waiting - part
                taker.nodes[node] = self._now + CONNECT_SECONDS
                self._stranded.look_at(taker, self._now)
                self._commands.append(Connect(taker.id, node, address))

    def _drop_want(self, client: Client, kind: int) -> None:
        shape = client.places.get(kind)
        if shape is not None:
            shape.drop(client, kind)
            self._step(shape)
            self._forget_idle()
        self._tidy(client)

    def _tidy(self, client: Client) -> None:
        """Forget what no longer matters of a client, and a client of which nothing is left."""
        for node in [node for node, until in client.nodes.items() if until <= self._now]:
            del client.nodes[node]
        if not client.nodes and not client.places:
            self._clients.pop(client.id, None)
        self._stranded.look_at(client, self._now)

    def _forget_questions(self) -> None:
        for shape in self._shapes.values():
            self._note_asked(shape, 0)
            shape.asked_at = self._now - CALM_SECONDS
            shape.quiet_until = 0.0
        self._requests.clear()
        self._forget_idle()

    def _forget_idle(self) -> None:
        idle = [shape for shape in self._shapes.values() if not shape.waiting and not shape.asked]
        for shape in idle[:-KEPT_SHAPES]:
            del self._shapes[shape.key]
            self._requests.pop(shape.request, None)
            self._requests.pop(shape.previous, None)

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold; for tests."""
        counted: dict[tuple[int, int], Shape] = {}
        idle = standing = 0
        for key, shape in self._shapes.items():
            assert shape.key == key and self._node not in shape.offers
            shape.check()
            idle += not shape.waiting and not shape.asked
            standing += bool(shape.asked)
            for client, kinds in shape.wants.items():
                for kind in kinds:
                    counted[client.id, kind] = shape
        assert idle <= KEPT_SHAPES and self._standing == standing <= SHAPES_PER_NODE
        self._stranded.check(self._clients)
        for client in self._clients.values():
            assert client.nodes or client.places, "a client without anything"
            for kind, place in client.places.items():
                assert counted.pop((client.id, kind), None) is place, f"kind {kind} waits elsewhere"
            assert client.away.items() <= client.places.items(), "kinds that do not wait, or wait elsewhere"
        assert not counted, f"kinds wait of which their clients do not know: {counted}"
        for request, shape in self._requests.items():
            assert request in (shape.request, shape.previous) and self._shapes.get(shape.key) is shape
