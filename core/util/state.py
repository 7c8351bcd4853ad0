"""What there is in the cluster, for people and tests."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import api

__all__ = ["ActorState", "list_actors"]


class ActorState(NamedTuple):
    """One actor. `state`: PENDING, ALIVE or RESTARTING; `pid` is 0 while it has no process."""

    actor_id: str
    class_name: str
    name: str
    namespace: str
    state: str
    pid: int
    node_id: str
    num_restarts: int


def list_actors() -> list[ActorState]:
    """List the actors of all programs that live on the nodes of the cluster, a hundred of each node at most.

    What other nodes have is known a second late.
    """

    def state(node: dict[str, Any], actor: dict[str, Any]) -> ActorState:
        return ActorState(node_id=node["id"], **actor)

    return [state(node, actor) for node in api.nodes() for actor in node["actors"]]
