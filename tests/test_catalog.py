import hashlib
import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from slatewise.catalog import Catalog, CatalogError
from slatewise.catalog.embeddings import BprSettings, Factors, train_bpr
from slatewise.catalog.likes import Likes, in_threads
from slatewise.catalog.population import fit_population, item_log_odds
from slatewise.catalog.versions import add_version
from slatewise.categories import indicators
from slatewise.data.synthetic import WorldSize, make_world

WORLD = make_world(WorldSize(n_users=120, n_items=60, n_categories=5, dim=4), seed=7)
SETTINGS = BprSettings(dim=4, epochs=5, seed=3)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.train(WORLD.dataset, SETTINGS)


def test_training_is_reproducible_to_the_last_bit(catalog: Catalog, tmp_path: Path) -> None:
    first = catalog.save(tmp_path / "first")
    assert Catalog.train(WORLD.dataset, SETTINGS).save(tmp_path / "second") == first
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


def test_only_a_data_set_can_be_trained_on() -> None:
    likes: Any = [1, 2]
    with pytest.raises(ValueError, match="dataset is of type list; give a Dataset"):
        Catalog.train(likes)


def test_normalization_changes_lengths_but_no_inner_product(catalog: Catalog) -> None:
    factors = train_bpr(WORLD.dataset, SETTINGS)
    assert (np.linalg.norm(catalog.vectors, axis=1) ** 2).mean() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(
        catalog.vectors @ catalog.population_mean, factors.item_vectors @ factors.user_vectors.mean(axis=0), atol=1e-6
    )
    scores = factors.user_vectors @ factors.item_vectors.T
    np.testing.assert_allclose(
        np.einsum("id,de,ie->i", catalog.vectors, catalog.population_covariance, catalog.vectors),
        scores.var(axis=0, ddof=1),
        rtol=1e-4,
    )


def test_scale_of_the_factors_does_not_matter(catalog: Catalog) -> None:
    factors = train_bpr(WORLD.dataset, SETTINGS)
    scaled = Factors(factors.user_vectors * 8, factors.item_vectors / 8)
    other = Catalog.from_factors(WORLD.dataset, scaled, {})
    np.testing.assert_allclose(other.vectors, catalog.vectors, rtol=1e-6)
    np.testing.assert_allclose(other.population_mean, catalog.population_mean, rtol=1e-6)


def test_log_odds_by_a_loop(catalog: Catalog) -> None:
    for item in range(catalog.n_items):
        likes = sum(1 for one in WORLD.dataset.items if one == item)
        assert catalog.log_odds[item] == pytest.approx(np.log((likes + 0.5) / (120 - likes + 0.5)))


def assert_same(first: Catalog, second: Catalog) -> None:
    assert list(first.item_ids) == list(second.item_ids)
    assert list(first.titles) == list(second.titles)
    assert first.category_names == second.category_names
    assert first.about == second.about
    for name in ("vectors", "categories", "log_odds", "population_mean", "population_covariance"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes(), name
        assert getattr(first, name).dtype == getattr(second, name).dtype, name


@pytest.mark.parametrize("kind", ["int", "str", "uuid"])
def test_saved_and_loaded_is_the_same(kind: str, tmp_path: Path) -> None:
    makers: dict[str, Any] = {"int": int, "str": lambda n: f"n°{n:03}", "uuid": lambda n: uuid.UUID(int=n)}
    ids = np.array([makers[kind](number) for number in range(60)], dtype=object)
    catalog = Catalog.from_factors(replace(WORLD.dataset, item_ids=ids), train_bpr(WORLD.dataset, SETTINGS), {"a": 1})
    catalog.save(tmp_path)
    loaded = Catalog.load(tmp_path)
    assert_same(catalog, loaded)
    assert loaded.index_of(ids[17]) == 17
    assert type(loaded.item_ids[0]) is type(ids[0])


def test_a_catalog_without_categories_or_titles(tmp_path: Path) -> None:
    catalog = Catalog.from_vectors(["b", "a"], [[0, 2], [1, 0]])
    catalog.save(tmp_path)
    assert_same(catalog, Catalog.load(tmp_path))
    assert list(catalog.item_ids) == list(catalog.titles) == ["a", "b"]
    np.testing.assert_allclose(catalog.vectors, np.array([[1, 0], [0, 2]]) / np.sqrt(2.5), rtol=1e-6)
    np.testing.assert_allclose(catalog.population_covariance, np.eye(2))
    assert not catalog.log_odds.any()


def test_given_vectors_with_interactions_know_what_is_popular() -> None:
    """The truth has N(0, I) tastes on these very vectors; the fit shrinks it but keeps its shape."""
    world = make_world(WorldSize(n_users=3_000, n_items=150, dim=4), seed=1)
    dataset = world.dataset
    catalog = Catalog.from_vectors(
        dataset.item_ids.tolist(), world.vectors, interactions=dataset, categories=["A|B"] * 150
    )
    assert catalog.category_names == ("A", "B")
    expected = item_log_odds(np.bincount(dataset.items, minlength=150), 3_000)
    np.testing.assert_allclose(catalog.log_odds, expected)
    eigenvalues = np.linalg.eigvalsh(catalog.population_covariance)
    assert 0.3 < eigenvalues[0] <= eigenvalues[-1] < 1.5


def test_fit_population_by_loops() -> None:
    dataset, vectors = WORLD.dataset, WORLD.vectors
    log_odds = item_log_odds(np.bincount(dataset.items, minlength=60), 120)
    information, weighted_sum, crowd = np.eye(4), np.zeros(4), np.zeros(4)
    for item in range(60):
        share = 1 / (1 + np.exp(-log_odds[item]))
        information += share * (1 - share) * np.outer(vectors[item], vectors[item])
        weighted_sum += share * (1 - share) * log_odds[item] * vectors[item]
        crowd += share * vectors[item]
    deviations = []
    for user in range(120):
        liked = sum((vectors[item] for item in dataset.items[dataset.users == user]), np.zeros(4))
        deviations.append(np.linalg.inv(information) @ (liked - crowd))
    mean, covariance = fit_population(vectors, log_odds, Likes.of(dataset), in_threads)
    np.testing.assert_allclose(mean, np.linalg.inv(information) @ weighted_sum)
    np.testing.assert_allclose(covariance, np.cov(np.array(deviations).T))


def test_interactions_about_some_of_the_items_are_enough() -> None:
    part = replace(WORLD.dataset, item_ids=np.arange(0, 120, 2))
    catalog = Catalog.from_vectors(range(120), np.random.default_rng(0).normal(size=(120, 3)), interactions=part)
    assert catalog.log_odds[1::2].max() < catalog.log_odds[::2].max()
    with pytest.raises(CatalogError, match="refer to item 60, which has no vector"):
        Catalog.from_vectors(range(60), np.ones((60, 3)), interactions=part)


def test_numpy_ids_and_titles_are_welcome() -> None:
    catalog = Catalog.from_vectors(WORLD.dataset.item_ids, WORLD.vectors, titles=np.array(WORLD.dataset.titles))
    assert list(catalog.item_ids) == list(range(60))
    assert catalog.titles[3] == WORLD.dataset.titles[3]
    with pytest.raises(CatalogError, match="there are 1 titles for 2 items"):
        Catalog.from_vectors([1, 2], np.eye(2), titles=["a"])
    with pytest.raises(CatalogError, match="there are 3 categories for 2 items"):
        Catalog.from_vectors([1, 2], np.eye(2), categories=["a", "b", "c"])


def test_many_dimensions_are_cut_to_what_matters() -> None:
    catalog = Catalog.from_vectors(range(80), np.random.default_rng(0).normal(size=(80, 200)))
    assert catalog.taste_vectors.shape == (80, 51)  # and how much people click at all


def test_co_likes_are_checked_too() -> None:
    with pytest.raises(CatalogError, match="co_likes has shape"):
        replace(Catalog.from_vectors([1, 2], np.eye(2)), co_likes=np.zeros((3, 3), dtype=np.float32))


BAD_VECTORS: dict[str, tuple[list[Any], Any, str]] = {
    "wrong shape": ([1, 2], [[1.0]], "2 items need vectors of shape"),
    "NaN": ([1, 2], [[1.0], [float("nan")]], "vectors contains NaN"),
    "duplicate id": ([1, 1], [[1.0], [2.0]], "item 1 appears twice"),
    "mixed ids": ([1, "a"], [[1.0], [2.0]], "but these are int, str"),
    "nothing": ([], np.zeros((0, 3)), "needs 1 to"),
}


@pytest.mark.parametrize(("ids", "vectors", "message"), BAD_VECTORS.values(), ids=BAD_VECTORS.keys())
def test_bad_vectors_are_refused(ids: list[Any], vectors: Any, message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        Catalog.from_vectors(ids, vectors)


def test_unknown_items_are_named(catalog: Catalog) -> None:
    with pytest.raises(CatalogError, match="item 'tt42' is not in the catalog; `slatewise catalog show`"):
        catalog.index_of("tt42")


def test_frozen(catalog: Catalog) -> None:
    with pytest.raises(ValueError, match="read-only"):
        catalog.vectors[0, 0] = 1


def test_every_flipped_byte_is_noticed(catalog: Catalog, tmp_path: Path) -> None:
    catalog.save(tmp_path)
    random = np.random.default_rng(0)
    for path in tmp_path.iterdir():
        original = path.read_bytes()
        for place in random.integers(len(original), size=100):
            damaged = bytearray(original)
            damaged[place] ^= 1 << int(random.integers(8))
            path.write_bytes(damaged)
            if not _only_white_space_changed(original, bytes(damaged), path):
                with pytest.raises(CatalogError):
                    Catalog.load(tmp_path)
        for cut in (0, 1, len(original) // 2, len(original) - 1):
            path.write_bytes(original[:cut])
            if not _only_white_space_changed(original, original[:cut], path):
                with pytest.raises(CatalogError):
                    Catalog.load(tmp_path)
        path.write_bytes(original)
    assert_same(catalog, Catalog.load(tmp_path))


def _only_white_space_changed(original: bytes, damaged: bytes, path: Path) -> bool:
    """A manifest that still says the same may be read: nothing in it is wrong."""
    if path.suffix != ".json":
        return False
    try:
        return bool(json.loads(original) == json.loads(damaged))
    except ValueError:
        return False


def rewrite(directory: Path, **changes: Any) -> None:
    """Write a catalog whose hashes are right but whose content is not."""
    manifest = json.loads((directory / "catalog.json").read_text())
    arrays = load_file(directory / manifest["arrays"]["file"])
    for name, change in changes.items():
        arrays[name] = change(arrays[name])
    add_version(directory, arrays, manifest["about"])


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "NaN vector": ({"vectors": lambda a: a * np.float32("nan")}, "vectors contains NaN"),
    "too few vectors": ({"vectors": lambda a: a[:-1]}, "vectors has shape"),
    "flat vectors": ({"vectors": lambda a: a.ravel()}, "needs 1 to"),
    "too few titles": ({"titles.ends": lambda a: a[:-1]}, "does not fit its buffer"),
    "titles backwards": ({"titles.ends": lambda a: a[::-1]}, "does not fit its buffer"),
    "titles not UTF-8": ({"titles.utf8": lambda a: a | 0x80}, "is incomplete"),
    "infinite odds": ({"log_odds": lambda a: a / 0.0}, "log_odds contains NaN"),
}


@pytest.mark.parametrize(("changes", "message"), LIES.values(), ids=LIES.keys())
def test_content_is_checked_even_when_hashes_are_right(
    catalog: Catalog, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    catalog.save(tmp_path)
    with np.errstate(all="ignore"):
        rewrite(tmp_path, **changes)
    with pytest.raises(CatalogError, match=message):
        Catalog.load(tmp_path)


def forge(directory: Path, **changes: Any) -> None:
    """Change the manifest and correct its own hash."""
    manifest = json.loads((directory / "catalog.json").read_text())
    del manifest["sha256"]
    manifest |= changes
    manifest["sha256"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (directory / "catalog.json").write_text(json.dumps(manifest))


def test_another_version_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    catalog.save(tmp_path)
    forge(tmp_path, version=99)
    with pytest.raises(CatalogError, match="has version 99, but this slatewise reads version 1"):
        Catalog.load(tmp_path)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "catalog-0.safetensors", ""])
def test_the_manifest_cannot_name_other_files(catalog: Catalog, tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    catalog.save(inside)
    content = save({"a": np.zeros(1)})
    (tmp_path / "outside.safetensors").write_bytes(content)
    forge(inside, arrays={"file": name, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)})
    with pytest.raises(CatalogError, match="which no catalog uses"):
        Catalog.load(inside)


def test_a_huge_manifest_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "catalog.json").write_text("[" * 2_000_000)
    with pytest.raises(CatalogError, match="larger than a manifest can be"):
        Catalog.load(tmp_path)
    (tmp_path / "catalog.json").write_text("[" * 200_000)
    with pytest.raises(CatalogError, match="not a catalog manifest"):
        Catalog.load(tmp_path)


def test_an_empty_directory_is_not_a_catalog(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="create one with `slatewise train`"):
        Catalog.load(tmp_path)


def test_a_crash_during_save_leaves_the_old_catalog(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rename in turn is the moment of the crash."""
    catalog.save(tmp_path)
    other = Catalog.from_vectors(["a", "b"], np.eye(2))
    real_replace, crashes = Path.replace, 0

    for survives in range(3):
        calls = 0

        def crash(self: Path, target: Path, limit: int = survives) -> Path:
            nonlocal calls
            calls += 1
            if calls > limit:
                raise OSError("power cut")
            return real_replace(self, target)

        monkeypatch.setattr(Path, "replace", crash)
        with pytest.raises(OSError, match="power cut"):
            other.save(tmp_path)
        monkeypatch.undo()
        crashes += 1
        assert_same(catalog, Catalog.load(tmp_path))
    assert crashes == 3
    other.save(tmp_path)
    assert_same(other, Catalog.load(tmp_path))
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    ("given", "names", "expected"),
    [
        (["A|B", None, " B ", ""], ("A", "B"), [[1, 1], [0, 0], [0, 1], [0, 0]]),
        ([["B", "A"], ("A",), "A|B"], ("A", "B"), [[1, 1], [1, 0], [1, 1]]),
        ([None, None], (), [[], []]),
    ],
)
def test_categories_as_people_write_them(given: list[Any], names: tuple[str, ...], expected: list[list[int]]) -> None:
    category_names, matrix = indicators(given)
    assert category_names == names
    assert matrix.astype(int).tolist() == expected
