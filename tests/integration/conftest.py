"""Programs as processes of their own, as in the tests of faults."""

from tests.faults.conftest import eventually, run_program, start_program

__all__ = ["eventually", "run_program", "start_program"]
