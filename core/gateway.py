"""A slotless node: one program's way into a cluster that has no node of its user on this machine.

It is a member of the cluster that offers nothing: no CPUs, no address, no listening port. The program's first frame is
answered when the head has taken it in, or with the reason why not. It ends with the program, and says goodbye; when the
head is lost it comes back to it, as all nodes do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from typing import Any

from .aioloop import AioLoop
from .clusterfolder import ClusterFolder
from .clustersecurity import read_security
from .errors import OutboardError, TransportError
from .exits import one_line
from .joining import Membership
from .journal import Journal
from .node import Node
from .process.limits import raise_descriptor_limit
from .rpc.codec import Frame
from .rpc.local import LoopLink
from .rpc.protos import outboard_pb2 as pb

#: Share of the program's patience that is kept back, so that the reason why the head did not answer arrives in time.
KEPT_SHARE = 0.1

#: What a slotless node offers.
NOTHING = {"num_cpus": 0, "num_gpus": 0, "resources": {}}


def run(boot: Any, settings: dict[str, Any], token: str | None) -> None:
    """Lead the client of ``boot`` into the cluster at ``settings["address"]`` until it ends."""
    loop = AioLoop()
    raise_descriptor_limit()
    node = Node(loop, boot, settings | NOTHING, _nothing, joined=True)
    try:
        with contextlib.suppress(asyncio.CancelledError):  # the program has ended before the head answered
            loop.run(_serve(loop, node, boot, settings, token))
    finally:
        node.end()


async def _serve(loop: AioLoop, node: Node, boot: Any, settings: dict[str, Any], token: str | None) -> None:
    joining = asyncio.current_task()

    def give_up() -> None:
        assert joining is not None
        joining.cancel()

    node.stop = give_up
    _watch(loop, node, boot.client_pidfd)
    try:
        membership = await _join(loop, node, settings, token)
    except (OutboardError, OSError, ValueError) as error:
        await _refuse(loop, boot.client, error)
        return
    node.stop = lambda: membership.drain("the program has ended", 0.0)
    loop.asyncio.add_signal_handler(signal.SIGTERM, node.end)
    node.listen(boot.listener)
    node.greet(boot.client)
    await membership.ended
    node.stop = _nothing
    await membership.close()


def _watch(loop: AioLoop, node: Node, pidfd: int | None) -> None:
    """End the node with the program."""
    if pidfd is not None:

        def on_end() -> None:
            loop.remove_reader(pidfd)
            node.founder_left()

        loop.add_reader(pidfd, on_end)


async def _join(loop: AioLoop, node: Node, settings: dict[str, Any], token: str | None) -> Membership:
    """Become a member; errors are those of `attend` and `read_security`."""
    security = read_security(settings, ClusterFolder(settings["folder"]).token, token=token or "")
    journal = Journal("client", as_json=False)
    logging.getLogger("outboard").setLevel(logging.WARNING)  # it writes on the program's terminal
    head, patience = settings["address"], settings["start_timeout"]
    by = settings["answer_by"] - KEPT_SHARE * patience
    node.totals = {}
    membership = Membership(node, loop, head, security, "", journal)
    try:
        async with asyncio.timeout(by - time.monotonic()):
            await membership.join()
    except TimeoutError:
        raise TransportError(f"the head at {head} did not answer within {patience:g} s") from None
    return membership


async def _refuse(loop: AioLoop, client: Any, error: Exception) -> None:
    """Tell the program why it cannot have the cluster; the class of the error travels as its number."""
    told = error if isinstance(error, OutboardError) else OutboardError(one_line(error))
    greeted = asyncio.Event()
    link = LoopLink(client, loop, lambda *_: greeted.set(), lambda *_: greeted.set())
    await greeted.wait()  # an answer ahead of its question would be lost
    link.send(Frame.REFUSAL, pb.Refusal(reason=f"{told.ob_code}: {one_line(told)}").SerializeToString())
    link.flush()
    link.close()


def _nothing() -> None:
    """Stand for what ends the node before there is anything to end."""
