"""Taste vectors computed by worker processes or on a cluster; the same bits as on this machine.

A worker reads the parts of its group of users from files, so their folder must be one that every machine sees. The
block of numbers per item is sent to each worker once per pass, and removed after it.
"""

from collections.abc import Iterable, Sequence

from slatewise.catalog.likes import Floats, Group, Products, product_of_group
from slatewise.lab.broadcast import MemoryBroadcast
from slatewise.lab.workers import Workers


def on_workers(workers: Workers) -> Products:
    """Return how workers compute products."""

    def products(groups: Sequence[Group], block: Floats) -> Iterable[Floats]:
        shared = workers.share(MemoryBroadcast.of(block))
        results = workers.map([(product_of_group, tuple(group), shared) for group in groups])
        workers.withdraw(shared)
        return results

    return products
