"""``outboard stop``: end a cluster."""

from __future__ import annotations

import time
from typing import Any

import click

from ..addresses import check_reachable
from ..clusterfolder import ClusterFolder
from ..errors import TransportError
from ..exits import FAILED, TIMED_OUT
from .common import Fault, address_of, ask, cluster_options, counted, load
from .status import fetch

#: Seconds beyond the grace in which the head answers, and then ends.
ANSWER_SECONDS = 10.0
END_SECONDS = 5.0


@click.command()
@click.option("--address", metavar="HOST:PORT", help="Where the head listens.")
@click.option("--grace", type=click.FloatRange(0), default=20.0, show_default=True, metavar="SECONDS",
              help="What runs may take so long to finish; 0: it is ended at once.")  # fmt: skip
@cluster_options
def stop(grace: float, **given: Any) -> None:
    """End a cluster: its nodes finish what they have and leave, then the head ends."""
    settings = load(**given)
    address = address_of(settings, ClusterFolder(settings.folder))
    found = fetch(settings)
    running = counted(sum(node.load.running + node.load.queued for node in found.nodes), "task")
    waits_for = f"{counted(len(found.nodes), 'node')} with {running} to leave; {grace:g} s at most"

    async def question(where: str, security: Any) -> Any:
        from ..rpc.grpc_head import ask_stop
        from ..rpc.protos import cluster_pb2 as pb

        request = pb.StopRequest(force=not grace, deadline_seconds=grace)
        return await ask_stop(where, security, request, grace + 2 * ANSWER_SECONDS)

    reply = ask(question, settings, grace + ANSWER_SECONDS, waits_for, TIMED_OUT)
    _await_end(address)
    click.echo(f"cluster {found.cluster} stopped: {counted(reply.left, 'node')} left")
    if reply.lost:
        lost = counted(reply.lost, "node")
        raise Fault(f"{lost} did not say goodbye; what still runs of it looks for a head at {address}", FAILED)


def _await_end(address: str) -> None:
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        try:
            check_reachable(address)
        except TransportError:
            return
        time.sleep(0.01)
    raise Fault(f"the head at {address} has not ended within {END_SECONDS:g} s", TIMED_OUT)
