"""Entry point of ``python -m benchmarks``."""

from __future__ import annotations

from .run import main

main()
