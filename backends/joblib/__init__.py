"""The joblib backend "dist": joblib and scikit-learn code on Outboard, unchanged.

    import outboard.joblib

    with joblib.parallel_backend("dist"):
        search.fit(X, y)

Importing registers the name. `parallel_config(backend="dist")` and `Parallel(backend="dist")` take it as well, also
inside tasks. Nothing else of joblib changes.
"""

from outboard.engine import companions as _companions

from .backend import NAME, DistBackend, register

__all__ = ["NAME", "DistBackend", "register"]

register()
if __name__ not in _companions:
    _companions.append(__name__)  # workers know the name too
