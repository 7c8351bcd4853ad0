"""The ``outboard`` command."""

from __future__ import annotations

from importlib.metadata import version as installed_version

import click


@click.group()
def main() -> None:
    """Keep your program, get more processes."""


@main.command()
def version() -> None:
    """Print the installed release."""
    click.echo(f"outboard {installed_version('outboard')}")
