"""The node's workers: forks them, deals packets to them, and finds out what happened when one dies."""

from __future__ import annotations

import itertools
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .ids import RESOURCE_UNIT, ObjectId
from .process.board import Board, Slot
from .process.lifetime import CANCEL_SIGNAL
from .process.limits import cpu_count, thread_limit_env
from .process.spawn import WORKER_ENTRY, WORKER_MODULES, TemplateHandle, exec_template
from .process.stdio import LineReader
from .rpc.codec import Frame
from .rpc.local import ClaimSender, LoopLink, claim_pair, socketpair
from .rpc.protos import outboard_pb2 as pb
from .scheduler import commands
from .scheduler.bundles import BundleCommand, Confirmed, Declined, Prepared
from .scheduler.intervals import Interval

if TYPE_CHECKING:
    from .node import Node, Peer

SIGKILL = 9

#: A node whose template ended more often than this within so many seconds cannot start workers and ends.
TEMPLATE_ENDS, TEMPLATE_ENDS_SECONDS = 5, 10.0

#: Seconds after which a worker that had not begun a cancelled task is looked at again.
LOOK_AGAIN_SECONDS = 0.02

#: Actors that a node describes; more would make its beat too long.
ACTORS_SHOWN = 100

#: Deaths remembered for the messages that name them.
DEATHS_KEPT = 100


class Hand:
    """One worker process as its node knows it."""

    __slots__ = ("actor", "binding", "claim", "dealt", "err", "is_concurrent", "kind", "link", "long", "number", "out",
                 "owner", "peer", "pid", "restarts", "place", "slot", "unsent")  # fmt: skip

    def __init__(self, number: int, place: int, peer: Peer, claim: ClaimSender, slot: Slot, owner: int,
                 binding: int) -> None:  # fmt: skip
        self.number = number
        self.place = place  # its slot in the board, and its name at the template; reused when it has been reaped
        self.peer = peer
        self.link: LoopLink = peer.link
        self.claim = claim
        self.slot = slot
        self.owner = owner  # the client whose binding it is
        self.binding = binding
        self.pid = 0
        self.kind = (0, 0)  # owner and kind of the packet that ended last
        self.dealt: dict[int, tuple[int, int]] = {}  # the same of packets that have not ended, in the order they run
        self.restarts = 0  # of an actor: processes that came before this one
        self.is_concurrent = False  # it runs several calls at a time
        self.actor = ""  # name of the class, when it keeps an object of one
        self.out: LineReader
        self.err: LineReader
        self.unsent: deque[tuple[int, bytes]] = deque()  # packets that the full claim socket did not take
        self.long: dict[int, bytes] = {}  # packets too long for the claim socket: the worker asks for them


class Workforce:
    """Drives everything the dispatch machine says of workers."""

    def __init__(self, node: Node, boot: Any) -> None:
        self.node = node
        self.board: Board = boot.board
        self.hands: dict[int, Hand] = {}
        self.places: dict[int, Hand] = {}
        self.bindings: dict[tuple[int, int], bytes] = {}
        self.deaths: dict[int, pb.Death] = {}
        self.template_ends: list[float] = []
        self.folder = boot.folder
        self.template_pid = boot.template_pid
        self.template = self._handle(boot.template_control)
        self.last_submit: tuple[Interval | None, bytes] = (None, b"")  # an interval that filled a message, and that
        self._stamp = pb.Submit()
        slots = max(1, node.totals["CPU"] // RESOURCE_UNIT)
        limits = thread_limit_env(max(1, cpu_count() // slots))
        self.thread_limits = {name: value for name, value in limits.items() if name not in os.environ}
        self._actions: dict[type, Callable[[Any], None]] = {
            commands.SendPacket: self._send_packet, commands.Grant: self._grant, commands.StartWorker: self._start,
            commands.StopWorker: self._stop, commands.KillWorker: lambda c: self.kill(c.worker),
            commands.Recall: self._recall, commands.Lost: self._lost, commands.Returned: self._returned,
            commands.KindRefused: self._kind_refused, commands.BindingGone: self._binding_gone,
            commands.BindingFailed: self._binding_failed,
            commands.Unbound: self._unbound, commands.SignalCancel: self._signal_cancel,
            commands.KillLater: self._kill_later, commands.Resume: self._resume,
            **dict.fromkeys((Prepared, Declined, Confirmed), self._on_bundles),
        }  # fmt: skip

    def _handle(self, control: Any) -> TemplateHandle:
        return TemplateHandle(control, self.node.loop, self._on_forked, self._on_exited, self._on_template_lost)

    def execute(self, ordered: list[Any]) -> None:
        """Do what the machine commands, in order."""
        actions = self._actions
        for command in ordered:
            try:
                actions[type(command)](command)
            except Exception as error:
                self._give_up(command, error)

    def _give_up(self, command: Any, error: Exception) -> None:
        """A command cannot be done: what it was for must not wait for ever."""
        if type(command) is commands.StartWorker:
            self.node.loop.call_soon(self._fail_start, command.worker, str(error))
            return
        hand = self.hands.get(getattr(command, "worker", 0))
        if hand is None:
            raise error
        self.node.expel(hand.peer, f"{type(command).__name__} cannot be done", error)

    def _fail_start(self, number: int, reason: str) -> None:
        """No process came of a worker."""
        death = pb.Death(host=self.node.host, worker=number, stderr_tail=reason)
        hand = self.hands.get(number)
        if hand is not None:
            self._bury(hand, death, machine_lost=False)
            return
        self._remember(death)
        self.node.dispatch.on_worker_died(number, (), None, False, self.node.now())
        self.node.settle()

    def pid(self, worker: int) -> int:
        """Process id of a worker, 0 while it is being forked."""
        hand = self.hands.get(worker)
        return hand.pid if hand is not None else 0

    def close(self) -> None:
        """End all workers, and the template with them."""
        self.template.close()
        try:
            os.waitpid(self.template_pid, 0)
        except ChildProcessError:
            pass

    # -- start and end ------------------------------------------------------------------------------------------------

    def _start(self, command: commands.StartWorker) -> None:
        node = self.node
        client = node.peers[command.client]
        root = node.peers[client.root]
        incarnation = int.from_bytes(os.urandom(8), "little") | 1
        number = command.worker
        place = next(place for place in itertools.count() if place not in self.places)
        slot = self.board.slot(place)
        slot.reset()
        ours, theirs = socketpair()
        sender, reader = claim_pair()
        (out_r, out_w), (err_r, err_w) = _two_pipes()
        link = LoopLink(
            ours, node.loop, lambda _, frames: node.on_frames(peer, frames), lambda _, error: self._link_ended(number)
        )
        peer = node.add_peer(link, incarnation, client.root, number)
        hand = self.hands[number] = self.places[place] = Hand(
            number, place, peer, ClaimSender(sender, reader), slot, command.client, command.binding
        )
        hand.out = LineReader(out_r, node.loop, lambda texts, is_ended: self._print(hand, texts, is_ended, False))
        hand.err = LineReader(err_r, node.loop, lambda texts, is_ended: self._print(hand, texts, is_ended, True))
        binding = self.bindings.get((command.client, command.binding), b"")
        described = pb.Binding.FromString(binding)
        hand.actor = described.label if described.ordered else ""
        hand.is_concurrent = described.max_concurrency > 0
        hand.restarts = command.restarts
        link.send(Frame.WELCOME, node.welcome(incarnation))
        link.send(Frame.HELLO, root.hello.SerializeToString())
        if command.restarts:
            binding += pb.Binding(restarts=command.restarts).SerializeToString()  # fields that come later are added
        link.send(Frame.BIND, binding)
        link.flush()
        env = dict(self.thread_limits)
        if command.gpu_ids:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, command.gpu_ids))
        try:
            self.template.fork(place, (theirs.fileno(), reader.fileno(), out_w, err_w), env)
        finally:
            theirs.close()
            os.close(out_w)
            os.close(err_w)
        if not described.initializer:
            # It needs nothing before its first packet, which waits in the claim socket while the process begins.
            node.dispatch.on_worker_started(number, node.now())

    def _on_forked(self, place: int, pid: int, error: str) -> None:
        hand = self.places.get(place)
        if hand is None:
            return
        hand.pid = pid
        if pid:
            self.node.dispatch.on_worker_forked(hand.number, self.node.now())
            self.node.settle()
        else:
            self._bury(hand, pb.Death(host=self.node.host, worker=hand.number, stderr_tail=error), machine_lost=False)

    def _stop(self, command: commands.StopWorker) -> None:
        hand = self.hands.get(command.worker)
        if hand is not None:
            hand.claim.finish()

    def kill(self, worker: int) -> None:
        """End a worker's process group now; does nothing when there is none any more."""
        hand = self.hands.get(worker)
        if hand is not None:
            self.template.kill(hand.place, SIGKILL)

    def kill_bound(self, client: int, binding: int) -> None:
        """End the processes of a binding as if each had died by itself."""
        for hand in self.hands.values():
            if hand.binding == binding and hand.owner == client:
                self.kill(hand.number)

    def _link_ended(self, worker: int) -> None:
        if worker in self.hands:
            self.kill(worker)  # its process may live on, but nobody can hear it any more

    def _on_exited(self, place: int, pid: int, exitcode: int, signal: int, peak_nbytes: int) -> None:
        hand = self.places.get(place)
        if hand is not None:
            death = pb.Death(pid=pid, exitcode=exitcode, signal=signal, peak_nbytes=peak_nbytes, host=self.node.host,
                             limit_nbytes=self.node.memory_nbytes, worker=hand.number)  # fmt: skip
            self._bury(hand, death, machine_lost=False)

    def _remember(self, death: pb.Death) -> None:
        self.deaths[death.worker] = death
        if len(self.deaths) > DEATHS_KEPT:
            self.deaths.pop(next(iter(self.deaths)))

    def _bury(self, hand: Hand, death: pb.Death, *, machine_lost: bool) -> None:
        """Find out what the dead worker had finished, was running and had not begun."""
        node = self.node
        hand.link.drain()
        self.read_output(hand, is_done=True)
        death.stderr_tail = death.stderr_tail or hand.err.tail
        self._remember(death)
        returned = self._take_back(hand, None)
        running = hand.slot.running()
        if running is not None and hand.dealt:
            key = next(iter(hand.dealt.values()))
            node.runlog.note(hand.peer.root, key, hand.pid, node.now(), 0.0, 1, hand.is_concurrent, has_died=True)
        node.dispatch.on_worker_died(hand.number, returned, running, machine_lost, node.now())
        self.execute(node.dispatch.take_commands())
        del self.hands[hand.number], self.places[hand.place]
        hand.claim.close()
        hand.link.close()
        hand.out.close()
        hand.err.close()
        node.forget(hand.peer)
        node.settle()

    def _on_template_lost(self) -> None:
        """Its workers die with it (parent-death signal); a new one is started from a fresh interpreter."""
        if self.node.ending:
            return
        now = self.node.now()
        self.template_ends = [end for end in self.template_ends if now - end < TEMPLATE_ENDS_SECONDS] + [now]
        if len(self.template_ends) > TEMPLATE_ENDS:
            print("outboard: the process that starts workers ends again and again; the node gives up", file=sys.stderr)
            self.node.end()
            return
        try:
            os.waitpid(self.template_pid, 0)
        except ChildProcessError:
            pass
        self.template_pid, control = exec_template(
            WORKER_ENTRY, folder=self.folder, board_fd=self.board.fd, modules=WORKER_MODULES
        )
        self.template = self._handle(control)
        for hand in list(self.hands.values()):
            death = pb.Death(pid=hand.pid, signal=SIGKILL, host=self.node.host, worker=hand.number)
            self._bury(hand, death, machine_lost=True)

    # -- packets ------------------------------------------------------------------------------------------------------

    def _send_packet(self, command: commands.SendPacket) -> None:
        hand = self.hands[command.worker]
        intervals = command.intervals
        stamp = self._stamp
        stamp.packet, stamp.owner = command.packet, intervals[0].owner
        hand.dealt[command.packet] = (intervals[0].owner, intervals[0].kind)
        if intervals[0] is self.last_submit[0] and len(intervals) == 1:
            # The whole message goes on as it came; of fields that come twice the last one counts.
            packet = self.last_submit[1] + stamp.SerializeToString()
        else:
            submit = pb.Submit(packet=command.packet, owner=intervals[0].owner)
            for interval in intervals:
                self._add_interval(submit, hand, interval)
            packet = submit.SerializeToString()
        if len(packet) > hand.claim.max_nbytes:
            hand.long[command.packet] = packet
            packet = stamp.SerializeToString()  # a notice: it has no intervals
        if hand.unsent or not hand.claim.send(packet):
            hand.unsent.append((command.packet, packet))

    def send_long(self, worker: int, packet: int) -> None:
        """Send a worker the packet that it has taken the notice of."""
        hand = self.hands[worker]
        self.node.send(hand.peer.incarnation, Frame.PACKET, hand.long.pop(packet))

    def _add_interval(self, submit: pb.Submit, hand: Hand, interval: Interval) -> None:
        target = submit.intervals.add(
            kind=interval.kind, stream=interval.stream, first=interval.first, attempt=interval.attempt,
            stride=interval.stride, array=interval.array, calls=interval.calls
        )  # fmt: skip
        for position, objects in interval.holds.items():
            target.holds.add(position=position, objects=objects)
            self._pin_objects(hand, objects)

    def note_run(self, worker: int, packet: int, seconds: float, tasks: int, now: float) -> None:
        """Tasks of a packet have ended."""
        hand = self.hands.get(worker)
        if hand is not None:
            key = hand.dealt.get(packet, hand.kind)
            self.node.runlog.note(hand.peer.root, key, hand.pid, now, seconds, tasks, hand.is_concurrent)

    def is_actor(self, client: int, binding: int) -> bool:
        """Whether a client's binding is an actor, by what this node was told of it."""
        body = self.bindings.get((client, binding)) if binding else None
        return body is not None and pb.Binding.FromString(body).ordered

    def packet_reported(self, worker: int, finished: pb.Finished) -> None:
        """A worker has taken packets, so its socket may have room for those that wait."""
        hand = self.hands.get(worker)
        if hand is not None and finished.packet_done:
            if hand.out.is_within_line or hand.err.is_within_line:
                self.read_output(hand, is_done=True)
            hand.kind = hand.dealt.pop(finished.packet, hand.kind)
        self._send_waiting(hand)

    def _send_waiting(self, hand: Hand | None) -> None:
        while hand is not None and hand.unsent and hand.claim.send(hand.unsent[0][1]):
            hand.unsent.popleft()

    def _recall(self, command: commands.Recall) -> None:
        hand = self.hands[command.worker]
        taken = self._take_back(hand, command.at_most)
        self._send_waiting(hand)  # what the full socket did not take finds room now
        self.node.dispatch.on_recalled(command.worker, taken, self.node.now())

    def _take_back(self, hand: Hand, at_most: int | None) -> list[int]:
        """Read packets back that the worker has not begun; at most so many, None for all."""
        taken: list[int] = []
        while at_most is None or len(taken) < at_most:
            packet = hand.claim.take_back()
            if packet is None:
                break
            taken.append(self._unpin(hand, packet))
        while hand.unsent and (at_most is None or len(taken) < at_most):
            taken.append(self._unpin(hand, hand.unsent.popleft()[1]))
        return taken

    def _unpin(self, hand: Hand, packet: bytes) -> int:
        submit = pb.Submit.FromString(packet)
        if not submit.intervals:
            submit = pb.Submit.FromString(hand.long.pop(submit.packet))
        hand.dealt.pop(submit.packet, None)
        for interval in submit.intervals:
            for hold in interval.holds:
                self._unpin_objects(hand, hold.objects)
        return submit.packet

    def unpin(self, worker: int, intervals: list[Interval]) -> None:
        """A worker has given tasks back: it will not look at what was pinned for them."""
        for interval in intervals:
            for objects in interval.holds.values():
                self._unpin_objects(self.hands[worker], objects)

    def _pin_objects(self, hand: Hand, objects: Iterable[Any]) -> None:
        for d in objects:
            self.node.store.extents.pin(ObjectId(d.owner, d.seq), d.version, hand.peer.incarnation)

    def _unpin_objects(self, hand: Hand, objects: Iterable[Any]) -> None:
        for d in objects:
            self.node.store.extents.unpin(ObjectId(d.owner, d.seq), d.version, hand.peer.incarnation)

    # -- words to clients ---------------------------------------------------------------------------------------------

    def _grant(self, command: commands.Grant) -> None:
        body = pb.Grant(kind=command.kind, credit=command.credit).SerializeToString()
        self.node.send(command.client, Frame.GRANT, body)

    def _lost(self, command: commands.Lost) -> None:
        lost = pb.Lost(cause=pb.Lost.Cause.Name(command.cause), spans=_spans(command.spans), outcome=command.outcome)
        death = self.deaths.get(command.worker) if command.worker is not None else None
        if death is not None:
            lost.death.CopyFrom(death)
            lost.death.restarting = command.is_restarting
            if command.is_at_start:
                lost.outcome = _start_failure(death)
        self.node.send(command.client, Frame.LOST, lost.SerializeToString())

    def _returned(self, command: commands.Returned) -> None:
        body = pb.Returned(spans=_spans(command.spans)).SerializeToString()
        self.node.send(command.client, Frame.RETURNED, body)

    def _kind_refused(self, command: commands.KindRefused) -> None:
        refused = pb.KindRefused(id=command.kind, asked=command.asked, available=command.available)
        self.node.send(command.client, Frame.KIND_REFUSED, refused.SerializeToString())

    def _binding_gone(self, command: commands.BindingGone) -> None:
        refused = pb.KindRefused(id=command.kind, gone=True)
        self.node.send(command.client, Frame.KIND_REFUSED, refused.SerializeToString())

    def _binding_failed(self, command: commands.BindingFailed) -> None:
        failed = pb.BindingFailed(id=command.binding, outcome=command.outcome)
        death = self.deaths.get(command.worker)
        if death is not None and not command.outcome:
            failed.death.CopyFrom(death)
            if not death.pid:
                failed.outcome = _start_failure(death)
        self.node.send(command.client, Frame.BINDING_FAILED, failed.SerializeToString())

    def _unbound(self, command: commands.Unbound) -> None:
        self.bindings.pop((command.client, command.binding), None)
        body = pb.Unbind(id=command.binding).SerializeToString()
        self.node.send(command.client, Frame.UNBOUND, body)

    def describe_actors(self, states: Mapping[int, str]) -> list[pb.ActorStatus]:
        """Say of what actors this node knows, by the states of its workers; of some when there are many."""
        hands = {(hand.owner, hand.binding): hand for hand in self.hands.values()}
        found = []
        for (owner, binding), body in self.bindings.items():
            spec = pb.Binding.FromString(body)
            hand = hands.get((owner, binding))
            if not spec.class_name or (hand is None and not spec.eager):
                continue  # no actor, one that others use for something else, or one that lives elsewhere
            restarts = hand.restarts if hand is not None else 0
            is_up = hand is not None and states.get(hand.number) != "STARTING"
            state = "ALIVE" if is_up else "RESTARTING" if restarts else "PENDING"
            found.append(pb.ActorStatus(
                owner=owner, anchor=spec.anchor, class_name=spec.class_name, name=spec.name, namespace=spec.namespace,
                state=state, pid=hand.pid if hand is not None else 0, restarts=restarts,
            ))  # fmt: skip
            if len(found) == ACTORS_SHOWN:
                break
        return found

    def forget_bindings(self, client: int) -> None:
        """A client has gone, and nobody will be started for it any more."""
        for key in [key for key in self.bindings if key[0] == client]:
            del self.bindings[key]

    def _on_bundles(self, command: BundleCommand) -> None:
        self.node.find_gangs().on_bundles(command)

    def _resume(self, command: commands.Resume) -> None:
        self.node.send(self.hands[command.worker].peer.incarnation, Frame.RESUME, b"")

    # -- cancel -------------------------------------------------------------------------------------------------------

    def _signal_cancel(self, command: commands.SignalCancel) -> None:
        hand = self.hands[command.worker]
        if hand.is_concurrent:
            body = pb.Cancel(spans=_spans(command.spans)).SerializeToString()
            self.node.send(hand.peer.incarnation, Frame.CANCEL, body, command.owner)
            return
        running = hand.slot.running()
        if running is not None and running[0] == command.owner and hand.pid:
            for span in command.spans:
                if running[1] == span.stream and span.first <= running[2] < span.end:
                    hand.slot.request_cancel(*running)
                    self.template.signal(hand.place, CANCEL_SIGNAL)
                    return
        self.node.loop.call_later(LOOK_AGAIN_SECONDS, self._signal_due, hand)

    def _signal_due(self, hand: Hand) -> None:
        if self.hands.get(hand.number) is hand:
            self.node.dispatch.on_signal_due(hand.number)
            self.node.settle()

    def _kill_later(self, command: commands.KillLater) -> None:
        hand = self.hands[command.worker]
        self.node.loop.call_later(command.delay, self._kill_due, hand)

    def _kill_due(self, hand: Hand) -> None:
        if self.hands.get(hand.number) is hand:
            self.node.dispatch.on_kill_due(hand.number, hand.slot.running(), self.node.now())
            self.node.settle()

    # -- output -------------------------------------------------------------------------------------------------------

    def read_output(self, hand: Hand, *, is_done: bool) -> None:
        """Pass on what a worker has printed so far; with `is_done` its tasks are over, and so are their lines."""
        for reader in (hand.out, hand.err):
            reader.drain()
            if is_done:
                reader.pass_rest(is_ended=True)

    def read_all_output(self) -> None:
        """Pass on all that workers have printed so far."""
        for hand in self.hands.values():
            for reader in (hand.out, hand.err):
                reader.drain()
                reader.pass_rest(is_ended=False)

    def _print(self, hand: Hand, texts: list[str], is_ended: bool, is_stderr: bool) -> None:
        kind = self.node.find_kind(*next(iter(hand.dealt.values()), hand.kind))
        is_plain = not hand.actor and (bool(hand.binding) or kind.writable)  # backends take writable arguments
        lines = [
            pb.Line(text=text, stderr=is_stderr, pid=hand.pid, worker=hand.number, host=self.node.host,
                    function=kind.name or hand.actor, plain=is_plain)
            for text in texts
        ]  # fmt: skip
        lines[-1].ended = is_ended
        self.node.print_lines(hand.peer.root, lines)
        self.node.flush_soon()


def _start_failure(death: pb.Death) -> bytes:
    """Say as value bytes of an error that workers come to nothing; ``death`` is the last one's."""
    from .errors import WorkerLostError
    from .failures import encode_error

    how = f"signal {death.signal}" if death.signal else f"exit code {death.exitcode}"
    last = f"it ended with {how}" if death.pid else "it was not started"
    text = f"not run: workers end before they begin a task. The last one: {last}. {death.stderr_tail}".rstrip()
    return encode_error(WorkerLostError(
        text, pid=death.pid or None, signal=death.signal, exitcode=death.exitcode if death.pid else None,
        stderr_tail=death.stderr_tail, host=death.host, may_have_run=False, attempts=0,
    ))  # fmt: skip


def _two_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Make two pipes, or none when there is no room for both."""
    first = os.pipe()
    try:
        return first, os.pipe()
    except OSError:
        for fd in first:
            os.close(fd)
        raise


def _spans(spans: Any) -> list[pb.Span]:
    return [pb.Span(stream=s.stream, first=s.first, count=s.count, attempt=s.attempt, stride=s.stride) for s in spans]
