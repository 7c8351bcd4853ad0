"""How a worker encodes what a task returned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from .client import Client
from .errors import StoreFullError
from .failures import encode_error
from .ids import ObjectId
from .rpc.protos import outboard_pb2 as pb
from .values import INLINE_MAX

#: Bytes of results after which they are sent, and beyond which further results of one task go to the store, but for
#: those not above `CROWDED_INLINE_MAX`. Larger makes fewer messages, smaller keeps less in sockets.
PART_NBYTES = 1 << 20
CROWDED_INLINE_MAX = 4 << 10


class Results(NamedTuple):
    """Values of one task as they travel, and what they bring along; `mixed`: some value is no plain one.

    The references in `contained` are held until the owner has been told.
    """

    bodies: list[bytes]
    announced: list[pb.Descriptor]
    contained: list[ObjectId]
    mixed: bool


def encode_results(client: Client, values: Iterable[Any], names: Iterator[ObjectId], attempt: int,
                   nbytes: int = 0) -> Results:  # fmt: skip
    """Encode the results of one task, whose ids are `names`; never raises: what does not pickle is an error itself.

    `nbytes`: of results that travel with these.
    """
    results = Results([], [], [], False)
    mixed = False
    for value, oid in zip(values, names, strict=False):
        inline = INLINE_MAX if nbytes <= PART_NBYTES else CROWDED_INLINE_MAX
        try:
            encoded = client.values.encode_value(value, partial(_same, oid), attempt, to_origin=True, inline=inline)
        except BaseException as error:
            cause = pb.Error.RAISED if isinstance(error, StoreFullError) else pb.Error.RESULT_UNPICKLABLE
            mixed = True
            results.bodies.append(encode_error(error, cause, _short(value)))
            continue
        results.bodies.append(encoded.body)
        nbytes += len(encoded.body)
        mixed = mixed or encoded.body[0] != 0x80
        results.announced.extend(client.values.take_unannounced(encoded.objects))
        for oid in encoded.refs:
            client.hold(oid)
        results.contained.extend(encoded.refs)
    return results._replace(mixed=mixed)


def _same(oid: ObjectId) -> ObjectId:
    return oid


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except BaseException:
        text = object.__repr__(value)
    return text if len(text) <= 200 else text[:197] + "..."
