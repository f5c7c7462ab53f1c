"""Text of a million items of which a few change at a time: packed in blocks, so that a change copies one of them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from slatewise.catalog.identifiers import PackedText

PER_BLOCK = 4_096
EMPTY = PackedText(np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class BlockedText(Sequence[str]):
    """Immutable strings in blocks of PER_BLOCK; the last block may have fewer. Versions share blocks that are equal.

    >>> texts = BlockedText.of_nothing(2).with_changes({1: "tea", 2: "cocoa"})
    >>> len(texts), texts[1:]
    (3, ['tea', 'cocoa'])
    """

    blocks: tuple[PackedText, ...]

    @classmethod
    def of_nothing(cls, n_texts: int) -> "BlockedText":
        """Return so many empty strings."""
        whole, others = divmod(n_texts, PER_BLOCK)
        return cls((*[_nothing(PER_BLOCK)] * whole, *([_nothing(others)] if others else [])))

    def with_changes(self, changes: Mapping[int, str]) -> "BlockedText":
        """Return the strings with some replaced by index, and with more at the end, by the indexes that follow."""
        by_block = defaultdict[int, dict[int, str]](dict)
        for index in sorted(changes):
            by_block[index // PER_BLOCK][index % PER_BLOCK] = changes[index]
        blocks = dict(enumerate(self.blocks))
        for place, changed in by_block.items():
            blocks[place] = blocks.get(place, EMPTY).with_changes(changed)
        return BlockedText(tuple(blocks.values()))

    def __len__(self) -> int:
        return (len(self.blocks) - 1) * PER_BLOCK + len(self.blocks[-1]) if self.blocks else 0

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            return [*self.between(first, last)] if step == 1 else [self[place] for place in range(first, last, step)]
        block, place = divmod(range(len(self))[index], PER_BLOCK)
        return self.blocks[block][place]

    def __iter__(self) -> Iterator[str]:
        return self.between(0, len(self))

    def between(self, first: int, last: int) -> Iterator[str]:
        """Yield the strings from one index to before another."""
        for block in range(first // PER_BLOCK, -(-last // PER_BLOCK)):
            start = block * PER_BLOCK
            yield from self.blocks[block].between(max(first - start, 0), min(last - start, PER_BLOCK))


def _nothing(n_texts: int) -> PackedText:
    return PackedText(EMPTY.buffer, np.zeros(n_texts, dtype=np.int64))
