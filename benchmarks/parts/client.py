"""The client's share of one call: everything its process does for `f.remote()` and `get`, the node played by this file.

The other end of the link lies in the same thread, so there is no switch between processes in these figures.
"""

from __future__ import annotations

import time

import outboard
from outboard import engine
from outboard.client import Client
from outboard.native import NativeEngine
from outboard.rpc.codec import Frame, encode_frame
from outboard.rpc.local import BlockingLink, socketpair
from outboard.rpc.protos import outboard_pb2 as pb

INCARNATION = 77
ROUNDS, CALLS = 7, 2_000


def noop(value: object = None) -> object:
    """Do nothing."""
    return value


class Rig:
    """A client on a link whose other end answers as a node would."""

    def __init__(self) -> None:
        ours, self.theirs = socketpair()
        welcome = pb.Welcome(node=1, initial_credit=64, store_nbytes=1 << 30)
        self.client = Client(BlockingLink(ours), INCARNATION, welcome)
        self.engine = NativeEngine(self.client)
        engine.install(self.engine)
        self.client.background.start()
        self.function = outboard.remote(noop)
        self.finished = pb.Finished(packet_done=True)
        self.done = self.finished.done.add(attempt=1, stride=1, values=[b"\x80\x05N."], seconds=1e-6)

    def answer(self, seq: int) -> None:
        """Take the request and write its result."""
        self.theirs.recv(1 << 16)
        self.done.first = seq
        self.theirs.sendall(encode_frame(Frame.FINISHED, self.finished.SerializeToString(), INCARNATION))

    def calls(self) -> tuple[float, float]:
        """Time so many calls: seconds each for submitting and for getting."""
        submitting = getting = 0.0
        for _ in range(CALLS):
            started = time.perf_counter()
            ref = self.function.remote()
            submitting += time.perf_counter() - started
            self.answer(ref.seq)
            started = time.perf_counter()
            outboard.get(ref)
            getting += time.perf_counter() - started
        return submitting / CALLS, getting / CALLS

    def close(self) -> None:
        """End the rig; nobody answers a farewell any more."""
        self.theirs.close()
        engine.clear()
        self.engine.shutdown()


def main() -> None:
    """Print the table."""
    rig = Rig()
    try:
        submitting, getting = min(rig.calls() for _ in range(ROUNDS))
    finally:
        rig.close()
    print(f"{'client: submit one task':<58} {submitting * 1e6:10.2f} µs")
    print(f"{'client: get its result':<58} {getting * 1e6:10.2f} µs")


if __name__ == "__main__":
    main()
