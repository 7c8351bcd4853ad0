"""Tools on top of actors, with the names that programs know them by."""

from .actor_pool import ActorPool
from .queue import Queue

__all__ = ["ActorPool", "Queue"]
