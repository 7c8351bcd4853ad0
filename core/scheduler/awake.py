"""A clock that stands still while this process sleeps, so that its own delay is never held against others."""

from __future__ import annotations

#: The driver's timer comes at least so often while somebody is judged by silence. Smaller notices shorter sleeps.
TICK_SECONDS = 0.5

#: A timer so much late means that this process was stopped or its machine slept (the law: more than a second).
ASLEEP_SECONDS = 1.0


class AwakeClock:
    """Turns the driver's clock into awake seconds; deadlines in these move on by whatever the process slept."""

    __slots__ = ("_seen", "_slept")

    def __init__(self, now: float) -> None:
        self._seen = now
        self._slept = 0.0

    @property
    def tick_due(self) -> float:
        """When, by the driver's clock, the next timer should come if nothing happens before."""
        return self._seen + TICK_SECONDS

    def note(self, now: float) -> float:
        """Take notice of the driver's time, with every event; return the awake seconds."""
        late = now - self._seen - TICK_SECONDS
        if late > ASLEEP_SECONDS:
            self._slept += late
        if now > self._seen:
            self._seen = now
        return self._seen - self._slept

    def real(self, awake: float) -> float:
        """When, by the driver's clock, it is ``awake`` seconds if the process does not sleep before."""
        return awake + self._slept
