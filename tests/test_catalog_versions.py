"""Versions of a catalog: kept, put in use in one step, and gone back from."""

import json
from pathlib import Path

import numpy as np
import pytest

from slatewise.catalog import Catalog, CatalogError
from slatewise.catalog.versions import KEPT, add_version, current_version, promote, rollback, versions
from tests.support.recommending import make_catalog
from tests.test_importing import slatewise

OLDER = Path(__file__).parent / "fixtures" / "store_of_4c27cee" / "catalog"


def save(directory: Path, seed: int, *, is_promoted: bool = True) -> str:
    return make_catalog(seed=seed).save(directory, promote=is_promoted)[:16]


def test_versions_are_kept_promoted_and_rolled_back(tmp_path: Path) -> None:
    first, second, candidate = save(tmp_path, 0), save(tmp_path, 1), save(tmp_path, 2, is_promoted=False)
    assert current_version(tmp_path) == second
    assert {version.name for version in versions(tmp_path)} == {first, second, candidate}
    assert promote(tmp_path, candidate) == second
    assert promote(tmp_path, candidate) == candidate
    assert np.array_equal(Catalog.load(tmp_path).vectors, make_catalog(seed=2).vectors)
    assert np.array_equal(Catalog.load(tmp_path, first).vectors, make_catalog(seed=0).vectors)
    assert rollback(tmp_path) == (second, candidate)
    assert rollback(tmp_path) == (first, second)
    with pytest.raises(CatalogError, match="no version from before"):
        rollback(tmp_path)
    assert promote(tmp_path, second) == first


def test_an_unknown_damaged_or_malformed_version_is_refused(tmp_path: Path) -> None:
    first, second = save(tmp_path, 0), save(tmp_path, 1)
    arrays = tmp_path / f"catalog-{first}.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"x")
    for name, message in ((first, "damaged"), ("0" * 16, "has no version"), ("../../etc/passwd", "not the name")):
        with pytest.raises(CatalogError, match=message):
            promote(tmp_path, name)
    with pytest.raises(CatalogError, match="damaged"):
        rollback(tmp_path)
    assert current_version(tmp_path) == second


def test_the_oldest_versions_are_deleted_but_never_what_is_needed(tmp_path: Path) -> None:
    """The version in use, the one before, and the ones that others were trained from stay."""
    start = save(tmp_path, 0)
    names = [add_version(tmp_path, {"n": np.arange(n)}, {"origin": {"start": start}})[:16] for n in range(1, 9)]
    rollback(tmp_path)
    refused = [add_version(tmp_path, {"n": np.ones(n)}, {}, is_promoted=False)[:16] for n in range(10, 18)]
    left = {version.name for version in versions(tmp_path)}
    assert len(left) == KEPT + 1
    assert {start, names[-2], names[-3], refused[-1]} <= left
    assert {path.stem.removeprefix("catalog-") for path in tmp_path.glob("*.safetensors")} == left
    assert rollback(tmp_path)[0] == names[-3]


def test_a_catalog_of_an_earlier_release_is_a_version_too(tmp_path: Path) -> None:
    for path in OLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    older = current_version(tmp_path)
    newer = save(tmp_path, 1)
    assert [version.name for version in versions(tmp_path) if version.is_current] == [newer]
    assert rollback(tmp_path) == (older, newer)
    assert Catalog.load(tmp_path).n_items == Catalog.load(OLDER).n_items


def test_the_command_lists_promotes_and_goes_back(tmp_path: Path) -> None:
    first, second = save(tmp_path, 0), save(tmp_path, 1)
    listed = json.loads(slatewise("catalog", "list", "--catalog", tmp_path, "--json").stdout)["versions"]
    assert {row["version"]: row["is_current"] for row in listed} == {first: False, second: True}
    assert first in slatewise("catalog", "list", "--catalog", tmp_path).stdout
    assert slatewise("catalog", "promote", first, "--catalog", tmp_path).exit_code == 0
    back = slatewise("catalog", "rollback", "--catalog", tmp_path, "--json")
    assert json.loads(back.stdout) == {"version": second, "before": first}
