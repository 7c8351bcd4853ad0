"""Helpers built on tasks and actors."""

from .actor_pool import ActorPool

__all__ = ["ActorPool"]
