"""The worker: runs one task at a time, and owns what its tasks submit.

It blocks on its claim socket. A packet holds intervals of one kind; the word in the board names the item being run, and
the results of a packet go out before the next packet is taken (`packetpart.py`).
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO

from . import engine as engines
from . import forks
from .client import Client
from .failures import as_exception, encode_error, input_cause
from .ids import ObjectId, item_object
from .interrupts import shield
from .native import NativeEngine
from .packetpart import PACKET_MAX, PacketPart
from .process.alarm import Alarm
from .process.birth import flush_streams, has_unread_output, replace_stream
from .process.board import Board, Slot
from .process.lifetime import CANCEL_SIGNAL
from .process.template import WorkerSetup
from .rpc.codec import Frame
from .rpc.local import BlockingLink
from .rpc.protos import outboard_pb2 as pb
from .scheduler.owner import Task
from .store import serialize
from .store.main_module import adopt_main
from .values import Input

if TYPE_CHECKING:
    from .concurrency import Concurrency

loads = pickle.loads

#: Seconds that the children of a cancelled task get to end when they are interrupted.
CHILD_KILL_SECONDS = 1.0

#: Seconds of tasks after which their output is looked for also where Python did not write it. The look takes 4 µs.
LOOK_SECONDS = 0.0005


class TaskInterrupt(BaseException):
    """Raised in the main thread of a worker whose running task was cancelled; `except Exception` does not hold it."""


class RunningKind:
    """A kind as the worker runs it. `failure`: why its function could not be rebuilt, as value bytes, or empty."""

    __slots__ = ("array", "failure", "function", "num_returns", "writable")

    def __init__(self, function: Any, failure: bytes, num_returns: int, writable: bool) -> None:
        self.function = function
        self.failure = failure
        self.num_returns = num_returns
        self.writable = writable


class TaskOutput(io.TextIOWrapper):
    """A worker's standard stream: notes that something was printed, so that it is shown before the task's result."""

    def __init__(self, worker: Worker, buffer: BinaryIO, encoding: str, errors: str | None) -> None:
        super().__init__(buffer, encoding, errors, line_buffering=True)
        self._worker = worker

    def write(self, text: str) -> int:
        """Write text; as for any text stream."""
        self._worker.printed = True
        return super().write(text)

    @property
    def buffer(self) -> Any:
        """The stream of bytes below; who asks for it writes to it."""
        self._worker.printed = True
        return super().buffer


class Worker:
    """One worker's life, from its greeting to the end of its claim socket."""

    def __init__(self, setup: WorkerSetup) -> None:
        self.claim = setup.claim
        self.link = BlockingLink(setup.link)
        self.slot: Slot = Board(setup.board_fd).slot(setup.worker)
        self.number = setup.worker
        self.pid = os.getpid()
        self.main_thread = threading.get_ident()
        self.kinds: dict[tuple[int, int], RunningKind] = {}
        self.in_user_code = False
        self.missed_cancel = False  # a cancelling signal came while no task ran
        self.is_encoding = False  # a result that may have to wait for room in the store
        self.is_initializing = False
        self.preload: list[str] = []
        self.printed = False
        self.root = 0  # the client at the top, whose end is this process's end
        self.client: Client
        self.concurrency: Concurrency | None = None  # of an actor that runs calls at the same time
        self.alarm = Alarm()
        self.sending = threading.Lock()  # held while results are sent
        self.watched: PacketPart | None = None  # what the alarm was set for
        self.is_ordered = False  # later tasks must not run before earlier ones
        self.lone = pb.Finished()
        self.renew_lone()

    def renew_lone(self) -> None:
        """Make the message for whole packets anew, which frees what passed through the old one."""
        self.passed = 0
        self.lone = pb.Finished(packet_done=True)
        self.lone.done.add()

    def run(self) -> None:
        """Set up, run the initialiser, then serve packets until the claim socket ends."""
        binding = self._greet()
        if binding.initializer and not self._initialize(binding):
            return
        if self.concurrency is not None:
            self.concurrency.run()
            self._finish_children()
            return
        receive, serve = self.claim.recv, self.serve
        while packet := receive(PACKET_MAX):
            serve(packet)
            if self.preload and not self._has_packet():
                self._preload()
        self._finish_children()

    def _has_packet(self) -> bool:
        poller = select.poll()
        poller.register(self.claim, select.POLLIN)
        return bool(poller.poll(0))

    # -- start --------------------------------------------------------------------------------------------------------

    def _greet(self) -> pb.Binding:
        """Take what the node wrote before this process was forked: who I am, whom I serve, how to begin."""
        frames: list[Any] = []
        while len(frames) < 3:
            self.link.receive(None)
            frames += self.link.frames()
            if self.link.closed:
                os._exit(0)
        welcome = pb.Welcome.FromString(frames[0][1])
        hello = pb.Hello.FromString(frames[1][1])
        binding = pb.Binding.FromString(frames[2][1])
        self._become(hello)
        self.root = hello.incarnation
        self.client = Client(self.link, welcome.you, welcome)
        self.client.in_task = self._in_task
        self.client.running_task = self._running_task
        self.client.on_kinds_dropped = self._forget_kinds
        self.client.on_calls_cancelled = self._cancel_calls
        self.client.on_interrupted = self._cancel_children
        self.client.on_broken = self._end_broken
        self.client.background.watch(self.alarm.fileno, self._on_alarm)
        self.is_ordered = binding.ordered
        engine = NativeEngine(self.client, root=self.root, namespace=hello.namespace)
        engine.is_worker = True
        if binding.gang.number:
            engine.gangs.inherit(binding.gang)
        engine.actor_starts = 1 + binding.restarts
        engines.install(engine)
        forks.watch(engine)
        signal.signal(CANCEL_SIGNAL, self._on_cancel_signal)
        signal.siginterrupt(CANCEL_SIGNAL, False)
        return binding

    def _end_broken(self, error: Exception) -> None:
        """Without its background thread a worker would leave others waiting: end, and let the node say so."""
        sys.excepthook(type(error), error, error.__traceback__)
        flush_streams()
        os._exit(1)

    def _in_task(self) -> bool:
        """Whether a wait of this thread gives back CPUs: the task may wait for any of its threads, but not for ours."""
        if self.concurrency is not None:
            return not self.client.background.is_current
        if threading.get_ident() == self.main_thread:
            return self.in_user_code or self.is_encoding or self.is_initializing
        return (self.in_user_code or self.is_initializing) and not self.client.background.is_current

    def _running_task(self) -> ObjectId | None:
        running = self.slot.running() if self.in_user_code or self.is_encoding else None
        if running is None:
            return None
        owner, stream, index = running
        return item_object(owner, stream, index) if stream else ObjectId(owner, index)

    def _become(self, hello: pb.Hello) -> None:
        """Look to the tasks like a process of the client."""
        self.preload = list(hello.preload)
        sys.path[:] = hello.sys_path
        try:
            os.chdir(hello.cwd)
        except OSError:
            pass
        adopt_main(hello.main_path)
        sys.modules["__main__"].__package__ = hello.main_package or None
        sys.argv = [hello.main_path]
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            encoding, errors = stream.encoding, stream.errors
            replace_stream(name, TaskOutput(self, stream.detach(), encoding, errors))
        from multiprocessing.process import current_process

        current: Any = current_process()
        current.authkey = hello.authkey
        current._identity = (self.number + 1,)
        current.name = f"OutboardWorker-{self.number + 1}"

    def _initialize(self, binding: pb.Binding) -> bool:
        self.is_initializing = True
        try:
            _prepare(binding.sys_path, binding.modules)
            initializer, _ = self._decode_pinned(binding.initializer)
            if binding.max_concurrency:
                from .concurrency import Concurrency

                self.concurrency = Concurrency(self, binding.max_concurrency, is_async=initializer.is_async)
                self.client.background.start()  # who is given references is answered while all threads wait
                self.concurrency.make(initializer)
            else:
                initializer()
            self.is_initializing = False
            self.client.turns.end_task()
        except BaseException as error:
            outcome = encode_error(error)
            self.link.send(Frame.INIT_FAILED, pb.InitFailed(outcome=outcome).SerializeToString())
            return False
        self.client.flush()
        self.link.send(Frame.STARTED, b"")
        return True

    def _decode_pinned(self, body: bytes) -> tuple[Any, list[bytes]]:
        """Rebuild something that the client keeps for as long as we may need it, so that nothing is pinned."""
        if body[0] == 0x80:
            return serialize.loads(body), []
        parcel = pb.Parcel.FromString(body)
        return self.client.values.open_parcel(parcel, writable=False, pinned=False), []

    def _on_cancel_signal(self, signum: int, frame: FrameType | None) -> None:
        if not self.in_user_code:
            self.missed_cancel = True  # it may be meant for the task that begins next and is named already
        elif self.slot.is_cancelled():
            self.in_user_code = False
            shield.interrupt(frame, TaskInterrupt)

    def _catch_up_cancel(self) -> None:
        self.missed_cancel = False
        if self.slot.is_cancelled():
            self.in_user_code = False
            raise TaskInterrupt

    def _preload(self) -> None:
        """With nothing to do for the first time: import what the client uses, so that later tasks find it."""
        names, self.preload = self.preload, []
        for name in names:
            try:
                importlib.import_module(name)
            except Exception:
                continue  # a task that needs it will say why

    def has_printed(self, seconds: float) -> bool:
        """Whether tasks have printed in the last so many seconds; what the streams hold back is written out.

        What child processes and compiled code print passes by Python, so it is looked for, after tasks that took long
        enough for the look not to count.
        """
        if not self.printed and (seconds < LOOK_SECONDS or not has_unread_output()):
            return False
        self.printed = False
        flush_streams()
        return True

    # -- kinds --------------------------------------------------------------------------------------------------------

    def find_kind(self, owner: int, kind_id: int) -> RunningKind:
        """Give a kind of an actor's calls, none of which is the one that runs."""
        return self.kinds.get((owner, kind_id)) or self._fetch_kind(owner, kind_id)

    def fetch_kind(self, part: PacketPart, kind_id: int) -> RunningKind:
        """Ask the node for a kind that this worker meets for the first time, with the first task of `part`."""
        self.slot.set_running(part.owner, part.stream, part.first)  # rebuilding the function may end the process
        return self._fetch_kind(part.owner, kind_id)

    def _fetch_kind(self, owner: int, kind_id: int) -> RunningKind:
        """Rebuild a kind, and keep it if that would come out the same another time."""
        request = pb.GetKind(owner=owner, id=kind_id).SerializeToString()
        spec = self.client.ask_node(Frame.GET_KIND, request, Frame.KIND)
        if spec.function[:1] != b"\x80":
            self.client.background.start()  # it keeps objects of its owner: hear when that drops it
        try:
            _prepare(spec.sys_path, spec.modules)
            function, _ = self._decode_pinned(spec.function)
            kind, is_final = RunningKind(function, b"", spec.num_returns, spec.writable), True
        except BaseException as error:
            cause = input_cause(error)
            is_final = cause == pb.Error.ARGUMENT_UNPICKLABLE
            failure = encode_error(error, pb.Error.FUNCTION_UNPICKLABLE if is_final else cause, spec.name)
            kind = RunningKind(None, failure, spec.num_returns, spec.writable)
        if is_final:
            self.kinds[owner, kind_id] = kind
        return kind

    def _cancel_calls(self, owner: int, cancel: pb.Cancel) -> None:
        if self.concurrency is not None:
            self.concurrency.cancel(owner, cancel)

    def _forget_kinds(self, dropped: pb.DropKinds) -> None:
        for kind in dropped.ids:
            self.kinds.pop((dropped.owner, kind), None)

    # -- packets ------------------------------------------------------------------------------------------------------

    def watch(self, part: PacketPart, seconds: float) -> None:
        """Have a part reviewed by the background thread when it still runs in so many seconds."""
        self.watched = part
        if not self.client.background.running:
            self.client.background.start()
        self.alarm.set(seconds)

    def _on_alarm(self) -> None:
        self.alarm.clear()
        part = self.watched
        if part is not None:
            part.review()

    def serve(self, packet: bytes) -> None:
        """Run the tasks of one packet and send their results."""
        submit = pb.Submit.FromString(packet)
        if not submit.intervals:  # too long for the claim socket: this is the notice of it
            request = pb.GetPacket(packet=submit.packet).SerializeToString()
            submit = self.client.ask_node(Frame.GET_PACKET, request, Frame.PACKET)
        if self.concurrency is not None:
            self.concurrency.begin(submit)
            return
        number, owner = submit.packet, submit.owner
        intervals = deque(submit.intervals)
        while intervals:
            PacketPart(self, intervals.popleft(), owner, number, intervals).run()
        client = self.client
        if client.parting is not None:
            with shield, client.lock:
                client.parting()
        if client.values.reader.ended or client.owner.commands or client.dropped:
            client.flush()

    def call(self, kind: RunningKind, part: PacketPart, index: int, call: bytes) -> tuple[bool, Any]:
        """Run one task; returns (ok, its value or the value bytes of its error)."""
        cause = pb.Error.ARGUMENT_UNPICKLABLE
        try:
            # Before the arguments are rebuilt: that is the user's code too, and may end the process.
            self.in_user_code = True
            self.slot.set_running(part.owner, part.stream, index)
            if self.missed_cancel:
                self._catch_up_cancel()
            arguments = self.decode_call(call, kind.writable)
            cause = pb.Error.RAISED
            if kind.failure:
                self.in_user_code = False
                return False, kind.failure
            function = kind.function
            if part.array:
                value = function(arguments)
            else:
                args, kwargs = arguments
                value = function(*args, **kwargs)
                if kind.num_returns > 1:
                    value = engines.split_results(function, value, kind.num_returns)
            self.in_user_code = False
            if self.client.closed_mark is not None:
                self.leave_fork(None)
            return True, value
        except TaskInterrupt as interrupt:
            self._cancel_children()
            return False, encode_error(interrupt, pb.Error.CANCELLED)
        except BaseException as error:
            self.in_user_code = False
            if self.client.closed_mark is not None:
                self.leave_fork(error)
            if cause == pb.Error.ARGUMENT_UNPICKLABLE:
                cause = input_cause(error)
            elif error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                error.__traceback__ = error.__traceback__.tb_next  # our own frame tells the user nothing
            return False, encode_error(error, cause)

    def leave_fork(self, error: BaseException | None) -> None:
        """End a child that a task has forked and that comes back from the task; does nothing in the worker itself."""
        if os.getpid() == self.pid:
            return
        code = 0
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            sys.excepthook(type(error), error, error.__traceback__)
            code = 1
        flush_streams(redirected=True)
        os._exit(code & 0xFF)

    def decode_call(self, call: bytes, writable: bool) -> Any:
        """Rebuild the arguments of a task."""
        if call[0] == 0x80:
            return loads(call)
        values = self.client.values
        arguments, inputs = values.decode_call(call, writable=writable)
        if not inputs:
            return arguments
        decoded = [self._decode_input(body, writable) for body in inputs]

        def place(value: Any) -> Any:
            return decoded[value.position] if type(value) is Input else value

        args, kwargs = arguments
        return tuple(map(place, args)), {name: place(value) for name, value in kwargs.items()}

    def _decode_input(self, body: bytes, writable: bool) -> Any:
        error = as_exception(body)
        if error is not None:
            raise error
        return self.client.values.decode(body, writable=writable, pinned=True)

    # -- what tasks left behind ---------------------------------------------------------------------------------------

    def pass_on(self, finished: pb.Finished, contained: list[ObjectId], owner: int) -> None:
        """Put into a message what passes with these references inside its results; under the client's lock.

        It is to be sent before that is left.
        """
        client = self.client
        client.outbox.pack(finished, client.owner.pass_on(contained, owner))
        client.background.start()  # somebody must hear what becomes of them while this thread waits for packets

    def _cancel_children(self) -> None:
        """The running task was cancelled: so are the tasks that it started."""
        client = self.client
        with shield, client.lock:
            owner = client.owner
            returned = {oid.seq for oid in owner.refs.heirs}  # by tasks that have ended
            for seq, entry in list(owner.refs.owned.items()):
                if isinstance(entry, Task) and entry.value is None and seq not in returned:
                    owner.cancel(seq, kill_after=CHILD_KILL_SECONDS)
            for array in list(owner.arrays.values()):
                owner.cancel_array(array, kill_after=CHILD_KILL_SECONDS)
        client.flush()

    def _finish_children(self) -> None:
        """Before the process ends by itself: wait for what its tasks started and for what passes on, and leave nothing.

        Once the node has echoed that it leaves, nothing passes to it any more; what others refer to passes to its root.
        """
        client = self.client
        self._wait_until(self.has_finished_children)
        with client.lock:
            client.send(Frame.LEAVING, b"")
        self._wait_until(lambda: Frame.LEAVING in client.inbox.replies and self.has_finished_children())
        with client.lock:
            client.owner.bequeath(self.root)
        self._wait_until(self.has_finished_children)

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait, unless the node is gone."""
        self.client.turns.wait(lambda: self.client.closed_mark is not None or ready())

    def has_finished_children(self) -> bool:
        """Whether all that tasks started here has ended, and all that they returned has passed on."""
        owner = self.client.owner
        return not (owner.unanswered or owner.refs.heirs or owner.refs.leaving)


def _prepare(paths: Iterable[str], modules: Iterable[str]) -> None:
    """Before something of the client's is rebuilt: find modules where it does, and import those it says."""
    for path in paths:
        if path not in sys.path:
            sys.path.append(path)
    for name in modules:
        importlib.import_module(name)


def main(setup: WorkerSetup) -> None:
    """Be a worker; called in a process forked from the template."""
    Worker(setup).run()
