"""Who likes what, in parts of the users, and products of LᵀL with blocks of numbers per item.

L is the matrix of likes (n_users, n_items). Its parts are read one after the other and a product holds numbers per item
only, so memory does not grow with users or likes. Parts are summed in groups, and groups in their order: the division
depends on the data alone, so a product has the same bits on any number of threads or machines.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from slatewise.compiled import compiled

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset

Floats = NDArray[np.float64]
Integers = NDArray[np.integer[Any]]

MOST_GROUPS = 32
LEAST_LIKES = 250_000
"""The likes of a group, unless there are fewer in all."""


class Part(Protocol):
    """The likes of some users, in memory or in a file."""

    def read(self) -> tuple[Integers, Integers]:
        """Return the liked items of one user after another (int32), and where those of each user begin (int64)."""


@dataclass(frozen=True, eq=False)
class ArrayPart:
    """The likes of some users, in memory."""

    items: Integers
    starts: Integers

    def read(self) -> tuple[Integers, Integers]:
        """Return both arrays."""
        return self.items, self.starts


Group = Sequence[Part]
Products = Callable[[Sequence[Group], Floats], Iterable[Floats]]
"""Computes `product_of_group` of every group with a block, and returns the results in the order of the groups."""


@dataclass(frozen=True, eq=False)
class Likes:
    """Likes in groups of parts, with the number of users and how many of them like each item (n_items,)."""

    n_users: int
    counts: Integers
    groups: tuple[tuple[Part, ...], ...]

    @classmethod
    def of(cls, dataset: "Dataset") -> "Likes":
        """Divide the users of a data set; nothing is copied."""
        n_groups = max(1, min(MOST_GROUPS, dataset.n_interactions // LEAST_LIKES))
        targets = np.linspace(0, dataset.n_interactions, n_groups + 1)
        bounds = np.searchsorted(dataset.user_starts, targets)
        groups = tuple((_part_of(dataset, first, last),) for first, last in pairwise(bounds))
        return cls(dataset.n_users, np.bincount(dataset.items, minlength=dataset.n_items), groups)

    @classmethod
    def in_groups(cls, n_users: int, counts: Integers, parts: Sequence[Part]) -> "Likes":
        """Divide parts into groups."""
        bounds = np.linspace(0, len(parts), min(MOST_GROUPS, len(parts)) + 1).astype(int)
        groups = tuple(tuple(parts[first:last]) for first, last in pairwise(bounds))
        return cls(n_users, counts, groups)

    def product(self, block: Floats, products: Products) -> Floats:
        """Return LᵀL times a block (n_items, width)."""
        block, total = np.ascontiguousarray(block), np.zeros_like(block)
        for result in products(self.groups, block):
            total += result
        return total


def product_of_group(group: Group, block: Floats) -> Floats:
    """Return LᵀL of some users times a block (n_items, width)."""
    total, row = np.zeros_like(block), np.empty(block.shape[1])
    for part in group:
        items, starts = part.read()
        _add_product(items, starts, block, total, row)
    return total


def in_threads(groups: Sequence[Group], block: Floats, n_threads: int | None = None) -> Iterable[Floats]:
    """Compute products in threads, by default one per core; as many results are held as there are threads."""
    number = min(n_threads or os.cpu_count() or 1, len(groups))
    if number == 1:
        yield from (product_of_group(group, block) for group in groups)
        return
    with ThreadPoolExecutor(number) as threads:
        for first in range(0, len(groups), number):
            some = groups[first : first + number]
            yield from threads.map(product_of_group, some, [block] * len(some))


def _part_of(dataset: "Dataset", first: int, last: int) -> ArrayPart:
    starts = dataset.user_starts[first : last + 1].astype(np.int64)
    return ArrayPart(dataset.items[starts[0] : starts[-1]], starts - starts[0])


@compiled
def _add_product(items: Integers, starts: Integers, block: Floats, total: Floats, row: Floats) -> None:
    """Add, for each user, the sum of the block's rows of their items to the total's rows of these items."""
    width = block.shape[1]
    for user in range(len(starts) - 1):
        for column in range(width):
            row[column] = 0.0
        for entry in range(starts[user], starts[user + 1]):
            item = items[entry]
            for column in range(width):
                row[column] += block[item, column]
        for entry in range(starts[user], starts[user + 1]):
            item = items[entry]
            for column in range(width):
                total[item, column] += row[column]
