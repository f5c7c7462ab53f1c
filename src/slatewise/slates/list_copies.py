"""int8 copies of lists of items, such as those that meet a condition: choosing then costs what a small catalog does.

Items of a list lie all over the copy of the catalog, and most of what is read there is of other items. So a list that
is asked for often gets a copy of its own, taken from that of the catalog and in its order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

import numpy as np

from slatewise.slates.available import Available
from slatewise.slates.kernels import BLOCK, Integers, read_only
from slatewise.slates.quantized import NOT_QUANTIZED, Quantized, is_worthwhile

ENOUGH = 16
"""A list gets its copy when it is asked for this often; making one costs what 5 to 40 slates from it save."""
MOST_ITEMS = 2
"""The lists that are kept have at most so many times as many items as the catalog, all together."""
MOST_COUNTED = 64
"""Of so many lists without a copy it is counted how often they were asked for."""

Listed = tuple[Integers, Quantized]
"""The items of a list, ascending and distinct, and their copy."""


class ListCopies:
    """The copies of lists of one catalog that were asked for last, by the keys of the lists; threads may share them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.kept = OrderedDict[bytes, Listed]()
        self.counted = OrderedDict[bytes, int]()

    def get(self, available: Available, whole: Quantized) -> Listed | None:
        """Return the items that somebody may see, excluded ones included, and their copy from that of the catalog.

        None if they have been asked for too seldom to have one, are too few, or the catalog has no copy.
        """
        with self._lock:
            if available.key in self.kept:
                self.kept.move_to_end(available.key)
                return self.kept[available.key]
            if whole is NOT_QUANTIZED or not self._is_due(available.key):
                return None
        numbers = available.listed()
        if not len(numbers) or not is_worthwhile(len(numbers)):
            return None
        listed = numbers, copy_of_list(whole, numbers)
        with self._lock:
            self.kept[available.key] = listed
            while sum(len(items) for items, _ in self.kept.values()) > MOST_ITEMS * len(whole.items):
                self.kept.popitem(last=False)
        return listed

    def _is_due(self, key: bytes) -> bool:
        """Count that a list was asked for; return whether that is often enough, and begin again then."""
        count = self.counted.pop(key, 0) + 1
        if count < ENOUGH:
            self.counted[key] = count
        if len(self.counted) > MOST_COUNTED:
            self.counted.popitem(last=False)
        return count >= ENOUGH

    def changed(self, change: Callable[[Quantized], Quantized]) -> ListCopies:
        """Return the copies of the same lists after a change of some items."""
        other = ListCopies()
        with self._lock:
            other.kept.update(self.kept)
            other.counted.update(self.counted)
        for key, (numbers, copy) in other.kept.items():
            other.kept[key] = numbers, change(copy)
        return other


def copy_of_list(whole: Quantized, numbers: Integers) -> Quantized:
    """Return the part of a copy that is about some items, distinct and at least one, in blocks of their own.

    A block's limits are those of the blocks that its items come from, but for the largest offset, which is theirs.
    """
    is_listed = np.zeros(len(whole.items), dtype=np.bool_)
    is_listed[numbers] = True
    listed = np.flatnonzero(is_listed[whole.items])
    n_blocks = -(-len(listed) // BLOCK)
    positions = np.pad(listed, (0, n_blocks * BLOCK - len(listed)), mode="edge")
    codes = whole.codes[positions // BLOCK, :, positions % BLOCK].reshape(n_blocks, BLOCK, -1).transpose(0, 2, 1)
    offsets = whole.offsets[positions]
    offsets[len(listed) :] = -np.inf
    _, across, least, most = whole.limits[:, positions // BLOCK].reshape(4, n_blocks, BLOCK)
    limits = [offsets.reshape(n_blocks, BLOCK).max(axis=1), across.max(axis=1), least.min(axis=1), most.max(axis=1)]
    return whole._replace(
        codes=read_only(codes, np.int8),
        scales=read_only(whole.scales[positions], np.float32),
        offsets=read_only(offsets, np.float32),
        items=read_only(whole.items[listed], np.int64),
        limits=read_only(np.array(limits), np.float64),
    )
