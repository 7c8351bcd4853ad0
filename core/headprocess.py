"""The head as a process of its own, started as ``python -c`` by `launch.start`."""

from __future__ import annotations

import json
import signal
from typing import Any

from .addresses import join_address, own_host
from .aioloop import AioLoop
from .clusterfolder import ClusterFolder
from .clustersecurity import read_security
from .errors import OutboardError, TransportError
from .head import Head
from .journal import Journal
from .rpc.grpc_head import HeadService
from .rpc.grpc_server import Server
from .serving import Starter, watch_end


def main(ready_fd: int, life_fd: int, settings_json: str) -> int:
    """Be the head until the cluster is stopped, or this process is told to end; return the exit code."""
    settings = json.loads(settings_json)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this process to answer
    starter = Starter(ready_fd)
    loop = AioLoop()
    try:
        with starter.told_of_faults():
            loop.run(_serve(loop, settings, starter, life_fd))
    finally:
        loop.close()
    return starter.exit_code


async def _serve(loop: AioLoop, settings: dict[str, Any], starter: Starter, life_fd: int) -> None:
    folder = ClusterFolder(settings["folder"])
    folder.make()
    folder.lock()
    state = folder.read_state()
    security = read_security(settings, folder.token, may_make=True)
    journal = Journal("head", as_json=bool(settings["log"]))
    journal.fields["cluster"] = state.cluster
    head = Head(loop, state, folder.write_state, journal, settings["log"])
    server = Server(security, [HeadService(head.on_node, head.on_status, head.on_stop).handler])
    head.refused = lambda: server.refused
    try:
        port = await server.start(join_address(settings["host"], settings["port"]))
    except (TransportError, ValueError) as error:
        raise OutboardError(error._text() if isinstance(error, OutboardError) else str(error)) from None
    address = join_address(own_host(settings["host"]), port)
    folder.write_address(address)
    watch_end(loop, life_fd, head.tell_to_end)
    head.start()
    journal("serving", f"the head of cluster {state.cluster} listens at {address}")
    starter.answer(address=address, cluster=state.cluster, folder=str(folder.path))
    reason = await head.ended
    journal("ending", f"the head ends: {reason}")
    await server.stop()
    head.close()
    if head.is_stopped:
        folder.remove_address()
    folder.unlock()
