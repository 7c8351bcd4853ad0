"""Typed messages at the door: what comes in is bounded before anybody looks at it, and services follow their proto."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import ServiceDescriptorProto
from google.protobuf.message import DecodeError, Message

from .codec import ProtocolError
from .grpc_library import grpc

#: Bytes of a string: names, addresses, reasons.
MAX_STRING_NBYTES = 1024

#: Bytes of an opaque field, such as the record of a name.
MAX_BYTES_NBYTES = 64 * 1024

#: Entries of a list or map: as many nodes as one cluster may have.
MAX_ENTRIES = 4096

Kind = TypeVar("Kind", bound=Message)

#: A method of a service: takes a request (bytes, or an iterator that is not used) and the context.
Method = Callable[[Any, Any], Awaitable[Any]]


def parse(kind: type[Kind], data: bytes, max_nbytes: int) -> Kind:
    """Decode a message that somebody else sent.

    Raises:
        ProtocolError: it is longer than ``max_nbytes``, does not decode, or holds a field over its bounds.
    """
    if len(data) > max_nbytes:
        raise ProtocolError(f"{kind.__name__} of {len(data)} bytes; at most {max_nbytes} are allowed")
    try:
        message = kind.FromString(data)
    except DecodeError:
        raise ProtocolError(f"these {len(data)} bytes are no {kind.__name__}") from None
    check_bounds(message)
    return message


def check_bounds(message: Message) -> None:
    """Raise ProtocolError when a string, an opaque field or a count within ``message`` is over its bounds."""
    for field, value in message.ListFields():
        if isinstance(value, (int, float)):
            continue
        if isinstance(value, (Message, str, bytes)):
            _check_value(field.full_name, value)
            continue
        if len(value) > MAX_ENTRIES:
            raise ProtocolError(f"{field.full_name} has {len(value)} entries; at most {MAX_ENTRIES} are allowed")
        for entry in value:  # of a map: its keys, since the values of all maps are numbers
            _check_value(field.full_name, entry)


def _check_value(name: str, value: Any) -> None:
    if isinstance(value, Message):
        check_bounds(value)
    elif isinstance(value, str):
        _check_length(name, len(value.encode()), MAX_STRING_NBYTES)
    elif isinstance(value, bytes):
        _check_length(name, len(value), MAX_BYTES_NBYTES)


def _check_length(name: str, nbytes: int, most: int) -> None:
    if nbytes > most:
        raise ProtocolError(f"{name} has {nbytes} bytes; at most {most} are allowed")


def service(described: ServiceDescriptor, methods: Mapping[str, Method], name: str = "") -> Any:
    """Return what a server needs to serve ``described`` with raw bytes in and out.

    Args:
        methods: coroutine functions by RPC; one that streams its answers writes them to the context and returns None.
        name: full name to serve it under, when that is not its own.
    Raises:
        ValueError: an RPC has no method, or a method no RPC.
    """
    # Through the proto: descriptors of methods of old runtimes do not tell what streams.
    proto = ServiceDescriptorProto()
    described.CopyToProto(proto)
    wanted = {rpc.name: rpc for rpc in proto.method}
    if wanted.keys() != methods.keys():
        raise ValueError(f"{described.full_name} has {sorted(wanted)}, not {sorted(methods)}")
    handlers = {rpc: _handler(wanted[rpc], method) for rpc, method in methods.items()}
    return grpc.method_handlers_generic_handler(name or described.full_name, handlers)


def _handler(rpc: Any, method: Method) -> Any:
    if rpc.client_streaming:
        return grpc.stream_stream_rpc_method_handler(method)
    if rpc.server_streaming:
        return grpc.unary_stream_rpc_method_handler(method)
    return grpc.unary_unary_rpc_method_handler(method)


def path(described: ServiceDescriptor, rpc: str) -> str:
    """Return the path under which a dialler calls an RPC."""
    return f"/{described.full_name}/{rpc}"
