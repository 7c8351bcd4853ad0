"""What the real `Peering` meets in the network's world: its loop, its links, and how it dials."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from ..errors import NodeLostError, TransportError
from ..peering import Peering
from ..rpc.protos import cluster_pb2
from .netlinks import End, NetFrame

if TYPE_CHECKING:
    from .netprocess import NetProcess


class Answer:
    """What a coroutine waits for in these worlds."""

    def __init__(self) -> None:
        self._outcome: Any = None
        self._resume: Callable[[], None] | None = None

    def __await__(self) -> Generator[Answer, None, Any]:
        """Wait until it is given, if it was not yet."""
        if self._outcome is None:
            yield self
        return self._outcome

    def give(self, outcome: Any) -> None:
        """Let whoever waits go on."""
        self._outcome = outcome
        if self._resume is not None:
            self._resume()

    def then(self, resume: Callable[[], None]) -> None:
        """Say how."""
        self._resume = resume


def spawn(coroutine: Coroutine[Answer, None, None]) -> None:
    """Run a coroutine that waits for answers only."""
    try:
        answer = coroutine.send(None)
    except StopIteration:
        return
    answer.then(lambda: spawn(coroutine))


class NetLoop:
    """The event loop of a process: its time is that of the process's own clock."""

    def __init__(self, process: NetProcess) -> None:
        self._process = process

    def time(self) -> float:
        """Seconds on its clock."""
        return self._process.local()

    def call_later(self, delay: float, do: Callable[..., object], *args: Any) -> None:
        """Call after so many seconds."""

        def act() -> None:
            do(*args)

        self._process.after(delay, "timer", act)

    def call_soon(self, do: Callable[..., object], *args: Any) -> None:
        """Call in the next turn."""
        self.call_later(0.0, do, *args)

    def spawn(self, coroutine: Coroutine[Answer, None, None]) -> None:
        """Run a coroutine."""
        spawn(coroutine)


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

    async def _reach(self, address: str, target: int, timeout: float) -> Any:
        answer = Answer()
        self.process.world.dialling.dial(self.process, address, target, answer.give, timeout)
        outcome = await answer
        if outcome == "refused":
            raise NodeLostError(f"nobody of that incarnation is at {address}")
        if not isinstance(outcome, End):
            raise TransportError(f"{address} does not answer")
        return self._wrap(outcome)

    @staticmethod
    async def _is_refused(address: str) -> bool:
        return False  # a refusal was told at once

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
