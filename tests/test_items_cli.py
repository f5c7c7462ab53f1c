"""`slatewise items`, and tables of items in all their formats."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from slatewise.catalog import Catalog
from slatewise.cli import app
from slatewise.cli.item_table import items_in, read_items
from slatewise.data.dataset import Dataset
from slatewise.data.errors import DataError
from slatewise.store import open_store
from slatewise.store.records import ItemRecord

CSV = """item_id,title,categories,available,published_at,price,organic,sku:text,tags:list,released:time
1,Tea,Hot|Green,true,2026-01-31,3.5,true,007,a|b,2026-01-31T12:00:00
2,,,no,1769817600,,,1e3,,
3,"Ü, x",Cold,,,2,false,,c,1970-01-01
"""
EXPECTED = [
    ItemRecord(
        *(1, "Tea", ("Hot", "Green")),
        {"price": 3.5, "organic": True, "sku": "007", "tags": ["a", "b"], "released": {"time": 1769860800.0}},
        published_at=1769817600.0,
    ),
    ItemRecord(2, None, None, {"sku": "1e3"}, available=False, published_at=1769817600.0),
    ItemRecord(3, "Ü, x", ("Cold",), {"price": 2.0, "organic": False, "tags": ["c"], "released": {"time": 0.0}}),
]


def records(path: Path) -> list[ItemRecord]:
    return [record for part in items_in(read_items(path), 0.0) for record in part]


def sorted_sets(record: ItemRecord) -> Any:
    """What a record says; the order of categories and tags does not matter."""
    attributes = {
        name: sorted(value) if isinstance(value, list) else value for name, value in record.attributes.items()
    }
    return (
        record.item,
        record.title,
        sorted(record.categories or ()),
        attributes,
        record.available,
        record.published_at,
    )


def test_a_table_in_csv(tmp_path: Path) -> None:
    table = tmp_path / "items.csv"
    table.write_text(CSV.replace("1769817600", "2026-01-31"), encoding="utf-8")
    assert [*map(sorted_sets, records(table))] == [*map(sorted_sets, EXPECTED)]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_a_table_with_types_of_its_own(tmp_path: Path, suffix: str) -> None:
    table = tmp_path / f"items.{suffix}"
    frame = pl.DataFrame(
        {
            "item_id": ["a", "b"],
            "categories": [["Hot", "Green"], None],
            "price": [1, None],
            "tags": [["x"], None],
            "vector": [[0.5, 0.25], None],
            "new": [True, None],
        }
    )
    frame.write_parquet(table) if suffix == "parquet" else frame.write_ndjson(table)
    one, other = records(table)
    assert sorted_sets(one) == ("a", None, ["Green", "Hot"], {"price": 1.0, "tags": ["x"], "new": True}, True, None)
    assert (one.vector, other.vector) == ((0.5, 0.25), None)
    assert other.attributes == {}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("title\nx\n", "no column 'item_id'"),
        ("item_id\n1\n1\n", "several rows"),
        ("item_id,available\n1,maybe\n", "not true or false"),
        ("item_id,1st\n1,x\n", "no name of an attribute"),
        ("item_id,price:money\n1,x\n", "no known kind"),
        ("item_id,price:number\n1,x\n", "not a finite number"),
        ("item_id,since:time\n1,soon\n", "write 2026"),
        ("item_id,vector\n1,0.5\n", "Parquet"),
        (f"item_id,title\n1,{'x' * 1001}\n", "at most 1000 characters"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path: Path, content: str, problem: str) -> None:
    table = tmp_path / "items.csv"
    table.write_text(content)
    with pytest.raises(DataError, match=problem):
        read_items(table)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_import_list_withdraw(tmp_path: Path) -> None:
    table, store = tmp_path / "items.csv", f"sqlite:///{tmp_path / 'slates.db'}"
    table.write_text(CSV.replace("1769817600", "2026-01-31"), encoding="utf-8")
    for _ in range(2):
        done = json.loads(run("items", "import", str(table), "--store", store, "--json"))
        assert (done["items"], done["version"]) == (3, 1)
    run("items", "withdraw", "3", "--store", store)
    listed = json.loads(run("items", "list", "--withdrawn", "--store", store, "--json"))
    assert [row["id"] for row in listed] == [2, 3]
    assert "Tea" in run("items", "list", "--store", store, "--limit", "1")
    opened = open_store(store)
    assert opened.read(lambda t: t.item_table()).version == 2
    opened.close()


def imported(tmp_path: Path, content: str, *words: str) -> Any:
    """What comes of an import of a CSV table."""
    table = tmp_path / "more.csv"
    table.write_text(content)
    store = f"sqlite:///{tmp_path / 'slates.db'}"
    return CliRunner().invoke(app, ["items", "import", str(table), "--store", store, *words])


def test_an_attribute_of_another_kind_than_other_items_have_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    assert imported(tmp_path, "item_id,sku2\n1,100\n2,200\n").exit_code == 0
    refused = imported(tmp_path, "item_id,sku2,price\n4,,5\n3,A-7,5\n")
    said = f"{refused.output} {refused.exception}"
    assert refused.exit_code == 1
    assert "more.csv, row 2: sku2 is a text, 'A-7', but of item 1 a number, 100.0, and nothing was imported" in said
    store = f"sqlite:///{tmp_path / 'slates.db'}"
    assert [row["id"] for row in json.loads(run("items", "list", "--store", store, "--json"))] == [1, 2]


def test_ids_of_another_type_than_other_items_have_are_refused(tmp_path: Path) -> None:
    """Of the catalog, which a first import is checked by if it is given, or of the item table."""
    Catalog.from_vectors([1, 7], [[1.0, 0.0], [0.0, 1.0]]).save(tmp_path / "shop")
    shop = ("--catalog", str(tmp_path / "shop"))
    for content, words, said in (
        ("item_id\nabc\n1\n", shop, "row 1: the id 'abc' is of another type than those of other items, such as 1"),
        ("item_id\n3\n4\n", shop, None),
        ("item_id\nabc\n", (), "row 1: the id 'abc' is of another type than those of other items, such as 3"),
    ):
        done = imported(tmp_path, content, *words)
        assert done.exit_code == (0 if said is None else 1)
        assert said is None or said in f"{done.output} {done.exception}"
    listed = run("items", "list", "--store", f"sqlite:///{tmp_path / 'slates.db'}", "--json")
    assert [row["id"] for row in json.loads(listed)] == [3, 4]


def test_all_items_together_may_give_an_attribute_another_kind(tmp_path: Path) -> None:
    """What is replaced does not count, and neither does a column without values."""
    for content in ("item_id,sku2\n1,100\n2,\n", "item_id,sku2\n7,\n", "item_id,sku2\n1,A-7\n8,B\n"):
        done = imported(tmp_path, content)
        assert done.exit_code == 0, done.exception


def test_withdrawing_unknown_items_names_them_and_changes_nothing(tmp_path: Path) -> None:
    """Items that only the catalog has are known once the catalog is given."""
    table, store = tmp_path / "items.csv", f"sqlite:///{tmp_path / 'slates.db'}"
    table.write_text("item_id\n1\n2\n")
    Catalog.from_vectors([1, 7], [[1.0, 0.0], [0.0, 1.0]]).save(tmp_path / "shop")
    run("items", "import", str(table), "--store", store)
    for words, unknown in (
        (("1", "7", "nope"), "'7', 'nope'"),
        (("1", "9", "--catalog", f"{tmp_path / 'shop'}"), "'9'"),
    ):
        refused = CliRunner().invoke(app, ["items", "withdraw", *words, "--store", store])
        assert f"no item {unknown}, and nothing was withdrawn" in f"{refused.output} {refused.exception}"
        assert refused.exit_code != 0
        assert json.loads(run("items", "list", "--withdrawn", "--store", store, "--json")) == []
    run("items", "withdraw", "1", "7", "--catalog", str(tmp_path / "shop"), "--store", store)
    listed = json.loads(run("items", "list", "--withdrawn", "--store", store, "--json"))
    assert [row["id"] for row in listed] == [1, 7]


def test_people_read_lists_and_counts(tmp_path: Path) -> None:
    table, store = tmp_path / "items.csv", f"sqlite:///{tmp_path / 'slates.db'}"
    table.write_text(
        "item_id,categories,price,big:number,tags:list,since:time,time:number\n1,Tea|Hot,3.5,2,a,2026-01-31,4\n"
    )
    imported = CliRunner().invoke(app, ["items", "import", str(table), "--store", store]).output
    assert "\n1 item imported" in imported
    table_of_items = CliRunner().invoke(app, ["items", "list", "--store", store]).output
    listed = " ".join(table_of_items.replace("│", " ").split())  # however wide the terminal is
    assert "Hot, Tea" in listed or "Tea, Hot" in listed
    for words in ("yes", "big 2; price 3.5; since 2026-01-31T00:00:00Z; tags a; time 4"):
        assert words in listed
    assert not set("[]{}'") & set(listed)
    withdrawn = CliRunner().invoke(app, ["items", "withdraw", "1", "--store", store]).output
    assert withdrawn.startswith("1 item withdrawn")


def test_training_knows_what_is_listed_and_available(tmp_path: Path) -> None:
    likes = [f"{user},{item}" for user in range(6) for item in range(6) if (user + item) % 3]
    (tmp_path / "likes.csv").write_text("\n".join(["user_id,item_id", *likes]))
    (tmp_path / "items.csv").write_text("item_id,title,available\n0,a,true\n1,b,false\n2,c,\n9,d,0\n")
    files = (tmp_path / "likes.csv", tmp_path / "items.csv")
    everything, listed = Dataset.from_files(*files), Dataset.from_files(*files, only_listed=True)
    assert everything.item_ids.tolist() == [0, 1, 2, 3, 4, 5, 9]
    assert listed.item_ids.tolist() == [0, 1, 2, 9]
    assert listed.available is not None
    assert listed.available.tolist() == [True, False, True, False]
    arguments = ("--interactions", str(files[0]), "--items", str(files[1]), "--only-listed-items", "--epochs", "1")
    run("train", *arguments, "--dim", "2", "--out", str(tmp_path / "shop"))
    catalog = Catalog.load(tmp_path / "shop")
    assert catalog.available is not None
    assert catalog.available.tolist() == [True, False, True, False]
    with pytest.raises(DataError, match="no table of items"):
        Dataset.from_files(files[0], only_listed=True)
