"""The file formats of the published data sets: raw files in, two tables out.

Every format yields the same two tables, whatever the files look like:
ratings (user_id Int32, item_id Int32, rating Int8, timestamp Int64), sorted by user, item and rating, and
items (item_id Int32, title, categories), the categories joined by `|` and null where there are none.
"""

import csv
import hashlib
import html
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.data.archives import read_member
from slatewise.data.dataset import DataError

MEGABYTE = 1 << 20
RATING_TYPES = {"user_id": pl.Int32, "item_id": pl.Int32, "rating": pl.Int8, "timestamp": pl.Int64}
ITEM_TYPES = {"item_id": pl.Int32, "title": pl.String, "categories": pl.String}
ANIME_FIELDS = ("anime_id", "name", "genre")
ItemRow = tuple[int, str, str | None]


@dataclass(frozen=True)
class Tables:
    """The parsed tables of one data set."""

    ratings: pl.DataFrame
    items: pl.DataFrame


@dataclass(frozen=True)
class Content:
    """What a data set contains: the numbers of ratings, users and rated items, and a digest of the ratings.

    The digest is the sha256 of the ratings sorted by user, item and rating: all user ids as little-endian int32,
    then all item ids as little-endian int32, then all ratings as int8. It is None if unknown.
    `undescribed` counts the rated items that are not in the item table; more than 1 % means a damaged copy.
    """

    ratings: int
    users: int
    items: int
    digest: str | None
    undescribed: int = 0

    def difference(self, actual: "Content") -> str | None:
        """Describe how the actual content differs from this, the expected one; None if it does not."""
        for what in ("ratings", "users", "items"):
            expected, got = getattr(self, what), getattr(actual, what)
            if expected != got:
                return f"expected {expected:,} {what}, found {got:,}"
        if self.digest not in (None, actual.digest):
            return f"expected ratings with the digest {str(self.digest)[:12]}, found {str(actual.digest)[:12]}"
        if actual.undescribed > self.items / 100:
            return f"{actual.undescribed:,} of {self.items:,} rated items are not in its item table"
        return None


@dataclass(frozen=True)
class Layout:
    """The files of a published data set, the largest plausible size of one, and how to parse them, in that order."""

    members: tuple[str, ...]
    cap: int
    parse: Callable[..., Tables]


@dataclass(frozen=True)
class Lines:
    """The format of a ratings file: what a line looks like and which columns contain what."""

    separator: str
    pattern: bytes
    columns: dict[int, str]
    has_header: bool = False


def read_layout(path: Path, layout: Layout) -> Tables:
    """Parse the data set in an archive or folder."""
    contents = [read_member(path, name, layout.cap) for name in layout.members]
    try:
        return layout.parse(*contents)
    except DataError as error:
        raise DataError(f"{path} is damaged: {error}") from error


def measure(tables: Tables) -> Content:
    """Count and digest the ratings, and count the rated items that the item table lacks."""
    users, items, values = (tables.ratings[name].to_numpy() for name in ("user_id", "item_id", "rating"))
    digest = hashlib.sha256()
    for column in (users.astype("<i4", copy=False), items.astype("<i4", copy=False), values):
        digest.update(np.ascontiguousarray(column).data)
    rated = tables.ratings["item_id"].unique()
    undescribed = len(rated) - int(rated.is_in(tables.items["item_id"].implode()).sum())
    n_users = 1 + int(np.count_nonzero(np.diff(users)))
    return Content(len(users), n_users, len(rated), digest.hexdigest(), undescribed)


def _read_ratings(content: bytes, name: str, lines: Lines) -> pl.DataFrame:
    width = max(lines.columns) + 1
    schema = {
        f"column_{column + 1}": RATING_TYPES.get(lines.columns.get(column, ""), pl.String) for column in range(width)
    }
    try:
        frame = pl.read_csv(
            content,
            has_header=False,
            skip_rows=int(lines.has_header),
            separator=lines.separator,
            schema=schema,
            columns=list(lines.columns),
            quote_char=None,
        )
    except pl.exceptions.PolarsError as error:
        raise _malformed(content, name, lines) from error
    frame.columns = list(lines.columns.values())
    if any(frame.null_count().row(0)):
        raise _malformed(content, name, lines)
    if "timestamp" not in frame.columns:
        frame = frame.with_columns(timestamp=pl.lit(0, pl.Int64))
    order = _order(frame)
    if order is None:
        raise _malformed(content, name, lines)
    return pl.DataFrame({column: frame[column].to_numpy()[order] for column in RATING_TYPES})


def _order(frame: pl.DataFrame) -> NDArray[np.int64] | None:
    """Return the order of rows by user, item and rating; None if there are no rows or numbers are out of range.

    All three are packed with the row number into one integer per row, which is the fastest way to sort.
    """
    packed, width = np.zeros(len(frame), np.int64), 0
    rows = np.arange(len(frame))
    parts = (frame["user_id"].to_numpy(), frame["item_id"].to_numpy(), frame["rating"].to_numpy() + 1, rows)
    for part in parts:
        if not len(part) or part.min() < 0:
            return None
        bits = int(part.max()).bit_length()
        packed, width = (packed << bits) | part, width + bits
    packed.sort()
    return packed & ((1 << bits) - 1) if width < 64 else None


def _malformed(content: bytes, name: str, lines: Lines) -> DataError:
    """Find the first line that is not a rating; slow, but only used for damaged files."""
    rating = re.compile(lines.pattern)
    for number, line in enumerate(content.splitlines(), start=1):
        if not rating.fullmatch(line) and not (lines.has_header and number == 1):
            return DataError(f"{name}, line {number}: {line[:60]!r} is not a rating; get a fresh copy")
    return DataError(f"{name} is empty or contains numbers out of range; get a fresh copy")


def _decoded(content: bytes) -> str:
    """Decode UTF-8 or, in GroupLens's own files, Latin-1."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _text_lines(content: bytes) -> Iterator[tuple[int, str]]:
    lines = enumerate(_decoded(content).split("\n"), start=1)
    return ((number, line.rstrip("\r")) for number, line in lines if line.strip())


def _items(rows: Iterable[ItemRow]) -> pl.DataFrame:
    columns = zip(ITEM_TYPES, zip(*rows, strict=True), strict=False)
    return pl.DataFrame(dict(columns), schema=ITEM_TYPES)


def _item_rows(content: bytes, name: str, parse_line: Callable[[str], ItemRow]) -> Iterator[ItemRow]:
    for number, line in _text_lines(content):
        try:
            yield parse_line(line)
        except ValueError as error:
            raise DataError(f"{name}, line {number}: {line[:60]!r} is not an item; get a fresh copy") from error


def _identifier(text: str) -> int:
    if not 0 < (identifier := int(text)) < 2**31:
        raise ValueError(f"{identifier} is not an id")
    return identifier


def _joined(categories: Iterable[str]) -> str | None:
    return "|".join(category for category in categories if category not in ("", "unknown")) or None


def _parse_ml_100k(ratings: bytes, items: bytes, genres: bytes) -> Tables:
    names = [line.partition("|")[0] for _, line in _text_lines(genres)]

    def parse_line(line: str) -> ItemRow:
        identifier, title, _, _, _, *flags = line.split("|")
        pairs = zip(names, flags, strict=True)
        return _identifier(identifier), title.strip(), _joined(name for name, flag in pairs if flag == "1")

    return Tables(_read_ratings(ratings, "u.data", TABBED), _items(_item_rows(items, "u.item", parse_line)))


def _parse_ml_1m(ratings: bytes, items: bytes) -> Tables:
    def parse_line(line: str) -> ItemRow:
        identifier, title, genres = line.split("::")
        return _identifier(identifier), title.strip(), _joined(genres.split("|"))

    frame = _read_ratings(ratings, "ratings.dat", DOUBLE_COLONS)
    return Tables(frame, _items(_item_rows(items, "movies.dat", parse_line)))


def _parse_recbole(ratings: bytes, items: bytes) -> Tables:
    def parse_line(line: str) -> ItemRow:
        identifier, title, year, genres = line.split("\t")
        known = year != "unkonwn"  # spelled like this in the file, for the title and year of the one unknown movie
        return _identifier(identifier), f"{title} ({year})" if known else "unknown", _joined(genres.split(" "))

    frame = _read_ratings(ratings, "ml-100k.inter", TABBED_WITH_HEADER)
    without_header = b"\n" + items.partition(b"\n")[2]
    return Tables(frame, _items(_item_rows(without_header, "ml-100k.item", parse_line)))


def _parse_anime(ratings: bytes, items: bytes) -> Tables:
    return Tables(_read_ratings(ratings, "rating.csv", COMMA_SEPARATED), _items(_anime_rows(items)))


def _anime_rows(content: bytes) -> Iterator[ItemRow]:
    lines = csv.DictReader(io.StringIO(_decoded(content), newline=""))
    absent = [name for name in ANIME_FIELDS if name not in (lines.fieldnames or ())]
    if absent:
        raise DataError(f"anime.csv has no column {', '.join(absent)}; get a fresh copy")
    try:
        for line in lines:
            identifier, title, genres = (line[name] or "" for name in ANIME_FIELDS)
            yield _identifier(identifier), html.unescape(title).strip(), _joined(genres.split(", "))
    except (csv.Error, ValueError) as error:
        raise DataError(f"anime.csv, line {lines.line_num}: {error}; get a fresh copy") from error


COLUMNS = dict(enumerate(RATING_TYPES))
TABBED = Lines("\t", rb"\d+\t\d+\t\d+\t\d+", COLUMNS)
TABBED_WITH_HEADER = Lines("\t", TABBED.pattern, COLUMNS, has_header=True)
DOUBLE_COLONS = Lines(":", rb"\d+::\d+::\d+::\d+", {2 * column: name for column, name in COLUMNS.items()})
COMMA_SEPARATED = Lines(
    ",", rb"\d+,\d+,-?\d+", {column: name for column, name in COLUMNS.items() if column < 3}, has_header=True
)

LAYOUTS = {
    "ml-100k": Layout(("u.data", "u.item", "u.genre"), 32 * MEGABYTE, _parse_ml_100k),
    "ml-1m": Layout(("ratings.dat", "movies.dat"), 64 * MEGABYTE, _parse_ml_1m),
    "anime": Layout(("rating.csv", "anime.csv"), 256 * MEGABYTE, _parse_anime),
    "recbole": Layout(("ml-100k.inter", "ml-100k.item"), 32 * MEGABYTE, _parse_recbole),
}
