"""The worker's share of one call: from the packet in its hands to the result on its link."""

from __future__ import annotations

import pickle
import socket

from outboard.client import Client
from outboard.process.board import Board
from outboard.process.template import WorkerSetup
from outboard.rpc.local import BlockingLink, claim_pair, socketpair
from outboard.rpc.protos import outboard_pb2 as pb
from outboard.worker import RunningKind, Worker

from .timing import show


def noop() -> None:
    """Do nothing."""


def make(link: socket.socket, claim: socket.socket, board: Board) -> Worker:
    """Return a worker that has been greeted and knows one kind."""
    worker = Worker(WorkerSetup(0, link, claim, board.fd))
    worker.client = Client(BlockingLink(link), 5, pb.Welcome(node=1, initial_credit=64))
    worker.kinds[77, 1] = RunningKind(noop, b"", 1, False)
    return worker


def main() -> None:
    """Print the table."""
    ours, theirs = socketpair()
    sender, reader = claim_pair()
    board = Board.create(64)
    worker = make(theirs, reader, board)
    interval = pb.Interval(kind=1, attempt=1, stride=1, first=5, calls=[pickle.dumps(((), {}), 5)])
    packet = pb.Submit(packet=1, owner=77, intervals=[interval]).SerializeToString()

    def serve() -> None:
        worker.serve(packet)
        ours.recv(1 << 16)

    show("worker: one packet with one task", serve)
    for end in (ours, theirs, sender, reader):
        end.close()


if __name__ == "__main__":
    main()
