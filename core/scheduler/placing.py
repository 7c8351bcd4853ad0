"""Which node gets which tasks: pure choices over the room that is left at each. Ties go to who stands first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .shares import Share


def plan_level(rooms: Sequence[int], count: int) -> list[int]:
    """Deal `count` tasks so that each goes where most room is left then; returns how many each gets.

    The sum is `count`, or all the room there is.
    """
    total = sum(rooms)
    if total <= count:
        return list(rooms)
    low, high = 0, max(rooms)  # the lowest level down to which all can be taken without dealing too many
    while low < high:
        middle = (low + high) // 2
        if sum(room - middle for room in rooms if room > middle) <= count:
            high = middle
        else:
            low = middle + 1
    dealt = [max(0, room - low) for room in rooms]
    rest = count - sum(dealt)
    for at, room in enumerate(rooms):
        if rest and room >= low:
            dealt[at] += 1
            rest -= 1
    return dealt


def choose_share(shares: Sequence[Share], rooms: Sequence[int], nbytes: Mapping[int, int]) -> int:
    """Return the position of the share for one task whose inputs lie as `nbytes` says, by node.

    Among those with room: most input bytes there, then most room left.
    """
    best, best_nbytes, best_room = -1, -1, 0
    for at, share in enumerate(shares):
        there, room = nbytes.get(share.node, 0), rooms[at]
        if room > 0 and (there > best_nbytes or (there == best_nbytes and room > best_room)):
            best, best_nbytes, best_room = at, there, room
    return best
