"""Who may join: bounds on what a node says of itself, and releases that work together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from .cluster_commands import NodeInfo
from .kept import LAST_INCARNATION, NAME_LENGTH, PYTHON_LENGTH, SLOTS

#: Characters of a release number, a resource's name, a label or its value.
WORD_LENGTH = 128

#: Entries of totals, of one demand, of labels. Resources cost a sorted list each.
ENTRIES = 64

#: Largest amount of a resource, in 1/10000: what a message can say.
AMOUNT = (1 << 64) - 1


def fault_of(info: NodeInfo) -> str:
    """Say what is wrong with a node's description of itself, or nothing."""
    if not 0 < info.incarnation <= LAST_INCARNATION:
        return f"incarnation {info.incarnation} is out of range"
    for what, text in (("address", info.address), ("host", info.host)):
        if len(text) > NAME_LENGTH or not text.isprintable():
            return f"its {what} is too long or not printable"
    if not is_minor(info.python):
        return "its Python version is no major.minor"
    if len(info.release) > WORD_LENGTH or release_step(info.release) is None:
        return "its release does not begin with major.minor"
    if not 0 <= info.slots <= SLOTS or (info.slots and not info.address):
        return "it has slots and no address, or too many slots"
    if len(info.labels) > ENTRIES or any(len(word) > WORD_LENGTH for pair in info.labels.items() for word in pair):
        return "its labels are too many or too long"
    return fault_of_amounts(info.totals)


def fault_of_amounts(amounts: Mapping[str, int]) -> str:
    """Say what is wrong with names and amounts of resources, or nothing."""
    if len(amounts) > ENTRIES:
        return f"{len(amounts)} resources are more than {ENTRIES}"
    for name, amount in amounts.items():
        if not name or len(name) > WORD_LENGTH or not name.isprintable():
            return "the name of a resource is empty, too long or not printable"
        if not 0 <= amount <= AMOUNT:
            return f"the amount of {name} is out of range"
    return ""


def is_minor(python: str) -> bool:
    """Whether a Python version is major.minor as everybody writes it."""
    step = release_step(python)
    return step is not None and python == f"{step[0]}.{step[1]}" and len(python) <= PYTHON_LENGTH


@lru_cache(maxsize=256)
def release_step(release: str) -> tuple[int, int] | None:
    """Return the (major, minor) with which a version begins, or None."""
    parts = release.split(".", 2)
    if len(parts) < 2 or not all(part.isascii() and part.isdecimal() and len(part) < 6 for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])


class Releases:
    """The releases that take part, the head's own among them: any two of them are at most one minor apart."""

    __slots__ = ("_counts", "_own")

    def __init__(self, own: str) -> None:
        step = release_step(own)
        if step is None:
            raise ValueError(f"release {own!r} does not begin with major.minor")
        self._own = step
        self._counts: Counter[tuple[int, int]] = Counter()

    def misfit(self, release: str) -> str:
        """Return the major.minor of a release that takes part and does not work with this one, or nothing."""
        major, minor = release_step(release) or (-1, -1)
        for other in (self._own, *self._counts):
            if other[0] != major or abs(other[1] - minor) > 1:
                return f"{other[0]}.{other[1]}"
        return ""

    def add(self, release: str) -> None:
        """Count a node that takes part."""
        self._counts[release_step(release) or (-1, -1)] += 1

    def discard(self, release: str) -> None:
        """Count a node that takes part no more."""
        step = release_step(release) or (-1, -1)
        self._counts[step] -= 1
        if not self._counts[step]:
            del self._counts[step]

    def check(self, releases: Iterable[str]) -> None:
        """Raise AssertionError when these are not the releases counted, or do not work together."""
        releases = list(releases)
        assert Counter(map(release_step, releases)) == self._counts, (releases, self._counts)
        assert not any(map(self.misfit, releases)), f"releases that do not fit take part: {releases}"
