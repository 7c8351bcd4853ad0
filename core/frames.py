"""From the owner machine's commands to frames, and from frames to its events: the client's dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .failures import encode_error
from .ids import ObjectId, Span
from .rpc.protos import outboard_pb2 as pb
from .scheduler import outcomes
from .scheduler.owner import Adopted, Extra, Kind, Parcel, Task
from .values import Encoded

_EMPTY: tuple[Any, ...] = ()


#: Bytes that may pass through one reused message: what is deleted from a message stays in its memory until it goes.
REUSE_NBYTES = 64 << 10


class SubmitBuilder:
    """Builds SUBMIT frames. Not thread-safe: used under the client's lock."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._lone = pb.Submit()
        self._lone.intervals.add()
        self._passed = 0

    def lone(self, kind: Kind, first: int, attempt: int, call: bytes) -> bytes:
        """One plain task without stored inputs, the commonest message of all; reuses one message object."""
        self._passed += len(call)
        if self._passed > REUSE_NBYTES:
            self._renew()
        interval = self._lone.intervals[0]
        interval.kind = kind.id
        interval.first = first
        interval.attempt = attempt
        interval.stride = kind.stride
        calls = interval.calls
        del calls[:]
        calls.append(call)
        return self._lone.SerializeToString()


def add_interval(submit: pb.Submit, kind: Kind, stream: int, first: int, attempt: int, calls: Iterable[bytes],
                 holds: Mapping[int, tuple[pb.Descriptor, ...]]) -> None:  # fmt: skip
    """Append an interval; `holds` gives the stored objects by position in `calls`."""
    interval = submit.intervals.add()
    interval.kind = kind.id
    interval.stream = stream
    interval.first = first
    interval.attempt = attempt
    interval.stride = kind.stride if stream == 0 else 1
    interval.array = stream != 0
    interval.calls.extend(calls)
    for position, objects in holds.items():
        interval.holds.add(position=position, objects=objects)


def complete_call(task: Task, inputs: list[Any]) -> Encoded:
    """Put the values of a task's inputs beside its arguments, now that they exist."""
    encoded: Encoded = task.call
    parcel = pb.Parcel()
    if encoded.body[:1] == b"\x80":
        parcel.stream = encoded.body
    else:
        parcel.ParseFromString(encoded.body)
    objects = list(encoded.objects)
    for value in inputs:
        parcel.inputs.append(value)
        if value[0] != 0x80:
            outcome = pb.Outcome.FromString(value)
            if outcome.value.HasField("stored"):
                objects.append(outcome.value.stored)
    return encoded._replace(body=parcel.SerializeToString(), objects=tuple(objects))


def read_extras(values: list[bytes]) -> dict[int, Extra]:
    """Find the results that lie in the store or contain references, by position."""
    extras: dict[int, Extra] = {}
    for position, value in enumerate(values):
        extra = read_extra(value)
        if extra is not None:
            extras[position] = extra
    return extras


def read_extra(value: bytes) -> Extra | None:
    """Say what a value has beside its bytes, if anything."""
    if value[:1] != b"\x0a":
        return None
    parcel = pb.Outcome.FromString(value).value
    contained = tuple(ObjectId(r.owner, r.seq) for r in parcel.refs)
    if parcel.HasField("stored"):
        stored = parcel.stored
        return Extra(stored.version, contained, stored.node, stored.nbytes)
    return Extra(None, contained) if contained else None


def read_adoption(adoption: pb.Adoption) -> Adopted:
    """One object that passes into this process's ownership."""
    holdings = tuple((holding.process, holding.count) for holding in adoption.holdings)
    return Adopted(read_ref(adoption.ref), adoption.value, read_extra(adoption.value), holdings)


def read_lost_input(value: bytes) -> tuple[ObjectId, int] | None:
    """Say which input, and which version of it, a task could not get, when that is what its failure says."""
    error = pb.Outcome.FromString(value).error
    return (read_ref(error.lost), error.lost.version) if error.cause == pb.Error.INPUT_LOST else None


def read_ref(ref: pb.Ref) -> ObjectId:
    """Name of an object."""
    return ObjectId(ref.owner, ref.seq)


def write_ref(oid: ObjectId, version: int = 0) -> pb.Ref:
    """Name of an object as it travels."""
    return pb.Ref(owner=oid.owner, seq=oid.seq, version=version)


def write_passed(message: pb.Finished | pb.Adopt, parcel: Parcel) -> None:
    """Add what goes along with the results of tasks, or with an object that passes on later."""
    for oid, value, holdings in parcel.passed:
        adoption = message.adopted.add(ref=write_ref(oid), value=answer_bytes(value))
        for process, times in holdings:
            adoption.holdings.add(process=process, count=times)
    message.lent.extend(map(write_ref, parcel.lent))


def read_spans(spans: Iterable[pb.Span]) -> list[Span]:
    """Spans as the machines know them."""
    return [Span(s.stream, s.first, s.count, s.attempt, s.stride or 1) for s in spans]


def write_spans(spans: Iterable[Span]) -> list[pb.Span]:
    """Spans as they travel."""
    return [pb.Span(stream=s.stream, first=s.first, count=s.count, attempt=s.attempt, stride=s.stride) for s in spans]


def answer_bytes(value: Any) -> bytes:
    """Give an entry's value as value bytes, marks as the error they stand for."""
    if isinstance(value, bytes):
        return value
    from .failures import as_exception

    error = as_exception(value)
    cause = pb.Error.CANCELLED if isinstance(value, outcomes.CancelledMark) else pb.Error.DEPENDENCY
    return encode_error(error or RuntimeError("no value"), cause)


def refs_body(pairs: Iterable[tuple[ObjectId, int]]) -> bytes:
    """Encode (object, version) pairs."""
    return pb.Refs(refs=[pb.Ref(owner=o.owner, seq=o.seq, version=v) for o, v in pairs]).SerializeToString()
