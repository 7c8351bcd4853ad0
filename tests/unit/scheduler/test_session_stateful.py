"""A random walk over owners and nodes that talk over a network which breaks in every way it may.

A path is two ordered streams. Each may stall, be cut without a word, lose frames in a relay, or end, which its two ends
learn at different times. Ends sleep and go on with stale input, restart under their old address, give up, are struck
off. Whatever happens, each message is taken once and in order, or the session ends at both ends, once at each.

Then faults end: what was cut stays cut, but a new dial gets a good path. Everything must settle within the time after
which a silent owner is given up, and with nothing in use nothing may be left.
"""

from __future__ import annotations

from collections import defaultdict, deque
from math import inf
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from outboard.scheduler import session as session_module
from outboard.scheduler import session_window, sessions
from outboard.scheduler.session import Session
from outboard.scheduler.session_books import IDLE_SECONDS, LOOK_SECONDS, SILENCE_SECONDS
from outboard.scheduler.session_words import (
    Deliver,
    Dial,
    Header,
    Role,
    SendFrame,
    SessionClosed,
    SessionLost,
    SessionName,
    SessionOpened,
    SetTimer,
    Word,
)
from outboard.scheduler.sessions import Sessions

SMALL = {"WINDOW_FRAMES": 4, "WINDOW_NBYTES": 40, "ACK_FRAMES": 2, "ACK_NBYTES": 20}

Frame = tuple[Header, int, bytes]


class Stream:
    """One direction of a path."""

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self.is_cut = False  # nothing more comes through
        self.is_known = False  # the sending end has been told


class Path:
    """Two streams between two addresses, by the role of who reads them."""

    def __init__(self, number: int, owner: Process, node: Process) -> None:
        self.number = number
        self.ends = {Role.OWNER: owner, Role.NODE: node}
        self.to = {Role.OWNER: Stream(), Role.NODE: Stream()}


class Process:
    """Whoever lives at an address: a machine, its timer, and what the model knows of each session at this end."""

    def __init__(self, role: Role, incarnation: int) -> None:
        self.role = role
        self.start(incarnation)

    def start(self, incarnation: int) -> None:
        self.me = incarnation
        self.machine = Sessions(self.role, incarnation)
        self.timer = inf
        self.asleep_until = 0.0
        self.sent: dict[SessionName, list[bytes]] = defaultdict(list)
        self.taken: dict[SessionName, list[bytes]] = defaultdict(list)
        self.on_the_way: dict[SessionName, dict[int, bytes]] = defaultdict(dict)  # sent, not acknowledged
        self.had: set[SessionName] = set()
        self.ended: dict[SessionName, Any] = {}
        self.dials: list[Dial] = []

    @property
    def sessions(self) -> list[Session]:
        return list(self.machine._sessions.values())


class SessionsMachine(RuleBasedStateMachine):
    @initialize(remembered=st.sampled_from([0, 1, 10]), owners=st.integers(0, 2))
    def begin(self, remembered: int, owners: int) -> None:
        self.patches = pytest.MonkeyPatch()
        for module in (session_window, session_module):
            for name, value in SMALL.items():
                self.patches.setattr(module, name, value, raising=module is session_window)
        self.patches.setattr(sessions, "REMEMBERED", remembered)
        self.now = 100.0
        self.incarnations = 0
        self.owners = [Process(Role.OWNER, self.incarnation()) for _ in range(2)]
        self.nodes = [Process(Role.NODE, self.incarnation()) for _ in range(2)]
        self.everyone = [*self.owners, *self.nodes]
        self.paths: list[Path] = []
        self.messages = 0
        for owner in self.owners[:owners]:
            owner.had.add(owner.machine.open(self.nodes[0].me, self.now).name)
            self.obey(owner)
        self.settle(0.01)
        for _, session in self.ends():
            session.set_in_use(True, self.now)

    def incarnation(self) -> int:
        self.incarnations += 1
        return self.incarnations

    # -- the drivers

    def obey(self, process: Process) -> None:
        process.machine.check(self.now)
        for command in process.machine.take_commands():
            match command:
                case SendFrame(path, header, frame_type, body):
                    self.put_on_path(process, path, header, frame_type, body)
                case Deliver(name, _, body):
                    self.take(process, name, body)
                case Dial():
                    process.dials = [d for d in process.dials if d.name != command.name] + [command]
                case SessionOpened(name):
                    assert process.role is Role.NODE and name not in process.had, "opened twice"
                    process.had.add(name)
                case SessionLost() | SessionClosed():
                    self.end(process, command)
                case SetTimer(due):
                    assert due >= self.now, "a timer in the past"
                    process.timer = due

    def put_on_path(self, process: Process, number: int, header: Header, frame_type: int, body: bytes) -> None:
        out = process.on_the_way[header.name]
        if header.word < Word.OPEN:
            assert out.setdefault(header.seq, body) == body, "a number was used twice"
            assert len(out) <= SMALL["WINDOW_FRAMES"], "the window of frames"
            assert sum(map(len, out.values())) <= SMALL["WINDOW_NBYTES"] or len(out) == 1, "the window of bytes"
        for path in self.paths:
            if path.number == number and path.ends[process.role] is process:
                stream = path.to[Role.NODE if process.role is Role.OWNER else Role.OWNER]
                if not stream.is_cut:
                    stream.frames.append((header, frame_type, body))

    def peer(self, process: Process, name: SessionName) -> Process | None:
        """Who is at the other end, if that incarnation still lives."""
        wanted = name.node if process.role is Role.OWNER else name.owner
        return next((other for other in self.everyone if other.me == wanted), None)

    def take(self, process: Process, name: SessionName, body: bytes) -> None:
        assert name not in process.ended, "delivered after the end"
        taken = process.taken[name]
        taken.append(body)
        peer = self.peer(process, name)
        if peer is not None:
            assert peer.sent[name][: len(taken)] == taken, "lost, repeated or out of order"

    def end(self, process: Process, command: SessionLost | SessionClosed) -> None:
        name = command.name
        assert name in process.had and name not in process.ended, "ended twice"
        process.ended[name] = command
        sent = process.sent[name]
        unsent = [message.body for message in command.unsent]
        assert sent[len(sent) - len(unsent) :] == unsent, "not the last ones are unsent"
        peer = self.peer(process, name)
        if peer is None:
            return
        taken = peer.taken[name]
        assert len(taken) <= len(sent) - len(unsent), "what was taken is called unsent"
        if isinstance(command, SessionClosed):
            assert taken == sent[: len(sent) - len(unsent)], "closed before all was taken"

    def frame_arrives(self, path: Path, role: Role) -> None:
        process = path.ends[role]
        header, frame_type, body = path.to[role].frames.popleft()
        out = process.on_the_way[header.name]
        for seq in [seq for seq in out if seq < header.expects]:
            del out[seq]
        process.machine.on_frame(path.number, header, frame_type, body, self.now)
        self.obey(process)

    def break_stream(self, path: Path, role: Role, keep: int) -> None:
        stream = path.to[role]
        stream.is_cut = True
        while len(stream.frames) > keep:
            stream.frames.pop()

    def tell_end(self, path: Path, role: Role) -> None:
        """One end learns that the path has ended; it reads nothing more from it, nor can anything be sent."""
        self.break_stream(path, role, 0)
        self.break_stream(path, Role.NODE if role is Role.OWNER else Role.OWNER, 99)
        path.to[role].is_known = True
        process = path.ends[role]
        process.machine.on_path_down(path.number, self.now)
        self.obey(process)

    def resolve(self, owner: Process, dial: Dial, outcome: str) -> None:
        owner.dials.remove(dial)
        node = next((n for n in self.nodes if n.me == dial.name.node), None)
        if outcome == "refused" and node is not None:
            outcome = "failed"
        if outcome == "failed":
            owner.machine.on_dial_failed(dial.name, dial.dial, self.now)
        elif outcome == "refused":
            owner.machine.on_dial_refused(dial.name, dial.dial, self.now)
        else:
            place = node or self.nodes[0]  # another incarnation lives there
            path = None
            if outcome == "same":
                ours = [p for p in self.paths if p.ends == {Role.OWNER: owner, Role.NODE: place}]
                path = next((p for p in reversed(ours) if not any(s.is_cut for s in p.to.values())), None)
            if path is None:
                path = Path(len(self.paths) + 1, owner, place)
                self.paths.append(path)
            owner.machine.on_path_up(dial.name, dial.dial, path.number, self.now)
        self.obey(owner)

    def advance(self, seconds: float) -> None:
        target = self.now + seconds
        while True:
            at, process = min(
                ((max(p.timer, p.asleep_until, self.now), p) for p in self.everyone), key=lambda pair: pair[0]
            )
            if at > target:
                break
            self.now = at
            self.fire(process)
        self.now = target

    def fire(self, process: Process) -> None:
        due, process.timer = process.timer, inf
        assert self.now >= due
        process.machine.on_timer(self.now)
        process.asleep_until = 0.0
        self.obey(process)

    # -- the program and the network at work

    def pick(self, data: Any, some: list[Any]) -> Any:
        return some[data.draw(st.integers(0, len(some) - 1))]

    def is_awake(self, process: Process) -> bool:
        return process.asleep_until <= self.now

    def ends(self) -> list[tuple[Process, Session]]:
        return [(p, s) for p in self.everyone if self.is_awake(p) for s in p.sessions]

    def readable(self) -> list[tuple[Path, Role]]:
        return [(p, r) for p in self.paths for r, s in p.to.items() if s.frames and self.is_awake(p.ends[r])]

    @rule(data=st.data())
    def open(self, data: Any) -> None:
        pairs = [(o, n.me) for o in self.owners for n in self.nodes if self.is_awake(o)]
        pairs = [(o, n) for o, n in pairs if o.machine.can_open(n)]
        if pairs:
            owner, node = self.pick(data, pairs)
            owner.had.add(owner.machine.open(node, self.now).name)
            self.obey(owner)

    @precondition(lambda self: self.ends())
    @rule(data=st.data(), count=st.integers(1, 9), nbytes=st.sampled_from([4, 4, 12, 50]))
    def send(self, data: Any, count: int, nbytes: int) -> None:
        process, session = self.pick(data, self.ends())
        self.send_at(process, session, count, nbytes)

    @precondition(lambda self: self.ends())
    @rule(counts=st.lists(st.integers(0, 5), min_size=1, max_size=4), nbytes=st.integers(4, 12))
    def everyone_sends(self, counts: list[int], nbytes: int) -> None:
        for at, (process, session) in enumerate(self.ends()):
            self.send_at(process, session, counts[at % len(counts)], nbytes)

    def send_at(self, process: Process, session: Session, count: int, nbytes: int) -> None:
        for _ in range(count):
            self.messages += 1
            body = self.messages.to_bytes(4, "big").ljust(nbytes, b".")
            assert session.send(7, body, self.now)
            process.sent[session.name].append(body)
        self.obey(process)

    @precondition(lambda self: self.ends())
    @rule(data=st.data(), in_use=st.booleans())
    def use(self, data: Any, in_use: bool) -> None:
        process, session = self.pick(data, self.ends())
        session.set_in_use(in_use, self.now)
        self.obey(process)

    @precondition(lambda self: self.ends())
    @rule(is_node_in_use=st.booleans())
    def owners_rest(self, is_node_in_use: bool) -> None:
        """Owners ask to close; nodes agree or not, and after that nobody rests any more."""
        for process, session in self.ends():
            session.set_in_use(is_node_in_use and process.role is Role.NODE, self.now)
        self.settle(IDLE_SECONDS + 1)
        for _, session in self.ends():
            session.set_in_use(True, self.now)

    @precondition(lambda self: self.readable())
    @rule(data=st.data(), count=st.integers(1, 6))
    def some_arrive(self, data: Any, count: int) -> None:
        """Frames of one stream arrive; those of other paths may have been sent earlier."""
        path, role = self.pick(data, self.readable())
        while count and path.to[role].frames:
            self.frame_arrives(path, role)
            count -= 1

    @rule(seconds=st.sampled_from([0.05, 0.15, 1.0]))
    def all_goes_well(self, seconds: float) -> None:
        self.settle(seconds)

    @precondition(lambda self: any(o.dials for o in self.owners))
    @rule(data=st.data(), outcome=st.sampled_from(["up", "same", "failed", "refused"]))
    def dialled(self, data: Any, outcome: str) -> None:
        dials = [(o, d) for o in self.owners for d in o.dials if self.is_awake(o)]
        if dials:
            owner, dial = self.pick(data, dials)
            self.resolve(owner, dial, outcome)

    @rule(seconds=st.sampled_from([0.05, 0.3, 1.0, 2.5, 4.0]))
    def nothing_arrives(self, seconds: float) -> None:
        self.advance(seconds)

    # -- what breaks

    @precondition(lambda self: self.paths)
    @rule(data=st.data(), fault=st.sampled_from(["cut", "end", "forget", "no path"]), role=st.sampled_from(list(Role)))
    def path_fails(self, data: Any, fault: str, role: Role) -> None:
        for process, session in self.ends():
            self.send_at(process, session, 3, 4)
        busy = [path for path in self.paths if path.to[role].frames]
        path = self.pick(data, busy or self.paths[-3:])
        process, stream = path.ends[role], path.to[role]
        if fault == "cut":  # brings a few more frames and then nothing, and nobody is told
            self.break_stream(path, role, data.draw(st.integers(0, 3)))
        elif fault == "forget":  # a relay loses frames; those behind them come through
            lost = data.draw(st.integers(0, 2))
            stream.frames = deque(list(stream.frames)[:lost] + list(stream.frames)[lost + 2 :])
        elif self.is_awake(process):
            if fault == "end":
                self.tell_end(path, role)
            else:
                for session in process.sessions:
                    process.machine.on_no_path(path.number, session.name, self.now)
                self.obey(process)

    @rule(data=st.data(), seconds=st.sampled_from([0.5, 3.0, 8.0, 40.0]), is_input_first=st.booleans())
    def sleep(self, data: Any, seconds: float, is_input_first: bool) -> None:
        """A process stops, and finds on waking what came meanwhile, before its timer is served or after."""
        process = self.pick(data, self.everyone)
        process.asleep_until = self.now + seconds
        if is_input_first:
            timer, process.timer = process.timer, inf
            self.advance(seconds)
            process.timer = min(timer, process.timer)
            process.asleep_until = 0.0
            for path in self.paths:
                while path.ends[process.role] is process and path.to[process.role].frames:
                    self.frame_arrives(path, process.role)

    @rule(data=st.data(), fault=st.sampled_from(["restart", "give up", "struck off", "long silence"]))
    def process_fails(self, data: Any, fault: str) -> None:
        process = self.pick(data, self.everyone)
        if fault == "long silence":
            self.advance(data.draw(st.sampled_from([6.0, 12.0, 31.0])))
        elif fault == "restart":  # at the old address; relays still bring it what was meant for the one before
            process.start(self.incarnation())
        elif process.sessions and self.is_awake(process):
            session = self.pick(data, process.sessions)
            if fault == "give up":
                process.machine.give_up(session.name, self.now)
            else:
                process.machine.on_peer_lost(session.peer, self.now)
            self.obey(process)

    @invariant()
    def is_sound(self) -> None:
        for process in getattr(self, "everyone", ()):
            process.machine.check(self.now)

    # -- the end

    def settle(self, seconds: float) -> None:
        """Nothing more breaks: every dial gets a path, all that is not cut arrives."""
        until = self.now + seconds
        while self.now < until:
            busy = True
            while busy:
                busy = False
                for owner, dial in [(o, d) for o in self.owners for d in o.dials if self.is_awake(o)]:
                    self.resolve(owner, dial, "up" if any(n.me == dial.name.node for n in self.nodes) else "refused")
                    busy = True
                for path, role in self.readable():
                    self.frame_arrives(path, role)
                    busy = True
            due = min(max(p.timer, p.asleep_until) for p in self.everyone)
            self.advance(min(until, max(due, self.now)) - self.now)

    def teardown(self) -> None:
        if not hasattr(self, "everyone"):
            return
        try:
            self.finish()
        finally:
            self.patches.undo()

    def finish(self) -> None:
        self.advance(max([0.0] + [p.asleep_until - self.now for p in self.everyone]) + 0.01)
        for process in self.everyone:
            for session in process.sessions:
                session.set_in_use(True, self.now)
        self.settle(SILENCE_SECONDS[Role.NODE] + LOOK_SECONDS + 0.01)
        for process in self.everyone:
            self.is_settled(process)
            for session in process.sessions:
                session.set_in_use(False, self.now)
        self.settle(2 * IDLE_SECONDS + 5)
        for process in self.everyone:
            self.is_settled(process)
            machine = process.machine
            assert not machine._sessions and not machine._by_peer, "not closed when idle"
            assert process.timer == inf, "a timer for nothing"
            assert set(process.ended) == process.had

    def is_settled(self, process: Process) -> None:
        for name in process.had:
            peer = self.peer(process, name)
            session = process.machine.find(name)
            assert (session is None) == (name in process.ended)
            if session is None:
                assert peer is None or peer.machine.find(name) is None, f"{name} lives at one end only"
            else:
                assert peer is not None and peer.taken[name] == process.sent[name], f"{session!r} has not delivered"
                assert session.out.base == session.out.next, "not acknowledged"


TestSessions = SessionsMachine.TestCase
TestSessions.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestSessions.pytestmark = [pytest.mark.timeout(120)]
