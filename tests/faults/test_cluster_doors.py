"""What strangers send to the ports of a cluster, and clocks that jump: heads and nodes go on as if nothing had been."""

from __future__ import annotations

import os
import random
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.conftest import eventually
from tests.integration.clusters import Commands, apart, await_line, commands, finish, join, program

__all__ = ["apart", "commands", "eventually", "join", "program"]

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(90)]

#: How a connection of HTTP/2 begins.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#: Bytes by which nonsense may make a process larger; no message is that long.
MOST_GROWTH = 64 << 20

RANDOM = random.Random(7)


def http2_frame(length: int, kind: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", length)[1:] + bytes([kind, 0]) + struct.pack(">I", stream) + body


#: What is sent to TCP ports.
NONSENSE = {
    "nothing": b"",
    "zeros": bytes(100_000),
    "noise": RANDOM.randbytes(200_000),
    "a web page": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + RANDOM.randbytes(500),
    "a preface and noise": PREFACE + RANDOM.randbytes(50_000),
    "a huge frame": PREFACE + http2_frame(0, 4, 0, b"") + http2_frame((1 << 24) - 1, 0, 1, bytes(1 << 20)),
    "headers without end": PREFACE + http2_frame(0, 4, 0, b"") + http2_frame(16384, 1, 1, b"\x40\x7f" * 8192),
    "half a preface": PREFACE[:9],
}

#: What is sent to the socket of a node that programs connect to: frames begin with their length.
LOCAL_NONSENSE = {
    "nothing": b"",
    "zeros": bytes(10_000),
    "noise": RANDOM.randbytes(100_000),
    "a huge frame": struct.pack("<I", (1 << 32) - 1) + bytes(100_000),
    "half a frame": struct.pack("<I", 1000) + bytes(10),
}


def ports_of(pid: int) -> set[int]:
    return {c.laddr.port for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN}


def say(address: Any, family: socket.AddressFamily, data: bytes) -> socket.socket:
    """Send as much as the other end takes and return the connection, which nobody ends."""
    connection = socket.socket(family)
    connection.settimeout(0.2)
    connection.connect(address)
    try:
        connection.sendall(data)
    except OSError:
        pass  # hung up, or reads no more
    return connection


def test_nonsense_and_half_open_connections_harm_nobody(commands: Commands, join: Any, program: Any) -> None:
    head, first = commands.head()
    second = join()
    text = """
    print(len(ob.get([place.remote(0.02) for _ in range(100)])), flush=True)
    sys.stdin.readline()
    print(len(set(ob.get([place.remote(0.2) for _ in range(16)]))))
    """
    running = program(text)
    assert await_line(running) == "100"
    before = {pid: psutil.Process(pid).memory_info().rss for pid in (head, first, second)}
    opened = []
    for pid in before:
        for port in ports_of(pid):
            for data in NONSENSE.values():
                opened += [say(("127.0.0.1", port), socket.AF_INET, data) for _ in range(3)]
    for connection in psutil.Process(first).net_connections("unix"):
        if connection.status == psutil.CONN_NONE and Path(str(connection.laddr)).is_socket():
            for data in LOCAL_NONSENSE.values():
                opened.append(say(str(connection.laddr), socket.AF_UNIX, data))
    assert len(opened) > 3 * 3 * len(NONSENSE)
    assert running.stdin is not None
    running.stdin.write("\n")
    assert finish(running) == ["2"]
    assert set(commands.nodes()) == {first, second}
    for pid, nbytes in before.items():
        assert psutil.Process(pid).memory_info().rss < nbytes + MOST_GROWTH
    for connection in opened:
        connection.close()
    commands.run("stop")


#: A library that moves the wall clock by as many seconds as a file says, for whom it is loaded into.
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long *shift;

__attribute__((constructor)) static void begin(void) {
    int fd = open(getenv("CLOCK_SHIFT"), O_RDONLY);
    shift = mmap(0, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += shift ? *shift : 0;
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (at) *at = found.tv_sec;
    return found.tv_sec;
}
"""


@pytest.fixture
def step_clock(commands: Commands, tmp_path: Path) -> Callable[[int], None]:
    """Have what the test starts use a clock of its own; return what sets it ahead by so many seconds."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library, shift = tmp_path / "clock.c", tmp_path / "clock.so", tmp_path / "shift"
    source.write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    shift.write_bytes(struct.pack("l", 0))
    commands.env |= {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(shift)}

    def step(seconds: int) -> None:
        with shift.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), struct.pack("l", seconds), 0)

    return step


def test_steps_of_the_clock_change_nothing(
    commands: Commands, join: Any, program: Any, step_clock: Callable[[int], None]
) -> None:
    commands.head()
    join()
    before = {pid: node["node"] for pid, node in commands.nodes().items()}
    text = """
    clock = time.time()
    refs = [place.options(max_retries=0).remote(0.1) for _ in range(120)]
    ob.wait(refs, num_returns=6)
    print("running", flush=True)
    print(len(ob.get(refs)), flush=True)
    sys.stdin.readline()  # it is closed once the steps have been made
    there = ob.get(ob.remote(lambda: time.time()).remote())
    print(round((time.time() - clock) / 3600), round((there - clock) / 3600))
    begun = time.monotonic()
    try:
        ob.get(place.remote(30.0), timeout=0.5)
    except ob.errors.GetTimeoutError:
        print(time.monotonic() - begun < 15)
    """
    running = program(text)
    assert await_line(running) == "running"
    for hours in (24, -24, 1000, -1000):
        step_clock(hours * 3600)
        time.sleep(0.4)
        found = commands.nodes()
        assert {pid: node["node"] for pid, node in found.items()} == before
        assert all(0 <= node["age"] < 60 and node["silent"] < 3 for node in found.values())
    assert finish(running) == ["120", "-1000 -1000", "True"]
