"""One part of a call at a time: ``python -m benchmarks.parts.NAME``. For those who change that part."""
