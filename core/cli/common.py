"""What the commands of a cluster share: which cluster, and errors in one line."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import click

from ..addresses import check_reachable, join_address, split_address
from ..clusterfolder import ClusterFolder
from ..errors import OutboardError
from ..exits import BAD_USAGE, FAILED, UNREACHABLE, exit_code_of, one_line
from ..options import AUTO_ADDRESS, Settings

Result = TypeVar("Result")

#: Seconds for a head to answer a question.
ANSWER_SECONDS = 5.0

#: Seconds after which a command says what it waits for.
QUIET_SECONDS = 1.0

_OPTIONS = (
    click.option("--folder", metavar="PATH", help="Where token, state and logs lie."),
    click.option("--token-file", metavar="PATH", help="File with the cluster's token, of mode 0600."),
    click.option("--tls-cert", metavar="PATH", help="PEM file: this machine's certificate."),
    click.option("--tls-key", metavar="PATH", help="PEM file: its private key."),
    click.option("--tls-ca", metavar="PATH", help="PEM file: the authority that signs the others'."),
    click.option("--insecure", is_flag=True, default=None, help="Allow plain text beyond this machine."),
)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which cluster it means and how it proves itself."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class Fault(click.ClickException):
    """Ends a command with one line and an exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit_code = code  # type: ignore[misc]  # of the instance, though click declares it for the class


@contextlib.contextmanager
def one_line_faults() -> Iterator[None]:
    """Turn errors of ours and of the system into one line."""
    try:
        yield
    except OutboardError as error:
        raise Fault(one_line(error), getattr(error, "exit_code", exit_code_of(error))) from None
    except TimeoutError as error:
        raise Fault(one_line(error), exit_code_of(error)) from None
    except OSError as error:
        raise Fault(one_line(error), FAILED) from None


def counted(number: int, what: str) -> str:
    """Write a number of things: ``1 node``, ``2 nodes``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def load(**explicit: Any) -> Settings:
    """Read the settings; a wrong one is a fault of usage, and so is an address that was meant and is not there."""
    address = explicit.get("address")
    if address is not None and not address.strip():
        raise Fault("--address is empty: give host:port, or leave it out", BAD_USAGE)
    try:
        return Settings.load(**explicit)
    except ValueError as error:
        raise Fault(str(error), BAD_USAGE) from None


def for_process(settings: Settings, folder: ClusterFolder, **more: Any) -> dict[str, Any]:
    """Return what a head or node is told by its starter."""
    paths = {name: getattr(settings, name) for name in ("token_file", "tls_cert", "tls_key", "tls_ca")}
    absolute = {name: os.path.abspath(path) if path else None for name, path in paths.items()}
    return {"folder": str(folder.path), **absolute, "insecure": settings.insecure, **more}


def address_of(settings: Settings, folder: ClusterFolder) -> str:
    """Return where the cluster's head listens: as told, else where that of the folder does."""
    is_told = settings.names_running and settings.address != AUTO_ADDRESS
    told = (is_told and settings.address) or folder.address()
    if not told:
        text = f"no cluster: give --address host:port (no head is running with the folder {folder.path})"
        raise Fault(text, UNREACHABLE)
    try:
        return join_address(*split_address(told))
    except ValueError as error:
        raise Fault(str(error), BAD_USAGE) from None


def ask(
    question: Callable[[str, Any], Coroutine[Any, Any, Result]],
    settings: Settings,
    timeout: float,
    waits_for: str = "the head to answer",
    late_code: int = UNREACHABLE,
) -> Result:
    """Ask the head: ``question(address, security)``.

    When it takes longer, ``waits_for`` is told on stderr; without an answer in time the command exits with
    ``late_code``: whoever has not answered once may be no head.
    """
    folder = ClusterFolder(settings.folder)
    address = address_of(settings, folder)
    with one_line_faults():
        check_reachable(address)
        from ..clustersecurity import read_security

        security = read_security(for_process(settings, folder), folder.token)
        try:
            security.check(address)
        except ValueError as error:
            raise Fault(str(error), FAILED) from None
        try:
            return asyncio.run(_in_time(question(address, security), address, timeout, waits_for))
        except TimeoutError:
            text = f"{address} takes connections but did not answer within {timeout:g} s: is that a head, and awake?"
            raise Fault(text, late_code) from None


async def _in_time(coroutine: Coroutine[Any, Any, Result], address: str, timeout: float, waits_for: str) -> Result:
    text = f"outboard: {address}: waiting for {waits_for}"
    waiting = asyncio.get_running_loop().call_later(QUIET_SECONDS, lambda: click.echo(text, err=True))
    try:
        async with asyncio.timeout(timeout):
            return await coroutine
    finally:
        waiting.cancel()
