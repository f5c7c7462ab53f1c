"""Run tasks on an existing Dask cluster; the records are the same as on this machine.

A broadcast is sent once to every worker, including those that join later, and tasks only refer to it. Dask itself moves
functions and results by pickle: anyone who can reach a scheduler can run code on its workers, so a cluster must be
on a trusted network or use TLS (docs/scale.md).
"""

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from slatewise.lab.broadcast import Broadcast, MemoryBroadcast, WorkerBroadcast
from slatewise.lab.workers import MAX_FAILURES, OnTask, Task, run_task
from slatewise.policies import POLICIES

CONNECT_SECONDS = 5
JOIN_SECONDS = 30
PACKAGES = ("slatewise", "numpy", "polars", "scipy", "cornac")

ADDRESS = re.compile(r"[a-z]+://[^/\s]+:[0-9]+")

Versions = dict[str, str | None]


class ClusterError(ConnectionError):
    """A cluster that cannot be used; the message says why, and how to fix it."""


class Cluster:
    """Runs tasks on a Dask cluster; if a worker dies, its tasks are run again; one that joins takes part."""

    def __init__(self, address: str, on_task: OnTask) -> None:
        self.address, self.on_task = address, on_task
        self.job, self.names = uuid4().hex, list[str]()
        self.client = connect(address)
        try:
            self._wait_for_workers()
            self.versions = self._check_versions()
        except BaseException:
            self.client.close()
            raise

    def share(self, content: MemoryBroadcast) -> Broadcast:
        """Send content to every worker, present and future."""
        from slatewise.lab.dask_plugin import BroadcastPlugin

        name = f"slatewise-{self.job}-{content.digest}"
        self.names.append(name)
        for _ in range(MAX_FAILURES):
            with suppress(OSError):  # a worker may be lost while it receives its copy
                self.client.register_plugin(BroadcastPlugin(name, content), name=name)
                return WorkerBroadcast(content.kind, content.digest, name)
        raise ClusterError(f"cannot send the {content.kind} to the workers at {self.address}; their logs say why")

    def withdraw(self, shared: Broadcast) -> None:
        """Remove content from every worker and from the scheduler."""
        name = f"slatewise-{self.job}-{shared.digest}"
        self.names.remove(name)
        with suppress(OSError, ValueError):
            self.client.unregister_worker_plugin(name)

    def map(self, tasks: Sequence[Task]) -> list[Any]:
        """Run all tasks; those of a worker that dies are run again elsewhere."""
        distributed, results = import_dask(), dict[int, Any]()
        submit = self.client.submit
        futures = {submit(run_checked_task, self.versions, *task, pure=False): n for n, task in enumerate(tasks)}
        try:
            for future in distributed.as_completed(list(futures), loop=self.client.loop):
                results[futures.pop(future)] = future.result()
                future.release()
                self.on_task()
        except CancelledError as error:
            raise ClusterError(f"lost the scheduler at {self.address}; restart it and run the job again") from error
        except distributed.KilledWorker as error:
            raise ClusterError(
                f"a task killed every worker that ran it; did they run out of memory? {error}"
            ) from error
        return [results[number] for number in range(len(tasks))]

    def _wait_for_workers(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=JOIN_SECONDS)
        except (TimeoutError, OSError) as error:
            raise ClusterError(
                f"no worker joined the cluster at {self.address} within {JOIN_SECONDS} s; "
                f"start one: dask worker {self.address}"
            ) from error

    def _check_versions(self) -> Versions:
        """Refuse workers on which the same task might give different records."""
        here = installed_versions()
        common = {name: here[name] for name in ("python", *PACKAGES)}
        for worker, versions in self.client.get_versions(packages=list(PACKAGES))["workers"].items():
            compare_versions(common, _relevant(versions["packages"]), f"the worker {worker}")
        return here

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel what is left to do, and leave the cluster as it was."""
        for name in self.names:
            with suppress(OSError, ValueError):
                self.client.unregister_worker_plugin(name)
        self.client.close()


def import_dask() -> Any:
    """Return dask.distributed, or say how to install it."""
    try:
        return import_module("distributed")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("a cluster needs dask: pip install '.[dask]' in the checkout") from error


def connect(address: str) -> Any:
    """Connect to a scheduler, or say why that fails."""
    distributed = import_dask()
    if not ADDRESS.fullmatch(address):
        raise ClusterError(
            f"{address!r} is not the address of a Dask scheduler; an address looks like tcp://10.0.0.1:8786"
        )
    try:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _try_connection(distributed, address)).result()
    except (OSError, TypeError, ValueError, MemoryError) as error:
        raise ClusterError(
            f"no Dask scheduler responds at {address} within {CONNECT_SECONDS} s ({error}); "
            f"start one on that machine: dask scheduler"
        ) from error
    return distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)


async def _try_connection(distributed: Any, address: str) -> None:
    """Open and close a connection, because a Dask client that cannot connect is slow to give up, and noisy."""
    credentials = distributed.Security().get_connection_args("client")
    comm = await distributed.core.connect(address, timeout=CONNECT_SECONDS, **credentials)
    await comm.close()


def run_checked_task(expected: Versions, function: Any, *arguments: Any) -> Any:
    """Run a task on a worker, which checks its own versions: it may have joined late, or lack a plug-in."""
    compare_versions(expected, installed_versions(), "a worker")
    return run_task(function, *arguments)


@cache
def installed_versions() -> Versions:
    """Return the versions on this machine of everything that records may depend on, plug-ins included."""
    from platform import python_version

    own = _relevant({"python": python_version(), **{name: _version(name) for name in PACKAGES}})
    return {**own, **POLICIES.packages()}


def compare_versions(here: Versions, there: Versions, worker: str) -> None:
    """Raise an error that names every version that differs."""
    differences = [
        f"{name} {there.get(name) or 'is missing'} (here {here[name] or 'missing'})"
        for name in here
        if here[name] != there.get(name)
    ]
    if differences:
        raise ClusterError(f"{worker} has {', '.join(differences)}; install the same versions on every machine")


def _relevant(packages: dict[str, Any]) -> Versions:
    minor = ".".join(str(packages["python"]).split(".")[:2])
    return {"python": minor, **{name: packages.get(name) for name in PACKAGES}}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
