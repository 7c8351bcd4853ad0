"""The bytes of a head's kept state: what comes back, and what is refused."""

from __future__ import annotations

import pytest

from outboard import keptstate
from outboard.scheduler import kept
from outboard.scheduler.kept import KeptState
from outboard.scheduler.members import Member

pytestmark = pytest.mark.timeout(10)


def test_kept_state_comes_back_from_its_bytes() -> None:
    state = KeptState(
        "boats", 7, (Member(1, "a:7", "a", "3.11", 2), Member((1 << 64) - 1, "", "löwe", "3.14", 0, True))
    )
    assert keptstate.from_bytes(keptstate.to_bytes(state)) == state


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04N.",
        b"[]",
        b"[" * 100_000,
        b'{"format":2,"cluster":"a","epoch":1,"nodes":[]}',
        b'{"format":1,"cluster":"","epoch":1,"nodes":[]}',
        b'{"format":1,"cluster":"a","epoch":true,"nodes":[]}',
        b'{"format":1,"cluster":"a","epoch":-1,"nodes":[]}',
        b'{"format":1,"cluster":"a","epoch":1e3,"nodes":[]}',
        b'{"format":1,"cluster":"a\\u0000","epoch":1,"nodes":[]}',
        b'{"format":1,"cluster":"a","epoch":1,"nodes":{}}',
        b'{"format":1,"cluster":"a","epoch":1,"nodes":[5]}',
        b'{"format":1,"cluster":"a","epoch":1,"nodes":[[1,"","h","3.11",0,0]]}',
        b'{"format":1,"cluster":"a","epoch":1,"nodes":[[0,"","h","3.11",0,false]]}',
        b'{"format":1,"cluster":"a","epoch":1,"nodes":[[1,"","h","3.11",0,false],[1,"","h","3.11",0,false]]}',
        b'{"format":1,"cluster":"a","epoch":1,"nodes":[[1,"%s","h","3.11",0,false]]}' % (b"x" * 301),
        b'{"format":1,"cluster":"a","epoch":%s,"nodes":[]}' % (b"9" * 5000),
    ],
)
def test_damaged_kept_state_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="kept state"):
        keptstate.from_bytes(data)


def test_oversized_kept_state_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keptstate, "KEPT_NBYTES", 10)
    with pytest.raises(ValueError, match="at most 10"):
        keptstate.from_bytes(b" " * 11)


def test_largest_kept_state_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "\U0001f6a4" * kept.NAME_LENGTH
    state = KeptState("boats", 1, tuple(Member(i, name, name, "3.11", 1) for i in range(1, 4)))
    monkeypatch.setattr(keptstate, "KEPT_NBYTES", keptstate.KEPT_NBYTES // kept.MEMBERS * 3)
    assert keptstate.from_bytes(keptstate.to_bytes(state)) == state
