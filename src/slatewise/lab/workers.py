"""Where tasks run: in processes on this machine, or in this process; the results are the same."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Self

SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


class Workers:
    """A number of workers, each of which is given the data once; one worker is this process itself.

    Libraries run single-threaded in worker processes: parallelism is over tasks.
    """

    def __init__(
        self, number: int, keep: Callable[[Any], None], data: Any, on_task: Callable[[], None] | None = None
    ) -> None:
        self.on_task = on_task or (lambda: None)
        self.pool: ProcessPoolExecutor | None = None
        self.environment = {name: os.environ.get(name) for name in SINGLE_THREADED}
        if number == 1:
            keep(data)
            return
        os.environ.update(dict.fromkeys(SINGLE_THREADED, "1"))
        self.pool = ProcessPoolExecutor(number, get_context("spawn"), initializer=keep, initargs=(data,))

    def map(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Run a function on every task; results come in the order of the tasks, `on_task` is called as each ends."""
        if self.pool is None:
            return [self._told(function(*task)) for task in tasks]
        futures = [self.pool.submit(function, *task) for task in tasks]
        for future in futures:
            future.add_done_callback(self._tell_of)
        return [future.result() for future in futures]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the processes, at once if something failed, and restore the environment."""
        if self.pool is not None:
            self.pool.shutdown(wait=kind is None, cancel_futures=kind is not None)
            for name, value in self.environment.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})

    def _told(self, result: Any) -> Any:
        self.on_task()
        return result

    def _tell_of(self, future: Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.on_task()
