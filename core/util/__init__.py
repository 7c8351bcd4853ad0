"""Tools on top of actors, with the names that programs know them by."""

from . import iter
from .actor_pool import ActorPool
from .queue import Queue
from .state import list_actors

__all__ = ["ActorPool", "Queue", "iter", "list_actors"]
