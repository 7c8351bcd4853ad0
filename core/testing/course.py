"""One seed's course of events: a clock that only events move, their order, what is written down of them.

One random generator decides everything that is drawn while events happen. Whatever a world plans beforehand (programs,
faults, clients) has a name and a generator of its own, so that a part can be left out and the others stay what they
were: that is how the trace of a failing seed is made short.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Set
from hashlib import sha256
from itertools import count
from random import Random


class Course:
    """What all worlds have. A world says in `check` what must hold after every event, and in `run` what in the end."""

    #: Name of this sort of world, for commands.
    name = ""
    #: Rare marks that long runs must reach.
    rare: tuple[str, ...] = ()
    #: Events of one seed at most; a world that needs more goes round in circles.
    most_events = 20_000

    def __init__(self, seed: int, without: Set[str] = frozenset()) -> None:
        self.seed = seed
        self.without = without
        self.parts: list[str] = []  # everything that may be left out
        self.rng = Random(seed)
        self.now = 0.0
        self.events = 0
        self.lines: list[str] = []
        self.marks: Counter[str] = Counter()
        self._heap: list[tuple[float, int, str, Callable[[], None]]] = []
        self._order = count()

    def keeps(self, part: str) -> bool:
        """Whether a part of this world is there."""
        self.parts.append(part)
        return part not in self.without

    def rng_of(self, part: str) -> Random:
        """A generator for what is planned of a part."""
        return Random(f"{self.seed} {part}")

    # -- events --------------------------------------------------------------------------------------------------------

    def at(self, delay: float, what: str, do: Callable[[], None]) -> None:
        """Let an event happen after so many seconds."""
        self.at_time(self.now + delay, what, do)

    def at_time(self, time: float, what: str, do: Callable[[], None]) -> None:
        """Let an event happen at that very time."""
        heapq.heappush(self._heap, (time, next(self._order), what, do))

    def step(self) -> bool:
        """Let the next event happen and look at everything that it touched; False when there is none."""
        if not self._heap:
            return False
        self.now, _, what, do = heapq.heappop(self._heap)
        self.events += 1
        self.lines.append(f"{self.now:.6f} {what}")
        do()
        self.check()
        assert self.events < self.most_events, "events without end"
        return True

    def check(self) -> None:
        """Raise AssertionError when something is wrong after an event."""

    def run(self) -> None:
        """Live through all phases. Raises what is wrong."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the world holds of this machine."""
        self._heap.clear()

    # -- what is written down ------------------------------------------------------------------------------------------

    def trace(self, line: str) -> None:
        """Note something within an event."""
        self.lines.append(f"  {line}")

    def mark(self, what: str) -> None:
        """Count something rare."""
        self.marks[what] += 1

    def digest(self) -> str:
        """A number that names this course of events."""
        return sha256("\n".join(self.lines).encode()).hexdigest()[:16]

    def all_marks(self) -> Counter[str]:
        """What was counted here, and by the machines."""
        return self.marks
