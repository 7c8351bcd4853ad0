from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from outboard.ids import ObjectId
from outboard.scheduler import extents as module
from outboard.scheduler.extents import DropSegment, Extents, Reclaim, ReleasePages

OWNER, WRITER, READER = 100, 200, 300
OID = ObjectId(OWNER, 1)


@pytest.fixture
def table() -> Iterator[Extents]:
    """One segment of 100 bytes, number 1, leased by WRITER."""
    table = Extents(budget_nbytes=250)
    assert table.on_lease(WRITER, 100) == 1
    yield table
    table.check()


def announce(table: Extents, seq: int = 1, offset: int = 0, version: int = 0, nbytes: int = 10) -> None:
    table.on_announced(OWNER, seq, version, 1, offset, nbytes, WRITER)


def test_leases_end_at_the_budget(table: Extents) -> None:
    assert table.on_lease(WRITER, 151) is None
    assert table.on_lease(WRITER, 150) == 2
    assert table.on_lease(WRITER, 1) is None
    assert table.used_nbytes == 250


def test_room_that_a_writer_parts_with_is_there_for_others(table: Extents) -> None:
    announce(table, nbytes=30)
    assert table.on_lease(READER, 160) is None
    assert table.slack_segments() == [(70, 1, WRITER)]
    table.on_trimmed(WRITER, 1, 30, 71)  # more than is not used
    table.on_trimmed(READER, 1, 30, 70)
    assert table.ignored["trimmed"] == 2 and table.take_commands() == []
    table.on_trimmed(WRITER, 1, 40, 60)
    assert table.take_commands() == [ReleasePages(1, 40, 60)]
    assert table.slack_segments() == [(10, 1, WRITER)] and table.on_lease(READER, 160) == 2
    table.on_process_died(WRITER)
    assert table.used_nbytes == 160 + 30


def test_freed_and_unpinned_extent_is_reclaimed(table: Extents) -> None:
    announce(table)
    assert table.pin(OID, 0, READER) and table.pin(OID, 0, READER)
    table.on_freed(OWNER, 1, 0)
    table.unpin(OID, 0, READER)
    assert table.take_commands() == []
    table.unpin(OID, 0, READER)
    assert table.take_commands() == [Reclaim(WRITER, 1, 0)]
    assert table.take_commands() == []


def test_unpinned_extent_is_kept_until_freed(table: Extents) -> None:
    announce(table)
    table.pin(OID, 0, READER)
    table.unpin(OID, 0, READER)
    assert table.take_commands() == []
    table.on_freed(OWNER, 1, 0)
    assert table.take_commands() == [Reclaim(WRITER, 1, 0)]


def test_unknown_freed_and_other_versions_are_not_pinned(table: Extents) -> None:
    announce(table)
    table.pin(OID, 0, READER)
    assert not table.pin(OID, 1, READER)
    assert not table.pin(ObjectId(OWNER, 2), 0, READER)
    table.on_freed(OWNER, 1, 0)
    assert not table.pin(OID, 0, READER)


def test_free_that_overtakes_its_announcement_is_settled(table: Extents) -> None:
    table.on_freed(OWNER, 1, 0)
    announce(table)
    assert table.take_commands() == [Reclaim(WRITER, 1, 0)]
    announce(table)
    assert table.take_commands() == []


def test_memory_of_early_frees_is_bounded(table: Extents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    for seq in (1, 2, 3):
        table.on_freed(OWNER, seq, 0)
    announce(table, seq=1, offset=0)
    announce(table, seq=3, offset=10)
    assert table.take_commands() == [Reclaim(WRITER, 1, 10)]


def test_dead_reader_loses_its_pins(table: Extents) -> None:
    announce(table)
    table.pin(OID, 0, READER)
    table.pin(OID, 0, READER)
    table.on_freed(OWNER, 1, 0)
    table.on_process_died(READER)
    assert table.take_commands() == [Reclaim(WRITER, 1, 0)]
    assert not table.pin(OID, 0, READER)


def test_descendants_of_a_fork_keep_what_was_pinned(table: Extents) -> None:
    announce(table)
    table.pin(OID, 0, READER)
    table.pin(OID, 0, 301)  # an heir, which stands for all descendants
    table.unpin(OID, 0, READER)
    table.on_freed(OWNER, 1, 0)
    assert table.take_commands() == []
    table.on_process_died(301)
    assert table.take_commands() == [Reclaim(WRITER, 1, 0)]


def test_dead_writer_keeps_what_it_announced(table: Extents) -> None:
    announce(table, seq=1, offset=0)
    announce(table, seq=2, offset=10, nbytes=20)
    table.on_process_died(WRITER)
    assert table.used_nbytes == 30 and table.take_commands() == []
    assert table.pin(OID, 0, READER)
    table.on_freed(OWNER, 2, 0)
    assert table.take_commands() == [ReleasePages(1, 10, 20)]
    table.on_freed(OWNER, 1, 0)
    table.unpin(OID, 0, READER)
    assert table.take_commands() == [DropSegment(1)]
    assert table.used_nbytes == 0


def test_dead_writer_without_extents_leaves_nothing(table: Extents) -> None:
    table.on_process_died(WRITER)
    assert table.take_commands() == [DropSegment(1)]
    assert table.on_lease(WRITER, 10) is None
    announce(table)
    assert table.ignored["announced"] == 1


def test_dead_owner_frees_all_its_objects_also_late_ones(table: Extents) -> None:
    announce(table, seq=1, offset=0)
    announce(table, seq=2, offset=10)
    table.on_freed(OWNER, 7, 0)
    table.pin(OID, 0, READER)
    table.on_process_died(OWNER)
    assert table.take_commands() == [Reclaim(WRITER, 1, 10)]
    table.unpin(OID, 0, READER)
    announce(table, seq=3, offset=20)
    assert table.take_commands() == [Reclaim(WRITER, 1, 0), Reclaim(WRITER, 1, 20)]


def test_second_copy_of_an_object_is_given_back(table: Extents) -> None:
    announce(table, offset=0)
    announce(table, offset=10)
    assert table.take_commands() == [Reclaim(WRITER, 1, 10)]
    assert table.pin(OID, 0, READER)


def test_late_and_strange_messages_are_counted(table: Extents) -> None:
    table.unpin(OID, 0, READER)
    announce(table)
    announce(table)
    table.on_announced(OWNER, 5, 0, 1, 50, 10, writer=999)
    table.on_announced(OWNER, 5, 0, 77, 50, 10, WRITER)
    table.pin(OID, 0, READER)
    table.on_freed(OWNER, 1, 0)
    table.on_freed(OWNER, 1, 0)
    assert table.ignored == {"unpinned": 1, "announced": 3, "freed again": 1}
    assert table.take_commands() == []


ROOT = 400


def copy_of(table: Extents, seq: int = 1, offset: int = 0, root: int = ROOT) -> None:
    table.on_announced(OWNER, seq, 0, 1, offset, 10, WRITER, root=root)


def test_only_words_about_pulled_objects_pin_a_copy(table: Extents) -> None:
    copy_of(table)
    assert not table.pin(OID, 0, READER)
    assert table.pin(OID, 0, READER, pulled=True)
    table.on_freed(OWNER, 1, 0)
    table.unpin(OID, 0, READER)
    assert table.take_commands() == []
    table.unpin(OID, 0, READER, pulled=True)
    assert table.take_commands() == [Reclaim(WRITER, 1, 0)]


def test_copy_outlives_its_owner_and_who_took_it_over_but_not_the_root(table: Extents) -> None:
    copy_of(table)
    table.on_process_died(OWNER)
    table.on_handed_over(OID, 0, 555)
    table.on_process_died(555)
    copy_of(table, seq=2, offset=10)
    assert table.take_commands() == [] and table.find(OID, 0) is not None
    table.on_process_died(ROOT)
    assert len(table.take_commands()) == 2 and table.find(OID, 0) is None


def test_copy_used_longest_ago_is_evicted_first(table: Extents) -> None:
    for seq in (1, 2, 3, 4):
        copy_of(table, seq, offset=10 * seq)
    for seq in (2, 1, 3):
        oid = ObjectId(OWNER, seq)
        table.pin(oid, 0, READER, pulled=True)
        if seq != 3:
            table.unpin(oid, 0, READER, pulled=True)
    assert table.evict(used_only=True) and table.evict(used_only=True) and not table.evict(used_only=True)
    assert table.evict() and not table.evict(), "the third has a pin"
    assert table.take_commands() == [Reclaim(WRITER, 1, 10 * seq) for seq in (2, 1, 4)]
    assert not table.is_freed(ObjectId(OWNER, 2), 0), "it may be brought in again"


def test_only_copy_left_is_not_evicted_and_counts_as_made_here(table: Extents) -> None:
    copy_of(table)
    copy_of(table, seq=2, offset=10)
    table.keep(OID, 0)
    assert table.evict() and not table.evict()
    assert [key for key, _ in table.primaries({ROOT})] == [(OWNER, 1, 0)]
    assert not table.primaries({OWNER})
    table.on_freed(OWNER, 1, 0)
    assert table.primaries({ROOT}) == [] and table.find(OID, 0) is None


def test_forked_processes_keep_what_was_freed_already(table: Extents) -> None:
    announce(table)
    table.pin(OID, 0, READER)
    table.on_freed(OWNER, 1, 0)
    assert table.is_freed(OID, 0) and table.find(OID, 0) is None
    table.inherit(OID, 0, -1)
    table.unpin(OID, 0, READER)
    assert table.take_commands() == []
    table.on_process_died(-1)
    assert table.take_commands() == [Reclaim(WRITER, 1, 0)]


def test_copies_do_not_count_as_what_processes_have_here(table: Extents) -> None:
    copy_of(table)
    assert not table.has_of({OWNER, ROOT})
    announce(table, seq=2, offset=10)
    assert table.has_of({OWNER, 9}) and not table.has_of({9})


def test_holders_are_named_largest_first(table: Extents) -> None:
    announce(table, seq=1, offset=0, nbytes=10)
    announce(table, seq=2, offset=10, nbytes=10)
    table.on_announced(7, 1, 0, 1, 20, 50, WRITER)
    assert table.holders() == [(7, 50), (OWNER, 20)]
    assert sum(nbytes for _, nbytes in table.holders() + table.leased()) == table.used_nbytes
    assert repr(table) == "<Extents segments=1 extents=3 pinning=0 used=100 of 250>"


PROCESSES = st.integers(1, 4)
SEQS = st.integers(1, 3)


class ExtentsWalk(RuleBasedStateMachine):
    """Four processes that write, own and read; the model keeps who needs what, and checks every reclaim."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Extents(budget_nbytes=600)
        self.dead: set[int] = set()
        self.segments: dict[int, tuple[int, int]] = {}  # segment -> writer, next offset
        self.stored: dict[tuple[int, int], tuple[int, int]] = {}  # object -> place
        self.freed: set[tuple[int, int]] = set()
        self.pins: Counter[tuple[tuple[int, int], int]] = Counter()
        self.announced: set[tuple[int, int]] = set()

    def settle(self) -> None:
        """Compare what the table gave back with what the model says nobody needs."""
        unneeded = {
            key
            for key in self.stored
            if (key in self.freed or key[0] in self.dead) and not any(self.pins[key, each] for each in range(1, 9))
        }
        places = {self.stored.pop(key) for key in unneeded}
        live = {place[0] for place in self.stored.values()}
        for command in self.table.take_commands():
            if isinstance(command, DropSegment):
                writer, _ = self.segments.pop(command.segment)
                assert writer in self.dead and command.segment not in live
                places = {place for place in places if place[0] != command.segment}
            else:
                place = command.segment, command.offset
                assert place in places, "reclaimed while needed, or twice"
                places.remove(place)
                dead = self.segments[command.segment][0] in self.dead
                assert isinstance(command, ReleasePages if dead else Reclaim)
        assert not places, "not reclaimed"
        assert all(writer not in self.dead or segment in live for segment, (writer, _) in self.segments.items())

    @rule(writer=PROCESSES)
    def lease(self, writer: int) -> None:
        segment = self.table.on_lease(writer, 100)
        assert writer not in self.dead or segment is None
        if segment is not None:
            self.segments[segment] = writer, 0

    @rule(choice=st.integers(0, 9), owner=PROCESSES, seq=SEQS)
    def announce(self, choice: int, owner: int, seq: int) -> None:
        able = [segment for segment, (writer, at) in self.segments.items() if writer not in self.dead and at < 100]
        if not able or (owner, seq) in self.announced:
            return
        segment = able[choice % len(able)]
        writer, offset = self.segments[segment]
        self.segments[segment] = writer, offset + 10
        self.announced.add((owner, seq))
        self.stored[owner, seq] = segment, offset
        self.table.on_announced(owner, seq, 0, segment, offset, 10, writer)
        self.settle()

    @rule(owner=PROCESSES, seq=SEQS)
    def free(self, owner: int, seq: int) -> None:
        if owner not in self.dead:
            self.freed.add((owner, seq))
        self.table.on_freed(owner, seq, 0)
        self.settle()

    @rule(owner=PROCESSES, seq=SEQS, process=PROCESSES)
    def pin(self, owner: int, seq: int, process: int) -> None:
        key = owner, seq
        possible = key in self.stored and key not in self.freed and not {owner, process} & self.dead
        assert self.table.pin(ObjectId(*key), 0, process) == possible
        self.pins[key, process] += possible

    @rule(owner=PROCESSES, seq=SEQS, process=PROCESSES)
    def unpin(self, owner: int, seq: int, process: int) -> None:
        self.table.unpin(ObjectId(owner, seq), 0, process)
        self.pins[(owner, seq), process] -= self.pins[(owner, seq), process] > 0
        self.settle()

    @rule(process=PROCESSES)
    def fork(self, process: int) -> None:
        if process + 4 in self.dead:
            return
        for (key, each), count in list(self.pins.items()):
            if each == process:
                pinned = [self.table.pin(ObjectId(*key), 0, process + 4) for _ in range(count)]
                self.pins[key, process + 4] += sum(pinned)

    @rule(process=st.integers(1, 8))
    def die(self, process: int) -> None:
        self.dead.add(process)
        self.table.on_process_died(process)
        for key, each in list(self.pins):
            if each == process:
                del self.pins[key, each]
        self.settle()

    @invariant()
    def holds(self) -> None:
        self.table.check()

    def teardown(self) -> None:
        for process in range(1, 9):
            self.die(process)
        assert "segments=0 extents=0 pinning=0 used=0" in repr(self.table)
        self.table.check()


ExtentsWalk.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestExtentsWalk = ExtentsWalk.TestCase
