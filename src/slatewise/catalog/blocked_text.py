"""Text of a million items of which a few change at a time: packed in blocks, so that a change copies one of them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from slatewise.catalog.identifiers import PackedText, Texts

PER_BLOCK = 4_096
EMPTY = PackedText(np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class BlockedText(Texts):
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
        for block, changed in by_block.items():
            blocks[block] = blocks.get(block, EMPTY).with_changes(changed)
        return BlockedText(tuple(blocks.values()))

    def __len__(self) -> int:
        return (len(self.blocks) - 1) * PER_BLOCK + len(self.blocks[-1]) if self.blocks else 0

    def at(self, position: int) -> str:
        """Look into the block of a position."""
        block, rest = divmod(position, PER_BLOCK)
        return self.blocks[block].at(rest)

    def between(self, first: int, last: int) -> Iterator[str]:
        """Go through the blocks from one position to before another."""
        for block in range(first // PER_BLOCK, -(-last // PER_BLOCK)):
            start = block * PER_BLOCK
            yield from self.blocks[block].between(max(first - start, 0), min(last - start, PER_BLOCK))


def _nothing(n_texts: int) -> PackedText:
    return PackedText(EMPTY.buffer, np.zeros(n_texts, dtype=np.int64))
