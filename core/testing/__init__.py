"""The deterministic simulator: the real machines, drivers' words and codec in a world of models. See `world.py`."""
