"""Draw the states of a task from the table of transitions into docs/architecture.md.

usage: state_diagram.py [--check]      --check: write nothing, fail when the page is stale
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from generated import update

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
MODULE = "outboard.scheduler.states"


def label(value: object) -> str:
    """Name a state or an event: the member's name, or the text itself."""
    return value.name if isinstance(value, Enum) else str(value)


def draw(transitions: Mapping[tuple[object, object], object]) -> str:
    """Return a Mermaid state diagram; events between the same two states share one arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), target in transitions.items():
        arrows.setdefault((label(state), label(target)), []).append(label(event))
    sources = {source for source, target in arrows if source != target}
    targets = [target for _, target in arrows]
    lines = ["```mermaid", "stateDiagram-v2"]
    first = next(iter(arrows))[0]
    lines.append(f"    [*] --> {first}")
    lines += [f"    {source} --> {target}: {', '.join(events)}" for (source, target), events in arrows.items()]
    lines += [f"    {state} --> [*]" for state in dict.fromkeys(targets) if state not in sources]
    return "\n".join([*lines, "```"])


def main() -> None:
    """Write or check the page."""
    if importlib.util.find_spec(MODULE) is None:
        print(f"no {MODULE}: no states to draw")
        return
    states = importlib.import_module(MODULE)
    update(PAGE, "states", draw(states.TRANSITIONS), check="--check" in sys.argv[1:], remedy="make states")


if __name__ == "__main__":
    main()
