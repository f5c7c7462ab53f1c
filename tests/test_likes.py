"""Products with the matrix of likes, catalogs without BPR, and tables that are read in parts."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from slatewise.catalog import Catalog, likes, taste
from slatewise.catalog.likes import Likes, Part, in_threads, product_of_group
from slatewise.catalog.taste import taste_vectors
from slatewise.catalog.without_bpr import READINGS, train_without_bpr
from slatewise.cli import app
from slatewise.data import stored_likes
from slatewise.data.dataset import DataError, Dataset
from slatewise.data.stored_likes import StoredLikes, Tables
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab.taste_on_workers import on_workers
from slatewise.lab.workers import InProcess, ProcessPool
from slatewise.policies import make_policy
from slatewise.randomness import Streams, user_keys

DATASET = make_world(WorldSize(n_users=700, n_items=60, n_categories=6, dim=3), seed=3).dataset


def dense(dataset: Dataset) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    table = np.zeros((dataset.n_users, dataset.n_items))
    table[dataset.users, dataset.items] = 1.0
    return table


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide even the likes of 700 users."""
    monkeypatch.setattr(likes, "LEAST_LIKES", 500)
    monkeypatch.setattr(stored_likes, "ROWS_AT_ONCE", 1_000)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Write the likes shuffled into two files, some rows twice with other ratings, and a table of items."""
    random = np.random.default_rng(0)
    rows = pl.DataFrame({"user_id": DATASET.users, "item_id": DATASET.items, "rating": 5, "timestamp": 2})
    older = rows.sample(400, seed=1).with_columns(rating=pl.lit(1), timestamp=pl.lit(1))
    refused = pl.DataFrame({"user_id": [3] * 30, "item_id": range(100, 130), "rating": [2] * 30, "timestamp": [1] * 30})
    frame = pl.concat([part.cast(pl.Int64) for part in (rows, older, refused)])
    frame = frame[random.permutation(len(frame))]
    frame[:2000].write_parquet(tmp_path / "a.parquet")
    frame[2000:].write_parquet(tmp_path / "b.parquet")
    names = [
        "|".join(DATASET.category_names[at] for at in np.flatnonzero(DATASET.categories[item])) for item in range(60)
    ]
    pl.DataFrame({"item_id": range(60), "title": DATASET.titles, "categories": names}).write_csv(tmp_path / "i.csv")
    return Tables([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "i.csv", "> 3")


@pytest.mark.usefixtures("small_parts")
def test_products_by_a_dense_matrix_with_the_same_bits_in_any_number_of_threads() -> None:
    block = np.random.default_rng(1).normal(size=(60, 7))
    divided = Likes.of(DATASET)
    assert 5 < len(divided.groups) <= likes.MOST_GROUPS
    assert sum(len(part.read()[1]) - 1 for (part,) in divided.groups) == 700
    found = [divided.product(block, partial(in_threads, n_threads=number)) for number in (1, 2, 5)]
    np.testing.assert_allclose(found[0], dense(DATASET).T @ dense(DATASET) @ block, rtol=1e-12)
    assert all(np.array_equal(found[0], other) for other in found[1:])
    wrong = replace(divided, groups=divided.groups[:-1]).product(block, in_threads)
    assert not np.allclose(wrong, found[0])


@pytest.mark.usefixtures("small_parts")
def test_taste_vectors_are_those_of_a_block_with_a_row_per_user() -> None:
    """The iteration that holds numbers per user, and a singular value decomposition at its end."""
    centered = dense(DATASET) - dense(DATASET).mean(axis=0)
    basis = np.random.default_rng(0).standard_normal((60, 60))
    for _ in range(taste.PASSES):
        basis, _ = np.linalg.qr(centered.T @ (centered @ basis))
    _, singular, right = np.linalg.svd(centered @ basis, full_matrices=False)
    directions = ((basis @ right.T) * (singular / np.sqrt(699)))[:, :50]
    shares = taste.shares_beyond_chance(directions, Likes.of(DATASET))
    expected = (directions * np.sqrt(shares))[:, shares > 0]
    passes: list[None] = []
    found = taste_vectors(DATASET, on_pass=lambda: passes.append(None))
    assert found.shape == expected.shape
    assert len(passes) == READINGS - 1
    np.testing.assert_allclose(found, expected * np.sign((found * expected).sum(axis=0)), atol=1e-12)
    assert (found[np.abs(found).argmax(axis=0), np.arange(found.shape[1])] > 0).all()


class Reader:
    """A part that remembers how much of it was ever held."""

    def __init__(self, part: Part) -> None:
        self.part, self.n_read = part, 0

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        self.n_read += 1
        return self.part.read()


@pytest.mark.usefixtures("small_parts")
def test_parts_are_read_once_for_each_pass_and_never_all_at_once() -> None:
    divided = Likes.of(DATASET)
    readers = tuple(Reader(part) for (part,) in divided.groups)
    watched = Likes.in_groups(divided.n_users, divided.counts, readers)
    assert np.array_equal(taste_vectors(watched), taste_vectors(DATASET))
    assert {reader.n_read for reader in readers} == {taste.PASSES + 1}


@pytest.mark.usefixtures("small_parts")
def test_tables_in_parts_are_the_same_likes_as_in_one_piece(tables: Tables, tmp_path: Path) -> None:
    whole = Dataset.from_files(tables.interactions, tables.items, positive="> 3")
    counted: list[tuple[int, int]] = []
    stored = StoredLikes.from_tables(tables, tmp_path, lambda *done: counted.append(done))
    assert len(stored.parts) > 3
    assert counted[-1] == (len(stored.parts), len(stored.parts))
    assert stored.describe() | {"name": ""} == whole.describe() | {"name": ""}
    assert stored.item_ids.tolist() == whole.item_ids.tolist()
    assert (stored.titles, stored.category_names) == (whole.titles, whole.category_names)
    assert np.array_equal(stored.categories, whole.categories)
    assert np.array_equal(stored.counts, np.bincount(whole.items, minlength=whole.n_items))
    baskets = [
        tuple(items[first:last].tolist())
        for items, starts in (part.read() for part in stored.parts)
        for first, last in pairwise(starts)
    ]
    starts = whole.user_starts
    expected = [tuple(whole.items[a:b].tolist()) for a, b in pairwise(starts)]
    assert sorted(baskets) == sorted(expected)
    assert stored.notes[0] == "430 rows dropped: repeated, or not positive"


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", [pl.String, pl.Int64])
def test_ids_of_both_kinds_in_parts(kind: type[pl.DataType], tables: Tables, tmp_path: Path) -> None:
    """Ids that are integers in one file and text in the other are text everywhere."""
    file = tables.interactions[0]
    pl.read_parquet(file).with_columns(pl.col("user_id", "item_id").cast(kind)).write_parquet(file)
    stored = StoredLikes.from_tables(tables, tmp_path)
    assert isinstance(stored.item_ids[0], str) == (kind is pl.String)
    assert stored.n_interactions == DATASET.n_interactions


def test_tables_that_cannot_be_read_in_parts_say_why(tmp_path: Path) -> None:
    file = tmp_path / "likes.parquet"

    def message(frame: pl.DataFrame) -> str:
        frame.write_parquet(file)
        with pytest.raises(DataError) as caught:
            StoredLikes.from_tables(Tables([file]), tmp_path)
        return str(caught.value)

    good = pl.DataFrame({"user_id": [1, 2], "item_id": [1, 2]})
    assert "user_id is missing (rows affected: 1)" in message(good.with_columns(user_id=pl.Series([None, 1])))
    assert "did you mean --columns item_id=sku?" in message(good.rename({"item_id": "sku"}))
    assert "contains Float64 values" in message(good.cast(pl.Float64))
    assert "has no rows" in message(good.clear())
    file.write_bytes(b"no parquet")
    with pytest.raises(DataError, match="cannot be read"):
        StoredLikes.from_tables(Tables([file]), tmp_path)


@pytest.mark.usefixtures("small_parts")
def test_a_catalog_without_bpr_is_the_same_from_parts_and_serves_every_policy(tables: Tables, tmp_path: Path) -> None:
    whole = Dataset.from_files(tables.interactions, tables.items, positive="> 3")
    stored = StoredLikes.from_tables(tables, tmp_path)
    found, expected = train_without_bpr(stored, dim=2), train_without_bpr(whole, dim=2)
    trained = Catalog.train(whole)
    np.testing.assert_allclose(found.taste_vectors, trained.taste_vectors, atol=1e-6)
    np.testing.assert_array_equal(found.log_odds, trained.log_odds)
    for name in ("vectors", "taste_vectors", "population_mean", "population_covariance"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-6)
    assert found.vectors.shape == (60, 2)
    available = np.ones((1, 60), dtype=bool)
    for name in ("dc2b", "dc2b-calibrated", "c2ucb"):
        policy = make_policy(name, found)
        chosen = policy.select(policy.start(1), available, 5, Streams(0, user_keys(["ann"]), 0))
        assert len(set(chosen.items[0].tolist())) == 5


@pytest.mark.process
@pytest.mark.usefixtures("small_parts")
def test_workers_compute_the_same_bits(tables: Tables, tmp_path: Path) -> None:
    stored = StoredLikes.from_tables(tables, tmp_path)
    divided = Likes.in_groups(stored.n_users, stored.counts, stored.parts)
    here = taste_vectors(divided)
    with InProcess(lambda: None) as workers:
        assert np.array_equal(taste_vectors(divided, products=on_workers(workers)), here)
    with ProcessPool(2, lambda: None) as pool:
        assert np.array_equal(taste_vectors(divided, products=on_workers(pool)), here)
    backwards = [product_of_group(group, here) for group in reversed(divided.groups)]
    assert not np.array_equal(sum(backwards), divided.product(here, in_threads))


def test_train_without_bpr_on_the_command_line(tables: Tables, tmp_path: Path) -> None:
    given = ["--interactions", str(tables.interactions[0]), "--positive", "> 3", "--out", str(tmp_path / "shop")]

    def train(*more: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["train", *given, *more])
        return result.exit_code, " ".join(result.output.replace("│", " ").split())

    code, output = train("--without-bpr", "--json", "--workers", "2")
    assert code == 0, output
    catalog = Catalog.load(tmp_path / "shop")
    assert catalog.about["training"]["method"] == "taste"
    assert {path.name[:7] for path in (tmp_path / "shop").iterdir()} == {"catalog"}
    assert "give --without-bpr as well" in train("--workers", "2")[1]
    assert "not both" in train("--without-bpr", "--workers", "2", "--cluster", "tcp://a:1")[1]
    assert "do that first" in train("--without-bpr", "--store", "sqlite:///none.db")[1]
    code, output = train("--without-bpr", "--train-share", "0.5", "--json")
    assert code == 0, output
    assert 0 < Catalog.load(tmp_path / "shop").n_users < catalog.n_users
