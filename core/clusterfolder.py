"""The folder of a cluster: token, kept state, the head's address and logs, for one user's eyes only.

Files: ``token``; ``head.json``, what the next start of the head needs; ``head.lock``, held by the head that runs;
``address``, where it listens, removed when it ends of its own will; ``*.log``. The folder may lie on a file system that
several machines share.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from .errors import OutboardError
from .keptstate import KEPT_NBYTES, from_bytes, to_bytes
from .scheduler.kept import KeptState


def default_path() -> Path:
    """Where the folder lies unless somebody says otherwise."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base, "outboard")


class ClusterFolder:
    """One cluster's folder; nothing is touched before it is asked for."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path).absolute() if path else default_path()
        self.token = self.path / "token"
        self._state = self.path / "head.json"
        self._address = self.path / "address"
        self._lock: int | None = None

    def make(self) -> None:
        """Make the folder where it is missing; OutboardError when others could write to it."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.path.stat()
        except OSError as error:
            raise OutboardError(f"no folder for the cluster: {error}") from None
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
            raise OutboardError(f"{self.path} belongs to somebody else, or others may write to it: chmod 700 it")

    def new_log(self, name: str) -> Path:
        """Name a file that does not exist yet, for the log of one process."""
        return self.path / f"{name}-{os.urandom(3).hex()}.log"

    def lock(self) -> None:
        """Become the head of this folder until the process ends; OutboardError when there is one."""
        fd = os.open(self.path / "head.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            where = self.address()
            raise OutboardError(
                f"a head runs with the folder {self.path} already{f', at {where}' if where else ''}: give another "
                "--folder for a second cluster"
            ) from None
        self._lock = fd

    def unlock(self) -> None:
        """Let another head have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read_state(self) -> KeptState:
        """Return what the last head kept, or that of a new cluster; OutboardError when it is damaged."""
        try:
            with open(self._state, "rb") as file:
                return from_bytes(file.read(KEPT_NBYTES + 1))
        except FileNotFoundError:
            return KeptState(f"outboard-{os.urandom(4).hex()}")
        except ValueError as error:
            text = f"{self._state}: {error}; without this file the head begins a new cluster"
            raise OutboardError(text) from None

    def write_state(self, state: KeptState) -> None:
        """Replace what is kept; it is on disk when this returns. OSError: it is not."""
        self._replace(self._state, to_bytes(state))

    def address(self) -> str:
        """Where the head listens, or listened when it was killed; empty when it ended of its own will, or never ran."""
        try:
            return self._address.read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            return ""

    def write_address(self, address: str) -> None:
        """Say where the head can be reached."""
        self._replace(self._address, f"{address}\n".encode())

    def remove_address(self) -> None:
        """The head ends of its own will."""
        with contextlib.suppress(OSError):
            self._address.unlink()

    def _replace(self, path: Path, data: bytes) -> None:
        fresh = path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(fresh, path)
        folder = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
