"""Gangs of the inline engine: nothing is short of anything, so each is there at once and has no effect."""

from __future__ import annotations

from random import getrandbits

from .engine import Engine
from .errors import GangBrokenError
from .gangs import Gang
from .options import TaskOptions


class InlineGangs:
    """See `GangCalls`."""

    inherited: Gang | None = None

    def __init__(self, engine: Engine, node: int) -> None:
        self._engine = engine
        self._node = node
        self._over: set[int] = set()

    def ask(self, bundles: tuple[dict[str, float], ...], strategy: str, timeout: float | None) -> Gang:
        """Give it at once."""
        return Gang(getrandbits(63) | 1, bundles, strategy, (self._node,) * len(bundles), self._node, self._engine)

    def release(self, gang: Gang) -> None:
        """Refuse what is to run in it from now on."""
        self._over.add(gang.number)

    def check(self, options: TaskOptions) -> None:
        """Raise GangBrokenError where the gang of these options is over."""
        if options.gang is not None and options.gang.number in self._over:
            raise GangBrokenError(f"gang {options.gang.number:016x} is over: it was released")
