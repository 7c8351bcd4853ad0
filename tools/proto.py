"""Generate the message classes from core/rpc/protos/*.proto, or find them stale.

usage: proto.py [--check]      run by the interpreter of .venv-proto (see tools/proto-requirements.txt)

Generating needs protoc 3.21, so Python 3.11. Checking works with any: the classes carry the description of the
messages they were made from, and that is compared; with protoc 3.21 the files themselves are compared as well.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parent.parent / "core" / "rpc" / "protos"
STEMS = ("cluster", "outboard")
NAMES = tuple(f"{stem}_pb2{suffix}" for stem in STEMS for suffix in (".py", ".pyi"))


def is_exact() -> bool:
    """Say whether this protoc is the one that makes the committed files."""
    return sys.version_info < (3, 12)


def run_protoc(*outputs: str) -> None:
    """Run protoc over all files; exit with its status when it fails."""
    status = protoc.main(["protoc", f"-I{PROTOS}", *outputs, *(str(PROTOS / f"{stem}.proto") for stem in STEMS)])
    if status != 0:
        sys.exit(status)


def generate(folder: Path) -> None:
    """Write the Python modules and their stubs into ``folder``."""
    run_protoc(f"--python_out={folder}", f"--pyi_out={folder}")


def committed_module(stem: str) -> Any:
    """Import the committed message classes of one file from where they lie."""
    spec = importlib.util.spec_from_file_location(f"{stem}_pb2", PROTOS / f"{stem}_pb2.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outdated() -> list[str]:
    """Return the names of the modules whose classes describe other messages than the .proto files do now."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set"
        run_protoc(f"--descriptor_set_out={path}")
        wanted = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file}
    return [f"{stem}_pb2.py" for stem in STEMS if described(stem) != cleared(wanted[f"{stem}.proto"])]


def described(stem: str) -> Any:
    """Return the description of the messages as committed."""
    return cleared(descriptor_pb2.FileDescriptorProto.FromString(committed_module(stem).DESCRIPTOR.serialized_pb))


def cleared(description: Any) -> Any:
    """Return the description without the names for JSON, which protoc adds to one kind of description only."""
    clear_json_names(description.message_type)
    return description


def clear_json_names(messages: Any) -> None:
    """Remove the names for JSON from messages and those nested in them."""
    for message in messages:
        for field in message.field:
            field.ClearField("json_name")
        clear_json_names(message.nested_type)


def stale_files() -> list[str]:
    """Return the names of the committed files that protoc would write differently."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        return [name for name in NAMES if (Path(folder) / name).read_bytes() != (PROTOS / name).read_bytes()]


def main() -> None:
    """Generate, or check."""
    if "--check" in sys.argv[1:]:
        stale = outdated() + (stale_files() if is_exact() else [])
        if stale:
            sys.exit(f"{', '.join(sorted(set(stale)))} older than the .proto file: run `make proto`")
    elif is_exact():
        generate(PROTOS)
    else:
        sys.exit("protoc 3.21 has no wheels for this Python: remove .venv-proto, then `make proto PYTHON=python3.11`")


if __name__ == "__main__":
    main()
