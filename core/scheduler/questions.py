"""The head's tables of questions about room: who waits where for what.

A *shape* is a Python minor and a demand. A node's question about a shape stands until the node says that nothing of
that shape waits there, or is gone. It is *unanswered* while no node is named in its answer, *open* while the room
offered is less than what waits, and *satisfied* otherwise.

Collections and their invariants:

- ``Shape.questions``: all of a shape by asker; ``unanswered`` and ``open`` hold those in these states, next one first.
- ``_hungry``: per Python minor the shapes with one of either, next one first.
- ``_askers``: the same questions by asker and shape.
- ``Question.named``: the last nodes offered, with the room; each of them has the question among its ``takers``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from .capacity import Host, needs_of
from .resources import Demand

#: Nodes named to one who asks: sessions are opened to all of them. The law's number.
NAMED_NODES = 32

#: Open questions of a shape that are looked at when a node has room; those that know the node already are passed over.
#: Larger finds a taker sooner, and costs some 0.1 µs each at every beat of a node with room.
TRIED_QUESTIONS = 8

Key = tuple[str, Demand]


class Shape:
    """What tasks of one sort need, and who asks where they find it."""

    __slots__ = ("demand", "is_meetable", "needs", "open", "python", "questions", "unanswered")

    def __init__(self, python: str, demand: Demand, is_meetable: bool) -> None:
        self.python = python
        self.demand = demand
        self.needs = needs_of(demand)
        self.is_meetable = is_meetable
        self.questions: dict[int, Question] = {}
        self.unanswered: dict[Question, None] = {}
        self.open: dict[Question, None] = {}


class Question:
    """One node's standing question about one shape; ``offered`` counts room, also of nodes no longer in ``named``."""

    __slots__ = ("asked", "asker", "named", "offered", "request", "shape", "waiting")

    def __init__(self, asker: int, shape: Shape) -> None:
        self.asker = asker
        self.shape = shape
        self.asked: Mapping[str, int] = {}
        self.request = 0
        self.waiting = 0
        self.offered = 0
        self.named: dict[Host, int] = {}

    @property
    def missing(self) -> int:
        """So many more tasks wait than there was room offered for."""
        return max(0, self.waiting - self.offered)


class Questions:
    """All standing questions, and whose turn it is."""

    __slots__ = ("_askers", "_hungry", "shapes")

    def __init__(self) -> None:
        self.shapes: dict[Key, Shape] = {}
        self._askers: dict[int, dict[Shape, Question]] = {}
        self._hungry: dict[str, dict[Shape, None]] = {}

    def of(self, asker: int) -> list[Question]:
        """The questions of one node."""
        return list(self._askers.get(asker, {}).values())

    def open(self, asker: int, shape: Shape) -> Question:
        """Enter a question for which nothing waits yet."""
        question = shape.questions[asker] = Question(asker, shape)
        self._askers.setdefault(asker, {})[shape] = question
        return question

    def ask_again(self, question: Question, request: int, asked: Mapping[str, int], waiting: int) -> None:
        """Take a new figure; what was offered before does not count any more."""
        for host in question.named:
            del host.takers[question]
        question.named = {}
        question.offered = 0
        question.request, question.asked, question.waiting = request, asked, waiting
        self._file(question)

    def close(self, question: Question) -> None:
        """Strike off a question."""
        self.ask_again(question, question.request, {}, 0)
        shape, asker = question.shape, question.asker
        del shape.questions[asker]
        del self._askers[asker][shape]
        if not self._askers[asker]:
            del self._askers[asker]
        if not shape.questions:
            del self.shapes[shape.python, shape.demand]

    def name(self, question: Question, host: Host, room: int) -> None:
        """Count so much room as offered to a question; of the nodes named before, the oldest is forgotten."""
        named = question.named
        named[host] = named.pop(host, 0) + room
        host.takers[question] = None
        question.offered += room
        if len(named) > NAMED_NODES:
            oldest = next(iter(named))
            del named[oldest]
            del oldest.takers[question]
        self._file(question)

    def forget_host(self, host: Host) -> list[Question]:
        """Take back what was offered of a node that is gone; return the questions to which it was offered."""
        takers = list(host.takers)
        for question in takers:
            question.offered -= question.named.pop(host)
            self._file(question)
        host.takers.clear()
        return takers

    def hungry_shapes(self, python: str) -> list[Shape]:
        """The shapes of a minor with unanswered or open questions, next one first."""
        return list(self._hungry.get(python, ()))

    def note_turn(self, shape: Shape) -> None:
        """Let the other hungry shapes go first next time."""
        hungry = self._hungry[shape.python]
        del hungry[shape]
        hungry[shape] = None

    def next_taker(self, shape: Shape, host: Host) -> Question | None:
        """Whose turn it is to be told of a node: unanswered ones first, then some that do not know the node."""
        for question in islice(shape.unanswered, 2):
            if question.asker != host.node:
                return question
        for question in list(islice(shape.open, TRIED_QUESTIONS)):
            if question.asker != host.node and host not in question.named:
                return question
            del shape.open[question]
            shape.open[question] = None
        return None

    def _file(self, question: Question) -> None:
        """Put a question, or its shape, where its state belongs, behind the others."""
        shape = question.shape
        shape.unanswered.pop(question, None)
        shape.open.pop(question, None)
        if question.offered < question.waiting:
            (shape.open if question.named else shape.unanswered)[question] = None
        if shape.unanswered or shape.open:
            self._hungry.setdefault(shape.python, {}).setdefault(shape)
        elif (hungry := self._hungry.get(shape.python)) is not None:
            hungry.pop(shape, None)
            if not hungry:
                del self._hungry[shape.python]

    def all(self) -> Iterator[Question]:
        """All questions."""
        return (question for shape in self.shapes.values() for question in shape.questions.values())

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        everything = set(self.all())
        assert everything == {question for asked in self._askers.values() for question in asked.values()}
        assert all(self._askers.values()) and all(shape.questions for shape in self.shapes.values())
        for question in everything:
            shape = question.shape
            is_short = question.offered < question.waiting
            assert (question in shape.unanswered) == (is_short and not question.named)
            assert (question in shape.open) == (is_short and bool(question.named))
            assert question.offered >= sum(question.named.values()) and len(question.named) <= NAMED_NODES
            assert all(question in host.takers for host in question.named)
            assert question.waiting > 0 and self._askers[question.asker][shape] is question
        hungry = {shape for shapes in self._hungry.values() for shape in shapes}
        assert hungry == {shape for shape in self.shapes.values() if shape.unanswered or shape.open}
        assert all(self._hungry.values())
