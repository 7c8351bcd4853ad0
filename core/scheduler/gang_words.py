"""Gangs: what nodes ask of the head and say they hold, and what its machine orders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .gang_placing import Strategy
from .resources import Demand


class PrepareBundles(NamedTuple):
    """Tell a node to set these bundles aside."""

    node: int
    gang: int
    attempt: int
    bundles: Mapping[int, Demand]


class ConfirmBundles(NamedTuple):
    """Tell a node that every bundle of the gang is set aside."""

    node: int
    gang: int
    attempt: int


class ReleaseBundles(NamedTuple):
    """Tell a node to give back what any attempt up to this one has there."""

    node: int
    gang: int
    attempt: int


class GangReady(NamedTuple):
    """Tell who asked which node has each bundle."""

    node: int
    gang: int
    nodes: tuple[int, ...]


class GangRefused(NamedTuple):
    """Tell who asked that the nodes there are, some with these ``totals``, can never have the gang.

    ``reason``: what is wrong with the wish itself, if that is why.
    """

    node: int
    gang: int
    totals: tuple[Mapping[str, int], ...]
    reason: str = ""


class GangBroken(NamedTuple):
    """Tell who asked that a node of a gang that was ready is ``lost``; 0 where nobody knows any more which one."""

    node: int
    gang: int
    lost: int


GangCommand = PrepareBundles | ConfirmBundles | ReleaseBundles | GangReady | GangRefused | GangBroken


class Wish(NamedTuple):
    """What a gang is to be. ``was_ready``: its asker has been told so once."""

    gang: int
    bundles: tuple[Demand, ...]
    strategy: Strategy
    python: str
    was_ready: bool = False


class Report(NamedTuple):
    """What a node has set aside for one gang."""

    gang: int
    attempt: int
    indices: frozenset[int]


class GangsTold(NamedTuple):
    """All that a node that registers has to say of gangs: what is set aside there, and what it asks for."""

    held: tuple[Report, ...] = ()
    wishes: tuple[Wish, ...] = ()
