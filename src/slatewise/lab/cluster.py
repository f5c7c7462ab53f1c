"""Tasks on a Dask cluster that runs already; the records are those of this machine.

What is shared goes once to every worker, also to those that join later, and tasks only name it. Dask itself moves
functions and results by pickle: whoever can reach a scheduler can run code on its workers, so a cluster must be trusted
and shut off, or use TLS (docs/scale.md).
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

from slatewise.lab.parcels import Packed, Parcel, Sent
from slatewise.lab.workers import PATIENCE, OnTask, Task, perform

CONNECT_SECONDS = 5
JOIN_SECONDS = 30
PACKAGES = ("slatewise", "numpy", "polars", "scipy", "cornac")

ADDRESS = re.compile(r"[a-z]+://[^/\s]+:[0-9]+")

Versions = dict[str, str | None]


class ClusterError(ConnectionError):
    """A cluster that cannot do the work; the message says why, and the way out."""


class Cluster:
    """The workers of a Dask cluster; one that dies costs the tasks it had begun, one that joins takes part."""

    def __init__(self, address: str, on_task: OnTask) -> None:
        self.address, self.on_task = address, on_task
        self.job, self.names = uuid4().hex, list[str]()
        self.client = connect(address)
        try:
            self._wait_for_workers()
            self.versions = self._same_versions()
        except BaseException:
            self.client.close()
            raise

    def share(self, packed: Packed) -> Parcel:
        """Send it to every worker of now and later."""
        from slatewise.lab.delivery import Delivery

        name = f"slatewise-{self.job}-{packed.digest}"
        self.names.append(name)
        for _ in range(PATIENCE):
            with suppress(OSError):  # a worker may be lost as it is sent its copy
                self.client.register_plugin(Delivery(name, packed), name=name)
                return Sent(packed.kind, packed.digest, name)
        raise ClusterError(f"the {packed.kind} cannot be sent to the workers at {self.address}; their logs say why")

    def map(self, tasks: Sequence[Task]) -> list[Any]:
        """Run all tasks; what a worker had begun when it died runs again elsewhere."""
        distributed, results = dask(), dict[int, Any]()
        submit = self.client.submit
        futures = {submit(perform_alike, self.versions, *task, pure=False): n for n, task in enumerate(tasks)}
        try:
            for future in distributed.as_completed(list(futures), loop=self.client.loop):
                results[futures.pop(future)] = future.result()
                future.release()
                self.on_task()
        except CancelledError as error:
            raise ClusterError(f"the scheduler at {self.address} was lost; start it and the job again") from error
        except distributed.KilledWorker as error:
            raise ClusterError(f"a task ended every worker that took it, perhaps by its memory: {error}") from error
        return [results[number] for number in range(len(tasks))]

    def _wait_for_workers(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=JOIN_SECONDS)
        except (TimeoutError, OSError) as error:
            raise ClusterError(
                f"the cluster at {self.address} has no worker after {JOIN_SECONDS} s; "
                f"start one: dask worker {self.address}"
            ) from error

    def _same_versions(self) -> Versions:
        """Refuse workers on which the same task might give other records."""
        here = installed()
        for worker, found in self.client.get_versions(packages=list(PACKAGES))["workers"].items():
            refuse_others(here, _of_interest(found["packages"]), worker)
        return here

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take back what is still to be done, and leave the cluster as it was."""
        for name in self.names:
            with suppress(OSError, ValueError):
                self.client.unregister_worker_plugin(name)
        self.client.close()


def dask() -> Any:
    """Return dask.distributed, or say how to get it."""
    try:
        return import_module("distributed")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("a cluster needs dask: pip install 'slatewise[dask]'") from error


def connect(address: str) -> Any:
    """Connect to a scheduler, or say why that does not work."""
    distributed = dask()
    if not ADDRESS.fullmatch(address):
        raise ClusterError(f"{address!r} is not an address of a Dask scheduler; one looks like tcp://10.0.0.1:8786")
    try:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _knock(distributed, address)).result()
    except (OSError, TypeError, ValueError, MemoryError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address} within {CONNECT_SECONDS} s ({error}); "
            f"start one on that machine: dask scheduler"
        ) from error
    return distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)


async def _knock(distributed: Any, address: str) -> None:
    """Open and close a connection: a client that fails to connect is slow to give up, and noisy."""
    credentials = distributed.Security().get_connection_args("client")
    comm = await distributed.core.connect(address, timeout=CONNECT_SECONDS, **credentials)
    await comm.close()


def perform_alike(expected: Versions, function: Any, *arguments: Any) -> Any:
    """Run one task on a worker, which may have joined after versions were compared."""
    refuse_others(expected, installed(), "a worker that joined late")
    return perform(function, *arguments)


@cache
def installed() -> Versions:
    """Versions on this machine of everything that records may depend on."""
    from platform import python_version

    return _of_interest({"python": python_version(), **{name: _version(name) for name in PACKAGES}})


def refuse_others(here: Versions, there: Versions, worker: str) -> None:
    """Raise an error that names every version that differs."""
    others = [
        f"{name} {there[name] or 'is missing'} (here {here[name] or 'missing'})"
        for name in here
        if here[name] != there[name]
    ]
    if others:
        raise ClusterError(f"{worker} differs: {', '.join(others)}; install the same versions on every machine")


def _of_interest(packages: dict[str, Any]) -> Versions:
    minor = ".".join(str(packages["python"]).split(".")[:2])
    return {"python": minor, **{name: packages.get(name) for name in PACKAGES}}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
