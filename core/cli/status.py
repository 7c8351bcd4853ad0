"""``outboard status``: what a cluster has and does."""

from __future__ import annotations

import json
from typing import Any

import click

from ..errors import VersionMismatchError, describe_nbytes
from ..ids import RESOURCE_UNIT
from ..version import PROTOCOL, __version__
from .common import ANSWER_SECONDS, ask, cluster_options, load, one_line_faults

#: Hosts of programs that the table's last line names.
HOSTS_SHOWN = 5


@click.command()
@click.option("--address", metavar="HOST:PORT", help="Where the head listens.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@cluster_options
def status(as_json: bool, **given: Any) -> None:
    """Show the nodes of a cluster: what they have, what is free, what they do."""
    found = fetch(load(**given))
    click.echo(json.dumps(as_fields(found), indent=2)) if as_json else _print_tables(found)


def fetch(settings: Any) -> Any:
    """Ask the head for its status; a fault when it does not fit this release."""

    async def question(address: str, security: Any) -> Any:
        from ..rpc.grpc_head import ask_status

        return await ask_status(address, security, 2 * ANSWER_SECONDS)

    found = ask(question, settings, ANSWER_SECONDS)
    with one_line_faults():
        if found.protocol != PROTOCOL:
            raise VersionMismatchError(
                f"this is Outboard {__version__} (protocol {PROTOCOL}); the head runs {found.release or 'another one'} "
                f"(protocol {found.protocol})"
            )
    return found


def as_fields(found: Any) -> dict[str, Any]:
    """Return a status as plain values; amounts are units, durations seconds, sizes bytes."""
    nodes, programs = _told_apart(found)
    return {
        "cluster": found.cluster, "epoch": found.epoch, "release": found.release, "host": found.host, "pid": found.pid,
        "log": found.log, "age": round(found.age_seconds, 3), "settling": found.settling, "refused": found.refused,
        "unlisted": found.unlisted, "nodes": [_node_fields(node) for node in nodes],
        "clients": _count_clients(nodes, programs), "programs": [_program_fields(node) for node in programs],
    }  # fmt: skip


def _told_apart(found: Any) -> tuple[list[Any], list[Any]]:
    """Tell nodes that run tasks from the slotless ones of programs; awaited ones of these may be gone."""
    nodes: list[Any] = []
    programs: list[Any] = []
    for node in found.nodes:
        if node.member.slots or node.member.address:
            nodes.append(node)
        elif not node.awaited:
            programs.append(node)
    return nodes, programs


def _count_clients(nodes: list[Any], programs: list[Any]) -> int:
    count: int = sum(node.load.clients for node in nodes) + sum(max(1, node.load.clients) for node in programs)
    return count


def _program_fields(node: Any) -> dict[str, Any]:
    """Describe a program by the node that it brought along, whose process id it is."""
    return {"node": f"{node.member.incarnation:016x}", "host": node.member.host, "pid": node.pid,
            "clients": max(1, node.load.clients), "silent": round(node.silence_seconds, 3),
            "age": round(node.age_seconds, 3)}  # fmt: skip


def _node_fields(node: Any) -> dict[str, Any]:
    member, load = node.member, node.load
    return {
        "node": f"{member.incarnation:016x}", "host": member.host, "address": member.address, "pid": node.pid,
        "state": _state(node), "python": member.python, "release": node.release, "slots": member.slots,
        "total": _units(member.totals), "free": _units(node.free), "running": load.running, "queued": load.queued,
        "workers": load.workers, "clients": load.clients, "store_nbytes": load.store_nbytes,
        "store_used_nbytes": load.store_used_nbytes, "silent": round(node.silence_seconds, 3),
        "age": round(node.age_seconds, 3), "log": node.log,
    }  # fmt: skip


def _state(node: Any) -> str:
    return "awaited" if node.awaited else "draining" if node.draining else "ready"


def _units(amounts: Any) -> dict[str, float]:
    return {name: amounts[name] / RESOURCE_UNIT for name in sorted(amounts)}


def _print_tables(found: Any) -> None:
    import sys

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    settling = ", waiting for its nodes to come back" if found.settling else ""
    console.print(f"cluster [bold]{escape(found.cluster)}[/bold]: head on {escape(found.host)} (pid {found.pid}), up "
                  f"{_age(found.age_seconds)}, release {escape(found.release)}{settling}")  # fmt: skip
    if found.log:
        console.print(f"head log: {escape(found.log)}", soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for title in ("node", "host", "state", "slots", "free / total", "running", "queued", "store", "age", "log"):
        is_number = title in ("slots", "running", "queued", "age")
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    nodes, programs = _told_apart(found)
    for node in nodes:
        table.add_row(*map(escape, _cells(node)))
    console.print(table if nodes else "no nodes")
    console.print(f"clients: {_count_clients(nodes, programs)}{_where(programs)}")
    if found.unlisted:
        console.print(f"and {found.unlisted} more")
    present = [node.silence_seconds for node in nodes if not node.awaited]
    if present:
        console.print(f"as the nodes said within the last {max(present):.1f} s")


def _where(programs: list[Any]) -> str:
    """Say on which machines programs run that came without a node there."""
    hosts = sorted({node.member.host for node in programs})
    return f", of them {len(programs)} with a way of their own, on {', '.join(hosts[:HOSTS_SHOWN])}" if hosts else ""


def _cells(node: Any) -> tuple[str, ...]:
    member, load = node.member, node.load
    amounts = ", ".join(
        f"{name} {free:g} / {total:g}"
        for (name, total), free in (
            (item, _units(node.free).get(item[0], 0.0)) for item in _units(member.totals).items()
        )
    )
    used, room = describe_nbytes(load.store_used_nbytes), describe_nbytes(load.store_nbytes)
    return (
        f"{member.incarnation:016x}", member.host, _state(node), str(member.slots), amounts, str(load.running),
        str(load.queued), f"{used} / {room}", _age(node.age_seconds), node.log or "-",
    )  # fmt: skip


def _age(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
