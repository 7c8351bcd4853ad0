"""The kinds of an engine: found by function and options, and dropped once nothing needs them any more."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from .actorhost import Method
from .client import Client, MadeKind
from .engine import Binding, companions
from .interrupts import shield
from .options import TaskOptions
from .rpc.protos import outboard_pb2 as pb
from .scheduler import owner as machine
from .values import Encoded

#: Functions whose pickles are kept. A program that makes functions in a loop pays for pickling again beyond it.
KINDS_KEPT = 512

Key = tuple[Any, ...]


class KindKeeper:
    """Every kind is kept here under its key, or waits in `Client.retired` for the end of its last task.

    Of kinds whose pickled function refers to stored objects (a closure or partial over large arrays) only the last one
    is kept: each may hold a good part of the store.
    """

    def __init__(self, client: Client, machine_retries: Callable[[TaskOptions, Binding | None], int]) -> None:
        self._client = client
        self._machine_retries = machine_retries
        self._kept: dict[Key, MadeKind] = {}
        self._heavy: MadeKind | None = None

    def __repr__(self) -> str:
        return f"<KindKeeper kept={len(self._kept)} retired={len(self._client.retired)}>"

    def find(self, function: Any, options: TaskOptions, binding: Binding | None, *, writable: bool) -> machine.Kind:
        """Find or make the kind of these calls; a function is pickled once while it cannot have changed."""
        binding_id = binding.id if binding is not None else 0
        is_stable = (type(function) is FunctionType and function.__closure__ is None) or type(function) is Method
        key: Key = (id(function), options.key, binding_id, writable, len(companions))
        if is_stable:
            made = self._kept.get(key)
            if made is not None:
                return made.kind
        encoded = self._client.values.encode_call(function)
        if not is_stable:
            key = (encoded.body, options.key, binding_id, writable, len(companions))
        with shield, self._client.lock:
            made = self._kept.get(key)
            if made is not None:
                for d in encoded.objects:
                    self._client.dropped.append((d.owner, d.seq))  # the kind has its own
                return made.kind
            return self._make(key, function, is_stable, encoded, options, binding, writable).kind

    def _make(self, key: Key, function: Any, is_stable: bool, encoded: Encoded, options: TaskOptions,
              binding: Binding | None, writable: bool) -> MadeKind:  # fmt: skip
        client, binding_id = self._client, binding.id if binding is not None else 0
        name = options.name or getattr(function, "__name__", None) or type(function).__name__
        client.register(encoded.objects)
        client.check_open()
        lane = client.lanes.get(binding_id)
        retries = options.max_retries if lane is None else 0  # the actor's node runs calls again after a death
        kind = client.owner.add_kind(name, process_retries=retries, stride=max(1, options.num_returns),
                                     machine_retries=self._machine_retries(options, binding), lane=lane)  # fmt: skip
        kind.writable = writable
        client.hold_encoded(encoded)
        client.kinds[kind.id] = pb.Kind(id=kind.id, binding=max(0, binding_id), function=encoded.body, name=name,
                                        resources=options.demand(), num_returns=options.num_returns,
                                        writable=writable, sys_path=sys.path, modules=companions,
                                        process_retries=0 if lane is None else options.max_retries)  # fmt: skip
        client.kind_binding[kind.id] = binding_id
        if binding_id > 0 and client.reach.joined:
            client.reach.confine(binding_id)
        if options.retry_exceptions:
            client.retries[kind.id] = options.retry_exceptions
        mark = client.failed_bindings.get(binding_id)
        if mark is not None:
            client.owner.on_refused(kind.id, mark)
        made = MadeKind(kind, key, encoded, function if is_stable else None)
        self._keep(made)
        return made

    def _keep(self, made: MadeKind) -> None:
        if len(self._kept) >= KINDS_KEPT:
            self.retire(next(iter(self._kept.values())))
        self._kept[made.key] = made
        if made.is_heavy:
            if self._heavy is not None:
                self.retire(self._heavy)
            self._heavy = made

    def retire(self, made: MadeKind) -> None:
        """Keep a kind no longer than its tasks need it. Under the lock."""
        if self._kept.get(made.key) is made:
            del self._kept[made.key]
            self._client.retired.append(made)
        if self._heavy is made:
            self._heavy = None

    def on_array_ended(self, kind: machine.Kind) -> None:
        """An array of this kind was disposed of. Under the lock."""
        if self._heavy is not None and self._heavy.kind is kind:
            self.retire(self._heavy)

    def on_unbound(self, binding: int) -> None:
        """A binding has gone: nothing more can be sent to it. Under the lock."""
        for made in [m for m in self._kept.values() if self._client.kind_binding.get(m.kind.id) == binding]:
            self.retire(made)

    def add_broken(self, name: str, mark: Any) -> machine.Kind:
        """Make a kind of which every task fails, for a function that does not pickle. Under the lock."""
        kind = self._client.owner.add_kind(name, process_retries=0, machine_retries=0, stride=1)
        self._client.kinds[kind.id] = pb.Kind(id=kind.id, name=name)  # the node never hears of it
        self._client.owner.on_refused(kind.id, mark)
        self._client.retired.append(MadeKind(kind, (), Encoded(b""), None))
        return kind
