"""What can go wrong, by who must act.

OutboardError
├── TaskError                   the caller of the task: its code, its arguments or its process
│   ├── WorkerLostError         the process that ran it ended           (also BrokenExecutor)
│   │   ├── ActorDiedError      the actor has ended for good
│   │   └── ActorUnavailableError   its process ended under the call; it is started again
│   ├── TaskCancelledError      somebody cancelled it                   (also concurrent.futures.CancelledError)
│   ├── SerializationError      function, argument or result does not pickle
│   ├── RemoteError             stands for an exception that could not be brought back
│   ├── GangBrokenError         the gang that it was to run in is over
│   ├── TaskExitError           it called sys.exit() or raised KeyboardInterrupt
│   └── TaskUnschedulableError  no node could ever meet its demand
├── ObjectStoreError            the holder of references
│   ├── ObjectLostError         no copy is left and it cannot be made again
│   ├── OwnerLostError          the process that owned it ended
│   └── StoreFullError          no room for a new object
├── TransportError              the operator: processes and network     (also ConnectionError)
│   ├── NodeLostError           the node ended or went silent
│   ├── VersionMismatchError    both ends run releases that do not fit
│   ├── HeadUnreachableError    the cluster has no head that answers
│   └── AuthenticationError     the other end does not accept our token, or belongs to another cluster
├── ActorNameError              the program: another actor has the name     (also ValueError)
├── ShutdownError               the program: Outboard was shut down
├── GetTimeoutError             the program: nothing in time            (also the built-in TimeoutError)
└── InternalError               us: please report it

Every class takes one message and its attributes by keyword, and pickles with both. An exception that a task raised is
not in this tree: it comes back as itself, with a `RemoteTraceback` as its cause.
"""

from __future__ import annotations

import signal as signals
from concurrent.futures import BrokenExecutor, CancelledError
from typing import Any, ClassVar

from .ids import ObjectId

#: Lines of a dead worker's standard error that the text of its error repeats. The attribute holds all that was kept.
STDERR_LINES_SHOWN = 5

#: Signals that compiled code brings on itself, and how faulthandler begins to tell of one.
_CRASHES = {signals.SIGSEGV, signals.SIGBUS, signals.SIGILL, signals.SIGFPE, signals.SIGABRT}
_FATAL = "Fatal Python error"

#: Share of the memory from which on a process that was killed is taken for one that used too much: four such
#: side by side fill it. Less suspects those that somebody else killed.
MEMORY_SHARE = 0.25


class OutboardError(Exception):
    """Root of all errors that Outboard itself raises; `ob_code` is stable and begins the text."""

    ob_code: ClassVar[str] = "OB100"

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.ob_code}: {self._text()}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._text()!r})"

    def _text(self) -> str:
        """Give the message, or what the class stands for when it was raised without one."""
        return self._message() or _first_line(type(self))

    def _message(self) -> str:
        return str(self.args[0]) if self.args else ""


class TaskError(OutboardError):
    """A task did not give a value, for a reason other than an exception of its own."""

    ob_code = "OB101"


class WorkerLostError(TaskError, BrokenExecutor):
    """The process that ran the task ended before the result was safe.

    Without a message the text is made from the attributes, so whoever knows the task better may set `task` and
    `index` on an error that passes by.

    Attributes:
        task: what ran, for people (``"train(3)"``); index: its place in its array, or None.
        pid, host: the process and its machine; None or empty when unknown.
        signal: number of the signal that ended it, else 0. exitcode: its exit status when it ended by itself.
        peak_nbytes, limit_nbytes: its largest memory and the limit; 0 when unknown or without limit.
        stderr_tail: last lines it wrote to standard error.
        attempts: runs that were begun. may_have_run: the task may have had effects although it has no result.
    """

    ob_code = "OB102"

    def __init__(
        self,
        message: str = "",
        *,
        task: str = "",
        index: int | None = None,
        pid: int | None = None,
        signal: int = 0,
        exitcode: int | None = None,
        peak_nbytes: int = 0,
        limit_nbytes: int = 0,
        stderr_tail: str = "",
        may_have_run: bool = True,
        host: str = "",
        attempts: int = 1,
    ) -> None:
        super().__init__(message)
        self.task = task
        self.index = index
        self.pid = pid
        self.signal = signal
        self.exitcode = exitcode
        self.peak_nbytes = peak_nbytes
        self.limit_nbytes = limit_nbytes
        self.stderr_tail = stderr_tail
        self.may_have_run = may_have_run
        self.host = host
        self.attempts = attempts

    def _text(self) -> str:
        parts = self._lost(), self._memory(), self._crash(), self._stderr()
        return self._message() or " ".join(filter(None, parts))

    def _lost(self) -> str:
        what = self.task or "a task"
        if self.index is not None:
            what += f" (item {self.index})"
        process = "its worker process" if self.pid is None else f"worker process {self.pid}"
        where = f" on {self.host}" if self.host else ""
        runs = f"{self.attempts} run{'' if self.attempts == 1 else 's'} begun"
        return f"{what} lost: {process}{where} ended {describe_exit(self.signal, self.exitcode)}; {runs}."

    def _memory(self) -> str:
        if not self.peak_nbytes:
            return ""
        limit = f" of {describe_nbytes(self.limit_nbytes)}" if self.limit_nbytes else ""
        text = f"Its memory peaked at {describe_nbytes(self.peak_nbytes)}{limit}."
        if self.signal == signals.SIGKILL and self.peak_nbytes >= MEMORY_SHARE * self.limit_nbytes > 0:
            text += " The kernel ends processes with SIGKILL when memory runs out: run fewer at once."
        return text

    def _crash(self) -> str:
        if self.signal not in _CRASHES or _FATAL in self.stderr_tail:
            return ""
        return "Compiled code crashed: with PYTHONFAULTHANDLER=1 in the environment its stderr says where."

    def _stderr(self) -> str:
        tail = self.stderr_tail[max(0, self.stderr_tail.rfind(_FATAL)) :]
        lines = [line for line in tail.splitlines() if line.strip()]
        # What faulthandler says begins with the place, all else ends with it.
        lines = lines[:STDERR_LINES_SHOWN] if tail.startswith(_FATAL) else lines[-STDERR_LINES_SHOWN:]
        return "Last lines of its stderr:\n" + "\n".join(lines) if lines else ""


class ActorDiedError(WorkerLostError):
    """The actor has ended: no call of it will run any more.

    Attributes:
        actor: its class, and its name if it has one. reason: why it ended, for people.
        cause: the exception of its constructor where that is why, else None.
    """

    ob_code = "OB108"

    def __init__(self, message: str = "", *, actor: str = "", reason: str = "", cause: BaseException | None = None,
                 **process: Any) -> None:  # fmt: skip
        super().__init__(message, **process)
        self.actor = actor
        self.reason = reason
        self.cause = cause
        self.__cause__ = cause

    def _lost(self) -> str:
        text = f"actor {self.actor or 'of this call'} has ended"
        if self.cause is not None:
            return f"{text}: {self.reason or 'it could not be made'}: {type(self.cause).__name__}: {self.cause}"
        if self.pid is not None:
            where = f" on {self.host}" if self.host else ""
            return f"{text}: its process {self.pid}{where} ended {describe_exit(self.signal, self.exitcode)}."
        return f"{text}: {self.reason or 'it was let go'}."


class ActorUnavailableError(WorkerLostError):
    """The actor's process ended while the call ran, or before its result was safe; later calls find the next one.

    The call may have had effects. With ``max_task_retries`` it is made again instead.
    """

    ob_code = "OB109"


class TaskCancelledError(TaskError, CancelledError):
    """The task was cancelled before it had a result; it may have run in part."""

    ob_code = "OB103"


class SerializationError(TaskError):
    """Something could not be pickled.

    Attributes:
        what: ``"function"``, ``"argument"``, ``"result"`` or ``"value"``.
        path: where in the value the culprit lies (``"args[0].lock"``), or empty.
        reason: the error of pickle itself, or None when only its text came back.
        value_repr: shortened repr of the value that does not pickle.
    """

    ob_code = "OB104"

    def __init__(
        self,
        message: str = "",
        *,
        what: str = "value",
        path: str = "",
        reason: BaseException | None = None,
        value_repr: str = "",
    ) -> None:
        super().__init__(message)
        self.what = what
        self.path = path
        self.reason = reason
        self.value_repr = value_repr


class RemoteError(TaskError):
    """Stands for an exception that could not be pickled there or rebuilt here.

    Attributes:
        type_name, text: class and ``str()`` of the exception. traceback: as it was formatted in the worker.
    """

    ob_code = "OB105"

    def __init__(self, message: str = "", *, type_name: str = "", text: str = "", traceback: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name
        self.text = text
        self.traceback = traceback

    def _text(self) -> str:
        head = super()._text()
        if self.type_name and not self._message():
            head = f"{self.type_name}: {self.text} (the exception itself could not be brought back)"
        return f"{head}\n\n{self.traceback}" if self.traceback else head


class TaskExitError(TaskError):
    """The task raised SystemExit or KeyboardInterrupt; `code` is what sys.exit() was given."""

    ob_code = "OB106"

    def __init__(self, message: str = "", *, code: Any = None) -> None:
        super().__init__(message)
        self.code = code


class TaskUnschedulableError(TaskError):
    """No node could ever meet the demand; `asked` and `available` are amounts by resource name."""

    ob_code = "OB107"

    def __init__(
        self, message: str = "", *, asked: dict[str, float] | None = None, available: dict[str, float] | None = None
    ) -> None:
        super().__init__(message)
        self.asked = asked or {}
        self.available = available or {}


class GangBrokenError(TaskError):
    """The gang is over: a node that had bundles of it is lost, or it was released. Its tasks may have had effects.

    Attributes:
        gang: its name, for people; reason: why it is over, or empty where only its owner knows.
    """

    ob_code = "OB110"

    def __init__(self, message: str = "", *, gang: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.gang = gang
        self.reason = reason

    def _text(self) -> str:
        return self._message() or f"{self.gang or 'the gang'} is over" + (f": {self.reason}" if self.reason else "")


class ObjectStoreError(OutboardError):
    """A stored object cannot be had or made."""

    ob_code = "OB201"


class ObjectLostError(ObjectStoreError):
    """No copy of the object is left, and it cannot be made again.

    Attributes:
        oid, version: the object's name and the version that was wanted, where one was named; else None and 0.
    """

    ob_code = "OB202"

    def __init__(self, message: str = "", *, oid: ObjectId | None = None, version: int = 0) -> None:
        super().__init__(message)
        self.oid = oid
        self.version = version


class OwnerLostError(ObjectStoreError):
    """The process that owned the object has ended, and the object with it."""

    ob_code = "OB203"


class StoreFullError(ObjectStoreError):
    """There is no room, and nothing that holds room can end by itself.

    Attributes:
        needed_nbytes, free_nbytes, capacity_nbytes: sizes in bytes. holders: (what, bytes), largest first.
    """

    ob_code = "OB204"

    def __init__(
        self,
        message: str = "",
        *,
        needed_nbytes: int = 0,
        free_nbytes: int = 0,
        capacity_nbytes: int = 0,
        holders: tuple[tuple[str, int], ...] = (),
    ) -> None:
        super().__init__(message)
        self.needed_nbytes = needed_nbytes
        self.free_nbytes = free_nbytes
        self.capacity_nbytes = capacity_nbytes
        self.holders = holders


class TransportError(OutboardError, ConnectionError):
    """A process that should answer cannot be reached."""

    ob_code = "OB301"


class NodeLostError(TransportError):
    """The node has ended or is silent; work that it had begun may have run."""

    ob_code = "OB302"


class VersionMismatchError(TransportError):
    """The two ends run releases, protocols or Python versions that do not fit."""

    ob_code = "OB303"


class HeadUnreachableError(TransportError):
    """The cluster's head has not answered; what runs goes on without it."""

    ob_code = "OB305"


class AuthenticationError(TransportError):
    """The other end does not accept this process's token, or asks for one and there is none."""

    ob_code = "OB304"


class ActorNameError(OutboardError, ValueError):
    """Another actor has this name, or none has it."""

    ob_code = "OB501"


class ShutdownError(OutboardError):
    """Outboard was shut down in this process."""

    ob_code = "OB401"


class GetTimeoutError(OutboardError, TimeoutError):
    """Nothing came in time; the task goes on, and asking again is safe."""

    ob_code = "OB402"


class InternalError(OutboardError):
    """A fault of Outboard itself: please report the text."""

    ob_code = "OB900"


class RemoteTraceback(Exception):
    """Cause of an exception that came from a task; its text is the traceback there, as `multiprocessing` shows it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @classmethod
    def of(cls, traceback_text: str) -> RemoteTraceback:
        """Wrap a formatted traceback."""
        return cls(f'\n"""\n{traceback_text}"""')

    def __str__(self) -> str:
        return self.text


def _first_line(cls: type) -> str:
    return next((c.__doc__.partition("\n")[0] for c in cls.__mro__ if c.__doc__), cls.__name__)


def describe_exit(signal: int, exitcode: int | None) -> str:
    """Say for people how a process ended: ``with SIGKILL (-9)``, ``with exit code 7``."""
    if not signal:
        return "for an unknown reason" if exitcode is None else f"with exit code {exitcode}"
    try:
        return f"with {signals.Signals(signal).name} (-{signal})"
    except ValueError:
        return f"with signal {signal}"


def describe_machine_loss(reason: str) -> str:
    """Say for people that an actor went with its machine; `reason`: why that went, or empty."""
    return "its process was lost with its machine" + (f": {reason}" if reason else "")


def describe_nbytes(nbytes: int) -> str:
    """Write a size for people: ``30.1 GiB``."""
    amount = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
