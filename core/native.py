"""The native engine: the Engine protocol on a client of an Outboard cluster."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from . import engine as engines
from . import errors
from .actorhost import ready
from .callbacks import CallbackThread
from .client import Client
from .engine import ActorTerms, Binding, Completion, Ref
from .failures import as_exception, encode_failure
from .ids import RESOURCE_UNIT, ObjectId
from .interrupts import shield
from .kindkeeper import KindKeeper
from .nativeactors import NativeActors
from .nativearray import NativeArray
from .nativebinding import NativeBinding, machine_retries
from .nativegangs import NativeGangs, Place
from .options import TaskOptions
from .pulling import Ahead
from .reach import HOME
from .refs import ObjectRef, check_refs, describe_value
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler import owner as machine
from .scheduler.arrays import Array
from .scheduler.outcomes import BindingMark, ShutdownMark
from .turns import Aside, Idle
from .values import Encoded, Input

#: Seconds that a node may take for its last answer before it is left, and callbacks to end, before the connection is
#: closed (what they wait for then fails) and after it.
FAREWELL_SECONDS = 1.0


class NativeEngine:
    """See `Engine`. `on_shutdown` ends what was started for this engine (the embedded node); `root`: 0 for itself."""

    def __init__(self, client: Client, on_shutdown: Callable[[], None] = lambda: None, *, root: int = 0,
                 namespace: str = "") -> None:  # fmt: skip
        self.client = client
        self.root = root or client.incarnation
        self.namespace = namespace
        self.node_id = f"{client.welcome.node:016x}"
        self.worker_id = f"{client.incarnation:016x}"
        self.actor_starts = 1
        self.dropped = client.dropped
        self.is_worker = False
        self.pid = os.getpid()
        self._on_shutdown = on_shutdown
        self._kinds = KindKeeper(client, machine_retries)
        self.actors = NativeActors(self)
        self.gangs = NativeGangs(self)
        self._bindings: dict[int, NativeBinding] = {}  # whose workers are not all gone
        self._binding_count = 0
        self._callbacks = CallbackThread()
        self._watched: dict[ObjectId, list[tuple[Callable[[Completion], None], bool]]] = {}
        self._arrays: weakref.WeakValueDictionary[int, NativeArray] = weakref.WeakValueDictionary()
        self._ended_arrays: deque[Array] = deque()
        client.on_settled = self._settled
        client.on_closed = lambda: engines.forget(self)
        client.on_items = self._items_arrived
        client.on_unbound = self._unbound

    def __repr__(self) -> str:
        owner = self.client.owner
        state = self.client.closed_reason or "up"
        return f"<NativeEngine {state} unanswered={owner.unanswered} objects={len(owner.refs.owned)}>"

    # -- objects ------------------------------------------------------------------------------------------------------

    def running_task(self) -> ObjectId | None:
        """See `Engine.running_task`."""
        return self.client.running_task()

    def put(self, value: Any) -> ObjectRef:
        """See `Engine.put`."""
        if isinstance(value, ObjectRef):
            raise TypeError("put() takes a value, not a reference; pass the reference on as it is")
        client = self.client
        client.check_open()
        with shield:
            seq = client.take_seq()
            try:
                encode = client.values.encode_value
                encoded = shield.open(encode, value, lambda: ObjectId(client.incarnation, seq), 0)
            except errors.OutboardError:
                raise
            except Exception as error:
                raise errors.SerializationError(f"cannot put {_short(value)}: {error}", reason=error) from error
            with client.lock:
                client.drop_ended()
                client.owner.put(seq, encoded.body, 0 if encoded.objects else None, encoded.refs)
            return ObjectRef(client.incarnation, seq, self)

    def get(self, refs: Any, timeout: float | None = None) -> Any:
        """See `Engine.get`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if type(refs) is ObjectRef:
            return self._get_one(refs, deadline)
        if isinstance(refs, ObjectRef):
            return self._get_one(refs, deadline)
        if not isinstance(refs, list):
            raise TypeError(f"get() takes a reference (ObjectRef) or a list of them, not {describe_value(refs)}")
        check_refs("get()", refs)
        entries = [self._entry(ref) for ref in refs]
        if not self.client.turns.wait(_AllReady(self.client, entries), deadline):
            self._raise_failure(entries)
            missing = sum(entry.value is None for entry in entries)
            raise errors.GetTimeoutError(f"{missing} of {len(refs)} objects did not come within {timeout} s")
        self._raise_failure(entries)
        ahead = Ahead(self.client, (entry.value for entry in entries))
        return [self._value(entry, deadline, ahead, place) for place, entry in enumerate(entries)]

    def _get_one(self, ref: ObjectRef, deadline: float | None) -> Any:
        owned = self.client.owner.refs.owned
        entry = owned.get(ref.seq) if ref.owner == self.client.incarnation else None
        if entry is None:
            entry = self._entry(ref)
        if entry.value is None:
            self._await_value(entry, deadline)
        return self._value(entry, deadline)

    def _await_value(self, entry: Any, deadline: float | None) -> None:
        if not self.client.turns.wait(lambda: entry.value is not None, deadline):
            raise errors.GetTimeoutError("an object did not come in time")

    def _entry(self, ref: ObjectRef) -> Any:
        """Find what a reference names; an object of another owner is asked for."""
        client = self.client
        oid = ObjectId(ref.owner, ref.seq)
        with shield, client.lock:
            if client.closed_mark is not None and (
                isinstance(client.closed_mark, ShutdownMark) or client.owner.refs.find(oid) is None
            ):
                client.check_open()
            entry = client.owner.refs.find(oid)
            if entry is None:
                if oid.owner == client.incarnation:
                    raise errors.ObjectLostError(f"{ref!r} was released already")
                maker = ref.hold
                if maker is not self and isinstance(maker, NativeEngine) and maker.pid == self.pid:
                    return maker._entry(ref)  # of a cluster that this process has lost or shut down
                client.owner.refs.hold(oid)  # a reference inherited through a fork: borrowed from its first use on
                entry = client.owner.refs.find(oid)
            if entry is not None and entry.value is None:
                client.owner.ask(oid)
        return entry

    def _value(self, entry: Any, deadline: float | None, ahead: Ahead | None = None, place: int = 0) -> Any:
        value = entry.value
        if type(value) is bytes and value[0] == 0x80:
            return self.decode(value)
        if ahead is not None:
            ahead.go_on(place)
        while value is None:  # it was lost with its machine and is made again
            self._await_value(entry, deadline)
            value = entry.value
        _raise_if_failed(value)
        return self.decode(value, writable=_is_writable(entry), deadline=deadline)

    def decode(self, value: bytes, *, writable: bool = False, deadline: float | None = None) -> Any:
        """Rebuild a value from value bytes that are no error; `writable` as in `Engine.open_array`.

        One whose bytes were lost with their machine is made again first, at most until the deadline.

        Raises:
            SerializationError: it raised an exception, or SystemExit, when it was rebuilt.
            ObjectLostError: it was lost and cannot be made again. What the task raised: when it was.
            GetTimeoutError: the deadline has passed.
        """
        try:
            return self.client.values.decode(value, writable=writable, deadline=deadline)
        except errors.ObjectLostError as error:
            again = self._make_again(value, error, deadline)
            return self.decode(again, writable=writable, deadline=deadline)
        except errors.OutboardError:
            raise
        except (Exception, SystemExit) as error:
            text = f"the result cannot be rebuilt here: {type(error).__name__}: {error}"
            raise errors.SerializationError(text, what="result", reason=error) from error

    def _make_again(self, value: bytes, error: errors.ObjectLostError, deadline: float | None) -> bytes:
        """Have the task that made a lost value run again, and wait for its new value."""
        client = self.client
        oid = error.oid
        if oid is None or not client.reach.joined:
            raise error
        with shield, client.lock:
            entry = client.owner.refs.find(oid)
            if entry is None:
                raise error
            client.owner.rebuild(oid, error.version)
            if entry.value == value:
                raise error
        again: bytes | None = None
        while again is None:
            self._await_value(entry, deadline)
            again = entry.value
        _raise_if_failed(again)
        return again

    def _raise_failure(self, entries: list[Any]) -> None:
        for entry in entries:
            value = entry.value
            if value is not None and machine.is_failure(value):
                _raise_if_failed(value)

    def wait(self, refs: Any, num_returns: int = 1, timeout: float | None = None) -> Any:
        """See `Engine.wait`."""
        if isinstance(refs, ObjectRef) or not isinstance(refs, Iterable):
            raise TypeError(f"wait() takes a list of references (ObjectRef), not {describe_value(refs)}")
        refs = list(refs)
        check_refs("wait()", refs)
        if not refs:
            return [], []
        if len(set(refs)) != len(refs):
            raise ValueError("wait() takes each reference once")
        if not 1 <= num_returns <= len(refs):
            raise ValueError(f"num_returns must lie between 1 and {len(refs)}, not {num_returns}")
        entries = [self._entry(ref) for ref in refs]
        deadline = None if timeout is None else time.monotonic() + timeout
        self.client.turns.wait(lambda: sum(e.value is not None for e in entries) >= num_returns, deadline)
        if isinstance(self.client.closed_mark, ShutdownMark):
            self.client.check_open()  # that has given every entry a value
        ready: list[ObjectRef] = []
        others: list[ObjectRef] = []
        for ref, entry in zip(refs, entries, strict=True):
            (ready if entry.value is not None and len(ready) < num_returns else others).append(ref)
        return ready, others

    def nudge(self) -> None:
        """See `refs.Hold.nudge`."""
        self.client.background.nudge()

    def error_of(self, ref: ObjectRef) -> BaseException | None:
        """See `Engine.error_of`."""
        value = self._entry(ref).value
        return as_exception(value) if machine.is_failure(value) else None

    def adopt_ref(self, owner: int, seq: int, cls: type[Ref]) -> Ref:
        """See `Engine.adopt_ref`."""
        client = self.client
        with shield, client.lock:
            client.owner.refs.hold(ObjectId(owner, seq))
        if owner != client.incarnation:
            client.background.nudge()
        return cls(owner, seq, self)

    def add_done_callback(self, ref: ObjectRef, callback: Callable[[Completion], None]) -> None:
        """See `Engine.add_done_callback`."""
        entry = self._entry(ref)
        oid = ObjectId(ref.owner, ref.seq)
        self.client.background.start()
        with shield, self.client.lock:
            if entry.value is None:
                entry.watched = True
                self.client.owner.refs.hold(oid)  # the value is needed although the program may drop its reference
                self._watched.setdefault(oid, []).append((callback, _is_writable(entry)))
                self.client.background.nudge()
                return
        self._callbacks.call(lambda: callback(self._completion(0, entry.value, _is_writable(entry))))

    def _settled(self, oid: ObjectId, value: Any) -> None:
        """A watched object has its value; under the client's lock."""
        callbacks = self._watched.pop(oid, [])
        for callback, writable in callbacks:
            self.client.when_printed(partial(self._call_later, callback, value, writable, oid))

    def _call_later(self, callback: Callable[[Completion], None], value: Any, writable: bool, oid: ObjectId) -> None:
        self._callbacks.call(partial(self._call_back, callback, value, writable))
        self._callbacks.call(lambda: self.dropped.append(oid))

    def _call_back(self, callback: Callable[[Completion], None], value: Any, writable: bool) -> None:
        callback(self._completion(0, value, writable))

    def _completion(self, index: int, value: Any, writable: bool = False,
                    deadline: float | None = None) -> Completion:  # fmt: skip
        try:
            error = as_exception(value)
            if error is not None:
                return Completion(index, False, error)
            return Completion(index, True, self.decode(value, writable=writable, deadline=deadline))
        except Exception as error:
            if deadline is not None and isinstance(error, errors.GetTimeoutError):
                raise
            return Completion(index, False, error)

    # -- tasks --------------------------------------------------------------------------------------------------------

    def submit(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any],
               options: TaskOptions, binding: Binding | None = None) -> Any:  # fmt: skip
        """See `Engine.submit`."""
        client = self.client
        inputs: tuple[ObjectId, ...] = ()
        for value in args:
            if type(value) is ObjectRef:
                args, kwargs, inputs = _take_inputs(args, kwargs)
                break
        else:
            for value in kwargs.values():
                if type(value) is ObjectRef:
                    args, kwargs, inputs = _take_inputs(args, kwargs)
                    break
        try:
            kind = self._find_kind(function, options, binding, writable=binding is not None)
            encoded = client.values.encode_call((tuple(args), dict(kwargs)), len(inputs), are_arguments=True)
        except errors.OutboardError:
            raise
        except Exception as error:
            return self._unpicklable(function, args, options, error)
        while not (index := client.submit(kind, encoded, inputs)):  # another thread's kinds have driven it out
            kind = self._find_kind(function, options, binding, writable=binding is not None)
        if options.num_returns == 1:
            return ObjectRef(client.incarnation, index, self)
        refs = [ObjectRef(client.incarnation, index + i, self) for i in range(options.num_returns)]
        if not refs:
            self.dropped.append((client.incarnation, index))
            return None
        return refs

    def _unpicklable(self, function: Any, args: Any, options: TaskOptions, error: Exception) -> Any:
        """Report by the reference that function or arguments do not pickle."""
        mark = encode_failure(f"a call of {getattr(function, '__qualname__', repr(function))}", "argument", error)
        client, refs = self.client, []
        with shield, client.lock:
            for _ in range(max(1, options.num_returns)):
                seq = client.owner.new_seq()
                client.owner.put(seq, mark, None)
                refs.append(ObjectRef(client.incarnation, seq, self))
        return refs[0] if options.num_returns == 1 else refs if options.num_returns else None

    def cancel(self, ref: ObjectRef, *, force: bool = False, recursive: bool = True,
               kill_after: float | None = None) -> None:  # fmt: skip
        """See `Engine.cancel`."""
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"cancel() takes a reference (ObjectRef), not {describe_value(ref)}")
        if not recursive:
            raise ValueError("cancel(recursive=False) is not supported: what a task submitted is cancelled with it")
        client = self.client
        with shield, client.lock:
            if ref.owner == client.incarnation:
                if force and client.owner.is_call(ref.seq):
                    raise ValueError(
                        "force=True would end the actor, not its call alone: outboard.kill(actor) does that"
                    )
                client.owner.cancel(ref.seq, force=force, kill_after=0.0 if force else kill_after)
                client.failures += 1
            else:
                entry = client.owner.refs.find(ObjectId(ref.owner, ref.seq))
                if entry is None or entry.value is None:
                    raise ValueError(f"{ref!r} was made by another process: only that one can cancel its task")
        client.flush()

    def _find_kind(self, function: Any, options: TaskOptions, binding: Binding | None, *,
                   writable: bool) -> machine.Kind:  # fmt: skip
        if binding is None and (options.gang or self.gangs.inherited) is not None:
            binding = self.gangs.find_binding(options)
        kind = self._kinds.find(function, options, binding, writable=writable)
        if binding is not None and binding.id < 0:
            if not self.client.lanes[binding.id].shares:
                with shield, self.client.lock:
                    self.client.actors.call_at(binding.id)
        elif isinstance(binding, NativeBinding) and binding.id not in self._bindings and kind.refused is None:
            with shield, self.client.lock:  # its workers are gone, and the node has forgotten it
                self.client.refuse(kind, binding.mark or self.client.binding_mark(binding.id))
        return kind

    def open_array(self, function: Callable[[Any], Any], options: TaskOptions, binding: Binding | None = None, *,
                   writable: bool = True, share_arguments: bool = False) -> NativeArray:  # fmt: skip
        """See `Engine.open_array`."""
        if isinstance(binding, NativeBinding) and binding.is_actor:
            raise ValueError("an array of tasks cannot run in an actor, whose calls have an order")
        try:
            kind = self._find_kind(function, options, binding, writable=writable)
        except errors.OutboardError:
            raise
        except Exception as error:
            kind = self._broken_kind(function, options, error)
        with shield, self.client.lock:
            self.client.check_open()
            while kind.dropped:  # another thread's kinds have driven it out
                kind = self._find_kind(function, options, binding, writable=writable)
            record = self.client.owner.open_array(kind)
            self.client.array_items[record.stream] = []
            if share_arguments:
                self.client.share_arguments(record.stream)
        array = NativeArray(self, record, writable=writable)
        self._arrays[record.stream] = array
        return array

    def _broken_kind(self, function: Any, options: TaskOptions, error: Exception) -> machine.Kind:
        name = getattr(function, "__qualname__", repr(function))
        with shield, self.client.lock:
            return self._kinds.add_broken(name, encode_failure(name, "function", error))

    def _items_arrived(self, stream: int) -> None:
        """Items of an array settled; under the client's lock."""
        array = self._arrays.get(stream)
        if array is None:
            self.client.requests.append(self._dispose_ended)
            return
        array.end_sharing_if_over()
        if array.callback is not None:
            self.client.when_printed(partial(self._callbacks.call, array.deliver))

    def array_ended(self, record: Array) -> None:
        """An array was dropped by the program; may be called from a finaliser."""
        self._ended_arrays.append(record)
        self.client.requests.append(self._dispose_ended)
        self.client.background.nudge()

    def _dispose_ended(self) -> None:
        """Forget dropped arrays that have finished, and free what their results hold. Under the lock."""
        owner = self.client.owner
        for _ in range(len(self._ended_arrays)):
            record = self._ended_arrays.popleft()
            if record.finished < record.count:
                self._ended_arrays.append(record)
            else:
                owner.dispose_array(record)
                self.client.array_items.pop(record.stream, None)
                self.client.end_sharing(record.stream)
                self._kinds.on_array_ended(record.kind)

    # -- bindings -----------------------------------------------------------------------------------------------------

    def bind(self, *, processes: int, initializer: Callable[[], object] | None = None, max_tasks: int | None = None,
             label: str = "", actor: ActorTerms | None = None) -> Binding:  # fmt: skip
        """See `Engine.bind`."""
        options = actor.calls if actor is not None else TaskOptions()
        place = self.gangs.find_place(options, is_actor=actor is not None)
        return self.open_binding(processes=processes, initializer=initializer, max_tasks=max_tasks, label=label,
                                 actor=actor, place=place)  # fmt: skip

    def open_binding(self, *, processes: int, initializer: Callable[[], object] | None = None,
                     max_tasks: int | None = None, label: str = "", actor: ActorTerms | None = None,
                     place: Place | None = None) -> NativeBinding:  # fmt: skip
        """Set workers apart, in a gang's bundles if it is to be there; without a number they come with the tasks."""
        client = self.client
        encoded = client.values.encode_call(initializer) if initializer is not None else Encoded(b"")
        slots = client.welcome.slots
        is_spread = client.reach.joined and actor is None and 0 < slots < processes
        elsewhere = self._slots_elsewhere() if is_spread else 0
        with shield, client.lock:
            client.check_open()
            if place is not None:
                self.gangs.check_up(place)
            self._binding_count += 1
            binding = NativeBinding(self._binding_count, processes, label, client.incarnation)
            binding.client, binding.initializer = client, encoded
            client.labels[binding.id] = label
            client.hold_encoded(encoded)
            client.binding_specs[binding.id] = spec = pb.Binding(
                id=binding.id, initializer=encoded.body, max_tasks=max_tasks or 0, label=label
            )
            if initializer is not None:
                spec.sys_path.extend(sys.path)
                spec.modules.extend(engines.companions)
            self._bindings[binding.id] = binding
            if place is not None:
                spec.MergeFrom(place.describe())
                client.ganged[binding.id] = None
                self.gangs.on_opened(place, binding)
            nodes = None if place is None else place.nodes
            if actor is not None:
                self.actors.open(binding, actor, nodes)
            elif client.reach.bindings.open(binding.id, processes, ordered=False, elsewhere=elsewhere, nodes=nodes):
                client.outbox.introduce_binding(binding.id, HOME)
        if actor is not None and client.reach.joined:
            self.actors.seek(binding, self._find_kind(ready, actor.calls, binding, writable=True))
        return binding

    def reserve_id(self) -> ObjectId:
        """See `Engine.reserve_id`."""
        return ObjectId(self.client.incarnation, self.client.take_seq())

    def _slots_elsewhere(self) -> int:
        """Slots of the other nodes of the cluster, as far as it is known there."""
        own = f"{self.client.welcome.node:016x}"
        return sum(int(node["resources"].get("CPU", 0)) for node in self.nodes() if node["id"] != own)

    def unbind(self, binding: Binding, *, force: bool) -> None:
        """See `Engine.unbind`."""
        self.client.requests.append(lambda: self._unbind(binding, force))
        self.client.background.nudge()

    def _unbind(self, binding: Binding, force: bool) -> None:
        """Let workers go; under the client's lock."""
        self.drop_binding(binding, force=force, mark=BindingMark(binding.label, b"", None))

    def drop_binding(self, binding: Binding, *, force: bool, mark: Any) -> None:
        """Let workers go; what `force` leaves undone fails with the mark, or is cancelled. Under the client's lock."""
        client = self.client
        bound = self._bindings.get(binding.id)
        if client.closed_mark is not None or bound is None or bound.is_forced:
            return
        if not force:
            client.leaving[binding.id] = None
            return
        bound.is_forced = True
        client.leaving.pop(binding.id, None)
        client.outbox.unbind(binding.id, force=True)
        client.fail_binding(binding.id, mark)
        for record in list(client.owner.arrays.values()):
            if client.kind_binding.get(record.kind.id) == binding.id:
                client.owner.cancel_array(record, kill_after=None)
                self._items_arrived(record.stream)
        if not (mark.is_actor or mark.is_ganged):
            self._cancel_tasks(binding.id)
        client.reach.forget_unbound(binding.id)

    def _unbound(self, binding: int) -> None:
        """The last worker of a binding has gone; under the client's lock."""
        client = self.client
        bound = self._bindings.pop(binding, None)
        client.labels.pop(binding, None)
        client.binding_specs.pop(binding, None)
        client.lanes.pop(binding, None)
        client.ganged.pop(binding, None)
        mark = client.failed_bindings.pop(binding, None)
        if bound is not None:
            bound.mark = mark
            client.let_go_encoded(bound.initializer)
        self._kinds.on_unbound(binding)

    def _cancel_tasks(self, binding: int) -> None:
        client = self.client
        for seq, entry in list(client.owner.refs.owned.items()):
            if isinstance(entry, machine.Task) and client.kind_binding.get(entry.kind.id) == binding:
                client.owner.cancel(seq)

    def join_binding(self, binding: Binding, timeout: float | None = None) -> bool:
        """See `Engine.join_binding`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        bindings = self._bindings
        try:
            return self.client.turns.wait(lambda: binding.id not in bindings, deadline)
        except (errors.NodeLostError, errors.ShutdownError):
            return True

    # -- the cluster --------------------------------------------------------------------------------------------------

    def idle(self) -> AbstractContextManager[None]:
        """See `Engine.idle`."""
        return Idle(self.client.turns)

    def aside(self) -> AbstractContextManager[None]:
        """See `Engine.aside`."""
        return Aside(self.client.turns)

    def nodes(self) -> list[dict[str, Any]]:
        """See `Engine.nodes`."""
        reply = self.client.ask_node(Frame.STATUS, b"", Frame.STATUS_REPLY)
        return [
            {
                "id": f"{node.node:016x}",
                "host": node.host,
                "pid": node.pid,
                "resources": _floats(node.totals),
                "available": _floats(node.free),
                "running": node.running,
                "queued": node.queued,
                "store_nbytes": node.store_nbytes,
                "store_used_nbytes": node.store_used_nbytes,
                "workers": [
                    {"pid": w.pid, "state": w.state, "binding": w.binding, "owner": w.owner} for w in node.workers
                ],
                "actors": [
                    {
                        "actor_id": ObjectId(a.owner, a.anchor).hex(),
                        "class_name": a.class_name,
                        "name": a.name,
                        "namespace": a.namespace,
                        "state": a.state,
                        "pid": a.pid,
                        "num_restarts": a.restarts,
                    }
                    for a in node.actors
                ],
            }
            for node in reply.nodes
        ]

    def timeline(self) -> list[pb.Timeline]:
        """See `Engine.timeline`."""
        return self.client.timeline.answers()

    def cluster_resources(self) -> dict[str, float]:
        """See `Engine.cluster_resources`."""
        if not self.client.reach.joined:
            return _floats(self.client.welcome.totals)
        return self._sum_over_nodes("resources")

    def available_resources(self) -> dict[str, float]:
        """See `Engine.available_resources`."""
        return self._sum_over_nodes("available")

    def _sum_over_nodes(self, what: str) -> dict[str, float]:
        amounts: dict[str, float] = {}
        for node in self.nodes():
            for name, amount in node[what].items():
                amounts[name] = amounts.get(name, 0.0) + amount
        return amounts

    def shutdown(self) -> None:
        """See `Engine.shutdown`."""
        if os.getpid() != self.pid:
            return
        self._callbacks.drain(FAREWELL_SECONDS)
        try:
            # A question makes the node pass on what tasks have printed; one that does not answer is not waited for.
            self.client.ask_node(Frame.STATUS, b"", Frame.STATUS_REPLY, timeout=FAREWELL_SECONDS)
        except errors.OutboardError:
            pass
        self.client.close("Outboard was shut down")
        self._callbacks.stop(FAREWELL_SECONDS)
        on_shutdown, self._on_shutdown = self._on_shutdown, lambda: None
        on_shutdown()


def _is_writable(entry: Any) -> bool:
    """Whether an object is the result of a Pool's call, whose program expects to be able to write to it."""
    return isinstance(entry, machine.Task) and entry.kind.writable


class _AllReady:
    """Whether all entries have values, or one of them failed; looks at each entry once as they come in order."""

    def __init__(self, client: Client, entries: list[Any]) -> None:
        self.client, self.entries = client, entries
        self.next = 0
        self.failures = -1
        self.has_failed = False  # kept: it is asked more than once

    def __call__(self) -> bool:
        entries, position = self.entries, self.next
        while position < len(entries) and entries[position].value is not None:
            position += 1
        self.next = position
        if position == len(entries):
            return True
        if self.failures != self.client.failures:
            self.failures = self.client.failures
            self.has_failed = any(e.value is not None and machine.is_failure(e.value) for e in entries)
        return self.has_failed


def _raise_if_failed(value: Any) -> None:
    error = as_exception(value)
    try:
        if error is not None:
            raise error
    finally:
        del error  # with its traceback it would be a cycle, in which the caller's references would outlive their names


def _take_inputs(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any, tuple[ObjectId, ...]]:
    inputs: list[ObjectId] = []

    def place(value: Any) -> Any:
        if isinstance(value, ObjectRef):
            inputs.append(ObjectId(value.owner, value.seq))
            return Input(len(inputs) - 1)
        return value

    args = tuple(place(v) for v in args)
    kwargs = {name: place(v) for name, v in kwargs.items()}
    return args, kwargs, tuple(inputs)


def _floats(units: Mapping[str, int]) -> dict[str, float]:
    return {name: amount / RESOURCE_UNIT for name, amount in units.items()}


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = object.__repr__(value)
    return text if len(text) <= 80 else text[:77] + "..."
