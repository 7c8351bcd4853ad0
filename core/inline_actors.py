"""Actors of the inline engine: objects in this process, whose calls run when they are made."""

from __future__ import annotations

from .actorhost import Host
from .engine import ActorTerms, Binding, Completion
from .errors import ActorDiedError
from .ids import ObjectId


class InlineActors:
    """See `ActorCalls`. Nothing here outlives the program, or has a process that could be started again."""

    def __init__(self) -> None:
        self._bindings: dict[int, Binding] = {}  # by anchor
        self._hosts: dict[int, Host] = {}  # by binding
        self._names: dict[tuple[str, str], tuple[int, bytes]] = {}  # anchor and record

    def on_made(self, seq: int, binding: Binding, done: Completion) -> None:
        """An actor with this anchor was made, or could not be."""
        self._bindings[seq] = binding
        if done.ok:
            self._hosts[binding.id] = done.value
        else:
            binding.failed = ActorDiedError(actor=binding.label, reason="it could not be made", cause=done.value)

    def on_ended(self, seq: int) -> None:
        """The last reference to an object has gone, which may be an anchor."""
        binding = self._bindings.pop(seq, None)
        if binding is not None:
            self._hosts.pop(binding.id, None)
            self._names = {key: held for key, held in self._names.items() if held[0] != seq}

    def host_of(self, binding: Binding | None) -> Host | None:
        """The actor whose calls a binding's are, if it is one."""
        return self._hosts.get(binding.id) if binding is not None else None

    def attach(
        self, anchor: ObjectId, label: str, *, in_order: bool, address: tuple[int, int] | None = None
    ) -> Binding:
        """Find the binding of an actor."""
        return self._bindings[anchor.seq]

    def end(self, anchor: ObjectId, *, restart: bool = False) -> None:
        """Refuse further calls."""
        binding = self._bindings[anchor.seq]
        binding.failed = binding.failed or ActorDiedError(actor=binding.label, reason="it was killed")

    def leave(self, anchor: ObjectId) -> None:
        """Refuse further calls."""
        self.end(anchor)

    def claim_name(self, anchor: ObjectId, namespace: str, name: str, record: bytes) -> bytes | None:
        """Give it away once; it is free again when its actor has ended."""
        held = self.find_name(namespace, name)
        if held is None:
            self._names[namespace, name] = anchor.seq, record
        return held

    def find_name(self, namespace: str, name: str) -> bytes | None:
        """Look it up."""
        return self._names.get((namespace, name), (0, None))[1]

    def place(self, terms: ActorTerms) -> tuple[int, int]:
        """Refuse."""
        raise ValueError('lifetime="detached" needs a cluster: there is nothing here that outlives the program')

    def bind_detached(
        self, terms: ActorTerms, address: tuple[int, int], make: bytes, label: str, name: tuple[str, str] | None,
        record: bytes,
    ) -> None:  # fmt: skip
        """Refuse, as `place`, which comes first."""
        self.place(terms)
