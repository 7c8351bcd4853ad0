"""Room elsewhere for the tasks that wait at nodes: one figure per shape asked, answered at once or when room appears.

A node that finds room (it joins, or says that something is free) is offered to unanswered questions first, then to
open ones, in turns; a question that loses a node counts that room as not offered. What no node can ever meet is
refused, and waits only where there is no node at all, or where one that could was lost a moment ago.

While answers are given, an unanswered question about what can be met means that no other node has room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .capacity import Capacity, Host
from .cluster_commands import Command, Offer, RoomAnswer, RoomRefused, TryLater
from .questions import NAMED_NODES, Question, Questions, Shape
from .resources import Demand

#: Shapes of tasks that one node may ask about at a time. Each costs about 1 kB here and a few µs at beats of nodes.
SHAPES_PER_NODE = 64

#: How long what only a lost node could meet waits for it to come back as a new incarnation, in awake seconds. Smaller
#: fails tasks while a machine starts again, larger lets them wait for one that does not.
REJOIN_SECONDS = 10.0

#: Different totals that a refusal lists: enough for people.
TOTALS_TOLD = 8


class RoomView(NamedTuple):
    """What waits of one shape, for people: so many tasks at so many nodes, some of which were named no node yet."""

    python: str
    demand: Demand
    askers: int
    tasks: int
    unanswered: int


class Room:
    """Part of the head's machine: finds room for those who ask. ``awake`` is the head's time in seconds."""

    __slots__ = ("_commands", "_counts", "_is_answering", "_questions", "capacity")

    def __init__(self, commands: list[Command], counts: Counter[str]) -> None:
        self.capacity = Capacity()
        self._commands = commands
        self._counts = counts
        self._is_answering = False
        self._questions = Questions()

    def start_answering(self, awake: float) -> None:
        """Answer what has been asked so far, and all that comes, from now on."""
        self._is_answering = True
        for question in list(self._questions.all()):
            self._consider(question, awake)

    def ask(
        self, asker: int, request: int, python: str, resources: Mapping[str, int], waiting: int, awake: float
    ) -> None:
        """Take a node's word how many tasks of a shape wait there for room: an absolute figure, 0 closes the question.

        A request that is repeated gets the last answer again; one older than the last is dropped.
        """
        demand = Demand.of(resources)
        shape = self._questions.shapes.get((python, demand))
        question = shape.questions.get(asker) if shape is not None else None
        if question is None:
            if not waiting:
                return
            if len(self._questions.of(asker)) >= SHAPES_PER_NODE:
                self._commands.append(TryLater(asker, request))
                return
            question = self._questions.open(asker, shape or self._add_shape(python, demand))
        elif request < question.request:
            self._counts["late_wanted"] += 1
            return
        elif not waiting:
            self._questions.close(question)
            return
        elif request == question.request:
            self._tell(question, question.named.items())
            return
        self._questions.ask_again(question, request, resources, waiting)
        self._consider(question, awake)

    def drop_asker(self, asker: int) -> None:
        """Close all questions of a node."""
        for question in self._questions.of(asker):
            self._questions.close(question)

    def on_hosts_added(self, hosts: list[Host], awake: float) -> None:
        """Tell those who wait for room that these nodes take work from now on."""
        for shape in [shape for shape in self._questions.shapes.values() if not shape.is_meetable]:
            shape.is_meetable = self.capacity.can_meet(shape.python, shape.demand)
        self._refuse_unmeetable()  # the first nodes of all may be wrong ones
        for host in hosts:
            self.offer(host, awake)

    def offer(self, host: Host, awake: float) -> None:
        """Offer what is left of a node to those who wait for it."""
        if not self._is_answering:
            return
        questions = self._questions
        for shape in questions.hungry_shapes(host.group.python):
            room = host.room(shape.needs)
            if not room:
                continue
            questions.note_turn(shape)
            while room and (question := questions.next_taker(shape, host)) is not None:
                self._answer(question, [(host, min(room, question.missing))], awake)
                room = host.room(shape.needs)

    def remove_host(self, host: Host, awake: float, *, is_lost: bool) -> None:
        """Strike off a node that takes no more work: those sent there are sent elsewhere, or told that nothing is."""
        takers = self._questions.forget_host(host)
        if self.capacity.remove(host, awake + REJOIN_SECONDS if is_lost else 0.0):
            self._review()
        for question in takers:
            if question.missing:
                self._consider(question, awake)

    def expire(self, awake: float) -> None:
        """Refuse what only nodes could meet that are not waited for any more."""
        if self.capacity.expire_groups(awake):
            self._review()

    def views(self) -> list[RoomView]:
        """What waits, by shape."""
        return [
            RoomView(
                shape.python,
                shape.demand,
                len(shape.questions),
                sum(question.waiting for question in shape.questions.values()),
                len(shape.unanswered),
            )
            for shape in self._questions.shapes.values()
        ]

    def askers(self) -> set[int]:
        """The nodes with standing questions."""
        return {question.asker for question in self._questions.all()}

    def _add_shape(self, python: str, demand: Demand) -> Shape:
        shape = Shape(python, demand, self.capacity.can_meet(python, demand))
        self._questions.shapes[python, demand] = shape
        return shape

    def _review(self) -> None:
        """Look again at what can be met: there are fewer sorts of nodes than there were."""
        for shape in self._questions.shapes.values():
            shape.is_meetable = shape.is_meetable and self.capacity.can_meet(shape.python, shape.demand)
        self._refuse_unmeetable()

    def _refuse_unmeetable(self) -> None:
        if self._is_answering and self.capacity.has_hosts:
            for shape in [shape for shape in self._questions.shapes.values() if not shape.is_meetable]:
                for question in list(shape.questions.values()):
                    self._refuse(question)

    def _consider(self, question: Question, awake: float) -> None:
        """Answer a question with the room there is now, or refuse it, or let it wait."""
        shape = question.shape
        if not self._is_answering or (not shape.is_meetable and not self.capacity.has_hosts):
            return
        if not shape.is_meetable:
            self._refuse(question)
            return
        chosen = self.capacity.choose(shape.python, shape.needs, question.missing, question.asker, NAMED_NODES)
        if chosen:
            self._answer(question, chosen, awake)

    def _answer(self, question: Question, chosen: list[tuple[Host, int]], awake: float) -> None:
        for host, room in chosen:
            self.capacity.promise(host, question.shape.needs, room, awake)
            self._questions.name(question, host, room)
        self._tell(question, chosen)

    def _tell(self, question: Question, named: Iterable[tuple[Host, int]]) -> None:
        offers = tuple(Offer(host.node, host.address, room) for host, room in named)
        if offers:
            self._commands.append(RoomAnswer(question.asker, question.request, offers))

    def _refuse(self, question: Question) -> None:
        python, capacity = question.shape.python, self.capacity
        asked = {name: amount for name, amount in question.asked.items() if amount}
        self._commands.append(
            RoomRefused(
                question.asker,
                question.request,
                python,
                asked,
                capacity.pythons(),
                capacity.totals(python, TOTALS_TOLD),
            )
        )
        self._questions.close(question)

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        self.capacity.check()
        self._questions.check()
        for shape in self._questions.shapes.values():
            assert shape.is_meetable == self.capacity.can_meet(shape.python, shape.demand), shape.demand
            if not self._is_answering:
                assert all(not question.named for question in shape.questions.values())
                continue
            assert shape.is_meetable or not self.capacity.has_hosts, f"{shape.demand} can never be met"
            for question in shape.unanswered:
                missed = self.capacity.choose(shape.python, shape.needs, 1, question.asker, 1)
                assert not missed, f"{question.asker:x} waits although {missed[0][0].node:x} has room"
