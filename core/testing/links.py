"""Models of what lies between processes: links, claim sockets and the board.

A link within a machine loses nothing and keeps order; it delays, it stalls, and it ends when a process does. What a
process wrote before it died still arrives. Frames travel as the bytes that the real codec makes of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..rpc.codec import LANES, FrameDecoder, FrameTuple, encode_frame

if TYPE_CHECKING:
    from .machine import Machine
    from .process import Process
    from .world import TaskWorld

#: Seconds a message takes at most when nothing stalls; the least is a tenth of it.
DELAY = 0.0002

#: Seconds of stall from which a sender finds its socket full, so that control frames overtake what waits.
FULL = 0.005


class Pipe:
    """One direction of a link. `deliver(chunk)` is called for what arrives, once with b"" at the end of the stream."""

    __slots__ = ("_chunks", "_deliver", "_last", "_name", "_world", "closed")

    def __init__(self, world: TaskWorld, name: str, deliver: Callable[[bytes], None]) -> None:
        self._world = world
        self._name = name
        self._deliver = deliver
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._last = 0.0
        self.closed = False  # nothing is read from it any more

    @property
    def is_full(self) -> bool:
        """Whether its reader has not kept up."""
        return self._last > self._world.now + FULL

    @property
    def free_at(self) -> float:
        """When what is in it has been read."""
        return self._last

    def stall(self, seconds: float) -> None:
        """Hold back what is written from now on."""
        self._last = max(self._last, self._world.now + seconds)

    def write(self, chunk: bytes) -> None:
        """Send bytes; b"" ends the stream."""
        world = self._world
        if self._chunks and world.rng.random() < 0.7:
            at = self._chunks[-1][0]  # the reader finds it together with what came before
        else:
            at = max(self._last, world.now + DELAY * (0.1 + 0.9 * world.rng.random()))
            world.at_time(at, self._name, self._arrive)
        self._last = max(self._last, at)
        self._chunks.append((at, chunk))

    def _arrive(self) -> None:
        self._take(self._world.now)

    def drain(self) -> None:
        """Deliver everything at once."""
        self._take(float("inf"))

    def _take(self, until: float) -> None:
        chunks = []
        has_ended = False
        while self._chunks and self._chunks[0][0] <= until and not has_ended:
            chunk = self._chunks.popleft()[1]
            chunks.append(chunk)
            has_ended = not chunk
        data = b"".join(chunks)
        if data and not self.closed:
            self._deliver(data)
        if has_ended and not self.closed:
            self.closed = True
            self._deliver(b"")


class ProcessLink:
    """A process's end of its link, as `BlockingLink`."""

    __slots__ = ("_decoder", "_pipe", "_process", "_ready", "closed")

    def __init__(self, process: Process, pipe: Pipe) -> None:
        self._process = process
        self._pipe = pipe
        self._decoder = FrameDecoder()
        self._ready: list[FrameTuple] = []
        self.closed = False

    def fileno(self) -> int:
        """There is no descriptor."""
        return -1

    def feed(self, chunk: bytes) -> None:
        """Take in what has arrived."""
        self._decoder.feed(chunk)
        self._ready += self._decoder.frames()

    @property
    def has_input(self) -> bool:
        """Whether frames wait to be read."""
        return bool(self._ready)

    def send(self, frame_type: int, body: bytes, destination: int = 0, fds: Sequence[int] = ()) -> None:
        """Send one message; it is in order with everything that this process sends."""
        process = self._process
        if process.alive:
            process.world.note_frame(process.name, "node", frame_type, body)
            process.world.credits.sent_by_process(process, frame_type, body, destination)
            self._pipe.write(encode_frame(frame_type, body, destination))

    def frames(self) -> list[FrameTuple]:
        """Hand over what has arrived since the last call."""
        ready, self._ready = self._ready, []
        process = self._process
        for frame_type, body, origin, _ in ready:
            if not process.machine.is_other(origin):
                process.world.credits.read_by_process(process.incarnation, frame_type, body)
        return ready

    def close(self) -> None:
        """End it from this side."""
        self.closed = True


class NodeLink:
    """The node's end of a link, as `LoopLink`. `number` makes the order of a set of links the same in every run."""

    __slots__ = ("_decoder", "_inward", "_is_waiting", "_lanes", "_machine", "_name", "_number", "_on_closed",
                 "_on_frames", "_outward", "_world", "closed", "queued_nbytes")  # fmt: skip

    def __init__(self, machine: Machine, name: str, number: int, deliver: Callable[[bytes], None]) -> None:
        self._machine = machine
        self._world = world = machine.world
        self._name = name
        self._number = number
        self._decoder = FrameDecoder()
        self._inward = Pipe(world, f"{name}>node", self._arrived)
        self._outward = Pipe(world, f"node>{name}", deliver)
        self._lanes: tuple[deque[bytes], ...] = (deque(), deque(), deque())
        self._is_waiting = False
        self._on_frames: Callable[[NodeLink, list[FrameTuple]], None]
        self._on_closed: Callable[[NodeLink, Exception | None], None]
        self.closed = False
        self.queued_nbytes = 0

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def pipes(self) -> tuple[Pipe, Pipe]:
        """Towards the node, and from it."""
        return self._inward, self._outward

    def listen(self, on_frames: Callable[[NodeLink, list[FrameTuple]], None],
               on_closed: Callable[[NodeLink, Exception | None], None]) -> None:  # fmt: skip
        """Say who takes what arrives."""
        self._on_frames, self._on_closed = on_frames, on_closed

    def send(self, frame_type: int, body: bytes, destination: int = 0, fds: Sequence[int] = ()) -> None:
        """Queue one message until `flush`."""
        if not self.closed:
            self._world.note_frame("node", self._name, frame_type, body)
            if not self._machine.is_other(destination):
                self._world.credits.sent_by_node(self._number, frame_type, body)
            self._lanes[LANES[frame_type]].append(encode_frame(frame_type, body, destination))

    def flush(self) -> None:
        """Write what is queued; while the pipe is full it waits, and control frames overtake."""
        if self._is_waiting or self.closed or not any(self._lanes):
            return
        pipe = self._outward
        if pipe.is_full:
            self._is_waiting = True
            self._world.at_time(pipe.free_at, f"room {self._name}", self._has_room)
            return
        data = b"".join(frame for lane in self._lanes for frame in lane)
        for lane in self._lanes:
            lane.clear()
        pipe.write(data)

    def _has_room(self) -> None:
        self._is_waiting = False
        self.flush()

    def _arrived(self, chunk: bytes) -> None:
        if not self.closed:
            self._machine.hear(f"reads {self._name}", lambda: self._read(chunk))

    def _read(self, chunk: bytes) -> None:
        if self.closed:
            return
        if not chunk:
            self.close()
            self._on_closed(self, None)
            return
        self._decoder.feed(chunk)
        self._on_frames(self, self._decoder.frames())

    def drain(self) -> None:
        """Take in all that was written."""
        self._inward.drain()

    def close(self) -> None:
        """End it without a call back."""
        self.closed = self._inward.closed = self._outward.closed = True


class Claim:
    """A claim socket, as `ClaimSender`; its reading end is the worker's too."""

    __slots__ = ("_finished", "_room", "max_nbytes", "packets", "wake")

    def __init__(self, room: int, max_nbytes: int = 1 << 20) -> None:
        self.max_nbytes = max_nbytes
        self._room = room
        self._finished = False
        self.packets: deque[bytes] = deque()
        self.wake: Callable[[], None] = lambda: None

    @property
    def has_news(self) -> bool:
        """Whether a reader would not have to wait."""
        return self._finished or bool(self.packets)

    def send(self, packet: bytes) -> bool:
        """Deal one packet; False when there is no room."""
        if self._finished or len(self.packets) >= self._room:
            return False
        self.packets.append(packet)
        self.wake()
        return True

    def take_back(self) -> bytes | None:
        """Read the oldest packet: each goes to one reader."""
        return self.packets.popleft() if self.packets else None

    def finish(self) -> None:
        """Deal nothing more."""
        self._finished = True
        self.wake()

    def close(self) -> None:
        """Close both ends."""
        self._finished = True


class Slot:
    """A worker's place on the board, as `board.Slot`."""

    __slots__ = ("_cancel", "_running")

    def __init__(self) -> None:
        self._running: tuple[int, int, int] | None = None
        self._cancel: tuple[int, int, int] | None = None

    def set_running(self, owner: int, stream: int, index: int) -> None:
        """Name the item that is run."""
        self._running = owner, stream, index

    def clear(self) -> None:
        """No item is run."""
        self._running = None

    def running(self) -> tuple[int, int, int] | None:
        """The item that is run."""
        return self._running

    def request_cancel(self, owner: int, stream: int, index: int) -> None:
        """Name the item that is to be ended."""
        self._cancel = owner, stream, index

    def is_cancelled(self) -> bool:
        """Whether these are the same."""
        return self._running is not None and self._running == self._cancel

    def reset(self) -> None:
        """Empty both."""
        self._running = self._cancel = None


class Output:
    """A worker's stdout or stderr, as `LineReader`; simulated tasks print nothing."""

    tail = ""
    is_within_line = False

    def drain(self) -> None:
        """Nothing is there."""

    def pass_rest(self, *, is_ended: bool) -> None:
        """No line is unfinished."""

    def close(self) -> None:
        """Nothing is open."""


def boot_parts(slot: Callable[[int], Any]) -> dict[str, Any]:
    """What a node takes over at its start."""

    class Control:
        def setblocking(self, flag: bool) -> None:
            """Nothing blocks."""

        def fileno(self) -> int:
            return -1

    class Board:
        @staticmethod
        def slot(place: int) -> Any:
            return slot(place)

    return {"folder": "/nowhere", "board": Board(), "template_pid": 0, "template_control": Control()}
