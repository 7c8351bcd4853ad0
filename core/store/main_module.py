"""Functions and classes of ``__main__`` in another process.

They travel by value, but by name *within* ``__main__``: a function carries no globals, only the list of names it
uses, and every used name travels once as a stream of its own (its *definition*)::

    load_main(origin, {"f": definition, "SCALE": definition, "np": definition}, stream of the value)

All functions of one client thereby share one namespace in a worker, that of the worker's own ``__main__``, and a name
is set there only when its definition differs from the one that last arrived. So what an initializer did with
``global SCALE; SCALE = v`` stays, and a global that changed in the client's notebook arrives.

Who loads such bytes: a process that *adopted* ``__main__`` (a worker) merges what comes from its *authority*, the
process whose things arrived first, for a worker is bound to one client; from others (results of other workers) it only
takes what it lacks. The client, which gets its own things back in results, looks names up in its own ``__main__`` and
changes nothing that is there. Any other process makes a namespace for each value.
"""

from __future__ import annotations

import functools
import io
import operator
import os
import pickle
import sys
import threading
import types
from collections import ChainMap
from typing import Any

from cloudpickle import cloudpickle  # type: ignore[import-untyped]

from .serialize import buffer_keeper, buffer_reducers

#: A definition: its stream and the buffers that left it.
Definition = tuple[bytes, list[Any]]

#: Names of a module that belong to the module rather than to its code.
_MODULE_NAMES = frozenset(("__annotations__", "__builtins__", "__doc__", "__loader__", "__name__", "__spec__"))

_CACHED_FUNCTION: Any = type(functools.cache(len))

#: Types whose objects never change, as far as pickling a class or a default argument is concerned.
_STABLE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.NoneType,
    classmethod,
    staticmethod,
    property,
    str,
    bytes,
    int,
    float,
)


class _Exchange:
    """This process's side: what it is, what arrived, what it sent."""

    def __init__(self, *, adopted: bool) -> None:
        self.adopted = adopted
        self.name = b""  # of this process, drawn when first needed
        self.origin = b""  # name of the process whose __main__ this is
        self.authority = b""  # name of the process whose definitions replace those that are here
        self.received: dict[str, bytes] = {}  # name -> fingerprint of the authority's last definition
        self.known: dict[str, tuple[Any, list[Any], Definition, list[str]]] = {}  # made here, while nothing changes

    def own_name(self) -> bytes:
        if not self.name:
            self.name = os.urandom(8)
            self.origin = self.origin or self.name
        return self.name


class _Loading(threading.local):
    frame: _Frame | None = None


_loading = _Loading()
_exchange = _Exchange(adopted=False)


def adopt_main(path: str = "") -> None:
    """Make this process (a worker) one that merges what arrives into its ``__main__``, which becomes empty."""
    module = types.ModuleType("__main__")
    vars(module)["__builtins__"] = __builtins__
    if path:
        module.__file__ = path
    sys.modules["__main__"] = module
    global _exchange
    _exchange = _Exchange(adopted=True)


# --- pickling ---


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles things of ``__main__`` by name and notes the names; ``defined``, the thing called ``name``, by value."""

    def __init__(self, file: io.BytesIO, buffer_callback: Any, name: str = "", defined: Any = None) -> None:
        own = {types.CodeType: _reduce_code, **buffer_reducers()}
        self.dispatch_table = ChainMap(own, cloudpickle.Pickler.dispatch_table)  # read by what follows
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self.names: dict[str, None] = {}
        self.mentions_main = False
        self._main = vars(sys.modules["__main__"])
        self._name = name
        self._defined = defined

    def reducer_override(self, obj: Any) -> Any:
        """Reduce functions and classes; all else is left to the dispatch table and the object."""
        if not isinstance(obj, (type, types.FunctionType, _CACHED_FUNCTION)):
            return NotImplemented
        path = self._path_of(obj)
        head = path.partition(".")[0]
        if path and head != self._name:
            self.names[head] = None
            self.mentions_main = True
            return main_attribute, (path,)
        if isinstance(obj, _CACHED_FUNCTION):
            if obj.__module__ != "__main__":
                return NotImplemented
            return _make_cached_function, (obj.__wrapped__, obj.cache_parameters())
        reduced = super().reducer_override(obj)
        if obj is self._defined and isinstance(obj, type) and reduced is not NotImplemented:
            return _begin_class, (self._name, *reduced[:2]), *reduced[2:]
        return reduced

    def _path_of(self, obj: Any) -> str:
        """Dotted name by which ``obj`` is found in ``__main__``, or an empty string."""
        path = getattr(obj, "__qualname__", "")
        if getattr(obj, "__module__", None) != "__main__" or not path:
            return ""
        head, *rest = path.split(".")
        found = self._main.get(head)
        for part in rest:
            found = getattr(found, part, None)
        return path if found is obj else ""

    def _dynamic_function_reduce(self, func: types.FunctionType) -> Any:
        reduced = super()._dynamic_function_reduce(func)
        if func.__globals__ is not self._main:
            return reduced
        code, _, _, _, closure = reduced[1]
        state, slots = reduced[2]
        self.names.update(dict.fromkeys(slots["__globals__"]))
        self.mentions_main = True
        name = self._name if func is self._defined else ""
        return _begin_function, (name, code, closure), (state, {**slots, "__globals__": {}}), *reduced[3:]


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    """Reduce a code object such that tracebacks of its copy show where it was written, and the text."""
    make, args = cloudpickle._code_reduce(code)
    # Interned, so that equal names within a stream are one object whoever compiled the code: equal code, equal bytes.
    name = sys.intern(code.co_filename)
    return _make_code, (name, _source_of(name), make, args)


def _source_of(filename: str) -> str:
    """Text behind a name that stands for no file (a notebook's cell, generated code), where `linecache` has it."""
    linecache = sys.modules.get("linecache")
    entry = linecache.cache.get(filename) if linecache is not None else None
    # An entry that is not loaded yet is shorter; one of a file has a time of modification.
    return "".join(entry[2]) if entry is not None and len(entry) == 4 and entry[1] is None else ""


class _Shipment:
    """Pickles as the call of ``load_main`` that gives the value."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __reduce__(self) -> tuple[Any, ...]:
        return load_main, self.args


def dumps_by_value(value: Any, *, to_origin: bool = False) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickle a value with cloudpickle's reach; see ``serialize.dumps`` for ``to_origin`` and errors."""
    buffers, keep = buffer_keeper()
    file = io.BytesIO()
    pickler = _Pickler(file, keep)
    pickler.dump(value)
    if not pickler.mentions_main:
        return file.getvalue(), buffers
    source = _exchange.own_name()
    definitions = _define_all(pickler.names, _exchange.received if to_origin else {})
    outer_buffers, keep = buffer_keeper()
    shipment = _Shipment(_exchange.origin, source, definitions, file.getvalue(), buffers)
    return pickle.dumps(shipment, 5, buffer_callback=keep), outer_buffers


def _define_all(names: dict[str, None], known_there: dict[str, bytes]) -> dict[str, Definition]:
    """Define these names of ``__main__`` and all that the definitions need."""
    main = vars(sys.modules["__main__"])
    definitions: dict[str, Definition] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in definitions or name in known_there or name in _MODULE_NAMES or name not in main:
            continue
        try:
            definitions[name], needed = _define(name, main[name])
        except Exception as error:
            error.add_note(f"This is about the global {name!r} of __main__, which the pickled function or class uses.")
            raise
        waiting += needed
    return dict(reversed(definitions.items()))  # what is needed loads before what needs it, but for cycles


def _define(name: str, value: Any) -> tuple[Definition, list[str]]:
    parts = _parts_of(value)
    known = _exchange.known.get(name)
    if known is not None and known[0] is value and _is_same(parts, known[1]):
        return known[2], known[3]
    file = io.BytesIO()
    buffers, keep = buffer_keeper()
    pickler = _Pickler(file, keep, name, value)
    pickler.dump(value)
    definition = file.getvalue(), buffers
    needed = list(pickler.names)
    if parts is not None:
        _exchange.known[name] = value, parts, definition, needed
    return definition, needed


def _is_same(parts: list[Any] | None, others: list[Any]) -> bool:
    return parts is not None and len(parts) == len(others) and all(map(operator.is_, parts, others))


def _parts_of(value: Any) -> list[Any] | None:
    """What a definition was made from, to be compared by identity; None when some of it can change in place."""
    if isinstance(value, types.FunctionType):
        if value.__closure__ or vars(value):
            return None
        parts = [value.__code__, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        return parts if all(isinstance(part, _STABLE) for part in parts[1:]) else None
    if isinstance(value, type):
        named = [item for item in vars(value).items() if item[0] not in ("__dict__", "__weakref__")]
        if not all(isinstance(part, _STABLE) or key.startswith("__") for key, part in named):
            return None
        return [part for item in named for part in item]
    return [] if isinstance(value, types.ModuleType) else None


# --- loading ---


class _Frame:
    """One running ``load_main``: its namespace, the definitions still to load, and things made but not complete."""

    __slots__ = ("made", "merging", "namespace", "pending")

    def __init__(self, namespace: dict[str, Any], pending: dict[str, Definition], *, merging: bool) -> None:
        self.namespace = namespace
        self.pending = pending
        self.merging = merging
        self.made: dict[str, Any] = {}

    def settle(self, name: str) -> None:
        """Load one definition, and by way of ``main_attribute`` those it needs while it loads."""
        definition = self.pending.pop(name)
        self.namespace[name] = pickle.loads(definition[0], buffers=definition[1])
        if self.merging:
            _exchange.received[name] = _fingerprint(definition)


def load_main(
    origin: bytes, source: bytes, definitions: dict[str, Definition], stream: bytes, buffers: list[Any]
) -> Any:
    """Load a value pickled by ``dumps_by_value`` after the definitions of ``__main__`` that are new here."""
    frame, outer = _open_frame(origin, source, definitions), _loading.frame
    _loading.frame = frame
    try:
        while frame.pending:
            frame.settle(next(iter(frame.pending)))
        return pickle.loads(stream, buffers=buffers)
    finally:
        _loading.frame = outer


def _open_frame(origin: bytes, source: bytes, definitions: dict[str, Definition]) -> _Frame:
    main = vars(sys.modules["__main__"])
    if _exchange.adopted and not _exchange.authority and source != _exchange.name:
        _exchange.origin, _exchange.authority = origin, source
    if _exchange.adopted and source == _exchange.authority:
        received = _exchange.received
        changed = {name: made for name, made in definitions.items() if received.get(name) != _fingerprint(made)}
        return _Frame(main, changed, merging=True)
    if _exchange.adopted or origin == _exchange.origin:
        missing = {name: made for name, made in definitions.items() if name not in main}
        return _Frame(main, missing, merging=False)
    return _Frame({"__name__": "__main__", "__builtins__": __builtins__}, dict(definitions), merging=False)


def _fingerprint(definition: Definition) -> bytes:
    stream, buffers = definition
    if len(stream) <= 256 and not buffers:
        return stream
    from hashlib import blake2b

    digest = blake2b(stream, digest_size=16)
    for buffer in buffers:
        digest.update(buffer)
    return digest.digest()


def _current_frame() -> _Frame:
    frame = _loading.frame
    if frame is None:
        raise pickle.UnpicklingError("things of __main__ can only be loaded as part of the value they came with")
    return frame


def main_attribute(path: str) -> Any:
    """Find a thing of ``__main__`` by its dotted name, in the namespace of the value that is being loaded."""
    frame = _current_frame()
    head, *rest = path.split(".")
    if head in frame.pending:
        frame.settle(head)
    try:
        value = frame.namespace[head] if head not in frame.made else frame.made[head]
    except KeyError:
        raise AttributeError(f"__main__ has no {head!r} in this process") from None
    return functools.reduce(getattr, rest, value)


def _make_code(filename: str, source: str, make: Any, args: tuple[Any, ...]) -> types.CodeType:
    if source:
        import linecache

        if _exchange.adopted or filename not in linecache.cache:
            linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename
    code: types.CodeType = make(*args)
    return code.replace(co_filename=filename)


def _begin_function(name: str, code: types.CodeType, closure: tuple[Any, ...] | None) -> types.FunctionType:
    """Make a function whose state follows; under ``name`` its own definition can already refer to it."""
    frame = _current_frame()
    function = types.FunctionType(code, frame.namespace, code.co_name, None, closure)
    if name:
        frame.made[name] = function
    return function


def _begin_class(name: str, maker: Any, args: tuple[Any, ...]) -> Any:
    """Make a class whose members follow; under ``name`` its own definition can already refer to it."""
    made = _current_frame().made[name] = maker(*args)
    return made


def _make_cached_function(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)
