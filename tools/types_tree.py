"""Lay out the package as it is imported, with links, so that a type checker can see it.

usage: types_tree.py FOLDER

The distribution maps ``outboard`` to ``core`` and ``outboard.multiprocessing`` to ``backends/multiprocessing``; type
checkers know nothing of such maps. FOLDER gets one real folder ``outboard`` whose entries link to where the code lies.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def entries() -> Iterator[Path]:
    """Yield every file and folder that lies directly within the imported package."""
    yield from (path for path in (ROOT / "core").iterdir() if path.name != "__pycache__")
    yield from (path for path in (ROOT / "backends").iterdir() if (path / "__init__.py").exists())


def main(folder: Path) -> None:
    """Make the tree anew."""
    package = folder / "outboard"
    shutil.rmtree(folder, ignore_errors=True)
    package.mkdir(parents=True)
    for path in entries():
        (package / path.name).symlink_to(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
