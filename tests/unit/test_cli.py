"""The command: help, version, and one line for what it does not understand."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from click.testing import CliRunner

from outboard.cli.main import main


@pytest.mark.parametrize("arguments", [["--version"], ["version"]])
def test_version(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments, prog_name="outboard")
    assert (result.exit_code, result.output) == (0, f"outboard {version('outboard')}\n")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_the_commands(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments, prog_name="outboard")
    assert result.exit_code == 0
    assert result.output.startswith("Usage: outboard") and "Print the installed release." in result.output
    for command in ("start", "status", "stop", "version"):
        assert f"\n  {command} " in result.output


@pytest.mark.parametrize("arguments", [["bogus"], ["--bogus"], ["version", "extra"], ["version", "--bogus"]])
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments, prog_name="outboard")
    assert result.exit_code == 2
    assert result.output.startswith("outboard") and "--help)" in result.output and len(result.output.splitlines()) == 1
    assert arguments[-1] in result.output
