"""Programs as processes of their own, as in the tests of faults."""

from tests.faults.conftest import run_program, start_program

__all__ = ["run_program", "start_program"]
