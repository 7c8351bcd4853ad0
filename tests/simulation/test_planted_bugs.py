"""The simulator finds bugs: each of these variants of the machines fails within a few hundred seeds."""

from __future__ import annotations

from typing import Any

import pytest

from outboard import exchange, inbox, worker
from outboard.scheduler import (
    arrays,
    claims,
    extents,
    leases,
    losses,
    plain,
    queues,
    references,
    resources,
    settling,
)
from outboard.scheduler.claims import Fate
from outboard.scheduler.kinds import Kind as OwnersKind
from outboard.scheduler.outcomes import LostCause
from outboard.scheduler.shares import Share
from tests.simulation.planting import Plant, assert_is_found, nothing

SEEDS = 400


def forget_to_free_cpus_on_block(patch: pytest.MonkeyPatch) -> None:
    block = leases.Leases.block

    def planted(self: Any, worker: Any) -> None:
        free = self._tables.resources.free_cpu
        block(self, worker)
        self._tables.resources.free_cpu = free

    patch.setattr(leases.Leases, "block", planted)


def resume_without_a_free_cpu(patch: pytest.MonkeyPatch) -> None:
    resume = leases.Leases.resume

    def planted(self: Any) -> None:
        resources_ = self._tables.resources
        resources_.free_cpu += 1_000_000
        resume(self)
        resources_.free_cpu -= 1_000_000

    patch.setattr(leases.Leases, "resume", planted)


def run_what_was_running_again_as_not_begun(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Any, returned: Any, running: Any) -> list[Fate]:
        fates = [Fate(packet, [], [], packet.intervals) for packet in self.packets]
        self.packets.clear()
        self.seconds, self.tasks = 0.0, 0
        return fates

    patch.setattr(claims.Range, "autopsy", planted)


def drop_recalled_packets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(losses.Losses, "put_back", nothing)


def take_back_what_was_taken_already(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Any, numbers: Any) -> list[Any]:
        taken = list(self.packets)[1:]
        for packet in taken:
            self.packets.remove(packet)
            self._subtract(packet.each, packet.count)
        return taken

    patch.setattr(claims.Range, "take_back", planted)


def never_tell_of_lost_tasks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(losses.Losses, "lose", nothing)


def give_back_tasks_and_keep_them(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Any, count: int) -> list[Any]:
        return [interval.span() for interval in self.queue][:1]

    patch.setattr(queues.Kind, "take_last", planted)


def admit_without_resources(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resources.Resources, "fits", lambda self, demand: True)


def keep_the_tasks_of_clients_that_died(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(losses.Losses, "empty_queue", nothing)


def never_pin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(extents.Extents, "pin", lambda self, oid, version, process: True)


def free_while_pinned(patch: pytest.MonkeyPatch) -> None:
    settle = extents.Extents._settle

    def planted(self: Any, key: Any, entry: Any) -> None:
        pins, entry.pins = entry.pins, 0
        settle(self, key, entry)
        entry.pins = pins

    patch.setattr(extents.Extents, "_settle", planted)


def keep_the_pins_of_the_dead(patch: pytest.MonkeyPatch) -> None:
    on_process_died = extents.Extents.on_process_died

    def planted(self: Any, process: int) -> None:
        pins = self._pins.pop(process, None)
        on_process_died(self, process)
        if pins is not None:
            self._pins[process] = pins

    patch.setattr(extents.Extents, "on_process_died", planted)


def never_count_answers(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Any, task: Any) -> None:
        self.let_go(task)

    patch.setattr(settling.Settling, "answered", planted)


def forget_what_is_owed_for_cancelled_tasks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plain.Plain, "_answer_owed", lambda self, index, attempt: False)


def count_results_of_cancelled_tasks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plain.Plain, "sent_task", lambda self, index, attempt: self._owned.get(index))


def send_beyond_the_credit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Share, "room", lambda self: self.limit)


def retry_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OwnersKind, "may_retry", lambda self, cause, process, machine: cause is not LostCause.BINDING)


def retry_items_in_the_same_attempt(patch: pytest.MonkeyPatch) -> None:
    requeue = arrays.Array.requeue
    patch.setattr(arrays.Array, "requeue", lambda self, first, count, attempt: requeue(self, first, count, 1))


def free_before_the_borrower_has_released(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(references.References, "on_borrowed", nothing)


def never_forget_dead_borrowers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(references.References, "on_borrower_died", nothing)


def never_take_note_of_releases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(references.References, "on_released", nothing)


def hold_nothing_for_what_is_inside_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(references.References, "contain", nothing)


def never_let_go_of_inputs(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Any, task: Any) -> None:
        task.call = None

    patch.setattr(settling.Settling, "let_go", planted)


def lend_without_counting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(references.References, "lend", lambda self, oids, receiver: ())


def repeat_nothing_to_the_new_owner(patch: pytest.MonkeyPatch) -> None:
    adopt = exchange.Exchange.adopt

    def planted(self: Any, peer: Any, message: Any, heir: Any) -> None:
        peer.words.clear()
        adopt(self, peer, message, heir)

    patch.setattr(exchange.Exchange, "adopt", planted)


def end_before_what_was_started_has_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(worker.Worker, "has_finished_children", lambda self: True)


def never_name_the_next_heir(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(references.References, "_note_heir", nothing)


def count_nothing_that_is_lent_by_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exchange.Exchange, "lend", nothing)


def keep_kinds_that_were_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inbox.Inbox, "_on_drop_kinds", nothing)


def drop_kinds_that_are_needed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OwnersKind, "is_needed", lambda self: bool(self.opened))


PLANTS: list[Plant] = [
    forget_to_free_cpus_on_block,
    resume_without_a_free_cpu,
    run_what_was_running_again_as_not_begun,
    drop_recalled_packets,
    take_back_what_was_taken_already,
    never_tell_of_lost_tasks,
    give_back_tasks_and_keep_them,
    admit_without_resources,
    keep_the_tasks_of_clients_that_died,
    never_pin,
    free_while_pinned,
    keep_the_pins_of_the_dead,
    never_count_answers,
    forget_what_is_owed_for_cancelled_tasks,
    count_results_of_cancelled_tasks,
    send_beyond_the_credit,
    retry_for_ever,
    retry_items_in_the_same_attempt,
    free_before_the_borrower_has_released,
    never_forget_dead_borrowers,
    never_take_note_of_releases,
    hold_nothing_for_what_is_inside_values,
    never_let_go_of_inputs,
    lend_without_counting,
    repeat_nothing_to_the_new_owner,
    end_before_what_was_started_has_ended,
    never_name_the_next_heir,
    count_nothing_that_is_lent_by_others,
    keep_kinds_that_were_dropped,
    drop_kinds_that_are_needed,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_is_found(plant, monkeypatch, "node", SEEDS)
