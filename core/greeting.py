"""How a client introduces itself to its node, and the engine that comes of it."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable

from . import errors, forks
from .client import Client, new_incarnation, python_version
from .interrupts import shield
from .logs import Printer
from .native import NativeEngine
from .options import Settings
from .process.interpreter import current_folder, import_path
from .rpc.codec import Frame
from .rpc.local import BlockingLink
from .rpc.protos import outboard_pb2 as pb
from .version import PROTOCOL, __version__

#: Modules that workers may import ahead when the client has imported them.
PRELOADABLE = ("numpy",)

#: What a node may refuse a client with: it names the error's number ahead of the reason.
_REFUSALS = {
    cls.ob_code: cls
    for cls in (errors.OutboardError, errors.TransportError, errors.NodeLostError, errors.VersionMismatchError,
                errors.AuthenticationError)
}  # fmt: skip

#: What a client is given that nobody has told otherwise.
USUAL = Settings()

_ENDED = "the node ended before it answered; see its message on stderr"


def greet(
    sock: socket.socket, timeout: float, on_shutdown: Callable[[], None], settings: Settings = USUAL
) -> NativeEngine:
    """Say hello over a new connection and return an engine on it.

    Raises:
        NodeLostError: the node ended before it answered. GetTimeoutError: no answer in time.
        VersionMismatchError: the two ends do not fit. Others of ours: why a slotless node cannot join its cluster.
    """
    link = BlockingLink(sock)
    incarnation = new_incarnation()
    namespace = settings.namespace or f"{incarnation:016x}"
    try:
        link.send(Frame.HELLO, _hello(incarnation, namespace).SerializeToString())
    except (BrokenPipeError, ConnectionResetError):
        raise errors.NodeLostError(_ENDED) from None
    client = Client(link, incarnation, _await_welcome(link, timeout))
    printer = Printer(settings.log_prefix)
    client.on_lines = printer.print

    def end() -> None:
        printer.close()
        on_shutdown()

    engine = NativeEngine(client, end, namespace=namespace)
    forks.watch(engine)
    client.background.start()
    return engine


def _await_welcome(link: BlockingLink, timeout: float) -> pb.Welcome:
    deadline = time.monotonic() + timeout
    while True:
        if not shield.open(link.receive, max(0.0, deadline - time.monotonic())):
            raise errors.GetTimeoutError(f"the node did not answer within {timeout:g} s")
        for frame_type, body, _, _ in link.frames():
            if frame_type == Frame.REFUSAL:
                raise _refusal(pb.Refusal.FromString(body).reason)
            if frame_type == Frame.WELCOME:
                return pb.Welcome.FromString(body)
        if link.closed:
            raise errors.NodeLostError(_ENDED)


def _refusal(reason: str) -> errors.OutboardError:
    number, _, text = reason.partition(": ")
    cls = _REFUSALS.get(number)
    return errors.VersionMismatchError(reason) if cls is None else cls(text)


def _hello(incarnation: int, namespace: str) -> pb.Hello:
    from multiprocessing.process import current_process  # its key lets Manager proxies work in tasks

    main = sys.modules.get("__main__")
    return pb.Hello(protocol=PROTOCOL, release=__version__, python=python_version(), pid=os.getpid(),
                    incarnation=incarnation, role=pb.Hello.CLIENT, sys_path=import_path(),
                    cwd=current_folder(), main_path=getattr(main, "__file__", None) or "",
                    main_package=getattr(main, "__package__", None) or "",
                    authkey=bytes(current_process().authkey), namespace=namespace,
                    preload=[name for name in PRELOADABLE if name in sys.modules])  # fmt: skip
