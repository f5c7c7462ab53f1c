"""Ids and titles of a million items in little memory: packed text, searched by bisection."""

import re
import uuid
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog.versioned_arrays import with_rows

Identifier = int | str | uuid.UUID

SMALLEST, LARGEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
MANY = 1_000
"""From so many ids on, it pays to hash them all."""
KINDS: dict[str, type] = {"int": int, "str": str, "uuid": uuid.UUID}
ARTICLES = "The|A|An|Le|La|Les|L'|Il|Lo|Der|Die|Das|El|Los|Las"
FILED = re.compile(rf"^(?P<rest>.+?), (?P<article>{ARTICLES})(?P<more>(?: \([^()]*\))*) (?P<year>\(\d{{4}}\))$")


class Texts(Sequence[str]):
    """Strings that are kept in another form: what indexing and iterating have in common."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            return [*self.between(first, last)] if step == 1 else [self[at] for at in range(first, last, step)]
        return self.at(range(len(self))[index])

    def __iter__(self) -> Iterator[str]:
        return self.between(0, len(self))

    @abstractmethod
    def at(self, position: int) -> str:
        """Return the string at a position from 0 on."""

    @abstractmethod
    def between(self, first: int, last: int) -> Iterator[str]:
        """Yield the strings from one position to before another."""


@dataclass(frozen=True, eq=False)
class PackedText(Texts):
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

    def with_changes(self, changes: Mapping[int, str]) -> "PackedText":
        """Return the strings with some replaced by index, and with more at the end, by the indexes that follow."""
        encoded = {index: changes[index].encode() for index in sorted(changes)}
        lengths = np.zeros(max([len(self), *(index + 1 for index in encoded)]), dtype=np.int64)
        lengths[: len(self)] = np.diff(self.ends, prepend=0)
        content, parts, start = self.buffer.data, list[bytes | memoryview](), 0
        for index, text in encoded.items():
            end = int(self.ends[index]) if index < len(self) else len(content)
            parts += [content[start : end - int(lengths[index])], text]
            start, lengths[index] = end, len(text)
        return PackedText(np.frombuffer(b"".join([*parts, content[start:]]), dtype=np.uint8), np.cumsum(lengths))

    def joined(self, other: "PackedText") -> "PackedText":
        """Return these strings and then others."""
        ends = np.concatenate([self.ends, other.ends + len(self.buffer)])
        return PackedText(np.concatenate([self.buffer, other.buffer]), ends)

    def __len__(self) -> int:
        return len(self.ends)

    def at(self, position: int) -> str:
        """Decode one string."""
        start = int(self.ends[position - 1]) if position else 0
        return self.buffer[start : int(self.ends[position])].tobytes().decode()

    def between(self, first: int, last: int) -> Iterator[str]:
        """Decode the strings from one position to before another."""
        offset = int(self.ends[first - 1]) if first else 0
        ends = (self.ends[first:last] - offset).tolist()
        content, start = self.buffer[offset : offset + (ends[-1] if ends else 0)].tobytes(), 0
        for end in ends:
            yield content[start:end].decode()
            start = end


@dataclass(frozen=True, eq=False)
class Identifiers(Sequence[Identifier]):
    """The ids of a catalog in ascending order; each comes back as the type it had: int, str or UUID.

    Of ids that were added later, `n_added` at the end, the order is that of their addition.
    """

    kind: str
    values: NDArray[np.int64] | PackedText
    n_added: int = 0

    @classmethod
    def of(cls, ids: Iterable[Any]) -> Self:
        """Take ids that are already sorted and distinct."""
        listed = list(ids)
        kind = _kind(listed)
        if kind == "int":
            return cls(kind, np.array(listed, dtype=np.int64))
        return cls(kind, PackedText.pack(map(str, listed)))

    def joined(self, ids: Iterable[Any]) -> "Identifiers":
        """Return these ids and then others, of the same type and in any order."""
        more = Identifiers.of(ids)
        if more.kind != self.kind:
            raise TypeError(f"the ids of this catalog are {self.kind}, but the added ones are {more.kind}")
        if isinstance(self.values, PackedText) and isinstance(more.values, PackedText):
            return Identifiers(self.kind, self.values.joined(more.values), self.n_added + len(more))
        known, n_ids = np.asarray(self.values), len(self) + len(more)
        values = with_rows(known, n_ids, np.arange(len(known), n_ids), np.asarray(more.values))
        return Identifiers(self.kind, values, self.n_added + len(more))

    @property
    def n_sorted(self) -> int:
        """How many ids stand in ascending order; all others were added."""
        return len(self) - self.n_added

    @cached_property
    def added(self) -> Mapping[Identifier, int]:
        """The index of each id that was added."""
        return {self[index]: index for index in range(self.n_sorted, len(self))}

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Identifier: ...
    @overload
    def __getitem__(self, index: slice) -> list[Identifier]: ...
    def __getitem__(self, index: int | slice) -> Identifier | list[Identifier]:
        if isinstance(index, slice):
            some = self.values[index]
            listed = [*some] if isinstance(some, list) else some.tolist()
            return [*map(uuid.UUID, listed)] if self.kind == "uuid" else listed
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
            index = bisect_left(self.values, str(identifier), hi=self.n_sorted)
        else:
            number = int(str(identifier))
            if not SMALLEST <= number <= LARGEST:
                return None
            index = int(np.searchsorted(self.values[: self.n_sorted], number))
        if index < self.n_sorted and self[index] == identifier:
            return index
        return self.added.get(identifier) if self.n_added else None  # type: ignore[call-overload]

    def find_integers(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of many integers, −1 for those that are not among the ids, which are integers."""
        known = np.asarray(self.values)[: self.n_sorted]
        positions = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        indices = np.where(known[positions] == wanted, positions, -1)
        for missing in np.flatnonzero(indices < 0).tolist() if self.n_added else ():
            indices[missing] = self.added.get(int(wanted[missing]), -1)
        return indices

    def find_all(self, wanted: Sequence[Identifier]) -> NDArray[np.int64]:
        """Return the indices of many ids of the right type, −1 for those that are not among them."""
        if isinstance(self.values, np.ndarray):
            return self.find_integers(np.array(wanted, dtype=np.int64))
        indices = np.full(len(wanted), -1, dtype=np.int64)
        if len(wanted) >= MANY:
            hashes, order = self._by_hash
            sought = np.array([hash(str(identifier)) for identifier in wanted], dtype=np.int64)
            candidates = order[np.minimum(np.searchsorted(hashes, sought), len(hashes) - 1)].tolist()
            is_it = [self.values[at] == str(identifier) for at, identifier in zip(candidates, wanted, strict=True)]
            indices = np.where(is_it, candidates, -1)
        for missing in np.flatnonzero(indices < 0).tolist():
            index = self.find(wanted[missing])
            indices[missing] = -1 if index is None else index
        return indices

    @cached_property
    def _by_hash(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Hashes of all ids as text, ascending, and the index of each."""
        hashes = np.fromiter(map(hash, map(str, self.values)), dtype=np.int64, count=len(self))
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order


def _kind(ids: list[Any]) -> str:
    """Return the name of the type that all ids have."""
    for kind, expected in KINDS.items():
        if all(isinstance(value, expected) and not isinstance(value, bool) for value in ids):
            return kind
    types = ", ".join(sorted({type(value).__name__ for value in ids}))
    raise TypeError(f"ids must all be integers, all text or all UUIDs, but these are {types}")


def people_title(title: str) -> str:
    """Put an article in front that was filed behind a title with its year, as MovieLens does; others stay.

    >>> people_title("Godfather, The (1972)")
    'The Godfather (1972)'
    >>> people_title("Avventura, L' (1960)"), people_title("Tea, The")
    ("L'Avventura (1960)", 'Tea, The')
    """
    match = FILED.match(title) if ", " in title else None
    if match is None:
        return title
    article = match["article"] if match["article"].endswith("'") else match["article"] + " "
    return f"{article}{match['rest']}{match['more']} {match['year']}"
