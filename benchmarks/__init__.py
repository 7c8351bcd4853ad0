"""Outboard measured beside what people use today: ``python -m benchmarks``, or ``make bench``.

Each figure comes from a process of its own that opens one subject, runs one scenario and ends. Subjects take turns
within each round, so that a machine that slows down slows all of them, and the table shows medians over the rounds.
"""
