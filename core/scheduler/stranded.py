"""Who waits at a node and can be sent nowhere at all: told so once, so that no program waits in silence.

Part of the machine in `seeking`. ``_due`` holds who is stranded and was not told yet, with the time when it is, in the
order in which that began and so of these times.
"""

from __future__ import annotations

from collections.abc import Iterator

from .wants import Client

#: Seconds that somebody is stranded before it is told. Smaller speaks of what passes at once: a node that starts beside
#: the program; larger leaves people in doubt.
TOLD_AFTER_SECONDS = 2.0


class Stranded:
    """Knows when to tell whom."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: dict[Client, float] = {}

    @property
    def due(self) -> float | None:
        """When somebody is to be told next."""
        return next(iter(self._due.values()), None)

    def look_at(self, client: Client, now: float) -> None:
        """What a client waits for, or where it may be sent, may have changed."""
        if not client.is_stranded:
            self._due.pop(client, None)
        elif not client.is_told and client not in self._due:
            self._due[client] = now + TOLD_AFTER_SECONDS

    def take(self, now: float) -> Iterator[Client]:
        """Yield who is to be told now; nobody comes twice."""
        while self._due and (client := next(iter(self._due))) and self._due[client] <= now:
            del self._due[client]
            client.is_told = True
            yield client

    def check(self, clients: dict[int, Client]) -> None:
        """Raise AssertionError when an invariant does not hold."""
        assert list(self._due.values()) == sorted(self._due.values())
        for client in clients.values():
            assert (client in self._due) == (client.is_stranded and not client.is_told), client.id
        assert all([clients.get(client.id) is client for client in self._due])
