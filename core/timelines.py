"""The timeline: what ran where and when. Nodes keep the last of it (`runlog`), and a program asks them for its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import engine as engines
from .interrupts import shield
from .reach import ALL_NODES
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb

if TYPE_CHECKING:
    from .client import Client

#: Seconds that nodes have to answer; what has come by then is what there is.
ANSWER_SECONDS = 5.0


class Question:
    """One question and what came of it. `due`: nodes, HOME the own one, that have yet to say all."""

    __slots__ = ("due", "heard", "request")

    def __init__(self, request: int, due: set[int]) -> None:
        self.request = request
        self.due = due
        self.heard: list[pb.Timeline] = []


class Asking:
    """A client's part: questions that are open, since several threads may ask. All but `answers` under its lock."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._requests = 0
        self._open: dict[int, Question] = {}

    def answers(self) -> list[pb.Timeline]:
        """Ask, and return what has come when all have answered or the time is over."""
        client = self._client
        with shield, client.lock:
            client.check_open()
            question = self.ask()
        try:
            client.flush()
            client.turns.wait(lambda: self.is_answered(question), time.monotonic() + ANSWER_SECONDS)
        finally:
            with shield, client.lock:
                self.close(question)
        return question.heard

    def ask(self) -> Question:
        """Ask all nodes that take tasks of this program."""
        self._requests += 1
        question = self._open[self._requests] = Question(self._requests, set(self._client.reach.told))
        self._client.send(Frame.TIMELINE, pb.Timeline(request=question.request).SerializeToString(), ALL_NODES)
        return question

    def on_answer(self, said: pb.Timeline, node: int) -> None:
        """A node has said something of an answer; whoever asked may wait for it no more."""
        question = self._open.get(said.request)
        if question is not None and node in question.due:
            question.heard.append(said)
            if said.is_last:
                question.due.discard(node)

    def is_answered(self, question: Question) -> bool:
        """Whether all that are still there have said all."""
        return not question.due & self._client.reach.told.keys()

    def close(self, question: Question) -> None:
        """What comes from now on is not taken."""
        self._open.pop(question.request, None)


def timeline(filename: str | os.PathLike[str] | None = None) -> list[dict[str, Any]] | None:
    """Say what tasks and actors of this program have run where and when, as Chrome's trace events.

    The file opens in https://ui.perfetto.dev and chrome://tracing. Each node keeps its last 10,000 events. Short tasks
    that came to their worker in one message are one event, whose ``args`` say how many they were, and so are calls of
    an actor that ran at the same time and ended together; one that died with its process is an instant. Clocks are
    those of the machines. What a node has run goes with it, and one that says nothing for five seconds is left out.
    Inline nothing is kept, and the list is empty. Thread-safe.

    Args:
        filename: where to write it as JSON; None to get the list of events. There is a whole file or none.
    Returns:
        The events (times in microseconds, ``pid`` a node and ``tid`` a worker's process), or None with a file.
    Raises:
        OSError: the file cannot be written.
        NodeLostError: this process's own node has ended.
    """
    events = list(_trace_events(engines.current().timeline()))
    if filename is None:
        return events
    _write(events, os.fspath(filename))
    return None


def _write(events: list[dict[str, Any]], path: str) -> None:
    """Write a file as a whole or not at all."""
    import json

    aside = f"{path}.{os.getpid()}.{threading.get_ident()}"
    try:
        with open(aside, "w", encoding="utf-8") as file:
            json.dump(events, file)
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):  # what went wrong is said already
            os.unlink(aside)
        raise


def _trace_events(told: Iterable[pb.Timeline]) -> Iterator[dict[str, Any]]:
    nodes: dict[int, int] = {}
    workers: set[tuple[int, int]] = set()
    for part in told:
        if part.node not in nodes:
            nodes[part.node] = len(nodes) + 1
            yield _named("process_name", f"node {part.node:016x} on {part.host}", nodes[part.node], 0)
        pid = nodes[part.node]
        for event in part.events:
            if (pid, event.pid) not in workers:
                workers.add((pid, event.pid))
                yield _named("thread_name", f"worker {event.pid}", pid, event.pid)
            shown = {"name": event.name, "cat": "actor" if event.is_call else "task", "pid": pid, "tid": event.pid,
                     "ts": event.start * 1e6, "args": {"tasks": event.tasks}}  # fmt: skip
            if event.has_died:
                yield shown | {"ph": "i", "s": "t", "args": {"died": True}}
            else:
                yield shown | {"ph": "X", "dur": event.seconds * 1e6}


def _named(what: str, name: str, pid: int, tid: int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
