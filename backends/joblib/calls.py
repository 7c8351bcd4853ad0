"""One call of a `Parallel`: its task array, its batches, and the thread that hears how they came out."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from outboard.engine import Completion, Engine, TaskArray
from outboard.errors import TaskCancelledError

from .batches import Batch, TaskTuple, have_large
from .batching import BATCH_TASKS, BatchSizer
from .context import Context, Task
from .window import Window
from .workers import Workers, keeper

#: Seconds after which a process that does not leave its task when the call is aborted is killed.
KILL_AFTER = 1.0

#: Seconds that the end of a call waits for its thread, which has nothing left to do.
THREAD_WAIT = 1.0


class ParallelCall:
    """The tasks of one `Parallel.__call__`.

    Callbacks run in the thread of the call or, for what was held back from a generator's consumer, in the consumer's.
    Each batch gets one call of its callback, however its tasks come out.
    """

    def __init__(
        self,
        engine: Engine,
        context: Context,
        workers: Workers,
        *,
        window: Window[Batch] | None,
        shares: bool,
    ) -> None:
        self.window = window
        self.batch_size = 1
        self.engine = engine
        self._context = context
        self._workers = workers
        self._shares = shares
        self._task: Task | None = None  # it and what follows are made with the first batch
        self._array: TaskArray | None = None
        self._thread: threading.Thread | None = None
        self._sizer = BatchSizer()
        self._sending = threading.Lock()  # batches get their place in the array in the order of sending
        self._count = 0
        self._number = 0
        self._parts: dict[int, tuple[Batch, range]] = {}  # what each item that has not finished holds, by its index
        self._finished = 0  # tasks
        self._windowing = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._aborted = False

    def submit(self, tasks: Sequence[TaskTuple], callback: Callable[[Any], object]) -> Batch:
        """Start the tasks of one batch; once the call has been aborted it only ends as cancelled."""
        batch = Batch(self._number, tasks, callback, None if self.window is None else self.on_consumed)
        self._number += 1  # joblib's own lock makes submissions serial
        if self._aborted:  # by another thread, after joblib looked
            batch.fail(TaskCancelledError("the call was aborted"))
            self._tell(batch)
        else:
            self._extend([(batch, part) for part in self._divided(batch)])
        return batch

    def on_consumed(self, number: int) -> None:
        """Hear that the consumer took a result."""
        if self._ended or self.window is None:
            return
        with self._windowing:
            released = self.window.on_consumed(number)
        for batch in released:
            self._tell(batch)

    def abort(self) -> None:
        """Cancel whatever has not finished; what runs is interrupted and, if that does not help, killed.

        May be called from a finaliser, of a generator that is dropped: so a thread does it, which may wait for locks.
        When the interpreter ends no thread starts any more, and all of the program's tasks end with it.
        """
        self._aborted = True
        if self._array is not None and not self._ended and not sys.is_finalizing():
            cancel = partial(self._array.cancel, kill_after=KILL_AFTER)
            try:
                threading.Thread(target=cancel, name="OutboardAbort", daemon=True).start()
            except RuntimeError:
                pass  # the interpreter is about to end
        self.end()

    def end(self) -> None:
        """Take no more batches, and let the thread go. Repeatable."""
        if self._ended:
            return
        self._ended = True
        self._wake.set()
        keeper.give_back(self._workers)
        thread = self._thread
        if thread is not None and not self._aborted and threading.current_thread() is not thread:
            thread.join(THREAD_WAIT)

    def _divided(self, batch: Batch) -> Iterator[range]:
        """Yield which tasks travel together: several tiny ones, but none with large arguments."""
        size, count = self._sizer.item_size, len(batch)
        if min(size, count) > 1 and have_large(batch.tasks or ()):
            size = 1
        return (range(first, min(first + size, count)) for first in range(0, count, size))

    def _extend(self, parts: list[tuple[Batch, range]]) -> None:
        with self._sending:
            task, array = self._task, self._array
            if task is None or array is None:
                task, array = self._open(parts[0][0])
            items: list[Any] = []
            for batch, part in parts:
                if batch.tasks is None:
                    continue  # it has failed meanwhile
                calls = task.calls(batch.tasks[part.start : part.stop])
                self._parts[self._count + len(items)] = batch, part
                items.append(calls if len(calls) > 1 else calls[0])
            self._count += len(items)
            # In the call's thread one callback follows the other: what they submit goes out together.
            is_own = threading.current_thread() is self._thread
            array.extend(items, gather=is_own)
        if not is_own:
            self._wake.set()

    def _open(self, batch: Batch) -> tuple[Task, TaskArray]:
        """Open the array, whose function holds that of the first task: most calls have no other."""
        task = self._task = Task(self._context, batch.tasks[0][0] if batch.tasks else None)
        array = self._array = self.engine.open_array(
            task, self._workers.options, self._workers.binding, share_arguments=self._shares
        )
        self._thread = threading.Thread(target=self._collect, args=(array,), name="OutboardParallel", daemon=True)
        self._thread.start()
        return task, array

    def _collect(self, array: TaskArray) -> None:
        try:
            with self.engine.aside():
                while self._take(array):
                    pass
            self._drop_held()
        except BaseException as error:  # the cluster is gone: joblib must hear of every batch, or waits for ever
            self._fail_all(error)

    def _drop_held(self) -> None:
        """End what was held back from a consumer that has gone: results of it would stay in the store."""
        if self.window is not None:
            with self._windowing:
                held = self.window.empty()
            for batch in held:
                batch.fail(TaskCancelledError("the call was aborted"))
                self._tell(batch)

    def _take(self, array: TaskArray) -> bool:
        """Hear of what has finished; False when nothing more comes."""
        completions = array.take()
        if completions:
            settled = self._settled(completions)
            self._measure(array)
            self._deliver(settled)
            return True
        if self._ended:
            return False
        self._wake.wait()
        self._wake.clear()
        return True

    def _settled(self, completions: list[Completion]) -> list[Batch]:
        """Give each outcome to its batch; returns those of which joblib is to hear."""
        settled, returned = [], []
        for index, ok, value in completions:
            batch, part = self._parts.pop(index)
            was_settled = batch.is_settled
            rest = batch.settle(part, ok, value)
            self._finished += len(part) - len(rest)
            returned += [(batch, range(position, position + 1)) for position in rest]
            if batch.is_settled and not was_settled:
                batch.tasks = None
                settled.append(batch)
        if returned:
            self._extend(returned)
        return settled

    def _measure(self, array: TaskArray) -> None:
        window = self.window
        most = BATCH_TASKS
        if window is not None:
            with self._windowing:
                window.resize(array.taken_nbytes / max(1, self._finished))
                most = max(1, window.room // 8)
        self.batch_size = self._sizer.on_finished(self._finished, array.run_seconds, most)

    def _deliver(self, ready: list[Batch]) -> None:
        if self.window is not None:
            with self._windowing:
                ready = [passing for batch in ready for passing in self._passing(self.window, batch)]
        for batch in ready:
            self._tell(batch)

    @staticmethod
    def _tell(batch: Batch) -> None:
        """Have joblib hear of a batch; what its callback raises is reported, and others have their turn."""
        try:
            batch.tell()
        except Exception as error:
            thread = threading.current_thread()
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, thread)))

    @staticmethod
    def _passing(window: Window[Batch], batch: Batch) -> list[Batch]:
        return [batch] if batch.error is not None else window.on_finished(batch)

    def _fail_all(self, error: BaseException) -> None:
        while self._parts:
            with self._sending:
                batches = {id(batch): batch for batch, _ in self._parts.values()}
                self._parts.clear()
            for batch in batches.values():
                if not batch.is_settled:
                    batch.fail(error)
                    self._tell(batch)
