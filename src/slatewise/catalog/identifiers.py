"""Ids and titles of a million items in little memory: packed text, found by binary search."""

import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

Identifier = int | str | uuid.UUID


@dataclass(frozen=True, eq=False)
class PackedText(Sequence[str]):
    """Immutable strings as one UTF-8 buffer and the place where each string ends."""

    buffer: NDArray[np.uint8]
    ends: NDArray[np.int64]

    @classmethod
    def pack(cls, texts: Iterable[str]) -> Self:
        """Encode strings; refuses what UTF-8 cannot hold (lone surrogates)."""
        encoded = [text.encode() for text in texts]
        ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), ends)

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        at = range(len(self))[place]
        start = int(self.ends[at - 1]) if at else 0
        return self.buffer[start : int(self.ends[at])].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        return (self[at] for at in range(len(self)))


@dataclass(frozen=True, eq=False)
class Identifiers(Sequence[Identifier]):
    """The ids of a catalogue in ascending order; each comes back as the type it had: int, str or UUID."""

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
    def __getitem__(self, place: int) -> Identifier: ...
    @overload
    def __getitem__(self, place: slice) -> list[Identifier]: ...
    def __getitem__(self, place: int | slice) -> Identifier | list[Identifier]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        value = self.values[place]
        if self.kind == "uuid":
            return uuid.UUID(str(value))
        return int(value) if self.kind == "int" else str(value)

    def __iter__(self) -> Iterator[Identifier]:
        return (self[at] for at in range(len(self)))

    def find(self, identifier: object) -> int | None:
        """Return the place of an id, or None when it is not there (an id of another type never is)."""
        if isinstance(identifier, np.integer):
            identifier = int(identifier)
        if isinstance(identifier, bool) or not isinstance(identifier, KINDS[self.kind]):
            return None
        if isinstance(self.values, PackedText):
            at = bisect_left(self.values, str(identifier))
        else:
            number = int(str(identifier))
            if not LEAST <= number <= GREATEST:
                return None
            at = int(np.searchsorted(self.values, number))
        return at if at < len(self) and self[at] == identifier else None


LEAST, GREATEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
KINDS: dict[str, type] = {"int": int, "str": str, "uuid": uuid.UUID}


def _kind(ids: list[Any]) -> str:
    """Name the common type of all ids."""
    for kind, expected in KINDS.items():
        if all(isinstance(one, expected) and not isinstance(one, bool) for one in ids):
            return kind
    found = ", ".join(sorted({type(one).__name__ for one in ids}))
    raise TypeError(f"ids must all be integers, all text or all UUIDs; found {found}")
