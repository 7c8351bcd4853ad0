"""The timeline: what ran where and when. Nodes keep the last of it (`runlog`), and a program asks them for its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import engine as engines
from .reach import ALL_NODES
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb

if TYPE_CHECKING:
    from .client import Client

#: Seconds that nodes have to answer; what has come by then is what there is.
ANSWER_SECONDS = 5.0


class Asking:
    """A client's part: the answers to its last question. Used under the client's lock.

    `due`: nodes, HOME the own one, that have yet to say all.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._request = 0
        self.due: set[int] = set()
        self.heard: list[pb.Timeline] = []

    def ask(self) -> None:
        """Ask all nodes that take tasks of this program."""
        self._request += 1
        self.due = set(self._client.reach.told)
        self.heard = []
        self._client.send(Frame.TIMELINE, pb.Timeline(request=self._request).SerializeToString(), ALL_NODES)

    def on_answer(self, said: pb.Timeline, node: int) -> None:
        """A node has said something of an answer, which may be to an earlier question."""
        if said.request == self._request and node in self.due:
            self.heard.append(said)
            if said.is_last:
                self.due.discard(node)

    def is_answered(self) -> bool:
        """Whether all that are still there have said all."""
        return not self.due & self._client.reach.told.keys()


def timeline(filename: str | os.PathLike[str] | None = None) -> list[dict[str, Any]] | None:
    """Say what tasks and actors of this program have run where and when, as Chrome's trace events.

    The file opens in https://ui.perfetto.dev and chrome://tracing. Each node keeps its last 10,000 events. Short tasks
    that came to their worker in one message are one event, whose ``args`` say how many they were; one that died with
    its process is an instant. Clocks are those of the machines.

    Args:
        filename: where to write it as JSON; None to get the list of events.
    Returns:
        The events (times in microseconds, ``pid`` a node and ``tid`` a worker's process), or None with a file.
    Raises:
        OSError: the file cannot be written.
    """
    events = list(_trace_events(engines.current().timeline()))
    if filename is None:
        return events
    import json

    aside = f"{os.fspath(filename)}.{os.getpid()}"
    with open(aside, "w", encoding="utf-8") as file:
        json.dump(events, file)
    os.replace(aside, filename)
    return None


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
