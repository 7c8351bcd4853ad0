"""Between exceptions and how they travel: the value bytes of an error, and the marks of `scheduler.outcomes`."""

from __future__ import annotations

from typing import Any

from . import errors
from .ids import RESOURCE_UNIT
from .rpc.protos import outboard_pb2 as pb
from .scheduler import outcomes
from .store import serialize

Cause = pb.Error.Cause


def encode_error(error: BaseException, cause: pb.Error.Cause = pb.Error.RAISED, value_repr: str = "") -> bytes:
    """Give the value bytes of a failure; never raises."""
    if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)) and cause == pb.Error.RAISED:
        cause = pb.Error.EXITED
    pickled, type_name, text, traceback = serialize.encode_exception(error)
    lost = None
    if isinstance(error, errors.ObjectLostError) and error.oid is not None:
        lost = pb.Ref(owner=error.oid.owner, seq=error.oid.seq, version=error.version)
    return pb.Outcome(
        error=pb.Error(
            pickled=pickled, type_name=type_name, text=text, traceback=traceback, cause=cause, value_repr=value_repr,
            lost=lost
        )
    ).SerializeToString()  # fmt: skip


def input_cause(error: BaseException) -> pb.Error.Cause:
    """Say what it means that a task's arguments could not be rebuilt.

    Only the owner can help when an input is nowhere any more; that a store is full says nothing against the task.
    """
    if isinstance(error, errors.ObjectLostError) and error.oid is not None:
        return pb.Error.INPUT_LOST
    return pb.Error.RAISED if isinstance(error, errors.StoreFullError) else pb.Error.ARGUMENT_UNPICKLABLE


def as_exception(value: Any, name: str = "") -> BaseException | None:
    """Give the exception for an entry's value, or None when the value is no failure."""
    if isinstance(value, bytes):
        return None if value[:1] != b"\x12" else _from_error(pb.Outcome.FromString(value).error)
    return _from_mark(value, name)


def _from_error(error: pb.Error) -> BaseException:
    text = f"{error.type_name}: {error.text}"
    if error.cause in (pb.Error.RESULT_UNPICKLABLE, pb.Error.ARGUMENT_UNPICKLABLE, pb.Error.FUNCTION_UNPICKLABLE):
        return _unpicklable(error, text)
    rebuilt = serialize.decode_exception(error.pickled) if error.pickled else None
    if error.cause == pb.Error.EXITED:
        code = rebuilt.code if isinstance(rebuilt, SystemExit) else None
        return _caused(errors.TaskExitError(f"the task ended itself with {text}", code=code), error)
    if error.cause == pb.Error.CANCELLED:
        return errors.TaskCancelledError("the task was cancelled while it ran")
    if rebuilt is None:
        rebuilt = errors.RemoteError(type_name=error.type_name, text=error.text, traceback=error.traceback)
    return _caused(rebuilt, error)


def _unpicklable(error: pb.Error, text: str) -> BaseException:
    what = {pb.Error.RESULT_UNPICKLABLE: "result", pb.Error.ARGUMENT_UNPICKLABLE: "argument"}.get(
        error.cause, "function"
    )
    about = f" {error.value_repr}" if error.value_repr else ""
    reason = serialize.decode_exception(error.pickled) if error.pickled else None
    verb = "cannot be pickled" if what == "result" else "cannot be rebuilt in the worker"
    wrapped = errors.SerializationError(
        f"the {what}{about} {verb}: {text}", what=what, reason=reason, value_repr=error.value_repr
    )
    return _caused(wrapped, error)


def _caused(exception: BaseException, error: pb.Error) -> BaseException:
    if error.traceback:
        exception.__cause__ = errors.RemoteTraceback.of(error.traceback)
    return exception


def _from_mark(mark: Any, name: str) -> BaseException | None:
    if isinstance(mark, outcomes.LostMark):
        return _lost(mark)
    if isinstance(mark, outcomes.PoisonMark):
        return _poisoned(mark)
    if isinstance(mark, outcomes.CancelledMark):
        return errors.TaskCancelledError(f"{mark.name or name or 'the task'} was cancelled")
    if isinstance(mark, outcomes.RefusedMark):
        asked, available = _amounts(mark.asked), _amounts(mark.available)
        return errors.TaskUnschedulableError(
            f"{mark.name} can never run: it asks for {_list(asked)}, the cluster has {_list(available)} in all. "
            "Ask for less, or add a node that has it.",
            asked=asked,
            available=available,
        )
    if isinstance(mark, outcomes.BindingMark):
        return _actor_ended(mark) if mark.is_actor else _binding(mark)
    if isinstance(mark, outcomes.NodeLostMark):
        return errors.NodeLostError(mark.reason)
    if isinstance(mark, outcomes.ShutdownMark):
        return errors.ShutdownError(mark.reason)
    if isinstance(mark, outcomes.OwnerLostMark):
        return errors.OwnerLostError(
            f"the process {mark.owner:016x} that owned the object ended before it passed it on"
        )
    if isinstance(mark, outcomes.ReleasedMark):
        return errors.ObjectLostError(mark.reason)
    if isinstance(mark, outcomes.ObjectLostMark):
        text = f"no copy of object {mark.oid.hex()} is left, and it cannot be made again: {mark.reason}"
        return errors.ObjectLostError(text, oid=mark.oid)
    if isinstance(mark, outcomes.EncodeFailedMark):
        return mark.error
    return None


def encode_failure(text: str, what: str, error: Exception | SystemExit) -> outcomes.EncodeFailedMark:
    """Mark what could not be encoded; what is no fault of its pickling (there is no room, say) is told as it is."""
    if isinstance(error, (errors.ObjectStoreError, errors.NodeLostError, errors.ShutdownError)):
        return outcomes.EncodeFailedMark(error)
    wrapped = errors.SerializationError(f"{text} cannot be pickled: {error}", what=what, reason=error)
    wrapped.__cause__ = error
    return outcomes.EncodeFailedMark(wrapped)


def _lost(mark: outcomes.LostMark) -> BaseException:
    death = mark.death
    if mark.is_call:
        return _call_lost(mark)
    if mark.reason:
        what = mark.name if mark.index is None else f"{mark.name} (item {mark.index})"
        runs = f"{mark.attempts} run{'' if mark.attempts == 1 else 's'} begun"
        text = f"{what} lost: the machine that had it is gone ({mark.reason}); {runs}. It may have had effects."
        return errors.WorkerLostError(text, task=mark.name, index=mark.index, attempts=mark.attempts)
    if death is None:
        return errors.WorkerLostError(task=mark.name, index=mark.index, attempts=mark.attempts)
    return errors.WorkerLostError(task=mark.name, index=mark.index, attempts=mark.attempts, **_process(death))


def _call_lost(mark: outcomes.LostMark) -> BaseException:
    """The call of an actor died with its process."""
    death = mark.death
    actor = mark.name.rpartition(".")[0]
    if death is None or not death.pid:
        return errors.ActorDiedError(actor=actor, reason=errors.describe_machine_loss(mark.reason), task=mark.name)
    if death.restarting:
        text = (f"{mark.name} lost: process {death.pid} of actor {actor} ended "
                f"{errors.describe_exit(death.signal, death.exitcode)}; it is being started again. The call may have "
                "had effects.")  # fmt: skip
        return errors.ActorUnavailableError(text, task=mark.name, **_process(death))
    return errors.ActorDiedError(actor=actor, task=mark.name, **_process(death))


def _actor_ended(mark: outcomes.BindingMark) -> BaseException:
    cause = as_exception(mark.outcome) if mark.outcome else None
    if isinstance(cause, errors.ActorDiedError):
        return cause
    process = _process(mark.death) if mark.death is not None and mark.death.pid else {}
    reason = mark.reason
    if mark.is_ganged and not cause:
        reason = "its gang is over" + (f": {reason}" if reason else "")
    return errors.ActorDiedError(actor=mark.label, reason=reason, cause=cause, may_have_run=False, **process)


def _process(death: Any) -> dict[str, Any]:
    """Say how a process ended, as `WorkerLostError` takes it."""
    return {
        "pid": death.pid, "signal": death.signal, "exitcode": None if death.signal else death.exitcode,
        "peak_nbytes": death.peak_nbytes, "limit_nbytes": death.limit_nbytes, "stderr_tail": death.stderr_tail,
        "host": death.host,
    }  # fmt: skip


def _poisoned(mark: outcomes.PoisonMark) -> BaseException:
    last = _lost(outcomes.LostMark(outcomes.LostCause.PROCESS, mark.name, None, 1, mark.death))
    return errors.WorkerLostError(
        f"{mark.name} was not started again: its last {mark.deaths} runs each ended their worker. The last one: {last}",
        task=mark.name,
        may_have_run=False,
        attempts=0,
    )


def _binding(mark: outcomes.BindingMark) -> BaseException:
    if mark.outcome:
        error = as_exception(mark.outcome)
        if error is not None:
            return error
    if mark.death is not None and mark.death.pid:
        return _lost(
            outcomes.LostMark(outcomes.LostCause.BINDING, mark.label or "the workers of a pool", None, 1, mark.death)
        )
    if mark.is_ganged:
        return errors.GangBrokenError(gang=mark.label, reason=mark.reason)
    return errors.TaskCancelledError(f"the workers of {mark.label or 'the pool'} were let go before it ran")


def _amounts(units: Any) -> dict[str, float]:
    return {name: amount / RESOURCE_UNIT for name, amount in sorted(units.items())}


def _list(amounts: dict[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in sorted(amounts.items())) or "nothing"
