from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from outboard.process import lifetime


def fork_pausing() -> int:
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    return pid


def test_dead_child_is_seen_before_it_is_reaped() -> None:
    assert lifetime.dead_child() == 0
    assert lifetime.reap(-1) == (0, 0, 0)
    pid = fork_pausing()
    assert lifetime.dead_child() == 0
    assert lifetime.children() == [pid]
    pidfd = lifetime.open_pidfd(pid)
    assert pidfd is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert lifetime.dead_child() == pid
    found, status, peak_nbytes = lifetime.reap(pid)
    assert (found, os.waitstatus_to_exitcode(status)) == (pid, -signal.SIGKILL)
    assert peak_nbytes > 1 << 20
    os.close(pidfd)


def test_wait_gives_up_at_its_deadline() -> None:
    pid = fork_pausing()
    assert lifetime.wait_child(pid, 0.01) is None
    os.kill(pid, signal.SIGTERM)
    assert lifetime.wait_child(pid, 10) == signal.SIGTERM


def test_wait_works_where_there_are_no_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert lifetime.open_pidfd(os.getpid()) is None
    pid = fork_pausing()
    os.kill(pid, signal.SIGTERM)
    assert lifetime.wait_child(pid, 10) == signal.SIGTERM


def test_process_that_is_gone_has_no_pidfd_and_no_group() -> None:
    pid = fork_pausing()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with pytest.raises(ProcessLookupError):
        lifetime.open_pidfd(pid)
    assert not lifetime.kill_group(pid)


def test_folder_is_removed_without_following_links(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    kept.mkdir()
    (kept / "file").write_text("x")
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("x")
    (folder / "link").symlink_to(kept)
    lifetime.remove_folder(str(folder))
    assert not folder.exists()
    assert (kept / "file").exists()
    lifetime.remove_folder(str(folder))
