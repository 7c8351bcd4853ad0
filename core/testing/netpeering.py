"""What the real `Peering` meets in the network's world: its loop, its links, and how it dials."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import NodeLostError
from ..peering import OnDialled, Peering
from ..rpc.protos import cluster_pb2
from .netlinks import End, NetFrame

if TYPE_CHECKING:
    from .netprocess import NetProcess


class NetLoop:
    """The event loop of a process: its time is that of the process's own clock."""

    def __init__(self, process: NetProcess) -> None:
        self._process = process

    def time(self) -> float:
        """Seconds on its clock."""
        return self._process.local()

    def call_later(self, delay: float, do: Callable[..., object], *args: Any) -> None:
        """Call after so many seconds."""
        self._process.after(delay, "timer", lambda: do(*args) and None)

    def call_soon(self, do: Callable[..., object], *args: Any) -> None:
        """Call in the next turn."""
        self.call_later(0.0, do, *args)


class NetLink:
    """One end of a wire, as `PeerLink`."""

    __slots__ = ("closed", "end", "hello", "on_closed", "on_frames", "queued_nbytes")

    def __init__(self, end: End) -> None:
        self.end = end
        self.hello = cluster_pb2.PeerHello(incarnation=end.peer)
        self.on_frames: Callable[[Any, list[Any]], object] = _unheard
        self.on_closed: Callable[[Any, Exception | None], object] = _unheard
        self.closed = False
        self.queued_nbytes = 0

    def __hash__(self) -> int:
        return self.end.number

    def __eq__(self, other: object) -> bool:
        return self is other

    def send(self, frame_type: int, body: bytes, destination: int = 0, fds: tuple[int, ...] = ()) -> None:
        """Queue a frame; here it goes at once."""
        self.end.send(frame_type, body, destination)

    def flush(self) -> None:
        """All is sent already."""

    def close(self) -> None:
        """End it without a call back."""
        self.closed = True
        self.end.close()


class NetPeering(Peering):
    """The real one; only where it dials it meets the model of the network."""

    def __init__(self, process: NetProcess, node: Any, loop: Any, members: Any, address: str) -> None:
        security: Any = None
        hello = cluster_pb2.PeerHello(incarnation=process.incarnation, address=address)
        self.process = process
        self._links_of: dict[int, NetLink] = {}
        super().__init__(node, loop, security, members, hello)

    def dial(self, node: int, on_dialled: OnDialled) -> None:
        """As the real one, with a walk over the candidates in place of a coroutine."""
        link = self._way_to(node)
        if link is not None:
            on_dialled(self._number(link, node), False)
            return
        waiting = self._dials.setdefault(node, [])
        waiting.append(on_dialled)
        if len(waiting) == 1:
            self._try(node, self._candidates(node), False)

    def _try(self, node: int, candidates: list[tuple[int, str]], refused: bool) -> None:
        if not candidates:
            self.process.after(0.0, "dials nobody", lambda: self._dialled(node, None, refused))
            return
        (target, address), *others = candidates

        def done(outcome: End | str) -> None:
            if isinstance(outcome, End):
                self._dialled(node, self._wrap(outcome), refused)
            else:
                self._try(node, others, refused or (outcome == "refused" and target == node))

        self.process.world.dialling.dial(self.process, address, target, done)

    def _dialled(self, node: int, link: Any, refused: bool) -> None:
        if link is not None:
            self._used[link] = self._loop.time()
            self._add(link)
        for on_dialled in self._dials.pop(node):
            on_dialled(self._number(link, node) if link is not None else None, refused)
        self._node.settle()

    def _wrap(self, end: End) -> NetLink:
        link = self._links_of[end.number] = NetLink(end)
        return link

    def accept(self, end: End) -> bool:
        """Somebody has laid a wire to this node; False when he is refused."""
        link: Any = self._wrap(end)
        try:
            self._on_link(link)
        except NodeLostError:
            return False
        return True

    def read(self, end: End, frames: list[NetFrame]) -> None:
        """Frames have come over a wire."""
        link = self._links_of[end.number]
        link.on_frames(link, [(frame_type, body, destination, ()) for frame_type, body, destination in frames])

    def wire_down(self, end: End) -> None:
        """A wire has ended."""
        link = self._links_of.pop(end.number, None)
        if link is not None and not link.closed:
            link.closed = True
            link.on_closed(link, None)


def _unheard(*_: object) -> None:
    """Stand for a callback that has not been set."""
