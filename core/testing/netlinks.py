"""Models of what lies between machines: wires that delay, stall, break at any frame, one way, or half open.

A wire keeps the order of each direction. It ends when a process closes it or dies, which the other end hears behind
all that was on its way; or it is cut without a word, in one direction or both, and each end finds that out for itself.
Loss and other order arise only across cuts, and where a relay forgets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .netprocess import NetProcess
    from .networld import Network

#: Seconds a message takes between machines at most when nothing stalls; the least is a tenth of it.
NET_DELAY = 0.004

#: Seconds after which an end has found out that its wire is cut, at most.
KEEPALIVE = 4.0

#: Seconds after which a dial that nobody answers is given up, at most.
DIAL_SECONDS = 2.0

#: Frame type, body, the node it is for.
NetFrame = tuple[int, bytes, int]


class Stream:
    """One direction of a wire. `arrived(frames)` is called for what came together; None at the end of the stream."""

    __slots__ = ("_arrived", "_fate", "_frames", "_last", "_name", "_trap", "_world", "is_cut")

    def __init__(self, world: Network, name: str, arrived: Callable[[list[Any] | None], None]) -> None:
        self._world = world
        self._name = name
        self._arrived = arrived
        self._frames: deque[tuple[float, NetFrame | None]] = deque()
        self._last = 0.0
        self._fate: deque[bool] = deque()  # of the next frames: whether they come through
        self._trap: tuple[int, Callable[[], None]] | None = None  # what happens behind so many more frames
        self.is_cut = False

    def __len__(self) -> int:
        return len(self._frames)

    def write(self, frame: NetFrame | None) -> None:
        """Send a frame; None ends the stream."""
        if self.is_cut:
            return
        world = self._world
        if self._fate and not self._fate.popleft() and frame is not None:
            world.trace(f"{self._name} loses a frame")
            world.mark("relay lost frames")
            return
        if self._frames and world.rng.random() < 0.6:
            at = self._frames[-1][0]
        else:
            at = max(self._last, world.now + NET_DELAY * (0.1 + 0.9 * world.rng.random()))
            world.at_time(at, self._name, self._arrive)
        self._last = max(self._last, at)
        self._frames.append((at, frame))
        if self._trap is not None:
            left, do = self._trap
            self._trap = (left - 1, do) if left else None
            if not left:
                world.at(NET_DELAY * world.rng.random(), f"{self._name} comes to harm", do)

    def _arrive(self) -> None:
        frames: list[NetFrame] = []
        now = self._world.now
        while self._frames and self._frames[0][0] <= now:
            frame = self._frames.popleft()[1]
            if frame is None:
                if frames:
                    self._arrived(frames)
                self.cut(0)
                self._arrived(None)
                return
            frames.append(frame)
        if frames:
            self._arrived(frames)

    def stall(self, seconds: float) -> None:
        """Hold back what is written from now on."""
        self._last = max(self._last, self._world.now + seconds)

    def cut(self, keep: int) -> None:
        """Let so many more frames arrive, and then nothing any more."""
        self.is_cut = True
        while len(self._frames) > keep:
            self._frames.pop()

    def set_trap(self, behind: int, do: Callable[[], None]) -> None:
        """Let something happen when so many more frames have been written: so it finds some on the way."""
        self._trap = behind, do

    def lose(self, behind: int, count: int) -> None:
        """Lose so many of the next frames, and let those behind them come through."""
        self._fate = deque([True] * behind + [False] * count)

    def spare(self) -> None:
        """Break nothing more: what was to be lost, or to come to harm, had nothing come yet."""
        self._fate.clear()
        self._trap = None


class End:
    """One end of a wire. `peer` is the incarnation at the other end."""

    __slots__ = ("_held", "closed", "number", "other", "out", "owner", "peer", "world")

    def __init__(self, world: Network, owner: NetProcess, number: int, peer: int) -> None:
        self.world = world
        self.owner = owner
        self.number = number
        self.peer = peer
        self.closed = False
        self._held: list[list[NetFrame] | None] | None = None  # what comes before the dialler knows that it is through
        self.out: Stream
        self.other: End

    def __repr__(self) -> str:
        return f"<End {self.number} of {self.owner.name}{' closed' if self.closed else ''}>"

    def send(self, frame_type: int, body: bytes, destination: int = 0) -> None:
        """Put a frame on the wire; dropped when it has ended here."""
        if not self.closed:
            self.out.write((frame_type, body, destination))

    def close(self) -> None:
        """End the wire from this side: the other one hears of it behind what is on its way."""
        if not self.closed:
            self.closed = True
            self.out.write(None)
            self.other.out.cut(0)

    def break_off(self) -> None:
        """The wire has ended for this end, which is told."""
        if self._held is not None:
            self._held.append(None)
        elif not self.closed and self.owner.alive:
            self.owner.after(0.0, f"finds wire {self.number} broken", self._told, is_input=True)

    def _told(self) -> None:
        if not self.closed:
            self.close()
            self.owner.on_wire_down(self)

    def _arrived(self, frames: list[NetFrame] | None) -> None:
        if not self.owner.alive:
            return
        if frames is None:
            self.break_off()
        elif self._held is not None:
            self._held.append(frames)
        elif not self.closed:
            self.owner.after(0.0, f"reads wire {self.number}", lambda: self._read(frames), is_input=True)

    def hold(self) -> None:
        """Let what arrives wait until `release`."""
        self._held = []

    def release(self) -> None:
        """Whoever dialled knows that he is through."""
        held, self._held = self._held or [], None
        for frames in held:
            self._arrived(frames)

    def _read(self, frames: list[NetFrame]) -> None:
        if not self.closed:
            self.owner.on_frames(self, frames)


def connect(world: Network, a: NetProcess, b: NetProcess) -> tuple[End, End]:
    """Lay a wire between two processes."""
    world.wires += 1
    number = world.wires
    one, two = End(world, a, number, b.incarnation), End(world, b, number, a.incarnation)
    one.other, two.other = two, one
    one.out = Stream(world, f"{a.name}>{b.name} {number}", two._arrived)
    two.out = Stream(world, f"{b.name}>{a.name} {number}", one._arrived)
    world.ends += [one, two]
    return one, two


def cut_silently(end: End, keep: int, *, is_two_way: bool) -> None:
    """Cut a wire behind so many frames from one end, or both ways; nobody is told, each finds out after a while."""
    world = end.world
    world.excuse(KEEPALIVE)
    for side in (end, end.other) if is_two_way else (end,):
        side.out.cut(keep)
    for side in (end, end.other):
        world.at(KEEPALIVE * world.rng.random(), f"keepalive {side.number}", side.break_off)


class Dialling:
    """Reaches whoever lives at an address: a wire, or "failed", or "refused"."""

    def __init__(self, world: Network) -> None:
        self._world = world
        self.away: set[str] = set()  # addresses whose machine cannot be reached now

    def dial(self, who: NetProcess, address: str, wanted: int, done: Callable[[End | str], None],
             timeout: float = DIAL_SECONDS) -> None:  # fmt: skip
        """Dial for a process; `done` is called once, unless that dies first. `wanted`: the incarnation meant, or 0."""
        world = self._world
        answered: list[bool] = []

        def tell(outcome: End | str) -> None:
            if answered:
                if isinstance(outcome, End):
                    outcome.close()
                return
            answered.append(True)
            done(outcome)

        def reach() -> None:
            there = world.places.get(address)
            if address in self.away or who.place in self.away:
                return
            if there is None or not there.alive or (wanted and there.incarnation != wanted):
                who.after(delay, "is refused", lambda: tell("refused"), is_input=True)
            else:
                there.after(0.0, f"is dialled by {who.name}", lambda: accept(there), is_input=True)

        def accept(there: NetProcess) -> None:
            if not who.alive:
                return
            mine, theirs = connect(world, who, there)
            mine.hold()
            there.on_dialled(theirs)

            def through() -> None:
                tell(mine)
                mine.release()

            who.after(delay, f"is through to {there.name}", through, is_input=True)

        delay = NET_DELAY * (0.1 + 0.9 * world.rng.random())
        world.at(delay, f"{who.name} dials {address}", reach)
        who.after(timeout * (0.5 + 0.5 * world.rng.random()), "gives up a dial", lambda: tell("failed"))
