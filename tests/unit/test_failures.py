"""What programs are told when machines are lost, and what lay there."""

from __future__ import annotations

import pytest

from outboard.errors import ObjectLostError, WorkerLostError
from outboard.failures import as_exception
from outboard.ids import ObjectId
from outboard.scheduler.outcomes import LostCause, LostMark, ObjectLostMark

pytestmark = pytest.mark.timeout(10)


@pytest.mark.parametrize(("index", "what"), [(None, "train"), (3, r"train \(item 3\)")])
def test_task_that_was_lost_with_its_machine_may_have_run(index: int | None, what: str) -> None:
    error = as_exception(LostMark(LostCause.MACHINE, "train", index, 2, None, "silent for 5 s"))
    with pytest.raises(WorkerLostError, match=rf"{what} lost: .* gone \(silent for 5 s\); 2 runs begun") as caught:
        raise error or AssertionError
    assert (caught.value.may_have_run, caught.value.attempts, caught.value.index) == (True, 2, index)


def test_object_that_cannot_be_made_again_says_why() -> None:
    oid = ObjectId(7, 5)
    with pytest.raises(ObjectLostError, match="it was put into the store") as caught:
        raise as_exception(ObjectLostMark(oid, "it was put into the store")) or AssertionError
    assert caught.value.oid == oid
