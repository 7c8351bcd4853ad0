"""What an actor may ask for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .options import TaskOptions, check_count, unknown_option

#: Calls that may run at a time in an actor with async methods, unless told otherwise.
ASYNC_CONCURRENCY = 1000

#: What of an actor's options each of its calls has too.
_OF_CALLS = ("num_cpus", "num_gpus", "resources", "gang", "bundle")

#: Options of tasks that actors have otherwise, or not at all, and what to write instead.
_INSTEAD = {
    "num_returns": "it belongs to a method: actor.method.options(num_returns=...).remote(...)",
    "max_retries": "how often calls run again after a death is max_task_retries, and max_restarts the actor itself",
    "retry_exceptions": "calls do not run again after exceptions",
}


@dataclass(frozen=True, slots=True)
class ActorOptions:
    """Demand and fate of one actor.

    Args:
        num_cpus, num_gpus, resources: what each of its calls holds while it runs, as in `TaskOptions`; no CPU unless
            told otherwise, so that any number of actors may wait for each other.
        name: by which `get_actor` finds it while it lives. namespace: of the name; None for the program's own.
        lifetime: ``"detached"`` for an actor that outlives its handles and its program, or None.
        get_if_exists: with a name: return a handle of the actor that has it, if there is one.
        max_restarts: processes that may follow one that died, -1 for any number. Each is made with the same arguments.
        max_task_retries: runs of a call after one that ended with the process or its machine, -1 for any number.
        max_concurrency: calls that may run at a time, in threads, or as coroutines if the class has async methods. None
            for one in the order of the calls, or 1,000 with async methods.
        gang, bundle: where it lives, as in `TaskOptions`; without a bundle the actors of a gang take turns among those
            that could have them.
    """

    num_cpus: float = 0
    num_gpus: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    name: str | None = None
    namespace: str | None = None
    lifetime: str | None = None
    get_if_exists: bool = False
    max_restarts: int = 0
    max_task_retries: int = 0
    max_concurrency: int | None = None
    gang: Any = None
    bundle: int | None = None

    def merged(self, **changes: Any) -> ActorOptions:
        """Return these options with some replaced, all of them checked.

        Raises:
            ValueError: unknown name (the text gives the valid ones and the nearest), an option of methods, or a value
                out of range.
            TypeError: a value of the wrong type.
        """
        for name in changes:
            if name in _INSTEAD:
                raise ValueError(f"{name} is no option of an actor: {_INSTEAD[name]}")
            if name not in ACTOR_OPTION_NAMES:
                raise ValueError(unknown_option("actor option", name, ACTOR_OPTION_NAMES))
        options = dataclasses.replace(self, **changes)
        _check(options)
        return options

    def of_calls(self) -> TaskOptions:
        """Give what its calls ask for."""
        demand = {name: getattr(self, name) for name in _OF_CALLS}
        return TaskOptions().merged(max_retries=self.max_task_retries, **demand)


ACTOR_OPTION_NAMES = tuple(f.name for f in dataclasses.fields(ActorOptions))


def _check(options: ActorOptions) -> None:
    options.of_calls()
    for name in ("name", "namespace"):
        text = getattr(options, name)
        if text is not None and not (isinstance(text, str) and text):
            raise (ValueError if text == "" else TypeError)(f"{name} must be a text that is not empty, not {text!r}")
    if options.lifetime not in (None, "detached"):
        raise ValueError(f'lifetime must be None or "detached", not {options.lifetime!r}')
    if not isinstance(options.get_if_exists, bool):
        raise TypeError(f"get_if_exists must be True or False, not {options.get_if_exists!r}")
    if options.lifetime is not None and options.gang is not None:
        raise ValueError("a detached actor cannot be in a gang, which ends with its program")
    if options.get_if_exists and not options.name:
        raise ValueError("get_if_exists needs a name")
    check_count("max_restarts", options.max_restarts, least=-1)
    check_count("max_task_retries", options.max_task_retries, least=-1)
    if options.max_concurrency is not None:
        check_count("max_concurrency", options.max_concurrency, least=1)
