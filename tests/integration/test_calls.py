"""What get, wait, cancel and the options of tasks promise."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import outboard as ob
from outboard.errors import GetTimeoutError, TaskCancelledError, TaskUnschedulableError

pytestmark = pytest.mark.timeout(30)


@pytest.fixture(autouse=True)
def end_cluster() -> Iterator[None]:
    yield
    ob.shutdown()


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def spin(folder: str, name: str) -> None:
    (Path(folder) / name).touch()
    while True:
        sum(range(1000))


def parent_of(folder: str) -> Any:
    refs = [ob.remote(spin).remote(folder, f"child{i}") for i in range(2)]
    (Path(folder) / "parent").touch()
    return ob.get(refs)


def fail_until(folder: str, least: int, kind: type[Exception]) -> int:
    runs = len(list(Path(folder).iterdir())) + 1
    (Path(folder) / str(runs)).touch()
    if runs < least:
        raise kind(runs)
    return runs


def count_beside(folder: str, name: str) -> int:
    mark = Path(folder) / f"{name}.{os.getpid()}"
    mark.touch()
    time.sleep(0.03)
    beside = len(list(Path(folder).glob(f"{name}.*")))
    mark.unlink()
    return beside


def gpus() -> tuple[str | None, int]:
    time.sleep(0.05)
    return os.environ.get("CUDA_VISIBLE_DEVICES"), os.getpid()


def numbers(n: int) -> Any:
    return range(n)


def wait_until(condition: Any, within: float = 10.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


class TestInfeasible:
    @pytest.mark.parametrize(
        ("options", "name", "amount"),
        [({"num_gpus": 999}, "GPU", 999), ({"num_cpus": 3}, "CPU", 3), ({"resources": {"licens": 1}}, "licens", 1)],
    )
    def test_is_refused_at_once(self, options: dict[str, Any], name: str, amount: float) -> None:
        ob.init(num_cpus=2, num_gpus=1, resources={"licence": 2})
        ref = ob.remote(nap).options(**options).remote(0)
        begun = time.monotonic()
        with pytest.raises(TaskUnschedulableError, match=name) as caught:
            ob.get(ref, timeout=10)
        assert time.monotonic() - begun < 5
        assert caught.value.asked[name] == amount
        assert caught.value.available == {"CPU": 2, "GPU": 1, "licence": 2}
        with pytest.raises(TaskUnschedulableError):
            ob.get(ob.remote(nap).remote(ref), timeout=10)
        assert ob.get(ob.remote(nap).remote(0), timeout=10) == 0

    def test_within_a_task(self) -> None:
        ob.init(num_cpus=1)
        with pytest.raises(TaskUnschedulableError):
            ob.get(ob.remote(ask_too_much).remote(), timeout=10)


def ask_too_much() -> Any:
    return ob.get(ob.remote(nap).options(num_gpus=7).remote(0))


class TestResources:
    @pytest.mark.parametrize(
        ("options", "most"),
        [({"num_cpus": 0.5}, 4), ({"num_cpus": 1}, 2), ({"num_cpus": 2}, 1),
         ({"num_cpus": 0, "resources": {"licence": 1}}, 3), ({"num_cpus": 0.1, "resources": {"licence": 1.5}}, 2)],
    )  # fmt: skip
    def test_never_more_at_once_than_fit(self, tmp_path: Path, options: dict[str, Any], most: int) -> None:
        ob.init(num_cpus=2, resources={"licence": 3})
        task = ob.remote(count_beside).options(**options)
        assert max(ob.get([task.remote(str(tmp_path), "t") for _ in range(24)], timeout=20)) == most
        wait_until(lambda: ob.available_resources() == {"CPU": 2, "licence": 3})

    def test_gpus_are_given_by_number(self) -> None:
        ob.init(num_cpus=4, num_gpus=2)
        one = ob.remote(gpus).options(num_gpus=1)
        seen = ob.get([one.remote() for _ in range(6)], timeout=20)
        assert {ids for ids, _ in seen} == {"0", "1"}
        ((both, _),) = ob.get([ob.remote(gpus).options(num_gpus=2).remote()], timeout=20)
        assert both is not None and sorted(both.split(",")) == ["0", "1"]

    def test_halves_share_a_gpu(self) -> None:
        ob.init(num_cpus=4, num_gpus=1)
        half = ob.remote(gpus).options(num_gpus=0.5)
        seen = ob.get([half.remote() for _ in range(8)], timeout=20)
        assert {ids for ids, _ in seen} == {"0"}
        assert len({pid for _, pid in seen}) == 2

    def test_tasks_without_gpus_see_none_of_them(self) -> None:
        ob.init(num_cpus=2, num_gpus=2)
        ids, _ = ob.get(ob.remote(gpus).remote(), timeout=20)
        assert not ids


class TestWaits:
    def test_get_times_out_and_may_be_asked_again(self) -> None:
        ob.init(num_cpus=1)
        ref = ob.remote(nap).remote(1.0)
        for timeout in (0, 0.05):
            with pytest.raises(GetTimeoutError):
                ob.get(ref, timeout=timeout)
            with pytest.raises(TimeoutError):
                ob.get([ref], timeout=timeout)
        assert ob.get([ref, ref], timeout=10) == [1.0, 1.0]

    def test_get_raises_without_waiting_for_slower_ones(self) -> None:
        ob.init(num_cpus=2)
        begun = time.monotonic()
        with pytest.raises(ZeroDivisionError):
            ob.get([ob.remote(nap).remote(20), ob.remote(divmod).remote(1, 0)])
        assert time.monotonic() - begun < 10

    def test_wait_keeps_order_and_gives_at_most_what_was_asked(self) -> None:
        ob.init(num_cpus=2)
        slow, fast, failed = ob.remote(nap).remote(30), ob.remote(nap).remote(0), ob.remote(divmod).remote(1, 0)
        assert ob.wait([slow, fast, failed], num_returns=2, timeout=15) == ([fast, failed], [slow])
        assert ob.wait([slow, failed, fast], num_returns=1, timeout=15) == ([failed], [slow, fast])
        assert ob.wait([slow], timeout=0) == ([], [slow])
        assert ob.wait([]) == ([], [])
        for wrong in ([slow, slow], slow):
            with pytest.raises((ValueError, TypeError)):
                ob.wait(wrong)

    @pytest.mark.alone
    def test_waiting_threads_do_not_hold_each_other_up(self) -> None:
        ob.init(num_cpus=2)
        slow = ob.remote(nap).remote(1.0)
        thread = threading.Thread(target=ob.get, args=(slow,))
        thread.start()
        wait_until(lambda: thread.is_alive())
        begun = time.monotonic()
        for i in range(50):
            assert ob.get(ob.remote(nap).remote(0)) == 0, i
        assert time.monotonic() - begun < 0.9
        thread.join()


class TestReturns:
    def test_number_of_results(self) -> None:
        ob.init(num_cpus=1)
        task = ob.remote(numbers)
        assert task.options(num_returns=0).remote(3) is None
        assert ob.get(task.options(num_returns=3).remote(3), timeout=10) == [0, 1, 2]
        (only,) = [task.options(num_returns=1).remote(2)]
        assert ob.get(only, timeout=10) == range(2)

    @pytest.mark.parametrize("n", [2, 4])
    def test_mismatch_is_an_error_of_each_result(self, n: int) -> None:
        ob.init(num_cpus=1)
        for ref in ob.remote(numbers).options(num_returns=3).remote(n):
            with pytest.raises(ValueError, match=f"numbers returned {n} values, but num_returns=3"):
                ob.get(ref, timeout=10)

    def test_failure_is_that_of_each_result(self) -> None:
        ob.init(num_cpus=1)
        for ref in ob.remote(divmod).options(num_returns=2).remote(1, 0):
            with pytest.raises(ZeroDivisionError):
                ob.get(ref, timeout=10)


class TestRetries:
    @pytest.mark.parametrize(
        ("which", "kind", "runs"),
        [(False, KeyError, 1), (True, KeyError, 3), ([KeyError], KeyError, 3), ([LookupError], KeyError, 3),
         ([ValueError], KeyError, 1), ([ValueError, OSError], FileNotFoundError, 3)],
    )  # fmt: skip
    def test_of_exceptions(self, tmp_path: Path, which: Any, kind: Any, runs: int) -> None:
        ob.init(num_cpus=1)
        task = ob.remote(fail_until).options(retry_exceptions=which, max_retries=2)
        with pytest.raises(kind):
            ob.get(task.remote(str(tmp_path), 99, kind), timeout=10)
        assert len(list(tmp_path.iterdir())) == runs

    def test_that_succeed(self, tmp_path: Path) -> None:
        ob.init(num_cpus=1)
        task = ob.remote(fail_until).options(retry_exceptions=True, max_retries=-1)
        assert ob.get(task.remote(str(tmp_path), 8, OSError), timeout=10) == 8


class TestCancel:
    def test_sleeping_and_queued(self) -> None:
        ob.init(num_cpus=1)
        task = ob.remote(nap)
        refs = [task.remote(60) for _ in range(11)]
        ob.wait(refs, timeout=0.2)
        begun = time.monotonic()
        for ref in refs:
            ob.cancel(ref)
        for ref in refs:
            with pytest.raises(TaskCancelledError):
                ob.get(ref, timeout=10)
        assert ob.get(task.remote(0), timeout=10) == 0
        assert time.monotonic() - begun < 10
        wait_until(lambda: ob.available_resources() == {"CPU": 1})

    def test_queued_ones_never_start(self, tmp_path: Path) -> None:
        ob.init(num_cpus=1)
        first = ob.remote(nap).remote(0.3)
        refs = [ob.remote(fail_until).remote(str(tmp_path), 1, KeyError) for _ in range(5)]
        for ref in refs:
            ob.cancel(ref)
        assert ob.get(first, timeout=10) == 0.3
        assert ob.get(ob.remote(nap).remote(0), timeout=10) == 0
        assert not list(tmp_path.iterdir())

    def test_finished_one_keeps_its_value(self) -> None:
        ob.init(num_cpus=1)
        ref = ob.remote(nap).remote(0)
        assert ob.get(ref) == 0
        ob.cancel(ref)
        ob.cancel(ref, force=True)
        assert ob.get(ref) == 0

    @pytest.mark.parametrize("force", [False, True])
    def test_children_go_too(self, tmp_path: Path, force: bool) -> None:
        ob.init(num_cpus=2)
        ref = ob.remote(parent_of).remote(str(tmp_path))
        wait_until(lambda: len(list(tmp_path.iterdir())) == 3)
        ob.cancel(ref, force=force)
        with pytest.raises(TaskCancelledError):
            ob.get(ref, timeout=10)
        wait_until(lambda: ob.available_resources() == {"CPU": 2}, within=10)

    def test_what_depends_on_it_is_cancelled(self) -> None:
        ob.init(num_cpus=1)
        ref = ob.remote(nap).remote(60)
        after = ob.remote(nap).remote(ref)
        ob.cancel(ref)
        with pytest.raises(TaskCancelledError):
            ob.get(after, timeout=10)

    def test_forced_one_kills_its_process(self) -> None:
        ob.init(num_cpus=1)
        ref = ob.remote(stubborn).remote()
        ob.wait([ref], timeout=0.2)
        ob.cancel(ref)
        with pytest.raises(TaskCancelledError):
            ob.get(ref, timeout=10)
        ob.cancel(ref, force=True)
        other = ob.remote(stubborn).remote()
        ob.wait([other], timeout=0.1)
        assert ob.nodes()

    def test_cancelled_task_may_clean_up(self, tmp_path: Path) -> None:
        ob.init(num_cpus=1)
        ref = ob.remote(clean_up).remote(str(tmp_path))
        wait_until(lambda: (tmp_path / "begun").exists())
        ob.cancel(ref)
        wait_until(lambda: (tmp_path / "cleaned").exists())


def stubborn() -> None:
    while True:
        try:
            time.sleep(60)
        except BaseException:
            continue


def clean_up(folder: str) -> None:
    try:
        (Path(folder) / "begun").touch()
        time.sleep(60)
    finally:
        (Path(folder) / "cleaned").touch()
