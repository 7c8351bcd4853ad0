"""What a task may ask for, and the settings of a process.

`TaskOptions` travels with each kind of task. `Settings` is the only table of tunables: the field's name is the Python
name, and ``OUTBOARD_`` plus the name in capitals is the environment variable. An argument wins over the environment.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .ids import RESOURCE_UNIT

#: Names of resources that have options of their own.
_BUILTIN_RESOURCES = {"CPU": "num_cpus", "GPU": "num_gpus"}

_PREFIX = "OUTBOARD_"

#: Value of `Settings.address` that runs everything in the calling process.
INLINE_ADDRESS: Final = "inline"

#: Value that starts an embedded cluster, whatever the process was forked from.
LOCAL_ADDRESS: Final = "local"

#: Value for the running cluster of this user on this machine.
AUTO_ADDRESS: Final = "auto"

#: Least room for stored objects, in bytes: below it not even one large value fits.
STORE_MIN_NBYTES = 1 << 20

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
}


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Demand and fate of one kind of task.

    Args:
        num_cpus: CPUs it occupies while it runs, in steps of 1/10000; 0 is allowed.
        num_gpus: a share of one GPU below 1, or a whole number of GPUs.
        resources: amounts of custom resources by name; ``CPU`` and ``GPU`` have options of their own.
        num_returns: result objects: 1 the value itself, n the n values of the iterable it returns, 0 none. Of a
            generator ``"streaming"``: they come as they are made, or ``"dynamic"``: one list of references at the end.
        max_retries: runs after one whose process or machine was lost; -1 for no limit.
        retry_exceptions: run again also after exceptions: all of them, or those of the given classes.
        name: shown instead of the function's own name.
        gang: what `outboard.gang` returned: it runs in one of those bundles. None for the gang of the task that submits
            it, where that runs in one that could have it, or for none. bundle: index of the only one that will do.
    """

    num_cpus: float = 1
    num_gpus: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    num_returns: Any = 1
    max_retries: int = 3
    retry_exceptions: bool | tuple[type[BaseException], ...] = False
    name: str | None = None
    gang: Any = None
    bundle: int | None = None
    _key: tuple[Any, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def key(self) -> tuple[Any, ...]:
        """What distinguishes these options from others, hashable."""
        key = self._key
        if key is None:
            key = (self.num_cpus, self.num_gpus, tuple(sorted(self.resources.items())), self.num_returns,
                   self.max_retries, self.retry_exceptions, self.name, self.gang, self.bundle)  # fmt: skip
            object.__setattr__(self, "_key", key)
        return key

    def merged(self, **changes: Any) -> TaskOptions:
        """Return these options with some replaced, all of them checked.

        Raises:
            ValueError: unknown name (the text gives the valid ones and the nearest) or a value out of range.
            TypeError: a value of the wrong type.
        """
        for name in changes:
            if name not in TASK_OPTION_NAMES:
                raise ValueError(unknown_option("task option", name, TASK_OPTION_NAMES))
        if isinstance(changes.get("retry_exceptions"), list):
            changes["retry_exceptions"] = tuple(changes["retry_exceptions"])
        options = dataclasses.replace(self, **changes)
        _check(options)
        return options

    def demand(self) -> dict[str, int]:
        """Give the amounts of resources in units of 1/`RESOURCE_UNIT`, those that are zero left out."""
        amounts = {"CPU": self.num_cpus, "GPU": self.num_gpus, **self.resources}
        return {name: round(amount * RESOURCE_UNIT) for name, amount in amounts.items() if amount}


TASK_OPTION_NAMES = tuple(f.name for f in dataclasses.fields(TaskOptions) if f.init)


def _check(options: TaskOptions) -> None:
    _check_amount("num_cpus", options.num_cpus)
    _check_amount("num_gpus", options.num_gpus)
    if options.num_gpus > 1 and options.num_gpus != int(options.num_gpus):
        raise ValueError(f"num_gpus must be below 1 or a whole number, not {options.num_gpus!r}")
    for name, amount in options.resources.items():
        if name in _BUILTIN_RESOURCES:
            raise ValueError(f"resources may not contain {name!r}: use {_BUILTIN_RESOURCES[name]}=")
        _check_amount(f"resources[{name!r}]", amount)
    if options.num_returns not in ("streaming", "dynamic"):
        check_count("num_returns", options.num_returns, least=0)
    check_count("max_retries", options.max_retries, least=-1)
    _check_retry_exceptions(options.retry_exceptions)
    _check_gang(options)


def _check_amount(name: str, amount: float) -> None:
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise TypeError(f"{name} must be a number, not {amount!r}")
    if not 0 <= amount < float("inf"):
        raise ValueError(f"{name} must be 0 or more, not {amount!r}")
    if amount and not round(amount * RESOURCE_UNIT):
        raise ValueError(f"{name} must be 0 or at least 1/{RESOURCE_UNIT}, not {amount!r}")


def check_count(name: str, count: int, *, least: int) -> None:
    """Raise TypeError or ValueError unless an option is a whole number and large enough."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} must be a whole number, not {count!r}")
    if count < least:
        raise ValueError(f"{name} must be {least} or more, not {count!r}")


def _check_gang(options: TaskOptions) -> None:
    if options.gang is None:
        if options.bundle is not None:
            raise ValueError("bundle= is one of a gang's: it needs gang=")
        return
    check = getattr(options.gang, "check", None)
    if check is None:
        raise TypeError(f"gang must be what outboard.gang() returned, not {options.gang!r}")
    check(options.demand(), options.bundle)


def _check_retry_exceptions(which: object) -> None:
    if isinstance(which, bool):
        return
    if not isinstance(which, tuple) or not all(isinstance(c, type) and issubclass(c, BaseException) for c in which):
        raise TypeError(f"retry_exceptions must be True, False or exception classes, not {which!r}")


def parse_nbytes(text: str | int | float) -> int | float:
    """Read a size: ``"512MiB"``, ``"2 GB"``, bytes as a number, or ``"30%"``, which gives the fraction 0.3."""
    if isinstance(text, (int, float)):
        return text
    digits = text.strip().rstrip("%KkMmGgTtIiBb ")
    unit = text.strip()[len(digits) :].strip().upper()
    try:
        amount = float(digits)
        nbytes = amount / 100 if unit == "%" else int(amount * _UNITS[unit])
    except (ValueError, KeyError):
        raise ValueError(f"{text!r} is not a size such as '512MiB', '2GB' or '30%'") from None
    if not nbytes > 0 or (unit == "%" and nbytes > 1):
        raise ValueError(f"{text!r} is out of range for a size")
    return nbytes


def parse_store_memory(given: str | int | float) -> int | float:
    """Read the room for stored objects: an int is bytes, a float a fraction of the memory; text as in `parse_nbytes`.

    A number in text means what it means in Python: ``"0.3"`` is a fraction, ``"500000000"`` bytes.
    """
    if isinstance(given, bool) or not isinstance(given, (str, int, float)):
        raise TypeError(f"{given!r} is not a size: an int is bytes, a float a fraction of the memory")
    if isinstance(given, str):
        given = _fraction(given) or parse_nbytes(given)
    if isinstance(given, float):
        if not 0 < given <= 1:
            raise ValueError(f"{given!r} is no fraction of the memory (above 0, at most 1); bytes are an int")
    elif given < STORE_MIN_NBYTES:
        raise ValueError(f"{given} bytes is too little: at least {STORE_MIN_NBYTES}, or a fraction such as 0.3")
    return given


def _fraction(text: str) -> float | None:
    """Read ``"0.3"``, a number with a point and no unit; None for any other text."""
    try:
        return float(text) if "." in text else None
    except ValueError:
        return None


def parse_seconds(text: str | int | float) -> float:
    """Read a duration in seconds: ``"1.5"``, ``"10s"``, ``"200ms"``, ``"2min"``."""
    if isinstance(text, (int, float)):
        return float(text)
    digits = text.strip().rstrip("mins ")
    factor = {"": 1.0, "s": 1.0, "ms": 1e-3, "min": 60.0}.get(text.strip()[len(digits) :].strip())
    if factor is None:
        raise ValueError(f"{text!r} is not a duration such as '10s' or '200ms'")
    return float(digits) * factor


def parse_flag(text: str | bool) -> bool:
    """Read a switch: 1/0, true/false, yes/no, on/off."""
    if isinstance(text, bool):
        return text
    lowered = text.strip().lower()
    if lowered not in ("1", "true", "yes", "on", "0", "false", "no", "off", ""):
        raise ValueError(f"{text!r} is neither true nor false")
    return lowered in ("1", "true", "yes", "on")


def parse_amount(given: str | float) -> float:
    """Read the amount of a resource: a number that is not negative."""
    try:
        amount = float(given)
    except ValueError:
        raise ValueError(f"{given!r} is not a number") from None
    if isinstance(given, bool) or not 0 <= amount < float("inf"):
        raise ValueError(f"{given!r} is not an amount: 0 or more")
    return amount


def parse_amounts(text: str | Mapping[str, float]) -> dict[str, float]:
    """Read amounts by name: ``"licence=2,disk=0.5"``."""
    given: Mapping[str, Any] = (
        text if isinstance(text, Mapping) else dict(_pair(part) for part in text.split(",") if part)
    )
    for name in given:
        if name in _BUILTIN_RESOURCES:
            raise ValueError(f"{name!r} has a setting of its own: {_BUILTIN_RESOURCES[name]}")
    return {name: parse_amount(amount) for name, amount in given.items()}


def _pair(part: str) -> tuple[str, str]:
    name, sign, amount = part.partition("=")
    if not (sign and name.strip()):
        raise ValueError(f"{part.strip()!r} is no name=amount, as in licence=2,disk=0.5")
    return name.strip(), amount


def _setting(default: Any, parse: Callable[[Any], Any]) -> Any:
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Tunables of this process's engine; `Settings.load()` reads them.

    Args:
        address: None or ``"local"`` for an embedded cluster, ``"host:port"`` of the head of a running one, ``"auto"``
            for the one of this user on this machine, ``"inline"`` for this process alone.
        num_cpus: CPUs of the embedded cluster; None for what affinity and container limits leave this process.
        num_gpus: GPUs of the embedded cluster; None for those that are visible.
        resources: custom resources of the embedded cluster, as ``"licence=2,disk=1"``.
        store_memory: room for stored objects: bytes (an int, ``"512MiB"``), or a fraction of the memory (a float,
            ``"30%"``). Larger keeps more results in memory, smaller leaves more to the programs. 30 % as in Ray.
        log_prefix: begin each line that a task prints with function, machine and process; None (unset) does so for
            plain tasks and leaves the lines of backends as they are, since their users expect plain output.
        start_timeout: seconds that an embedded cluster may take to start, or a running one to answer. It takes about
            0.1 and 0.5; a loaded machine needs more.
        folder: where the head of a cluster keeps token, state and logs; None for ``~/.local/state/outboard``.
        token_file: file with the cluster's token; None for the one in ``folder``.
        tls_cert: PEM file with this process's certificate chain; None for no certificate.
        tls_key: PEM file with its private key.
        tls_ca: PEM file with the authority that signs the others' certificates.
        namespace: where this program's names of actors are looked for; None for one that no other program has.
        insecure: allow plain text beyond this machine: whoever reads the network can then run code in the cluster.
    """

    address: str | None = _setting(None, str)
    num_cpus: float | None = _setting(None, parse_amount)
    num_gpus: float | None = _setting(None, parse_amount)
    resources: Mapping[str, float] = field(default_factory=dict, metadata={"parse": parse_amounts})
    store_memory: int | float = _setting(0.3, parse_store_memory)
    log_prefix: bool | None = _setting(None, parse_flag)
    start_timeout: float = _setting(30.0, parse_seconds)
    folder: str | None = _setting(None, str)
    token_file: str | None = _setting(None, str)
    tls_cert: str | None = _setting(None, str)
    tls_key: str | None = _setting(None, str)
    tls_ca: str | None = _setting(None, str)
    insecure: bool = _setting(False, parse_flag)
    namespace: str | None = _setting(None, str)

    @property
    def names_running(self) -> bool:
        """Whether the address is that of a cluster that runs already."""
        return self.address not in (None, "", INLINE_ADDRESS, LOCAL_ADDRESS)

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, **explicit: Any) -> Settings:
        """Read the settings: keywords first, then ``OUTBOARD_*``; a keyword of None means not given.

        Raises:
            ValueError: unknown keyword, a variable that looks like a misspelt setting, or a value that does not parse.
        """
        for name in explicit:
            if name not in SETTING_NAMES:
                raise ValueError(unknown_option("setting", name, SETTING_NAMES))
        environ = os.environ if environ is None else environ
        _check_spelling(environ)
        values: dict[str, Any] = {}
        for name, parse in _PARSERS.items():
            given, where = explicit.get(name), ""
            variable = _PREFIX + name.upper()
            if given is None and environ.get(variable):
                given, where = environ[variable], f" (in {variable})"
            if given is not None:
                values[name] = _parsed(name, parse, given, where)
        return cls(**values)


SETTING_NAMES = tuple(f.name for f in dataclasses.fields(Settings))

_PARSERS: dict[str, Callable[[Any], Any]] = {f.name: f.metadata["parse"] for f in dataclasses.fields(Settings)}


def _parsed(name: str, parse: Callable[[Any], Any], given: Any, where: str) -> Any:
    try:
        return parse(given)
    except (ValueError, TypeError) as error:
        raise ValueError(f"setting {name}: {error}{where}") from error


def _check_spelling(environ: Mapping[str, str]) -> None:
    """Refuse variables that resemble a setting; others of our prefix belong to other parts."""
    for variable in environ:
        if not variable.startswith(_PREFIX):
            continue
        name = variable.removeprefix(_PREFIX).lower()
        if name not in SETTING_NAMES and _nearest(name, SETTING_NAMES, cutoff=0.85):
            raise ValueError(unknown_option("setting", variable, [_PREFIX + n.upper() for n in SETTING_NAMES]))


def unknown_option(what: str, name: str, valid: Iterable[str]) -> str:
    """Say that there is no such option, which is nearest and which there are."""
    near = _nearest(name, valid, cutoff=0.5)
    hint = f" (did you mean {near!r}?)" if near else ""
    return f"unknown {what} {name!r}{hint}; valid are {', '.join(valid)}"


def _nearest(name: str, valid: Iterable[str], *, cutoff: float) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(valid), n=1, cutoff=cutoff)), None)
