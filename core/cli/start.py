"""``outboard start``: a head with a node, or a node that joins."""

from __future__ import annotations

from typing import Any

import click

from ..addresses import DEFAULT_PORT, check_host, join_address, split_address
from ..clusterfolder import ClusterFolder
from ..exits import BAD_USAGE
from ..options import Settings
from .common import Fault, address_of, cluster_options, counted, for_process, load, one_line_faults

#: Seconds that a node may take to join; a head takes part of one.
JOIN_SECONDS = 30.0


@click.command()
@click.option("--head", "is_head", is_flag=True, help="Start the head of a cluster, and a node beside it.")
@click.option("--address", metavar="HOST:PORT", help="Join the cluster whose head listens there.")
@click.option("--host", metavar="HOST", help="Where to listen, and under what others dial it (default 127.0.0.1 for a "
              "head; for a node, its address towards the head).")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), help=f"Port of the head (default {DEFAULT_PORT}, or that of the "
              "one that was killed) or of the node (default any). 0: any.")  # fmt: skip
@click.option("--no-node", is_flag=True, help="With --head: the head alone.")
@click.option("--num-cpus", type=click.FloatRange(0), help="CPUs that tasks share here.")
@click.option("--num-gpus", type=click.FloatRange(0), help="GPUs.")
@click.option("--resources", metavar="NAME=N,…", help="Others by name.")
@click.option("--store-memory", metavar="SIZE", help="Room for large values: 2GB, 30%.")
@click.option("--grace", type=click.FloatRange(0), default=20.0, show_default=True, metavar="SECONDS",
              help="What runs may take so long to finish after SIGTERM.")  # fmt: skip
@click.option("--detach", is_flag=True, help="Return when it serves, and leave it running; logs go to files.")
@cluster_options
def start(
    is_head: bool, address: str | None, host: str | None, port: int | None, no_node: bool, grace: float,
    detach: bool, **given: Any,
) -> None:  # fmt: skip
    """Start a head and a node, or a node of a running cluster.

    Stays until it is ended by SIGTERM or Ctrl-C (with --detach: returns).
    """
    settings = load(**given, address=address)
    if is_head and address:
        raise Fault("give --head or --address, not both", BAD_USAGE)
    if not is_head and (no_node or not settings.names_running):
        raise Fault("give --head to start a cluster, or --address host:port to join one", BAD_USAGE)
    try:
        check_host(host or "localhost")
    except ValueError as error:
        raise Fault(f"--host: {error}", BAD_USAGE) from None
    folder = ClusterFolder(settings.folder)
    with one_line_faults():
        if is_head or detach:
            folder.make()
        run = _Run(settings, folder, grace, detach)
        try:
            if is_head:
                where = run.start_head(host, port)
                if not no_node:
                    run.start_node(where, None if host in (None, "localhost") else host, 0)
            else:
                run.start_node(address_of(settings, folder), host, port or 0)
        except BaseException:
            run.end()
            raise
        if not detach:
            raise SystemExit(run.stay())


class _Run:
    """The processes that one command starts."""

    def __init__(self, settings: Settings, folder: ClusterFolder, grace: float, detach: bool) -> None:
        self._settings = settings
        self._folder = folder
        self._grace = grace
        self._detach = detach
        self._started: list[Any] = []

    def start_head(self, host: str | None, port: int | None) -> str:
        """Start the head and return its address."""
        kept = self._folder.address()
        if kept:
            kept_host, kept_port = split_address(kept)
            host, port = host or kept_host, kept_port if port is None else port
        host, port = host or "127.0.0.1", DEFAULT_PORT if port is None else port
        told = self._start("head", f"the head at {join_address(host, port)}", host=host, port=port)
        address = str(told["address"])
        token = self._settings.token_file or self._folder.token
        click.echo(f"head of cluster {told['cluster']} at {address} (pid {told['pid']}, token in {token})")
        click.echo(f"join from other machines: outboard start --address {address}")
        return address

    def start_node(self, address: str, host: str | None, port: int) -> None:
        """Start a node that joins the head at ``address``."""
        from ..addresses import check_reachable

        check_reachable(address)
        settings = self._settings
        told = self._start(
            "node", f"the head at {address} to take this node in", address=address, host=host, port=port,
            grace=self._grace, num_cpus=settings.num_cpus, num_gpus=settings.num_gpus,
            resources=dict(settings.resources), store_memory=settings.store_memory,
        )  # fmt: skip
        slots = counted(told["slots"], "slot")
        click.echo(f"node {told['node']} at {told['address']} with {slots} (pid {told['pid']})")

    def _start(self, what: str, waits_for: str, **more: Any) -> dict[str, Any]:
        from ..launch import start as launch

        log = str(self._folder.new_log(what)) if self._detach else ""
        settings = for_process(self._settings, self._folder, log=log, **more)
        started = launch(what, settings, timeout=JOIN_SECONDS,
                         on_wait=lambda: click.echo(f"outboard: waiting for {waits_for}", err=True))  # fmt: skip
        self._started.insert(0, started)  # a node ends before its head
        if log:
            started.process.returncode = 0  # it outlives us: nobody waits for it
        return dict(started.told)

    def end(self) -> None:
        """End what was started."""
        import os
        import signal

        from ..launch import END_SECONDS
        from ..launch import end as end_all

        if self._detach:
            for started in self._started:
                os.kill(started.process.pid, signal.SIGTERM)
        else:
            end_all([started.process for started in self._started], END_SECONDS)

    def stay(self) -> int:
        """Look after the processes until they end; return the exit code."""
        from ..launch import look_after

        return look_after(self._started, self._grace)
