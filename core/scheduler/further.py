"""Further nodes of a cluster: they join, their sessions end, kinds are confined to some of them."""

from __future__ import annotations

from collections.abc import Iterable

from .books import Books
from .items import Items
from .kinds import Kind
from .plain import Plain
from .shares import Terms


class Further:
    """Keeps `Books.nodes` and the shares of every kind in step with the sessions."""

    __slots__ = ("_books", "_items", "_plain")

    def __init__(self, books: Books, plain: Plain, items: Items) -> None:
        self._books = books
        self._plain = plain
        self._items = items

    def on_joined(self, node: int, terms: Terms) -> None:
        """A session with a further node has begun; kinds get their share there when they need it."""
        self._books.nodes[node] = terms

    def on_closed(self, node: int) -> None:
        """A session was closed with nothing outstanding: what was sent meanwhile was never begun there."""
        if self._books.nodes.pop(node, None) is not None:
            if self._has_something(node):
                self._plain.on_session_closed(node)
                self._items.on_session_closed(node)
            self._forget(node)

    def on_lost(self, node: int, reason: str) -> None:
        """A session was lost, and with it every run there."""
        if self._books.nodes.pop(node, None) is not None:
            reason = reason or "its session was lost"
            if self._has_something(node):
                self._plain.on_session_lost(node, reason)
                self._items.on_session_lost(node, reason)
            self._forget(node)

    def _has_something(self, node: int) -> bool:
        """Whether anything is outstanding at a node; what would find it looks at every task."""
        shares = [kind.shares.get(node) for kind in self._books.kinds.values()]
        return any(share is not None and share.outstanding for share in shares)

    def _forget(self, node: int) -> None:
        located = self._books.refs.located
        for oid in [oid for oid, place in located.items() if place.node == node]:
            del located[oid]  # nobody knows whether it is there: a session that ends frees what it kept
        for kind in self._books.kinds.values():
            kind.forget(node)

    def find_kind(self, kind_id: int, node: int) -> Kind | None:
        """Find a kind of which a node speaks, with its share there; None: one of them has gone."""
        kind = self._books.kinds.get(kind_id)
        if kind is not None and kind.lane is None and node not in kind.shares:
            kind.meet({at: terms for at, terms in self._books.nodes.items() if at == node})
        return kind if kind is not None and node in kind.shares else None

    def confine(self, kind: Kind, nodes: Iterable[int] | None, *, is_seeking: bool) -> None:
        """Say where tasks of a kind may be sent from now on."""
        places = None if nodes is None else frozenset(map(self._books.name_node, nodes))
        kind.confine(places, is_seeking=is_seeking)
