from __future__ import annotations

from collections import Counter

import pytest

from outboard.testing import simulate
from outboard.testing.ledger import mix
from outboard.testing.tasks import GET, LEAVE, Spec, expected_token
from outboard.testing.world import World


def test_token_depends_on_every_part_and_on_their_order() -> None:
    assert len({mix(1, 2, 3), mix(1, 3, 2), mix(1, 2), mix(2, 2, 3)}) == 4


def test_expected_token_follows_children_that_are_waited_for() -> None:
    child = Spec(2, 0.0, (), GET, -1, 0, "raise")
    assert expected_token(Spec(1, 0.0, (child,), GET, -1, 0, "")) is None
    assert expected_token(Spec(1, 0.0, (child,), LEAVE, -1, 0, "")) == mix(1)
    assert expected_token(Spec(1, 0.0, (), GET, -1, 0, "once")) is None
    assert expected_token(Spec(1, 0.0, (), GET, -1, 0, "once"), (7,), is_repeated=True) == mix(1, 7)


def test_failing_seed_is_described_with_the_way_to_run_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(self: World) -> None:
        self.trace("something happened")
        raise AssertionError("planted")

    monkeypatch.setattr(World, "run", run)
    assert simulate.main(["--seeds", "1", "--first", "10", "--world", "node"]) == 1
    out = capsys.readouterr().out
    assert "something happened" in out and "seed 10 of node: AssertionError: planted" in out
    assert "--seed 10 --world node --trace" in out and "1 seeds, 1 failed" in out


def test_seed_prints_its_digest_and_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--seed", "2"]) == 0
    short = capsys.readouterr().out
    assert simulate.main(["--seed", "2", "--trace"]) == 0
    long = capsys.readouterr().out
    assert long.endswith(short) and len(long) > 10 * len(short)


def test_marks_that_are_missing_fail_a_long_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = simulate.Report(
        seeds=Counter({"node": simulate.MARKS_NEED}), events=1, seconds=1.0, marks=Counter({"retry": 1})
    )
    monkeypatch.setattr(simulate, "run_together", lambda *args, **options: report)
    assert simulate.main(["--seeds", "2000"]) == 1
    assert "never reached: " in capsys.readouterr().out
