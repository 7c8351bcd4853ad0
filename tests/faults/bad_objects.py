"""Objects that misbehave when they are pickled, rebuilt or shown, each at a time and in a way of choice.

`act(how)` is the misbehaviour; the classes call it in one of their methods. Used by name in the workers too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any

#: Ways that end the process, and how a message must call each.
DEADLY = {"kill": "SIGKILL", "exit": "exit code 7", "segfault": "SIGSEGV"}

#: Ways that raise something.
RAISING = ("raise", "sysexit", "interrupt")


class Odd(Exception):
    """Raised by `act("raise")`."""


def act(how: str) -> Any:
    """Misbehave."""
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "exit":
        print("last words", file=sys.stderr)
        os._exit(7)
    elif how == "segfault":
        ctypes.string_at(0)
    elif how == "raise":
        raise Odd("odd")
    elif how == "sysexit":
        sys.exit(3)
    elif how == "interrupt":
        raise KeyboardInterrupt
    elif how == "hang":
        time.sleep(600)
    return how


class OnDump:
    """Acts when it is pickled; one made elsewhere than where it was pickled is what it was."""

    def __init__(self, how: str, value: object = None) -> None:
        self.how, self.value = how, value

    def __reduce__(self) -> Any:
        act(self.how)
        return OnDump, (self.how, self.value)


class OnLoad:
    """Acts when it is rebuilt in another process than the one that made it, or anywhere with ``everywhere``."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> Any:
        return act, (self.how,)


class BadFunction:
    """A function that acts when it is rebuilt."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.__name__ = "bad_function"

    def __call__(self, x: int) -> int:
        return x

    def __reduce__(self) -> Any:
        return act, (self.how,)


class BadReduce(Exception):
    """An exception that acts when it is pickled."""

    def __reduce__(self) -> Any:
        act(str(self.args[0]))
        return type(self), self.args


class BadText(Exception):
    """An exception that acts when it is shown."""

    def __str__(self) -> str:
        return str(act(str(self.args[0])))

    __repr__ = __str__


class BadState(Exception):
    """An exception that acts when it is rebuilt in a process that did not raise it."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.pid = os.getpid()

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        if state and state["pid"] != os.getpid():
            act(str(self.args[0]))


class TwoArguments(Exception):
    """Pickles, but cannot be rebuilt: ``args`` has one item, the constructor wants two."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(f"{code}@{where}")


def make(kind: Any, *args: Any) -> Any:
    """Make and return an object."""
    return kind(*args)


def throw(kind: Any, *args: Any) -> None:
    """Make and raise an exception."""
    raise kind(*args)


def same(x: Any) -> Any:
    """Return the argument."""
    return x
