import hashlib
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slatewise.data.dataset import DataError
from slatewise.data.formats import LAYOUTS, Content, Tables, measure, read_layout

GENRES = b"unknown|0\nAction|1\nChildren's|2\n\n"
ITEMS = {
    "ml-100k": "1|Amélie (2001) |01-Jan|||0|1|1\n2|unknown||||1|0|0\n".encode("latin-1"),
    "ml-1m": "1::Amélie (2001)::Action|Children's\n2::Plain (1999)::Drama\n".encode(),
    "anime": b'anime_id,name,genre,type\r\n1,Gintama&#039;,"Action, Slice of Life",TV\r\n2,"A, B",,TV\r\n',
    "recbole": (
        b"item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
        b"1\tHeat\t1995\tAction Children's\n2\tunkonwn\tunkonwn\tunknown\n"
    ),
}
EXPECTED_ITEMS = {
    "ml-100k": [(1, "Amélie (2001)", "Action|Children's"), (2, "unknown", None)],
    "ml-1m": [(1, "Amélie (2001)", "Action|Children's"), (2, "Plain (1999)", "Drama")],
    "anime": [(1, "Gintama'", "Action|Slice of Life"), (2, "A, B", None)],
    "recbole": [(1, "Heat (1995)", "Action|Children's"), (2, "unknown", None)],
}
RATINGS = {
    "ml-100k": b"2\t1\t3\t70\n1\t2\t5\t80\n1\t1\t4\t90\n",
    "ml-1m": b"2::1::3::70\n1::2::5::80\n1::1::4::90\n",
    "anime": b"user_id,anime_id,rating\n2,1,-1\n1,2,10\n1,1,4\n",
    "recbole": b"user_id:token\titem_id:token\trating:float\ttimestamp:float\n2\t1\t3\t70\n1\t2\t5\t80\n1\t1\t4\t90\n",
}
SEPARATORS = {"ml-100k": b"\t", "ml-1m": b"::", "anime": b",", "recbole": b"\t"}
EXPECTED_RATINGS = [(1, 1, 4, 90), (1, 2, 5, 80), (2, 1, 3, 70)]
TYPES = {"user_id": pl.Int32(), "item_id": pl.Int32(), "rating": pl.Int8(), "timestamp": pl.Int64()}
names = pytest.mark.parametrize("name", list(LAYOUTS))


def parse(name: str, ratings: bytes | None = None, items: bytes | None = None) -> Tables:
    more = (GENRES,) if name == "ml-100k" else ()
    ratings = RATINGS[name] if ratings is None else ratings
    return LAYOUTS[name].parse(ratings, ITEMS[name] if items is None else items, *more)


def naive_digest(triples: Iterable[tuple[int, int, int]]) -> str:
    users, items, ratings = zip(*sorted(triples), strict=True)
    count = len(users)
    packed = struct.pack(f"<{count}i", *users) + struct.pack(f"<{count}i", *items)
    return hashlib.sha256(packed + struct.pack(f"{count}b", *ratings)).hexdigest()


@names
def test_items_of_every_layout(name: str) -> None:
    assert parse(name).items.rows() == EXPECTED_ITEMS[name]
    assert parse(name).items.schema == {
        "item_id": pl.Int32(),
        "title": pl.String(),
        "categories": pl.String(),
    }


@names
def test_ratings_of_every_layout_are_sorted_and_small(name: str) -> None:
    ratings = parse(name).ratings
    expected = [(1, 1, 4, 0), (1, 2, 10, 0), (2, 1, -1, 0)] if name == "anime" else EXPECTED_RATINGS
    assert ratings.rows() == expected
    assert ratings.schema == TYPES


@names
def test_windows_line_ends_change_nothing(name: str) -> None:
    ratings, items = (
        content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for content in (RATINGS[name], ITEMS[name])
    )
    changed = parse(name, ratings, items)
    assert changed.ratings.equals(parse(name).ratings)
    assert changed.items.equals(parse(name).items)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-8-sig"])
def test_titles_may_be_utf_8_or_latin_1(encoding: str) -> None:
    items = "1::Misérables, Les (1995)::Drama\n".encode(encoding)
    assert parse("ml-1m", items=items).items["title"].to_list() == ["Misérables, Les (1995)"]


@names
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"x", ", line {}: "),
        (b"", ", line {}: "),
        (b"1.5", ", line {}: "),
        (b"300", " is empty or contains numbers out of range"),
        (b"127", " is empty or contains numbers out of range"),
    ],
)
def test_a_malformed_rating_is_named_with_file_and_line(name: str, damage: bytes, message: str) -> None:
    lines = RATINGS[name].splitlines()
    fields = lines[-1].split(SEPARATORS[name])
    lines[-1] = SEPARATORS[name].join([*fields[:2], damage, *fields[3:]])
    with pytest.raises(DataError, match=LAYOUTS[name].members[0] + message.format(len(lines))):
        parse(name, b"\n".join(lines))


@names
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x00\xff\xfe", b"1\n", b"PK\x03\x04" * 99])
def test_garbage_is_refused(name: str, content: bytes) -> None:
    with pytest.raises(DataError, match=LAYOUTS[name].members[0]):
        parse(name, content)


@names
def test_a_truncated_line_is_found(name: str) -> None:
    shorter = RATINGS[name].rstrip().rpartition(SEPARATORS[name])[0]
    line = shorter.count(b"\n") + 1
    with pytest.raises(DataError, match=f"{LAYOUTS[name].members[0]}, line {line}: "):
        parse(name, shorter)


def test_ids_below_zero_are_refused() -> None:
    with pytest.raises(DataError, match=r"u\.data, line 2: .* is not a rating"):
        parse("ml-100k", b"1\t1\t3\t7\n-1\t1\t3\t7\n")


@pytest.mark.parametrize(
    ("name", "items", "message"),
    [
        ("ml-100k", b"1|A||||0|1|1\n2|B||||0|1\n", r"u\.item, line 2: '2\|B"),
        ("ml-1m", b"1::A::Drama\n\nx::B::Drama\n", r"movies\.dat, line 3: 'x::B"),
        ("ml-1m", b"99999999999::A::Drama\n", r"movies\.dat, line 1: "),
        ("recbole", b"head\n1\tA\t1995\n", r"ml-100k\.item, line 2: '1\\tA"),
        ("anime", b"anime_id,name,genre\n1,A,\n\nx,B,\n", r"anime\.csv, line 4: .*'x'"),
        ("anime", b"anime_id,title\n1,A\n", r"anime\.csv has no column name, genre"),
        ("anime", b"", r"anime\.csv has no column anime_id, name, genre"),
        ("anime", b'anime_id,name,genre\n1,"' + b"x" * 200_000 + b'",\n', r"anime\.csv, line \d: field larger"),
    ],
)
def test_a_malformed_item_is_named_with_file_and_line(name: str, items: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(name, items=items)


@given(
    st.sets(st.tuples(st.integers(0, 70_000), st.integers(0, 9_000), st.integers(-1, 10)), min_size=1),
    st.randoms(use_true_random=False),
)
def test_content_does_not_depend_on_the_order_of_rows(triples: set[tuple[int, int, int]], random: Random) -> None:
    rows = list(triples)
    random.shuffle(rows)
    content = "user_id,anime_id,rating\n" + "\n".join(f"{user},{item},{rating}" for user, item, rating in rows)
    found = measure(parse("anime", content.encode()))
    users, items = {user for user, _, _ in rows}, {item for _, item, _ in rows}
    undescribed = len(items - {1, 2})
    assert found == Content(len(rows), len(users), len(items), naive_digest(rows), undescribed)


def test_content_differs_in_words() -> None:
    expected = Content(1_000, 20, 300, "a" * 64)
    assert expected.difference(Content(1_000, 20, 300, "a" * 64, undescribed=3)) is None
    assert expected.difference(Content(999, 20, 300, "b" * 64)) == "expected 1,000 ratings, found 999"
    assert expected.difference(Content(1_000, 19, 300, "b" * 64)) == "expected 20 users, found 19"
    assert expected.difference(Content(1_000, 20, 301, "b" * 64)) == "expected 300 items, found 301"
    assert "digest aaaaaaaaaaaa, found bbb" in str(expected.difference(Content(1_000, 20, 300, "b" * 64)))
    assert "4 of 300 rated items" in str(expected.difference(Content(1_000, 20, 300, "a" * 64, undescribed=4)))
    assert Content(1_000, 20, 300, None).difference(Content(1_000, 20, 300, "b" * 64)) is None


def test_a_layout_is_read_from_an_archive_and_a_malformed_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ml-1m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/ratings.dat", RATINGS["ml-1m"])
        archive.writestr("x/movies.dat", ITEMS["ml-1m"])
    assert read_layout(path, LAYOUTS["ml-1m"]).ratings.rows() == EXPECTED_RATINGS
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/ratings.dat", b"1::2::three::4\n")
        archive.writestr("x/movies.dat", ITEMS["ml-1m"])
    with pytest.raises(DataError, match=r"ml-1m\.zip is damaged: ratings\.dat, line 1: b'1::2::three"):
        read_layout(path, LAYOUTS["ml-1m"])
