import gzip
import re
import uuid
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slatewise.data.csv_files import plain_integers
from slatewise.data.dataset import DataError, Dataset
from slatewise.data.interactions import compress, last_of_each_pair, numbered, parse_rule

INTERACTIONS = "user_id,item_id,rating\nanna,x,5\nanna,y,2\nbörje,x,4\nbörje,z,5\n"
ITEMS = "item_id,title,categories\nx,Ärger im Büro,Comedy|Drama\ny,,\nw,Nobody's,Drama\n"


def write(directory: Path, name: str, text: str | bytes) -> Path:
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def load(
    directory: Path, interactions: str | bytes = INTERACTIONS, items: str | bytes = ITEMS, **options: str
) -> Dataset:
    return Dataset.from_files(
        write(directory, "likes.csv", interactions),
        write(directory, "items.csv", items),
        positive=options.get("positive"),
    )


def pairs(dataset: Dataset) -> set[tuple[object, object]]:
    users, items = dataset.user_ids[dataset.users], dataset.item_ids[dataset.items]
    return set(zip(users.tolist(), items.tolist(), strict=True))


def test_files_become_a_dataset(tmp_path: Path) -> None:
    dataset = load(tmp_path, positive="> 3")
    assert pairs(dataset) == {("anna", "x"), ("börje", "x"), ("börje", "z")}
    assert dataset.item_ids.tolist() == ["w", "x", "y", "z"]
    assert dataset.titles == ("Nobody's", "Ärger im Büro", "y", "z")
    assert dataset.category_names == ("Comedy", "Drama")
    assert dataset.categories.tolist() == [[False, True], [True, True], [False, False], [False, False]]
    assert dataset.notes == (
        f"1 item without a row in {tmp_path / 'items.csv'} (the id serves as the title)",
        "2 items that nobody liked kept",
    )
    assert "2 users, 4 items, 3 interactions" in repr(dataset)


def test_parquet_and_semicolons_and_byte_order_mark_give_the_same(tmp_path: Path) -> None:
    plain = load(tmp_path, positive="> 3")
    semicolons = load(tmp_path, b"\xef\xbb\xbf" + INTERACTIONS.replace(",", ";").encode(), positive="> 3")
    pl.read_csv(INTERACTIONS.encode()).write_parquet(tmp_path / "likes.parquet")
    parquet = Dataset.from_files(tmp_path / "likes.parquet", tmp_path / "items.csv", positive="> 3")
    assert plain.digest == semicolons.digest == parquet.digest


def test_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    header, *lines = INTERACTIONS.splitlines()
    shuffled = "\n".join([header, *reversed(lines)])
    assert load(tmp_path, positive="> 3").digest == load(tmp_path, shuffled, positive="> 3").digest


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["10", "9", "-3"], [-3, 9, 10]),
        (["10", "009"], ["009", "10"]),
        (["1", "two"], ["1", "two"]),
        (["99999999999999999999", "1"], ["1", "99999999999999999999"]),
    ],
)
def test_ids_in_files_stay_what_they_were(tmp_path: Path, ids: list[str], expected: list[object]) -> None:
    dataset = Dataset.from_files(write(tmp_path, "a.csv", "user_id,item_id\n" + "".join(f"{i},1\n" for i in ids)))
    assert dataset.user_ids.tolist() == expected


def test_item_ids_agree_between_files_when_only_one_looks_like_integers(tmp_path: Path) -> None:
    dataset = load(tmp_path, "user_id,item_id\na,1\n", "item_id,title\n1,One\n007,Bond\n")
    assert dataset.item_ids.tolist() == ["007", "1"]
    assert dataset.titles == ("Bond", "One")


@pytest.mark.parametrize("library", [pl.DataFrame, pd.DataFrame])
@pytest.mark.parametrize(
    "ids", [[uuid.UUID(int=7), uuid.UUID(int=3)], ["b", "a"], [2**40, -5]], ids=["uuid", "text", "integer"]
)
def test_ids_in_frames_stay_what_they_were(library: type, ids: list[object]) -> None:
    dataset = Dataset.from_frames(
        library({"user_id": ids, "item_id": ids}), library({"item_id": ids, "title": ["p", "q"]})
    )
    assert dataset.user_ids.tolist() == sorted(ids, key=str if isinstance(ids[0], uuid.UUID) else None)  # type: ignore[type-var, arg-type]
    assert dataset.item_ids.tolist() == dataset.user_ids.tolist()
    assert dataset.titles == ("q", "p")


def test_pandas_with_missing_values() -> None:
    frame = pd.DataFrame({"user_id": ["a", "b", "c"], "item_id": pd.array([1, 2, 3], "Int64"), "rating": [5, None, 4]})
    dataset = Dataset.from_frames(frame, positive=">= 4.5")
    assert pairs(dataset) == {("a", 1)}
    assert dataset.notes == ("1 row without a rating dropped",)


def test_latest_of_duplicate_pairs_counts() -> None:
    frame = pl.DataFrame(
        {"user_id": ["a", "a", "b"], "item_id": [1, 1, 1], "rating": [5, 1, 5], "timestamp": [20, 10, 1]}
    )
    assert pairs(Dataset.from_frames(frame, positive="> 3")) == {("a", 1), ("b", 1)}
    without_times = Dataset.from_frames(frame.drop("timestamp"), positive="> 3")
    assert pairs(without_times) == {("b", 1)}
    assert without_times.notes == ("1 duplicate row dropped (the latest for each user and item counts)",)


@pytest.mark.parametrize(
    "moments", [("2020-01-31", "2019-01-31"), ("2020-01-31T10:00:00", "2020-01-30T11:00:00"), ("9", "8")]
)
def test_timestamps_may_be_dates(tmp_path: Path, moments: tuple[str, str]) -> None:
    rows = f"user_id,item_id,rating,timestamp\na,x,5,{moments[0]}\na,x,1,{moments[1]}\n"
    assert pairs(Dataset.from_files(write(tmp_path, "a.csv", rows), positive="> 3")) == {("a", "x")}


def test_gzip_and_spaces_in_the_header(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv.gz", gzip.compress(b"user_id, item_id\na,x\n"))
    assert pairs(Dataset.from_files(path)) == {("a", "x")}


def test_ratings_without_a_rule_are_all_positive_and_it_says_so() -> None:
    dataset = Dataset.from_frames(pl.DataFrame({"user_id": [1, 2], "item_id": [1, 2], "rating": [1, 5]}))
    assert dataset.n_interactions == 2
    assert dataset.notes == ("all rows count as positive, with ratings from 1 to 5; a rule such as '> 3' selects some",)


HOSTILE_FILES = {
    "no item column": ("user_id,film\n1,2\n", "has no column 'item_id' (its columns: user_id, film)"),
    "empty file": ("", "is empty"),
    "header only": ("user_id,item_id\n", "has no rows"),
    "missing id": ("user_id,item_id\n1,2\n,3\n", "line 3 (row 2): user_id is missing"),
    "NaN id": ("user_id,item_id\na,2\nNaN,3\n", "line 3 (row 2): user_id is missing"),
    "not UTF-8": (b"user_id,item_id\n1,2\n2,caf\xe9\n", "line 3: not UTF-8 (byte 0xe9)"),
    "rating in words": (
        "user_id,item_id,rating\n1,2,4\n1,3,four\n",
        "line 3 (row 2): rating 'four' is not a finite number",
    ),
    "infinite rating": ("user_id,item_id,rating\n1,2,inf\n", "rating 'inf' is not a finite number"),
    "nothing positive": ("user_id,item_id,rating\n1,2,3\n", "no rating is > 3 (ratings range from 3.0 to 3.0)"),
    "rule without rating": ("user_id,item_id\n1,2\n", "has no column 'rating'"),
    "damaged gzip": (gzip.compress(b"user_id,item_id\n1,2\n" * 100)[:-20], "is a damaged gzip file"),
    "timestamp in words": ("user_id,item_id,timestamp\n1,2,soon\n", "timestamp 'soon' is not a finite number"),
    "rating in words after many rows": (
        "user_id,item_id,rating\n" + "1,2,4\n" * 150 + "1,3,four\n",
        "line 152 (row 151): rating 'four' is not a finite number",
    ),
    "infinite rating after many rows": (
        "user_id,item_id,rating\n" + "1,2,4\n" * 150 + "1,3,-inf\n",
        "line 152 (row 151): rating '-inf' is not a finite number",
    ),
    "UTF-16": ("user_id,item_id\na,b\n".encode("utf-16"), "line 1: not UTF-8 (byte 0xff)"),
    "too many fields": ("user_id,item_id\n1,2\n1,2,3,4\n", "cannot be read"),
}


@pytest.mark.parametrize(("content", "message"), HOSTILE_FILES.values(), ids=HOSTILE_FILES.keys())
def test_hostile_files_are_named(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path, "likes.csv", content)
    with pytest.raises(DataError) as caught:
        Dataset.from_files(path, positive="> 3")
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_categories_may_be_lists() -> None:
    items = pl.DataFrame({"item_id": [1, 2], "categories": [["A", "B"], None]})
    dataset = Dataset.from_frames(pl.DataFrame({"user_id": [1], "item_id": [1]}), items)
    assert dataset.categories.tolist() == [[True, True], [False, False]]


HOSTILE_FRAMES = {
    "huge ids": ({"user_id": pl.Series([2**64 - 1], dtype=pl.UInt64), "item_id": [1]}, "integers beyond 64 bits"),
    "float ids": (
        {"user_id": [1.0, 2.0], "item_id": [1, 2]},
        "contains Float64 values; ids must be integers, text or UUIDs",
    ),
    "NaN ids": ({"user_id": [1.0, float("nan")], "item_id": [1, 2]}, "line 3 (row 2): user_id is missing"),
    "null ids": ({"user_id": ["a", None], "item_id": [1, 2]}, "user_id is missing (rows affected: 1)"),
    "boolean ratings": (
        {"user_id": [1], "item_id": [1], "rating": [True]},
        "contains Boolean values; it must contain numbers",
    ),
}


@pytest.mark.parametrize(("columns", "message"), HOSTILE_FRAMES.values(), ids=HOSTILE_FRAMES.keys())
def test_hostile_frames_are_named(columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(DataError, match=r".") as caught:
        Dataset.from_frames(pl.DataFrame(columns), positive="> 3")
    assert message in str(caught.value)


def test_ids_of_different_types_are_refused() -> None:
    frames = (pl.DataFrame({"user_id": [1], "item_id": [1]}), pl.DataFrame({"item_id": ["1"]}))
    with pytest.raises(DataError, match="item_id is int in interactions but str in items"):
        Dataset.from_frames(*frames)
    mixed = pd.DataFrame({"user_id": [1, "a"], "item_id": [1, 2]})
    with pytest.raises(DataError, match="mixes int, str"):
        Dataset.from_frames(mixed)
    with pytest.raises(DataError, match="interactions is a list"):
        Dataset.from_frames([1, 2])


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.csv cannot be read: .*No such file"):
        Dataset.from_files(tmp_path / "nothing.csv")


@pytest.mark.parametrize(
    ("rule", "expected"), [("> 3", [0, 0, 1]), (">=3", [0, 1, 1]), ("< 2.5", [1, 0, 0]), ("== 3", [0, 1, 0])]
)
def test_rules(rule: str, expected: list[int]) -> None:
    assert parse_rule(rule)(np.array([-1, 3, 4])).astype(int).tolist() == expected


@pytest.mark.parametrize("rule", ["3", "> three", "=> 3", "> 3; drop", ""])
def test_rules_that_are_not_understood(rule: str) -> None:
    with pytest.raises(DataError, match="cannot parse the rule"):
        parse_rule(rule)


def test_frozen(tmp_path: Path) -> None:
    dataset = load(tmp_path, positive="> 3")
    with pytest.raises(ValueError, match="read-only"):
        dataset.items[0] = 1
    with pytest.raises(AttributeError):
        dataset.name = "other"  # type: ignore[misc]


def example(n_users: int = 40) -> Dataset:
    random = np.random.default_rng(1)
    frame = pl.DataFrame({"user_id": random.integers(n_users, size=300), "item_id": random.integers(25, size=300)})
    return Dataset.from_frames(frame)


def test_take_keeps_users_and_all_items() -> None:
    dataset = example()
    part = dataset.take([5, 3])
    assert part.user_ids.tolist() == dataset.user_ids[[3, 5]].tolist()
    assert part.n_items == dataset.n_items
    assert pairs(part) == {pair for pair in pairs(dataset) if pair[0] in part.user_ids.tolist()}
    assert pairs(dataset.take(np.arange(dataset.n_users) < 2)) == pairs(dataset.take([0, 1]))
    with pytest.raises(DataError, match="users are numbered 0 to"):
        dataset.take([999])
    with pytest.raises(DataError, match="no users are left"):
        dataset.take([])


def test_split_divides_the_users_by_seed() -> None:
    dataset = example()
    train, test = dataset.split(0.2, seed=3)
    assert test.n_users == round(dataset.n_users * 0.2)
    assert sorted([*train.user_ids.tolist(), *test.user_ids.tolist()]) == dataset.user_ids.tolist()
    assert pairs(train) | pairs(test) == pairs(dataset)
    assert dataset.split(0.2, seed=3)[1].digest == test.digest
    assert dataset.split(0.2, seed=4)[1].digest != test.digest
    with pytest.raises(DataError, match="leaves one set empty"):
        dataset.split(0.0)


def test_user_starts_bound_each_users_interactions() -> None:
    dataset = example()
    for user in range(dataset.n_users):
        rows = slice(dataset.user_starts[user], dataset.user_starts[user + 1])
        assert set(dataset.items[rows].tolist()) == set(dataset.items[dataset.users == user].tolist())


@given(st.lists(st.integers(-(10**12), 10**12) | st.integers(0, 50), min_size=1))
def test_compress_is_unique_with_inverse(values: list[int]) -> None:
    distinct, places = compress(np.array(values))
    assert distinct.tolist() == sorted(set(values))
    assert distinct[places].tolist() == values


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4)), min_size=1), st.booleans())
def test_last_of_each_pair_by_a_loop(rows: list[tuple[int, int, int]], with_times: bool) -> None:
    users, items, times = np.array(rows).T
    latest: dict[tuple[int, int], int] = {}
    for row, (user, item, time) in enumerate(rows):
        if (user, item) not in latest or not with_times or time >= rows[latest[user, item]][2]:
            latest[user, item] = row
    kept = last_of_each_pair(users, items, pl.Series(times) if with_times else None)
    expected = [latest[pair] for pair in sorted(latest)]
    assert (np.arange(len(rows)) if kept is None else kept).tolist() == expected


def ids_like_integers() -> st.SearchStrategy[str]:
    return st.integers(-(10**19), 10**19).map(str) | st.from_regex(r"[-+]?0*[0-9]{0,3}", fullmatch=True)


@given(st.lists(ids_like_integers(), min_size=1, max_size=4))
def test_ids_are_integers_where_a_regular_expression_matches_each(ids: list[str]) -> None:
    integers = plain_integers(pl.Series(ids))
    if all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) for text in ids):
        assert integers is not None
        assert integers.to_list() == [int(text) for text in ids]
    else:
        assert integers is None


def test_an_id_that_is_no_plain_integer_counts_in_any_row() -> None:
    for odd in ("007", "+7", "-0", "1" * 19, "seven"):
        assert plain_integers(pl.Series([*map(str, range(-150, 150)), odd])) is None


@given(st.lists(st.text(min_size=1).filter(lambda text: text.strip().lower() not in ("", "nan")), min_size=1))
def test_text_is_numbered_in_sorted_order(ids: list[str]) -> None:
    codes, names, kind = numbered(pl.Series("user_id", ids), "likes")
    assert kind == "str"
    assert names is not None
    assert names.to_list() == sorted(set(ids), key=str.encode)
    assert [names[int(code)] for code in codes] == ids


def test_numbers_may_have_spaces_around_them(tmp_path: Path) -> None:
    rows = "1,2, 4\n1,3,5 \n1,4,1\n"
    path = write(tmp_path, "likes.csv", "user_id,item_id,rating\n" + rows)
    assert pairs(Dataset.from_files(path, positive="> 3")) == {(1, 2), (1, 3)}
