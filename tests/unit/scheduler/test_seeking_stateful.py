"""A random walk over the machine that seeks room, with a model of the head, of clients and of their sessions."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outboard.scheduler.resources import Demand
from outboard.scheduler.seeking import AskRoom, Connect, Refuse, Seeking, Stay
from outboard.scheduler.wants import CALM_SECONDS, HASTY_SECONDS

ME = 1
NODES = [2, 3, 4, 5]
NEEDS = [{"CPU": 1}, {"CPU": 2}, {"CPU": 1, "GPU": 1}]
PYTHON = "3.12"


def is_home(client: int, needs: dict[str, int]) -> bool:
    """Whether the own node takes such tasks: not those of client 9, as while it drains."""
    return "GPU" not in needs and client != 9


class SeekingMachine(RuleBasedStateMachine):
    """The head knows one question a demand; its words may be lost with the link, and arrive late."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Seeking(ME)
        self.now = 0.0
        self.has_head = False
        self.questions: dict[Demand, tuple[int, int]] = {}
        self.said: dict[Demand, tuple[int, int]] = {}
        self.said_at: dict[Demand, float] = {}
        self.answers: list[tuple[str, int, list[tuple[int, str, int]]]] = []
        self.wants: dict[tuple[int, int], tuple[dict[str, int], int]] = {}
        self.sessions: set[tuple[int, int]] = set()
        self.coming: dict[tuple[int, int], float] = {}
        self.members = set(NODES)
        self.last_request = 0

    # -- the driver's part

    def obey(self) -> None:
        for command in self.machine.take_commands():
            match command:
                case AskRoom(request, needs, python, waiting):
                    self.hear(request, Demand.of(needs), waiting)
                    assert python == PYTHON
                case Connect(client, node, address):
                    assert (client, node) not in self.sessions, "a second session"
                    assert self.coming.get((client, node), -1.0) <= self.now, "the session is coming already"
                    assert node in self.members and address == f"host{node}"
                    assert any(c == client for c, _ in self.wants), "a client that does not wait"
                    self.coming[client, node] = self.now + 5.0
                case Refuse(client, kind):
                    needs, _ = self.wants.pop((client, kind))
                    assert not is_home(client, needs), "refused what runs at its own node"
                case Stay(client, needs_of_all):
                    theirs = [needs for (c, _), (needs, _) in self.wants.items() if c == client]
                    assert needs_of_all and all(needs in theirs for needs in needs_of_all)
                    assert not any(is_home(client, needs) for needs in needs_of_all)
                    assert not any(c == client for c, _ in self.sessions), "a client that has somewhere to go"

    def hear(self, request: int, demand: Demand, waiting: int) -> None:
        assert self.has_head, "the head is not there"
        _, before = self.questions.get(demand, (0, 0))
        is_repeated = self.said.get(demand) == (request, waiting)
        assert is_repeated or request > self.last_request, "an old number for a new question"
        assert self.now - self.said_at.get(demand, -1.0) >= HASTY_SECONDS - 1e-9, "too many words"
        if before and waiting and before < 2 * waiting and waiting < 2 * before:
            assert self.now - self.said_at[demand] >= CALM_SECONDS - 1e-9, "a small change is not urgent"
        self.said[demand] = request, waiting
        self.said_at[demand] = self.now
        self.last_request = max(request, self.last_request)
        if waiting:
            self.questions[demand] = request, waiting
        else:
            self.questions.pop(demand, None)

    def waiting(self, demand: Demand) -> int:
        return sum(figure for needs, figure in self.wants.values() if Demand.of(needs) == demand)

    # -- clients

    @rule(client=st.sampled_from([7, 8, 9]), kind=st.integers(0, 3), figure=st.sampled_from([0, 1, 2, 3, 10, 100, 999]))
    def want(self, client: int, kind: int, figure: int) -> None:
        needs = NEEDS[kind % 3]
        if figure:
            self.wants[client, kind] = needs, figure
        else:
            self.wants.pop((client, kind), None)
        self.machine.on_want(client, kind, needs, PYTHON, figure, self.now, is_home=is_home(client, needs))
        self.obey()

    @precondition(lambda self: self.wants)
    @rule(data=st.data())
    def drop_kind(self, data: st.DataObject) -> None:
        client, kind = data.draw(st.sampled_from(sorted(self.wants)))
        del self.wants[client, kind]
        self.machine.on_kind_dropped(client, kind)
        self.obey()

    @rule(client=st.sampled_from([7, 8, 9]))
    def leave(self, client: int) -> None:
        self.wants = {key: want for key, want in self.wants.items() if key[0] != client}
        self.sessions = {key for key in self.sessions if key[0] != client}
        self.coming = {key: until for key, until in self.coming.items() if key[0] != client}
        self.machine.on_client_left(client)
        self.obey()

    @precondition(lambda self: self.coming)
    @rule(data=st.data(), is_well=st.booleans())
    def connect(self, data: st.DataObject, is_well: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.coming)))
        del self.coming[key]
        if is_well and key[1] in self.members:
            self.sessions.add(key)
            self.machine.on_connected(*key)
        else:
            self.machine.on_disconnected(*key)
        self.obey()

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.sessions)))
        self.sessions.discard(key)
        self.machine.on_disconnected(*key)
        self.obey()

    # -- the head

    @rule()
    def come(self) -> None:
        """The head is there, or there anew, and knows nothing."""
        self.has_head = True
        self.questions = {}
        self.said_at = {}
        self.answers = []
        self.machine.on_head_up(self.now)
        self.obey()
        assert {d: w for d, (_, w) in self.questions.items()} == {
            d: self.waiting(d) for d in map(Demand.of, NEEDS) if self.waiting(d)
        }

    @precondition(lambda self: self.has_head)
    @rule()
    def go(self) -> None:
        self.has_head = False
        self.questions = {}
        self.said_at = {}
        self.answers = []
        self.machine.on_head_down(self.now)
        self.obey()

    @precondition(lambda self: self.questions)
    @rule(data=st.data(), rooms=st.lists(st.tuples(st.sampled_from([ME, *NODES]), st.integers(1, 20)), max_size=3))
    def answer(self, data: st.DataObject, rooms: list[tuple[int, int]]) -> None:
        demand = data.draw(st.sampled_from(sorted(self.questions)))
        offers = [(node, f"host{node}", room) for node, room in rooms if node == ME or node in self.members]
        self.answers.append(("offers", self.questions[demand][0], offers))

    @precondition(lambda self: self.questions)
    @rule(data=st.data(), what=st.sampled_from(["never", "later"]))
    def turn_away(self, data: st.DataObject, what: str) -> None:
        """The head closes a question, or does not take it."""
        demand = data.draw(st.sampled_from(sorted(self.questions)))
        request, _ = self.questions.pop(demand)
        self.answers.append((what, request, []))

    @precondition(lambda self: self.answers)
    @rule(is_lost=st.sampled_from([False, False, False, True]))
    def arrive(self, is_lost: bool) -> None:
        what, request, offers = self.answers.pop(0)
        if what == "later":
            self.machine.on_try_later(request, self.now)
        elif what == "never":
            self.machine.on_never(request, NEEDS[0], [], [PYTHON])
        elif not is_lost:
            offers = [offer for offer in offers if offer[0] == ME or offer[0] in self.members]
            self.machine.on_offers(request, offers, self.now)
        self.obey()

    @precondition(lambda self: len(self.members) > 1)
    @rule(data=st.data())
    def strike(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.members)))
        self.members.discard(node)
        self.machine.on_node_gone(node)
        self.sessions = {key for key in self.sessions if key[1] != node}
        self.coming = {key: until for key, until in self.coming.items() if key[1] != node}
        self.obey()

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.3, 1.0, 6.0]))
    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        for _ in range(10_000):
            due = self.machine.due
            if due is None or due > until:
                break
            self.now = max(self.now, due)
            self.machine.on_timer(self.now)
            self.obey()
        else:
            raise AssertionError("the timer does not come to rest")
        self.now = until
        self.machine.on_timer(self.now)
        self.obey()

    # -- what must hold

    @invariant()
    def check(self) -> None:
        self.machine.check()

    def teardown(self) -> None:
        """In quiet times the head knows the right figures, and whoever waits is sent to the nodes there are."""
        self.come()
        self.wait(2.0)
        for demand in map(Demand.of, NEEDS):
            assert self.questions.get(demand, (0, 0))[1] == self.waiting(demand)
        self.wait(6.0)
        self.coming.clear()
        for client in {client for client, _ in self.wants}:
            for node in self.members:
                for demand in {Demand.of(needs) for (c, _), (needs, _) in self.wants.items() if c == client}:
                    self.machine.on_offers(self.questions[demand][0], [(node, f"host{node}", 10_000)], self.now)
                    self.obey()
                assert (client, node) in self.sessions or (client, node) in self.coming
        for client in (7, 8, 9):
            self.leave(client)
        self.wait(1.0)
        assert not self.questions and self.machine.due is None
        self.machine.check()


SeekingMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRandomWalk = pytest.mark.timeout(120)(SeekingMachine.TestCase)
