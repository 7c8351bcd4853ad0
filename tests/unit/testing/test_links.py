from __future__ import annotations

from outboard.rpc.codec import Frame
from outboard.testing.links import Claim, NodeLink, Pipe, Slot
from outboard.testing.world import World


def quiet_world() -> World:
    """A world in which nothing happens but what the test does."""
    world = World(1)
    world._heap.clear()
    return world


def test_pipe_keeps_order_and_delivers_what_was_written_before_its_end() -> None:
    world = quiet_world()
    got: list[bytes] = []
    pipe = Pipe(world, "p", got.append)
    sent = [bytes([n]) for n in range(1, 50)]
    for chunk in sent:
        pipe.write(chunk)
    pipe.write(b"")
    pipe.write(b"after the end")
    while world.step():
        pass
    world.close()
    assert b"".join(got) == b"".join(sent)
    assert got[-1] == b""


def test_stalled_pipe_holds_back_what_is_written_later() -> None:
    world = quiet_world()
    times: list[float] = []
    pipe = Pipe(world, "p", lambda chunk: times.append(world.now))
    pipe.stall(0.5)
    assert pipe.is_full
    pipe.write(b"x")
    while world.step():
        pass
    world.close()
    assert times[0] >= 0.5


def test_drained_pipe_delivers_at_once() -> None:
    world = quiet_world()
    got: list[bytes] = []
    pipe = Pipe(world, "p", got.append)
    pipe.write(b"a")
    pipe.drain()
    world.close()
    assert got == [b"a"]


def test_control_frames_overtake_tasks_on_a_full_link() -> None:
    world = quiet_world()
    got: list[bytes] = []
    link = NodeLink(world.machines[0], "client", 7, got.append)
    link.pipes[1].stall(0.1)
    link.send(Frame.RETURNED, b"")
    link.send(Frame.GRANT, b"")
    link.flush()
    while world.step():
        pass
    world.close()
    types = [b"".join(got)[at + 4] for at in (0, 16)]
    assert types == [Frame.GRANT, Frame.RETURNED]


def test_claim_gives_each_packet_to_one_reader_and_takes_no_more_than_fits() -> None:
    claim = Claim(2)
    woken: list[bool] = []
    claim.wake = lambda: woken.append(True)
    assert claim.send(b"1") and claim.send(b"2") and not claim.send(b"3")
    assert claim.take_back() == b"1"
    claim.finish()
    assert not claim.send(b"4")
    assert claim.take_back() == b"2" and claim.take_back() is None
    assert claim.has_news and len(woken) == 3


def test_slot_is_cancelled_only_while_it_runs_what_is_to_be_ended() -> None:
    slot = Slot()
    slot.request_cancel(1, 0, 5)
    assert not slot.is_cancelled()
    slot.set_running(1, 0, 4)
    assert not slot.is_cancelled()
    slot.set_running(1, 0, 5)
    assert slot.is_cancelled()
    slot.clear()
    assert slot.running() is None and not slot.is_cancelled()
