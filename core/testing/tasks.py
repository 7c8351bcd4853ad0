"""What simulated tasks do: compute a number that only right inputs give, submit others, and misbehave."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ids import ObjectId
from .calls import TaskFailed
from .ledger import mix
from .process import Program, Want

if TYPE_CHECKING:
    from .worker import WorkerProcess
    from .world import TaskWorld

#: 1 CPU in the machines' units.
CPU = 10_000

#: What a parent does with its children: it waits for them, leaves them, or returns references to them. One that follows
#: waits for everything that its references lead to.
GET, LEAVE, RETURN, FOLLOW = 0, 1, 2, 3

#: Levels of a chain of tasks at most, of which each returns references to the next, which may still run.
CHAIN_LEVELS = 6


class Spec(NamedTuple):
    """What one task does. It travels as a plain tuple.

    `children` are submitted, `mode` says what becomes of them; `puts` pages of an object are made and its reference is
    returned (-1: none, 0: inline); the result takes `pages` (0: inline). `fault`: "" none, "raise" always, "once" on
    the first attempt, "exit" ends the process.
    """

    number: int
    seconds: float
    children: tuple[Any, ...]
    mode: int
    puts: int
    pages: int
    fault: str


def expected_token(spec: Any, inputs: tuple[int, ...] = (), *, is_repeated: bool = False) -> int | None:
    """What a task gives, None when it raises; `is_repeated`: one that raises is run again."""
    if spec[6] in ("raise", "exit") or (spec[6] == "once" and not is_repeated):
        return None
    tokens = []
    if spec[3] == GET:
        for child in spec[2]:
            token = expected_token(child)
            if token is None:
                return None
            tokens.append(token)
    return mix(spec[0], *inputs, *tokens)


def make_spec(world: TaskWorld, rng: Random, depth: int = 0) -> Spec:
    """Draw a task."""
    world.last_spec += 1
    seconds = rng.choice(world.task_seconds) * rng.random()
    children: tuple[Any, ...] = ()
    if depth < 2 and rng.random() < 0.15:
        children = tuple(tuple(make_spec(world, rng, depth + 1)) for _ in range(1))
    fault = "" if rng.random() < 0.93 else rng.choice(("raise", "once", "exit" if world.with_faults else "raise"))
    puts = rng.choice((0, 1)) if rng.random() < 0.1 else -1
    pages = rng.choice((1, 2)) if rng.random() < world.stored_share else 0
    if not world.has_stores:
        puts, pages = min(puts, 0), 0
    return Spec(world.last_spec, seconds, children, rng.choice((GET, GET, LEAVE, RETURN)), puts, pages, fault)


def make_chain(world: TaskWorld, rng: Random, levels: int) -> Spec:
    """Draw a task whose result leads to the others, level by level."""
    world.last_spec += 1
    children: tuple[Any, ...] = ()
    if levels:
        below = [levels - 1] + [0] * rng.choice((0, 0, 1))
        children = tuple(tuple(make_chain(world, rng, levels)) for levels in below)
    seconds = rng.choice((0.00001, 0.0005, 0.005)) * rng.random()
    pages, puts = 1 if rng.random() < 0.1 else 0, rng.choice((-1, -1, -1, 0, 1))
    if not world.has_stores:
        puts, pages = min(puts, 0), 0
    return Spec(world.last_spec, seconds, children, RETURN, puts, pages, "")


def make_follower(world: TaskWorld) -> Spec:
    """A task that waits for all that it is given references to."""
    world.last_spec += 1
    return Spec(world.last_spec, 0.0, (), FOLLOW, -1, 0, "")


def run_task(worker: WorkerProcess, spec: Any, inputs: list[Any], given: list[ObjectId], attempt: int) -> Program:
    """Be a user's function: returns (token, references in the result, pages of the result).

    `given` are references in its arguments.
    """
    number, seconds, children, mode, puts, pages, fault = spec
    returned: tuple[ObjectId, ...] = ()
    yield Want("time", seconds)
    worker.calls.look_again()
    if mode == FOLLOW:
        yield from follow_references(worker, given)
    else:
        yield from look_at_references(worker)
    if fault == "exit":
        worker.exitcode = 7
        worker.world.is_faulty = True
        worker.machine.template.exited(worker)
        yield Want("nothing")
    if fault == "raise" or (fault == "once" and attempt == 1):
        raise ValueError(number)
    if puts >= 0:
        returned += ((yield from worker.calls.put(mix(number, 1), (), puts)),)
    oids = [submit_child(worker, child, returned) for child in children]
    tokens = []
    if mode == GET:
        for oid in oids:
            tokens.append((yield from worker.calls.fetch(oid))[0])
    elif mode == RETURN:
        returned += tuple(oids)
    return mix(number, *(token for token, *_ in inputs), *tokens), returned, pages


def look_at_references(worker: WorkerProcess) -> Program:
    """A task may want what the references stand for that it was given or an earlier one kept; in the end it goes on."""
    rng = worker.world.rng
    for oid in list(dict.fromkeys(worker.refs)):
        if rng.random() < 0.5:
            try:
                yield from worker.calls.fetch(oid, 0.004 * rng.random())
            except TaskFailed:
                continue


def follow_references(worker: WorkerProcess, given: list[ObjectId]) -> Program:
    """A task waits for all that the references lead to that it was given."""
    for oid in given:
        try:
            yield from worker.calls.follow(oid)
        except TaskFailed:
            continue


def submit_child(worker: WorkerProcess, spec: Any, refs: tuple[ObjectId, ...]) -> ObjectId:
    """A task submits another, and gives it references to what it has put."""
    kinds = worker.child_kinds
    if not kinds:
        kinds.append(worker.calls.add_kind({"CPU": CPU}, retries=3))
        kinds.append(worker.calls.add_kind({"CPU": CPU // 2}, retries=0))
    worker.world.mark("child")
    kind = kinds[spec[0] % 2]
    return worker.calls.submit(kind, spec, expected_token(spec), refs=refs)[0]
