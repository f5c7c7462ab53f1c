"""Where tasks run: in this process, or in processes on this machine; the results are the same.

A task is a function and its arguments. An argument that was shared reaches each worker once, as a parcel; the function
gets what is in it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Protocol, Self

from slatewise.lab.parcels import Packed, Parcel, opened

SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
PATIENCE = 3

Task = tuple[Any, ...]
OnTask = Callable[[], None]


class Workers(Protocol):
    """Someone who runs tasks."""

    def share(self, packed: Packed) -> Parcel:
        """Make something known to all workers; what is returned stands for it in tasks."""

    def map(self, tasks: Sequence[Task]) -> list[Any]:
        """Run every task; results come in the order of the tasks, and each is counted as it ends."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def perform(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run one task, with what is in the parcels instead of the parcels."""
    return function(*(opened(one) if isinstance(one, Parcel) else one for one in arguments))


class Here:
    """Everything is done in this process."""

    def __init__(self, on_task: OnTask) -> None:
        self.on_task = on_task

    def share(self, packed: Packed) -> Parcel:
        """Nothing has to travel."""
        return packed

    def map(self, tasks: Sequence[Task]) -> list[Any]:
        """Run one task after the other."""
        return [self._done(perform(*task)) for task in tasks]

    def _done(self, result: Any) -> Any:
        self.on_task()
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the data."""
        opened.cache_clear()


class Processes:
    """Processes on this machine, which read what is shared from a folder; one that dies costs the tasks it had begun.

    Libraries run single-threaded in them: parallelism is over tasks.
    """

    def __init__(self, number: int, on_task: OnTask) -> None:
        self.number, self.on_task = number, on_task
        self.environment = {name: os.environ.get(name) for name in SINGLE_THREADED}
        os.environ.update(dict.fromkeys(SINGLE_THREADED, "1"))
        self.folder = TemporaryDirectory(prefix="slatewise-")
        self.pool = self._new_pool()

    def share(self, packed: Packed) -> Parcel:
        """Put the files where every process finds them."""
        return packed.store(Path(self.folder.name) / packed.digest)

    def map(self, tasks: Sequence[Task]) -> list[Any]:
        """Run all tasks; what was under way when a process died runs again in new ones."""
        results: dict[int, Any] = {}
        fruitless = 0
        while len(results) < len(tasks):
            before = len(results)
            results.update(self._attempt({n: task for n, task in enumerate(tasks) if n not in results}))
            fruitless = 0 if len(results) > before else fruitless + 1
            if fruitless == PATIENCE:
                raise ChildProcessError(
                    f"worker processes died {PATIENCE} times in a row before any of {len(tasks) - before} tasks was "
                    f"done; perhaps they were out of memory: try fewer workers"
                )
        return [results[number] for number in range(len(tasks))]

    def _attempt(self, tasks: dict[int, Task]) -> Iterator[tuple[int, Any]]:
        """Yield results as they come, but none of tasks that were under way when a process died."""
        broken = False
        try:
            futures = {self.pool.submit(perform, *task): number for number, task in tasks.items()}
        except BrokenProcessPool:
            futures, broken = {}, True
        for future in as_completed(futures):
            if isinstance(future.exception(), BrokenProcessPool):
                broken = True
            else:
                yield futures[future], future.result()
                self.on_task()
        if broken:
            self.pool.shutdown(wait=True)
            self.pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.number, get_context("spawn"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the processes, at once if something failed, and restore the environment."""
        self.pool.shutdown(wait=kind is None, cancel_futures=kind is not None)
        self.folder.cleanup()
        for name, value in self.environment.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
