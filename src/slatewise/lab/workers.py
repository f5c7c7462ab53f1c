"""Where tasks run: in this process, or in processes on this machine; the results are the same.

A task is a function and its arguments. An argument that is a broadcast reaches each worker once; the function gets its
content.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Protocol, Self

from slatewise.lab.broadcast import Broadcast, MemoryBroadcast, load_broadcast

SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
MAX_FAILURES = 3

Task = tuple[Any, ...]
OnTask = Callable[[], None]


class Workers(Protocol):
    """Anything that runs tasks."""

    def share(self, content: MemoryBroadcast) -> Broadcast:
        """Make content available to all workers; tasks refer to it by what is returned."""

    def withdraw(self, shared: Broadcast) -> None:
        """Free what content takes that no task will refer to any more."""

    def map(self, tasks: Sequence[Task]) -> list[Any]:
        """Run every task and count each as it ends; results are in the order of the tasks."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def run_task(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task; broadcasts among its arguments are replaced by their content."""
    return function(
        *(load_broadcast(argument) if isinstance(argument, Broadcast) else argument for argument in arguments)
    )


def map_by_key(pool: Workers, tasks: Sequence[Task], keys: Sequence[Any]) -> list[Any]:
    """Run tasks with equal keys one after another: they share what they prepare; results are those of `pool.map`."""
    order = sorted(range(len(tasks)), key=keys.__getitem__)
    results = dict(zip(order, pool.map([tasks[number] for number in order]), strict=True))
    return [results[number] for number in range(len(tasks))]


class InProcess:
    """Runs all tasks in this process."""

    def __init__(self, on_task: OnTask) -> None:
        self.on_task = on_task

    def share(self, content: MemoryBroadcast) -> Broadcast:
        """Nothing has to be sent."""
        return content

    def withdraw(self, shared: Broadcast) -> None:
        """Nothing has been sent."""

    def map(self, tasks: Sequence[Task]) -> list[Any]:
        """Run one task after another."""
        return [self._counted(run_task(*task)) for task in tasks]

    def _counted(self, result: Any) -> Any:
        self.on_task()
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the data."""
        load_broadcast.cache_clear()


class ProcessPool:
    """Runs tasks in processes on this machine; if one dies, the tasks that were running are run again.

    Broadcasts are read from a folder. Libraries run single-threaded, because parallelism is over tasks.
    """

    def __init__(self, number: int, on_task: OnTask) -> None:
        self.number, self.on_task = number, on_task
        self.environment = {name: os.environ.get(name) for name in SINGLE_THREADED}
        os.environ.update(dict.fromkeys(SINGLE_THREADED, "1"))
        self.folder = TemporaryDirectory(prefix="slatewise-")
        self.pool = self._new_pool()

    def share(self, content: MemoryBroadcast) -> Broadcast:
        """Write the files to a folder that every process can read."""
        return content.store(Path(self.folder.name) / content.digest)

    def withdraw(self, shared: Broadcast) -> None:
        """Remove the files."""
        rmtree(Path(self.folder.name) / shared.digest)

    def map(self, tasks: Sequence[Task]) -> list[Any]:
        """Run all tasks; those that were running when a process died are run again in new processes."""
        results: dict[int, Any] = {}
        failures = 0
        while len(results) < len(tasks):
            before = len(results)
            results.update(self._attempt({n: task for n, task in enumerate(tasks) if n not in results}))
            failures = 0 if len(results) > before else failures + 1
            if failures == MAX_FAILURES:
                raise ChildProcessError(
                    f"worker processes died {MAX_FAILURES} times in a row before finishing any of "
                    f"{len(tasks) - before} tasks; if they ran out of memory, use fewer workers"
                )
        return [results[number] for number in range(len(tasks))]

    def _attempt(self, tasks: dict[int, Task]) -> Iterator[tuple[int, Any]]:
        """Yield results as they arrive, except those of tasks that were running when a process died."""
        broken = False
        try:
            futures = {self.pool.submit(run_task, *task): number for number, task in tasks.items()}
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
        """Stop the processes, immediately if something failed, and restore the environment."""
        self.pool.shutdown(wait=kind is None, cancel_futures=kind is not None)
        self.folder.cleanup()
        for name, value in self.environment.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
