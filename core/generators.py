"""Generators: tasks and methods whose results come one by one, as references.

The generator stays where it was made and goes on only when it is asked for the next value: each is a call of its own,
of which the consumer keeps a few ahead. So it never runs far ahead of who takes from it, and its values are results
like any other. That of a task has a process of its own, an actor without handles; that of an actor's method runs
between the other calls of the actor.
"""

from __future__ import annotations

import inspect
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from random import getrandbits
from typing import Any

from . import actorhost
from . import engine as engines
from .actorhost import Maker, Method
from .engine import ActorTerms, Binding, Completion, Engine
from .options import TaskOptions
from .refs import AnchorRef, ObjectRef

#: Values that are made ahead of who takes them. More hides the time that asking takes, fewer bounds what lies about.
AHEAD = 8

#: What `num_returns` may be instead of a number.
STREAMING, DYNAMIC = "streaming", "dynamic"


class EndOfStream(Exception):
    """The generator has no more values; programs see StopIteration instead."""


class Stream:
    """A generator in the process that runs it."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        made = function(*args, **kwargs)
        self._is_async = hasattr(made, "__anext__")
        self._values: Any = made if self._is_async else iter(made)

    def next(self) -> Any:
        """Give the next value, or a coroutine that does."""
        if self._is_async:
            return self._next_async()
        try:
            return next(self._values)
        except StopIteration:
            raise EndOfStream from None

    async def _next_async(self) -> Any:
        try:
            return await anext(self._values)
        except StopAsyncIteration:
            raise EndOfStream from None


class ObjectRefGenerator(Iterator[ObjectRef], AsyncIterator[ObjectRef]):
    """References to what a generator yields, in order; each is there when it comes. Not thread-safe.

    An exception of the generator is that of the last reference. Dropped or closed it ends the generator. It cannot be
    passed to other processes; the references can.
    """

    def __init__(self, engine: Engine, ask: Callable[[], ObjectRef], close: Callable[[], object], ahead: int) -> None:
        self._engine = engine
        self._ask = ask
        self._ahead = ahead
        self._asked: deque[ObjectRef] = deque()
        self._is_over = False
        self._close = weakref.finalize(self, close)
        self._close.atexit = False
        self._fill()

    def __repr__(self) -> str:
        return f"<ObjectRefGenerator {'over' if self._is_over else 'up'}>"

    def __iter__(self) -> ObjectRefGenerator:
        return self

    def __next__(self) -> ObjectRef:
        """Wait for the next value and return its reference."""
        ref = self._take()
        if ref is not None:
            self._engine.wait([ref])
            if self._look_at(self._engine.error_of(ref)):
                return ref
        raise StopIteration

    def __aiter__(self) -> ObjectRefGenerator:
        return self

    async def __anext__(self) -> ObjectRef:
        """Wait for the next value in an event loop and return its reference."""
        ref = self._take()
        if ref is not None:
            from asyncio import wrap_future
            from concurrent.futures import Future

            ready: Future[BaseException | None] = Future()

            def settle(done: Completion) -> None:
                ready.set_result(None if done.ok else done.value)

            self._engine.add_done_callback(ref, settle)
            if self._look_at(await wrap_future(ready)):
                return ref
        raise StopAsyncIteration

    def close(self) -> None:
        """End the generator; what was taken stays. Repeatable."""
        self._is_over = True
        self._asked.clear()
        self._close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a generator of references cannot be passed to other processes: pass the references")

    def _fill(self) -> None:
        while len(self._asked) < self._ahead:
            self._asked.append(self._ask())

    def _take(self) -> ObjectRef | None:
        if self._is_over:
            return None
        self._fill()
        return self._asked.popleft()

    def upcoming(self) -> ObjectRef:
        """Give the reference that is there when `next` does not wait; for `outboard.wait`."""
        if self._is_over:
            return self._engine.put(None)
        self._fill()
        return self._asked[0]

    def _look_at(self, error: BaseException | None) -> bool:
        """Whether what came is one of the values, or the error with which they end."""
        if error is None:
            self._fill()  # not before: of some no more than one may be asked for at a time
        else:
            self.close()
        return not isinstance(error, EndOfStream)


def wait_for(
    engine: Engine, refs: Sequence[ObjectRef | ObjectRefGenerator], num_returns: int, timeout: float | None
) -> tuple[list[Any], list[Any]]:
    """Wait for some of several references and generators of them; see `outboard.wait`."""
    if len(set(refs)) != len(refs):
        raise ValueError("wait() takes each reference once")
    of = {(ref.upcoming() if isinstance(ref, ObjectRefGenerator) else ref): ref for ref in refs}
    ready, others = engine.wait(list(of), num_returns, timeout)
    return [of[ref] for ref in ready], [of[ref] for ref in others]


def is_generator(function: Any) -> bool:
    """Whether calls of a function make generators."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def stream_task(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any],
                options: TaskOptions) -> ObjectRefGenerator:  # fmt: skip
    """Run a generator function as a task with a process of its own."""
    if inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__} is an async generator: those can be methods of actors only")
    engine = engines.current()
    name = str(options.name or getattr(function, "__qualname__", type(function).__name__))
    calls = options.merged(num_returns=1, max_retries=0, retry_exceptions=False)
    anchor = engine.reserve_id()
    identity = actorhost.Identity(anchor, name)
    maker = Maker(Stream, (function, tuple(args), dict(kwargs)), {}, identity, is_async=False)
    with actorhost.pickling(f"generator {name}: its function or its arguments"):
        binding = engine.bind(processes=1, initializer=maker, label=name, actor=ActorTerms(anchor, calls=calls))
    handle, method = AnchorRef(anchor.owner, anchor.seq, engine), Method(name, "next")

    def ask(_keep: AnchorRef = handle) -> ObjectRef:
        ref: ObjectRef = engine.submit(method, (), {}, calls, binding)
        return ref

    return ObjectRefGenerator(engine, ask, lambda: engine.unbind(binding, force=True), AHEAD)


def stream_method(engine: Engine, binding: Binding, method: str, args: Sequence[Any], kwargs: Mapping[str, Any],
                  options: TaskOptions, *, in_order: bool) -> ObjectRefGenerator:  # fmt: skip
    """Run a generator of an actor's method between its other calls."""
    number, calls = getrandbits(63), options.merged(num_returns=1)
    opened = engine.submit(_open, (number, method, *args), kwargs, calls, binding)

    def ask() -> ObjectRef:
        # With several calls at a time nothing else says that it is open by then.
        ref: ObjectRef = engine.submit(_next, (number,) if in_order else (number, opened), {}, calls, binding)
        return ref

    def close() -> None:
        engine.submit(_close, (number,), {}, calls, binding)

    return ObjectRefGenerator(engine, ask, close, AHEAD if in_order else 1)


def submit_dynamic(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any],
                   options: TaskOptions) -> Any:  # fmt: skip
    """Run a generator to its end as one task, whose result is the list of references to its values."""
    return engines.current().submit(Collected(function), args, kwargs, options.merged(num_returns=1))


class Collected:
    """Function of a task that puts what a generator yields."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = self.__qualname__ = getattr(function, "__qualname__", type(function).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> list[ObjectRef]:
        """Run one call."""
        engine = engines.current()
        return [engine.put(value) for value in self.function(*args, **kwargs)]


def _open(number: int, method: str, *args: Any, **kwargs: Any) -> None:
    host = actorhost.current()
    assert host is not None
    host.streams[number] = Stream(getattr(host.instance, method), args, kwargs)


def _next(number: int, opened: None = None) -> Any:
    host = actorhost.current()
    stream = host.streams.get(number) if host is not None else None
    if stream is None:
        raise EndOfStream
    return stream.next()


def _close(number: int) -> None:
    host = actorhost.current()
    if host is not None:
        host.streams.pop(number, None)
