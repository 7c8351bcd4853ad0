"""The timer that wakes a worker's background thread."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator

import pytest

from outboard.process.alarm import Alarm

pytestmark = pytest.mark.timeout(10)


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    made = Alarm()
    yield made
    os.close(made.fileno)


def wait(alarm: Alarm, seconds: float) -> bool:
    return bool(select.select([alarm.fileno], [], [], seconds)[0])


def test_goes_off_once_when_its_time_has_come(alarm: Alarm) -> None:
    begin = time.monotonic()
    alarm.set(0.02)
    assert wait(alarm, 5)
    assert time.monotonic() - begin >= 0.02
    alarm.clear()
    assert not wait(alarm, 0.04)


def test_later_setting_replaces_the_earlier(alarm: Alarm) -> None:
    alarm.set(0.01)
    alarm.set(0.9)
    assert not wait(alarm, 0.05)
    alarm.set(0.0)
    assert wait(alarm, 5)


def test_clearing_what_was_set_again_waits_for_nothing(alarm: Alarm) -> None:
    alarm.clear()
    alarm.set(0.01)
    assert wait(alarm, 5)
