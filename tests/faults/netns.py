"""Machines of a network on one computer: network namespaces on a bridge, each with an address and ways to cut it off.

Namespaces have no names: each lives in a process that does nothing, and is gone with that and with what was started in
it. Root is not needed where a user may have namespaces of his own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.clusters import COMMAND

#: What the network consists of. The kernel drops what it finds no way for, on the way out and on the way in.
SUBNET = "10.83.0"

#: How the kernel's table names the state of a connection that is open.
ESTABLISHED = "01"


class Machine:
    """A namespace with an address; it shares files and processes with this computer."""

    def __init__(self, network: Network, number: int) -> None:
        self.address = f"{SUBNET}.{number}"
        self._network = network
        self._holder = network.hold()
        network.run(
            f"ip link add name port{number} type veth peer name eth0 netns {self._holder.pid}\n"
            f"ip link set port{number} master bridge up"
        )
        self.configure(
            f"ip link set lo up; ip addr add {self.address}/24 dev eth0; ip link set eth0 up\n"
            "ip rule add pref 100 lookup local; ip rule del pref 0"  # so that rules may come before what is here
        )

    def configure(self, script: str) -> None:
        """Run shell commands here that must succeed."""
        run([*self.enter(), "sh", "-ec", script])

    def enter(self) -> list[str]:
        """Return what to put in front of a command that is to run here."""
        return self._network.enter(self._holder.pid)

    def lose_what_comes_from(self, other: Machine) -> None:
        """Drop, from now on, every packet of another machine's, also of connections that there are."""
        self.configure(f"ip rule add pref 10 from {other.address} blackhole")

    def hear_again(self, other: Machine) -> None:
        """Take its packets again."""
        self.configure(f"ip rule del pref 10 from {other.address} blackhole")

    def connections(self) -> set[str]:
        """The addresses of machines to which something here is connected."""
        far = set()
        for name in ("tcp", "tcp6"):  # IPv4 addresses stand at the end of IPv6 ones, least byte first
            for line in Path(f"/proc/{self._holder.pid}/net/{name}").read_text().splitlines()[1:]:
                _, _, address, state, *_ = line.split()
                if state == ESTABLISHED:
                    far.add(socket.inet_ntoa(bytes.fromhex(address.partition(":")[0][-8:])[::-1]))
        return far

    def limit(self, rate: str) -> bool:
        """Let no more than so much out (``80mbit``); False where this kernel cannot."""
        command = f"tc qdisc replace dev eth0 root tbf rate {rate} burst 64k latency 100ms"
        return subprocess.run([*self.enter(), *command.split()], capture_output=True, check=False).returncode == 0

    def outboard(self, *arguments: str, env: Mapping[str, str]) -> str:
        """Run a command of ours here and return what it printed; it must succeed."""
        return run([*self.enter(), *COMMAND, *arguments], env)


class Network:
    """A bridge and the machines on it."""

    def __init__(self) -> None:
        self._holders: list[subprocess.Popen[bytes]] = []  # the first one has the bridge
        self._own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        self._machines = 0
        try:
            self._hub = self._hold(["unshare", "--net", *self._own_user])
            self.run("ip link add name bridge type bridge; ip link set bridge up; ip link set lo up")
            self.machine()
        except BaseException:
            self.close()
            raise

    def machine(self) -> Machine:
        """Add a machine."""
        self._machines += 1
        return Machine(self, self._machines)

    def run(self, script: str) -> None:
        """Run shell commands where the bridge is."""
        run([*self.enter(self._hub.pid), "sh", "-ec", script])

    def enter(self, pid: int) -> list[str]:
        """Return what to put in front of a command that is to run in the namespaces of a process."""
        user = ["--user", "--preserve-credentials"] if self._own_user else []
        return ["nsenter", "--target", str(pid), *user, "--net", "--"]

    def hold(self) -> subprocess.Popen[bytes]:
        """Make a namespace and return the process that keeps it."""
        return self._hold([*self.enter(self._hub.pid), "unshare", "--net"])

    def _hold(self, command: list[str]) -> subprocess.Popen[bytes]:
        holder = subprocess.Popen([*command, "sleep", "600"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self._holders.append(holder)
        deadline = time.monotonic() + 10
        while (name := Path(f"/proc/{holder.pid}/comm").read_text().strip()) != "sleep":
            if holder.poll() is not None or time.monotonic() > deadline:
                raise OSError(f"{name}: no namespace")
            time.sleep(0.005)
        return holder

    def close(self) -> None:
        """End the machines; what runs on them stays, without a network."""
        for holder in self._holders:
            holder.kill()
            holder.communicate()


def run(command: list[str], env: Mapping[str, str] | None = None) -> str:
    """Run a command that must succeed and return what it printed."""
    done = subprocess.run(command, env=env, text=True, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, f"{command}\n{textwrap.indent(done.stdout + done.stderr, '  ')}"
    return done.stdout


@pytest.fixture
def network() -> Iterator[Network]:
    """A network without machines; the test is skipped where there can be none."""
    try:
        made = Network()
    except (OSError, AssertionError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield made
    made.close()
