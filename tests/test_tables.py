"""Tables as people have them: several files, folders, patterns, other names of columns, and mistakes that are named."""

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from slatewise import Dataset
from slatewise.categories import indicators
from slatewise.cli import app
from slatewise.data.column_names import check_columns, parse_columns, suggestion
from slatewise.data.errors import DataError
from slatewise.data.table_files import table_files
from slatewise.plurals import counted
from tests.support.serving import small_catalog

ROWS = [("ann", 1, 5), ("ann", 2, 1), ("ben", 1, 4), ("ben", 3, 5), ("cem", 2, 4)]


def write(path: Path, rows: list[tuple[str, int, int]], header: str = "user_id,item_id,rating") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(header + "\n" + "".join(f"{user},{item},{rating}\n" for user, item, rating in rows))
    return path


def pairs(dataset: Dataset) -> set[tuple[str, int]]:
    return {(dataset.user_ids[u], int(dataset.item_ids[i])) for u, i in zip(dataset.users, dataset.items, strict=True)}


LIKED = {("ann", 1), ("ben", 1), ("ben", 3), ("cem", 2)}


def as_repeated_files(folder: Path) -> list[Path]:
    return [write(folder / "a.csv", ROWS[:2]), write(folder / "b.csv", ROWS[2:])]


def as_pattern(folder: Path) -> str:
    as_repeated_files(folder)
    return str(folder / "*.csv")


def as_parquet_folder(folder: Path) -> Path:
    for number, rows in enumerate((ROWS[:3], ROWS[3:])):
        frame = pl.DataFrame(rows, schema=["user_id", "item_id", "rating"], orient="row")
        (folder / f"day={number}").mkdir(parents=True)
        frame.write_parquet(folder / f"day={number}" / "part-0.parquet")
    (folder / "_SUCCESS").touch()
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / "notes.csv").write_text("nothing")
    return folder


def as_other_columns(folder: Path) -> Path:
    return write(folder / "orders.csv", ROWS, "customer,sku,rating")


def as_gzipped_tabs(folder: Path) -> Path:
    lines = ["user_id\titem_id\trating", *("\t".join(map(str, row)) for row in ROWS)]
    (folder / "likes.tsv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return folder


@pytest.mark.parametrize("kind", [as_repeated_files, as_pattern, as_parquet_folder, as_gzipped_tabs])
def test_every_way_to_keep_a_table_gives_the_same_data(kind, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert (
        pairs(Dataset.from_files(kind(tmp_path / "t" if kind is as_parquet_folder else tmp_path), positive="> 3"))
        == LIKED
    )


def test_columns_under_other_names(tmp_path: Path) -> None:
    columns = {"user_id": "customer", "item_id": "sku"}
    assert pairs(Dataset.from_files(as_other_columns(tmp_path), positive="> 3", columns=columns)) == LIKED


def test_a_column_that_is_mapped_replaces_one_of_our_name(tmp_path: Path) -> None:
    rows = "user_id,item_id,sku\nann,9,1\nben,9,2\n"
    (tmp_path / "likes.csv").write_text(rows)
    found = Dataset.from_files(tmp_path / "likes.csv", columns={"item_id": "sku"})
    assert found.item_ids.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("columns", "option"),
    [
        (["customer", "sku", "stars"], "--columns user_id=customer,item_id=sku"),
        (["userId", "movieId", "rating"], "--columns user_id=userId,item_id=movieId"),
        (["User_ID", "item_id"], "--columns user_id=User_ID"),
        (["usr_id", "item_id"], "--columns user_id=usr_id"),
    ],
)
def test_near_names_are_shown_as_an_option_that_works(columns: list[str], option: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",".join(columns) + "\n" + ",".join("123"[: len(columns)]) + "\n")
    with pytest.raises(DataError, match=rf"did you mean {option}\?"):
        Dataset.from_files(tmp_path / "t.csv")
    mapping = parse_columns(option.removeprefix("--columns "))
    assert Dataset.from_files(tmp_path / "t.csv", columns=mapping).n_interactions == 1


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    assert suggestion(["user_id"], ["weather", "price"]) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("customer", "cannot read the columns"),
        ("user_id=", "cannot read the columns"),
        ("", "cannot read the columns"),
        ("user_id=a,user_id=b", "cannot read the columns"),
        ("person=a", "no column 'person' to map"),
        ("user_id=a,item_id=a", "from the same one"),
    ],
)
def test_a_mapping_that_cannot_be_meant(text: str, why: str) -> None:
    with pytest.raises(DataError, match=why):
        parse_columns(text)


def test_a_mapping_from_a_column_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'when' to be 'timestamp' in .*likes.csv"):
        Dataset.from_files(write(tmp_path / "likes.csv", ROWS), columns={"timestamp": "when"})
    with pytest.raises(DataError, match="no column 'person' to map"):
        check_columns({"person": "a"})


def test_ids_keep_their_type_in_each_column_of_several_files(tmp_path: Path) -> None:
    dataset = Dataset.from_files(as_repeated_files(tmp_path))
    assert dataset.item_ids.dtype == np.int64
    write(tmp_path / "c.csv", [("dan", 4, 5)]).write_text("user_id,item_id\ndan,007\n")
    assert Dataset.from_files(tmp_path).item_ids.tolist() == ["007", "1", "2", "3"]


def test_a_pattern_or_a_folder_without_tables_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file matches"):
        table_files(tmp_path / "*.csv")
    with pytest.raises(DataError, match="has no tables"):
        table_files(tmp_path)


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", ROWS)
    assert table_files([file, str(tmp_path / "*.csv"), tmp_path]) == [file]


def test_a_decimal_comma_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("user_id;item_id;rating\nann;1;4,5\n")
    with pytest.raises(DataError, match=r"line 2 .*rating '4,5' has a decimal comma; write 4\.5"):
        Dataset.from_files(tmp_path / "t.csv", positive="> 3")


def test_words_for_nothing_are_no_categories() -> None:
    names, has_category = indicators(["(no genres listed)", "None", "Drama|none", "Drama"])
    assert names == ("Drama",)
    assert has_category.ravel().tolist() == [False, False, True, True]


def test_counts_agree_with_their_nouns() -> None:
    assert [counted(n, "category") for n in (0, 1, 2)] == ["0 categories", "1 category", "2 categories"]
    one = Dataset.from_frames(pl.DataFrame({"user_id": [1], "item_id": [1]}), name="one")
    assert "1 user, 1 item, 1 interaction, 0 categories" in repr(one)


def test_the_items_of_a_catalog_come_in_pages(tmp_path: Path) -> None:
    small_catalog(25).save(tmp_path)
    runner = CliRunner()
    third = runner.invoke(app, ["catalog", "show", str(tmp_path), "--page", "3"]).output
    assert "21 to 25 of 25 items" in third
    assert "smoothed" in third
    assert "--page" not in third
    assert "--page 2 shows the next" in runner.invoke(app, ["catalog", "show", str(tmp_path)]).output
    assert "no items on page 4" in runner.invoke(app, ["catalog", "show", str(tmp_path), "--page", "4"]).output
    assert "1 to 1 of 1 item" in runner.invoke(app, ["catalog", "show", str(tmp_path), "--find", "film 24"]).output
