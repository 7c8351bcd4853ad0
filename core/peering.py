"""Links between nodes, and the paths that sessions take over them.

A link is dialled when something needs it and closed when nothing did for a minute. Frames on it are addressed to a
node: what is for another one is passed on unread, if there is a way. Relays keep nothing but what waits for a dial, and
say so (NO_PATH) when there is no way on. A node without an address of its own, whose client has no other, dials one
node and reaches all others through it; when that one has gone, or is not heard any more, the next.

A *path* is a link together with the node at its far end; sessions know it by a number. A session that doubts its path
dials again, and gets another one: a connection over a broken cable stays open for minutes.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from .addresses import split_address
from .aioloop import AioLoop
from .errors import NodeLostError, OutboardError
from .memberlist import MemberList
from .rpc.codec import Frame, ProtocolError
from .rpc.grpc_credentials import Security
from .rpc.grpc_links import LinksService, PeerLink, dial
from .rpc.protos import cluster_pb2
from .rpc.protos import outboard_pb2 as pb
from .scheduler.session_books import DOUBT_SECONDS
from .scheduler.session_words import Header, SessionName
from .sessionframes import decode_session, encode_session, name_of, origin_of

if TYPE_CHECKING:
    from .node import Node

#: Seconds without a path after which a link that this node dialled is closed, and between two looks.
IDLE_SECONDS = 60.0
LOOK_SECONDS = 10.0

#: Seconds for a link to be dialled, and where another node might be dialled instead. Larger waits longer for a machine
#: that does not answer; smaller gives up those that are far away.
DIAL_SECONDS = 4.0
HASTY_DIAL_SECONDS = 1.5

#: Frames that wait at a relay for one dial; what comes beyond is answered with NO_PATH.
HELD_FRAMES = 4096

#: Incarnations remembered as struck off, whose links are refused.
STRUCK_KEPT = 1000

#: Told when a dial has ended: the number of the path, or None and whether nobody of that incarnation is there any more.
OnDialled = Callable[[int | None, bool], object]


class Peering:
    """The links of one node; every method is called in the loop's thread.

    Args:
        hello: what this node says of itself; its cluster is filled in when that is known.
    """

    def __init__(
        self, node: Node, loop: AioLoop, security: Security, members: MemberList, hello: cluster_pb2.PeerHello
    ):
        self.security = security
        self.counts: Counter[str] = Counter()
        self.service = LinksService(hello, self._on_link)
        self._node = node
        self._loop = loop
        self.members = members
        self.hello = hello
        self._links: dict[int, PeerLink] = {}  # by the node at the other end
        self._via: dict[int, PeerLink] = {}  # over which a node that is not at the other end was heard last
        self._paths: dict[int, tuple[PeerLink, int]] = {}
        self._numbers: dict[tuple[PeerLink, int], int] = {}
        self._heard: dict[int, float] = {}  # when a frame of a session came over a path
        self._last_path = 0
        self._addresses: dict[int, str] = {}  # of nodes that were offered before the membership told of them
        self._dials: dict[int, list[OnDialled]] = {}
        self._struck: dict[int, None] = {}
        self._used: dict[PeerLink, float] = {}  # links that this node dialled
        loop.call_later(LOOK_SECONDS, self._close_idle)

    def __repr__(self) -> str:
        return f"<Peering links={len(self._links)} paths={len(self._paths)} dials={len(self._dials)}>"

    # -- who is where -------------------------------------------------------------------------------------------------

    def address_of(self, node: int) -> str:
        """Where a node can be dialled; empty when it cannot, or is not known."""
        member = self.members.current.get(node)
        return member.address if member is not None else self._addresses.get(node, "")

    def is_struck(self, node: int) -> bool:
        """Whether the head has struck a node off: nothing can be had there any more."""
        return node in self._struck

    def learn(self, node: int, address: str) -> None:
        """Take note of an address that the head told ahead of the membership."""
        self._addresses[node] = address

    def on_struck(self, node: int) -> None:
        """A node is no member any more: its links are closed and its frames refused."""
        self._struck[node] = None
        if len(self._struck) > STRUCK_KEPT:
            del self._struck[next(iter(self._struck))]
        self._addresses.pop(node, None)
        self._node.store.replicas.on_node_gone(node)
        link = self._links.get(node)
        if link is not None:
            self._drop(link)

    # -- links --------------------------------------------------------------------------------------------------------

    def _on_link(self, link: PeerLink) -> None:
        self._add(link)

    def _add(self, link: PeerLink) -> None:
        """Enter a link; one to a node that was struck off while it was dialled is refused."""
        if link.hello.incarnation in self._struck:
            link.close()
            raise NodeLostError(f"node {link.hello.incarnation:016x} was given up")
        self._links[link.hello.incarnation] = link
        link.on_frames, link.on_closed = self._on_frames, self._on_closed

    def _on_closed(self, link: PeerLink, error: Exception | None) -> None:
        node = link.hello.incarnation
        if self._links.get(node) is link:
            del self._links[node]
        self._used.pop(link, None)
        for far in [far for far, via in self._via.items() if via is link]:
            del self._via[far]
        for number in [number for number, (over, _) in self._paths.items() if over is link]:
            self._numbers.pop((link, self._paths.pop(number)[1]), None)
            del self._heard[number]
            self._tree.on_path_down(number)
        self._node.settle()

    def _drop(self, link: PeerLink) -> None:
        link.close()
        self._on_closed(link, None)

    @property
    def _tree(self) -> Any:
        return self._node.tree

    def _close_idle(self) -> None:
        now = self._loop.time()
        busy = {self._paths[number][0] for number in self._tree.paths_in_use() if number in self._paths}
        for link, used in list(self._used.items()):
            if link in busy or link.queued_nbytes:
                self._used[link] = now
            elif now - used >= IDLE_SECONDS:
                self._drop(link)
        self._loop.call_later(LOOK_SECONDS, self._close_idle)

    @property
    def has_unwritten(self) -> bool:
        """Whether some frame still waits for its stream."""
        return any(link.queued_nbytes for link in self._links.values())

    def close(self) -> None:
        """Close all links; no call back."""
        for link in list(self._links.values()):
            link.close()

    # -- paths --------------------------------------------------------------------------------------------------------

    def dial(self, node: int, on_dialled: OnDialled, *, is_again: bool = False) -> None:
        """Find a path to a node; ``on_dialled`` is told, at once where there is a link.

        With ``is_again`` one over which the node was not heard of late does not count.
        """
        link = self._way_to(node)
        if link is not None and not (is_again and self._is_silent(link, node)):
            on_dialled(self._number(link, node), False)
            return
        waiting = self._dials.setdefault(node, [])
        waiting.append(on_dialled)
        if len(waiting) == 1:
            self._loop.spawn(self._dial(node))

    def _way_to(self, node: int) -> PeerLink | None:
        link = self._links.get(node) or self._via.get(node)
        if link is None and not self.hello.address:
            link = next(iter(self._links.values()), None)  # the one node that was dialled leads to all others
        return link

    def _is_silent(self, link: PeerLink, node: int) -> bool:
        number = self._numbers.get((link, node))
        return number is not None and self._loop.time() - self._heard[number] >= DOUBT_SECONDS

    def _is_mute(self, link: PeerLink) -> bool:
        """Whether nobody was heard over a link of late who should have been."""
        nodes = [node for over, node in self._numbers if over is link]
        return bool(nodes) and all(self._is_silent(link, node) for node in nodes)

    async def _dial(self, node: int) -> None:
        doubted = self._way_to(node)
        link, refused = None, False
        try:
            link, refused = await self._find_link(node, doubted)
        finally:
            self._end_dials(node, link, refused)
            if link is not None and doubted is not None and self._is_mute(doubted):
                self._drop(doubted)
            self._node.settle()

    async def _find_link(self, node: int, doubted: PeerLink | None) -> tuple[PeerLink | None, bool]:
        """Use or dial a link that leads to a node; without one, tell whether nobody is there any more."""
        refused = False
        candidates = self._candidates(node, doubted)
        for target, address in candidates:
            link = self._links.get(target)
            if link is not None and link is not doubted and not self._is_silent(link, target):
                return link, False
            timeout = DIAL_SECONDS if target == candidates[-1][0] else HASTY_DIAL_SECONDS
            try:
                reached = await self._reach(address, target, timeout)
                self._add(reached)
            except NodeLostError:
                refused = refused or target == node
            except (OutboardError, OSError, ValueError):
                refused = refused or (target == node and await self._is_refused(address))
            else:
                self._used[reached] = self._loop.time()
                return reached, False
        return None, refused

    async def _reach(self, address: str, target: int, timeout: float) -> PeerLink:
        """Dial one node; raises as `grpc_links.dial`."""
        return await dial(address, self.security, self.hello, _unheard, _unheard, wanted=target, timeout=timeout)

    @staticmethod
    async def _is_refused(address: str) -> bool:
        """Whether nobody listens at an address, on a machine that is there to say so."""
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                _, writer = await asyncio.open_connection(*split_address(address))
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        writer.close()
        return False

    def _end_dials(self, node: int, link: PeerLink | None, refused: bool) -> None:
        for on_dialled in self._dials.pop(node, ()):
            on_dialled(self._number(link, node) if link is not None else None, refused)

    def _candidates(self, node: int, doubted: PeerLink | None) -> list[tuple[int, str]]:
        """Whom to dial for a path to a node: itself, or for one who cannot be dialled himself anybody."""
        found = [(node, self.address_of(node))]
        if not self.hello.address:
            found += [(n, m.address) for n, m in self.members.current.items() if n != node and not m.draining]
            if doubted is not None:  # it comes last
                found.sort(key=lambda candidate: candidate[0] == doubted.hello.incarnation)
        return [(target, address) for target, address in found if address]

    def _number(self, link: PeerLink, node: int) -> int:
        number = self._numbers.get((link, node))
        if number is None:
            self._last_path = number = self._last_path + 1
            self._numbers[link, node] = number
            self._paths[number] = link, node
            self._heard[number] = self._loop.time()
        return number

    def node_at(self, path: int) -> int:
        """The node at the far end of a path, 0 when that is no more."""
        found = self._paths.get(path)
        return found[1] if found is not None else 0

    # -- frames -------------------------------------------------------------------------------------------------------

    def send_session(self, path: int, header: Header, frame_type: int, body: bytes) -> None:
        """Put a session's frame on a path; it is dropped when that has gone meanwhile."""
        found = self._paths.get(path)
        if found is not None:
            link, node = found
            self._put(link, Frame.SESSION, encode_session(self._node.incarnation, header, frame_type, body), node)

    def send(self, node: int, frame_type: int, body: bytes) -> bool:
        """Send a frame to a node to which there is a way; False when there is none now."""
        link = self._way_to(node)
        if link is None:
            return False
        self._put(link, frame_type, body, node)
        return True

    def _put(self, link: PeerLink, frame_type: int, body: bytes, node: int) -> None:
        link.send(frame_type, body, node)
        self._node.flush_link(link)

    def _on_frames(self, link: PeerLink, frames: list[Any]) -> None:
        me, peer = self._node.incarnation, link.hello.incarnation
        if link in self._used:
            self._used[link] = self._loop.time()
        try:
            for frame_type, body, destination, _ in frames:
                if destination not in (0, me):
                    self._relay(link, frame_type, body, destination)
                else:
                    self._take(link, frame_type, body, peer)
        except (ProtocolError, DecodeError, struct.error) as error:
            self._node.complain(f"the link with {peer:016x}", "what it says makes no sense", error)
            link.close()
            self._on_closed(link, error)
        self._node.settle()

    def _take(self, link: PeerLink, frame_type: int, body: bytes, peer: int) -> None:
        """Handle a frame that is for this node."""
        if frame_type == Frame.SESSION:
            origin, header, inner, message = decode_session(body)
            if origin != peer:
                self._on_relayed(link, origin)
            path = self._number(link, origin)
            self._heard[path] = self._loop.time()
            if origin in self._dials:
                self._end_dials(origin, link, False)  # it speaks: that is a path
            self._tree.on_frame(path, header, inner, message)
        elif frame_type == Frame.NO_PATH:
            self._on_no_path(link, pb.NoPath.FromString(body))
        elif frame_type == Frame.FETCH:
            self._node.store.replicas.on_fetch(body)
        elif frame_type == Frame.PIECE:
            self._node.store.replicas.on_piece(body)
        else:
            raise ProtocolError(f"a frame of type {frame_type} between nodes")

    def _on_relayed(self, link: PeerLink, origin: int) -> None:
        """Take note of the way to a node that is heard through another; its own link may be a broken one."""
        self._via[origin] = link
        direct = self._links.get(origin)
        if direct is not None and self._is_mute(direct):
            self._drop(direct)

    def _on_no_path(self, link: PeerLink, said: pb.NoPath) -> None:
        name = SessionName(said.owner, said.node, said.number)
        for node in (name.node, *self._via):
            number = self._numbers.get((link, node))
            if number is not None:
                self._tree.on_no_path(number, name, said.refused)

    # -- relaying -----------------------------------------------------------------------------------------------------

    def _relay(self, link: PeerLink, frame_type: int, body: bytes, node: int) -> None:
        """Pass a frame on to another node, or say that there is no way."""
        if frame_type == Frame.SESSION and origin_of(body) != link.hello.incarnation:
            self.counts["wrong origin"] += 1  # nobody names another
            return
        onward = self._links.get(node)
        if onward is not None:
            self._put(onward, frame_type, body, node)
        elif not self.address_of(node) or len(self._dials.get(node, ())) >= HELD_FRAMES:
            self._refuse(link, frame_type, body, refused=False)
        else:
            self.dial(node, lambda path, refused: self._go_on(path, refused, link, frame_type, body, node))

    def _go_on(self, path: int | None, refused: bool, link: PeerLink, frame_type: int, body: bytes, node: int) -> None:
        if path is None:
            self._refuse(link, frame_type, body, refused=refused)
        else:
            self._put(self._paths[path][0], frame_type, body, node)

    def _refuse(self, link: PeerLink, frame_type: int, body: bytes, *, refused: bool) -> None:
        self.counts["no path"] += 1
        if frame_type == Frame.SESSION:
            owner, node, number = name_of(body)
            said = pb.NoPath(owner=owner, node=node, number=number, refused=refused)
            self._put(link, Frame.NO_PATH, said.SerializeToString(), link.hello.incarnation)


def _unheard(*_: object) -> None:
    """Stand for a callback that has not been set."""
