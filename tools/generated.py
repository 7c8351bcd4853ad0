"""Put generated text between two marks of a file, or find it stale."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def replace_block(text: str, name: str, body: str) -> str:
    """Return ``text`` with what lies between the marks of block ``name`` replaced.

    Raises:
        ValueError: the text does not hold the two marks exactly once.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    changed, count = pattern.subn(lambda _: f"{begin}\n{body.strip()}\n{end}", text)
    if count != 1:
        raise ValueError(f"expected the block {name!r} once, found it {count} times")
    return changed


def update(path: Path, name: str, body: str, *, check: bool, remedy: str) -> None:
    """Write block ``name`` of ``path``; with ``check``, leave it and exit with status 1 when it is stale."""
    old = path.read_text(encoding="utf-8")
    new = replace_block(old, name, body)
    if old == new:
        return
    if check:
        sys.exit(f"{path} is stale: run `{remedy}`")
    path.write_text(new, encoding="utf-8")
    print(f"{path} written")
