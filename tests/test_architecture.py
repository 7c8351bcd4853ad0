"""The rules of the module map: who may import whom, and how large things may grow."""

from __future__ import annotations

import ast
import importlib.util
import multiprocessing
import sysconfig
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "core"
BACKENDS = ROOT / "backends"

RING_0 = {"errors", "ids", "loops", "options", "version"}
PURE = {
    "__future__",
    "abc",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "math",
    "operator",
    "typing",
}
SIBLINGS = ("rpc", "store", "process")
RING_2 = {"rpc", "store", "process", "scheduler", *RING_0}

#: What backends may import of Outboard.
PUBLIC = {"outboard", "outboard.calls", "outboard.cpushare", "outboard.engine", "outboard.errors", "outboard.options"}

MOST_LINES = 700
MOST_FUNCTION_LINES = 60

#: Generated files follow no rule of ours.
GENERATED = "_pb2.py"


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if not path.name.endswith(GENERATED))


def dotted(path: Path) -> tuple[str, ...]:
    """Name a file as it is imported: core/rpc/codec.py is outboard.rpc.codec."""
    base, first = (CORE, "outboard") if path.is_relative_to(CORE) else (BACKENDS, "outboard")
    parts = path.relative_to(base).with_suffix("").parts
    return (first, *parts)


def resolve(node: ast.ImportFrom, path: Path) -> str:
    """Return the absolute name of the module that an import names."""
    if not node.level:
        return node.module or ""
    package = dotted(path)[: -node.level]
    return ".".join((*package, *((node.module,) if node.module else ())))


def is_module(name: str) -> bool:
    parts = name.split(".")
    for base in (CORE, BACKENDS):
        target = base.joinpath(*parts[1:])
        if target.with_suffix(".py").exists() or (target / "__init__.py").exists():
            return True
    return False


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (module, line) for each import of a file, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve(node, path)
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                is_ours = module.split(".")[0] == "outboard"
                yield (inner if is_ours and is_module(inner) else module), node.lineno


def ring_2_part(module: str) -> str:
    """Return `rpc` for outboard.rpc.codec, `ids` for outboard.ids, and nothing for what is not ours."""
    parts = module.split(".")
    return parts[1] if parts[0] == "outboard" and len(parts) > 1 else ""


def breaches(paths: list[Path], is_allowed: Callable[[Path, str], bool]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in paths
        for module, line in imports(path)
        if not is_allowed(path, module)
    ]


def test_ring_0_imports_ring_0_only() -> None:
    def is_allowed(_path: Path, module: str) -> bool:
        return module.split(".")[0] != "outboard" or ring_2_part(module) in RING_0

    assert breaches([CORE / f"{name}.py" for name in RING_0 if (CORE / f"{name}.py").exists()], is_allowed) == []


def test_machines_import_ring_0_and_pure_modules_only() -> None:
    def is_allowed(_path: Path, module: str) -> bool:
        return ring_2_part(module) in RING_0 | {"scheduler"} or module.split(".")[0] in PURE

    assert breaches(sources(CORE / "scheduler"), is_allowed) == []


@pytest.mark.parametrize("part", SIBLINGS)
def test_ring_2_imports_neither_its_siblings_nor_ring_3(part: str) -> None:
    def is_allowed(_path: Path, module: str) -> bool:
        return module.split(".")[0] != "outboard" or ring_2_part(module) in {part, *RING_0}

    assert breaches(sources(CORE / part), is_allowed) == []


def test_grpc_is_imported_under_rpc_only() -> None:
    def is_allowed(path: Path, module: str) -> bool:
        return module.split(".")[0] != "grpc" or path.is_relative_to(CORE / "rpc")

    assert breaches(sources(CORE) + sources(BACKENDS), is_allowed) == []


def test_no_module_imports_from_the_init_of_its_own_package() -> None:
    def is_allowed(path: Path, module: str) -> bool:
        own = dotted(path)
        packages = {".".join(own[:depth]) for depth in range(1, len(own))}
        return own[-1] == "__init__" or module not in packages

    assert breaches(sources(CORE), is_allowed) == []


def test_imports_within_core_are_relative() -> None:
    absolute = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources(CORE)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "outboard")
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "outboard" for alias in node.names))
    ]
    assert absolute == []


def test_backends_import_public_names_only() -> None:
    def is_allowed(path: Path, module: str) -> bool:
        own = f"outboard.{path.relative_to(BACKENDS).parts[0]}"
        return module.split(".")[0] != "outboard" or module in PUBLIC or module.startswith(own)

    assert breaches(sources(BACKENDS), is_allowed) == []


def test_no_backend_hides_the_package_it_is_named_after() -> None:
    standard = Path(sysconfig.get_paths()["stdlib"]).resolve()
    assert Path(multiprocessing.__file__).resolve().is_relative_to(standard)
    for folder in BACKENDS.iterdir():
        spec = importlib.util.find_spec(folder.name)
        assert spec is None or spec.origin is None or not Path(spec.origin).is_relative_to(BACKENDS)


def test_no_file_grows_beyond_reading() -> None:
    everything = [
        path for name in ("core", "backends", "tests", "tools", "benchmarks") for path in sources(ROOT / name)
    ]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in everything}
    assert [str(path.relative_to(ROOT)) for path, length in lengths.items() if length > MOST_LINES] == []


def test_no_function_grows_beyond_reading() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sources(CORE) + sources(BACKENDS)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > MOST_FUNCTION_LINES
    ]
    assert long == []


def test_every_package_is_packed() -> None:
    """A sub-package missing from pyproject.toml works in the checkout and is absent from the wheel."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    found = {".".join(dotted(path)[:-1]) for base in (CORE, BACKENDS) for path in base.rglob("__init__.py")}
    assert sorted(listed) == sorted(found)
