"""Finding nodes of clusters on this machine: what is believed, and which addresses mean the same head."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outboard import localnodes

HEAD = "127.0.0.1:7001"


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def make(parent: Path, name: str, since: int = 1, head: str = HEAD) -> str:
    folder = parent / f"outboard-{name}"
    folder.mkdir(mode=0o700)
    localnodes.announce(str(folder), head)
    os.utime(folder / "head", (since, since))
    return str(folder / "node.sock")


def found(parent: Path, head: str | None = HEAD) -> list[str]:
    """Return what is found below the test's folder: others of this user may run clusters of their own."""
    return [path for path in localnodes.find(head) if path.startswith(str(parent))]


def test_the_newest_node_comes_first(parent: Path) -> None:
    paths = [make(parent, name, since) for name, since in (("a", 2), ("b", 3), ("c", 1))]
    assert found(parent) == [paths[1], paths[0], paths[2]]


def test_only_nodes_of_the_same_head_are_found(parent: Path) -> None:
    ours, other = make(parent, "a"), make(parent, "b", 2, "127.0.0.1:7002")
    assert found(parent) == found(parent, "localhost:7001") == [ours]
    assert found(parent, None) == [other, ours]
    assert found(parent, "192.0.2.1:7001") == found(parent, "no-such-host.invalid:7001") == []


def test_a_node_that_withdraws_is_found_no_more(parent: Path) -> None:
    folder = os.path.dirname(make(parent, "a"))
    localnodes.withdraw(folder)
    localnodes.withdraw(folder)
    assert found(parent) == [] and os.listdir(folder) == []


def test_what_others_could_have_made_is_not_believed(parent: Path) -> None:
    os.chmod(os.path.dirname(make(parent, "open")), 0o755)
    make(parent, "away")
    os.rename(parent / "outboard-away", parent / "elsewhere")
    os.symlink(parent / "elsewhere", parent / "outboard-link")
    (parent / "outboard-file").write_text(HEAD)
    (parent / "outboard-none").mkdir(mode=0o700)
    make(parent, "odd", head="no address")
    (parent / "outboard-bytes").mkdir(mode=0o700)
    (parent / "outboard-bytes" / "head").write_bytes(b"\xff\xfe")
    assert found(parent) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("localhost:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:1", "127.0.0.2:1", False),
        ("127.0.0.1:x", "127.0.0.1:x", False),
        ("gpu01", "gpu01:6733", True),
    ],
)
def test_addresses_mean_the_same_head(one: str, other: str, same: bool) -> None:
    assert localnodes.is_same(one, other) is localnodes.is_same(other, one) is same
