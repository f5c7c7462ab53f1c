"""Ids and titles of a million items in little memory: packed text, searched by bisection."""

import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

Identifier = int | str | uuid.UUID

SMALLEST, LARGEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
KINDS: dict[str, type] = {"int": int, "str": str, "uuid": uuid.UUID}


@dataclass(frozen=True, eq=False)
class PackedText(Sequence[str]):
    """Immutable strings as one UTF-8 buffer and the offset where each string ends."""

    buffer: NDArray[np.uint8]
    ends: NDArray[np.int64]

    @classmethod
    def pack(cls, texts: Iterable[str]) -> Self:
        """Encode strings; refuses what UTF-8 cannot represent (lone surrogates)."""
        encoded = [text.encode() for text in texts]
        ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), ends)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], name: str) -> Self:
        """Read the two arrays that `to_arrays` named, and check them."""
        text = cls(arrays[f"{name}.utf8"], arrays[f"{name}.ends"])
        ends = text.ends
        if len(ends) and (ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != len(text.buffer)):
            raise IndexError(f"{name} does not fit its buffer")
        text.buffer.tobytes().decode()
        return text

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the two arrays under the names they have in a file."""
        return {f"{name}.utf8": self.buffer, f"{name}.ends": self.ends}

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        start = int(self.ends[position - 1]) if position else 0
        return self.buffer[start : int(self.ends[position])].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True, eq=False)
class Identifiers(Sequence[Identifier]):
    """The ids of a catalog in ascending order; each comes back as the type it had: int, str or UUID."""

    kind: str
    values: NDArray[np.int64] | PackedText

    @classmethod
    def of(cls, ids: Iterable[Any]) -> Self:
        """Take ids that are already sorted and distinct."""
        listed = list(ids)
        kind = _kind(listed)
        if kind == "int":
            return cls(kind, np.array(listed, dtype=np.int64))
        return cls(kind, PackedText.pack(map(str, listed)))

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Identifier: ...
    @overload
    def __getitem__(self, index: slice) -> list[Identifier]: ...
    def __getitem__(self, index: int | slice) -> Identifier | list[Identifier]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        value = self.values[index]
        if self.kind == "uuid":
            return uuid.UUID(str(value))
        return int(value) if self.kind == "int" else str(value)

    def __iter__(self) -> Iterator[Identifier]:
        return (self[index] for index in range(len(self)))

    def find(self, identifier: object) -> int | None:
        """Return the index of an id, or None if it is not among them (an id of another type never is)."""
        if isinstance(identifier, np.integer):
            identifier = int(identifier)
        if isinstance(identifier, bool) or not isinstance(identifier, KINDS[self.kind]):
            return None
        if isinstance(self.values, PackedText):
            index = bisect_left(self.values, str(identifier))
        else:
            number = int(str(identifier))
            if not SMALLEST <= number <= LARGEST:
                return None
            index = int(np.searchsorted(self.values, number))
        return index if index < len(self) and self[index] == identifier else None


def _kind(ids: list[Any]) -> str:
    """Return the name of the type that all ids have."""
    for kind, expected in KINDS.items():
        if all(isinstance(value, expected) and not isinstance(value, bool) for value in ids):
            return kind
    types = ", ".join(sorted({type(value).__name__ for value in ids}))
    raise TypeError(f"ids must all be integers, all text or all UUIDs, but these are {types}")
