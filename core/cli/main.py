"""The ``outboard`` command."""

from __future__ import annotations

import importlib
import sys
from typing import Any, NoReturn

import click

#: Exit code for a command line that makes no sense, as usual.
BAD_USAGE = 2

#: Commands with a module of their name.
LATE_COMMANDS = ("start", "status", "stop")


class OneLineErrors(click.Group):
    """Says in one line what is wrong with a command line."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run the command and exit: 0, `BAD_USAGE`, or what the command exits with."""
        kwargs["standalone_mode"] = False
        kwargs.setdefault("prog_name", "outboard")
        try:
            code = super().main(*args, **kwargs)
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx is not None else "outboard"
            click.echo(f"{where}: {' '.join(error.format_message().split())} (see {where} --help)", err=True)
            code = BAD_USAGE
        except click.ClickException as error:
            click.echo(f"outboard: {error.format_message()}", err=True)
            code = error.exit_code
        except click.Abort:
            code = 130
        sys.exit(code if isinstance(code, int) else 0)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all commands."""
        return sorted({*super().list_commands(ctx), *LATE_COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command; those that need more of the package are imported when they are called."""
        if cmd_name not in LATE_COMMANDS:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(importlib.import_module(f"outboard.cli.{cmd_name}"), cmd_name)
        return found


@click.group(cls=OneLineErrors, invoke_without_command=True)
@click.version_option(package_name="outboard", message="outboard %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Keep your program, get more processes."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@main.command()
def version() -> None:
    """Print the installed release."""
    from importlib.metadata import version as installed_version

    click.echo(f"outboard {installed_version('outboard')}")
