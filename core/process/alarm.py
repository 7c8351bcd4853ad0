"""A one-shot timer behind a descriptor: set from one thread for about a microsecond, awaited with poll by another.

Linux has timerfd for it (Python names it from 3.13 on, before that it is called through ctypes), BSD and macOS kqueue.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys

if sys.platform == "linux":
    _CLOCK_MONOTONIC = 1
    _FLAGS = os.O_NONBLOCK | os.O_CLOEXEC

    class _Times(ctypes.Structure):
        """`struct itimerspec`: the interval, which stays zero, then the time to go."""

        _fields_ = (
            ("interval_s", ctypes.c_long),
            ("interval_ns", ctypes.c_long),
            ("value_s", ctypes.c_long),
            ("value_ns", ctypes.c_long),
        )

    class Alarm:
        """A timerfd. `fileno` is readable from the end of the time until `clear`."""

        def __init__(self) -> None:
            # PyDLL keeps the GIL: a call takes less than handing that over.
            libc = ctypes.PyDLL(None, use_errno=True)
            self._settime = libc.timerfd_settime
            self._times = _Times()
            self._reference = ctypes.byref(self._times)
            self.fileno: int = libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
            if self.fileno < 0:
                raise OSError(ctypes.get_errno(), "no timer")

        def set(self, seconds: float) -> None:
            """Go off once, so many seconds (less than one) from now; an earlier setting is forgotten."""
            self._times.value_ns = max(1, int(seconds * 1e9))  # zero would turn it off
            self._settime(self.fileno, 0, self._reference, None)

        def clear(self) -> None:
            """Take note that it went off."""
            try:
                os.read(self.fileno, 8)
            except BlockingIOError:
                pass  # it was set again meanwhile

        def close(self) -> None:
            """Give the descriptor back."""
            os.close(self.fileno)

else:

    class Alarm:
        """A timer of kqueue. `fileno` is readable from the end of the time until `clear`."""

        def __init__(self) -> None:
            self._queue = select.kqueue()
            self.fileno = self._queue.fileno()

        def set(self, seconds: float) -> None:
            """Go off once, so many seconds from now; an earlier setting is forgotten."""
            event = select.kevent(
                1, select.KQ_FILTER_TIMER, select.KQ_EV_ADD | select.KQ_EV_ONESHOT, 0, int(seconds * 1e3)
            )
            self._queue.control([event], 0)

        def clear(self) -> None:
            """Take note that it went off."""
            self._queue.control(None, 1, 0)

        def close(self) -> None:
            """Give the descriptor back."""
            self._queue.close()
