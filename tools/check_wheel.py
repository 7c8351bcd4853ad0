"""Build the wheel, compare its files with the checkout, and import every module from it.

An editable install finds a sub-package that is missing from ``packages`` in pyproject.toml; a wheel does not.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".py", ".pyi", ".proto", ".typed"}

#: Runs in an interpreter of its own: imports each module named on the command line from the folder named first.
IMPORTER = """
import importlib, sys
folder, *names = sys.argv[1:]
sys.path.insert(0, folder)
for name in names:
    module = importlib.import_module(name)
    assert module.__file__.startswith(folder), f"{name} came from {module.__file__}"
"""


def checkout_files() -> set[str]:
    """Return the paths, as they should be in the wheel, of all files of the package."""
    places = [(ROOT / "core", "outboard"), (ROOT / "backends", "outboard")]
    return {
        f"{prefix}/{path.relative_to(folder).as_posix()}"
        for folder, prefix in places
        for path in folder.rglob("*")
        if path.suffix in SUFFIXES
    }


def module_name(path: str) -> str:
    """Turn a path within the wheel into the name of a module."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def build(folder: Path) -> Path:
    """Build the wheel into ``folder`` and return its path."""
    # What an earlier build left there would be packed again, deleted modules included.
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True)
    return next(folder.glob("*.whl"))


def main() -> None:
    """Exit with a message when something is missing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "unpacked")
            packed = set(archive.namelist())
        missing = sorted(checkout_files() - packed)
        if missing:
            sys.exit("not in the wheel (see `packages` and `package-data` in pyproject.toml): " + ", ".join(missing))
        names = sorted(module_name(path) for path in packed if path.endswith(".py") and "__main__" not in path)
        subprocess.run([sys.executable, "-P", "-c", IMPORTER, str(folder / "unpacked"), *names], check=True)
        print(f"{wheel.name}: {len(packed)} files, {len(names)} modules imported")


if __name__ == "__main__":
    main()
