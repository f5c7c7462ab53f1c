"""Catalogs in memory once for all processes of a machine, and processes that die while they use one."""

import gc
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import scale_workers
from benchmarks.large_catalogs import random_tastes
from slatewise.catalog import Catalog, CatalogError
from slatewise.catalog import mapped_arrays as module
from slatewise.catalog.mapped_arrays import DTYPES, is_mapped, map_arrays, share_through, shared
from slatewise.catalog.model_files import write_arrays, write_manifest
from slatewise.catalog.versioned_arrays import with_rows
from slatewise.policies.calibrated import Calibrated
from tests.conftest import missing
from tests.support.recommending import make_catalog

SMAPS = Path("/proc/self/smaps_rollup")
LARGE = np.arange(1 << 19, dtype=np.float32).reshape(-1, 8)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory that this process shares arrays through."""
    share_through(tmp_path)
    yield tmp_path
    share_through(None)


def test_arrays_of_every_type_come_back_as_they_were(tmp_path: Path) -> None:
    given = {kind: np.arange(6).reshape(2, 3).astype(dtype) for kind, dtype in DTYPES.items()}
    given |= {"empty": np.zeros((0, 4)), "number": np.array(3.0)}
    name = write_arrays(tmp_path, given, {})["arrays"]["file"]
    arrays = map_arrays(tmp_path / name)
    assert arrays.keys() == given.keys()
    for kind, array in arrays.items():
        np.testing.assert_array_equal(array, given[kind])
        assert array.dtype == given[kind].dtype
        assert is_mapped(array) == (array.size > 0)
        assert array.flags.aligned
    with pytest.raises(ValueError, match="read-only"):
        arrays["F32"][0, 0] = 1.0


def test_a_loaded_catalog_is_mapped_and_stays_what_it_is_when_a_newer_one_is_saved(tmp_path: Path) -> None:
    make_catalog(seed=0).save(tmp_path)
    catalog = Catalog.load(tmp_path)
    for name in ("vectors", "taste_vectors", "categories", "log_odds"):
        assert is_mapped(getattr(catalog, name)), name
    for seed in range(1, 9):
        make_catalog(seed=seed).save(tmp_path)  # the first version is deleted meanwhile
    assert not is_mapped(make_catalog(seed=0).vectors)
    assert np.array_equal(catalog.taste_vectors, make_catalog(seed=0).taste_vectors)


def test_categories_that_are_not_zeros_and_ones_still_count(tmp_path: Path) -> None:
    catalog = make_catalog(seed=0)
    catalog.save(tmp_path)
    arrays = map_arrays(next(tmp_path.glob("*.safetensors")))
    twice = {**arrays, "categories": 2 * arrays["categories"]}
    manifest = write_arrays(tmp_path, twice, {"item_id_kind": catalog.item_ids.kind, "origin": catalog.about})
    write_manifest(tmp_path / "catalog.json", manifest)
    assert np.array_equal(Catalog.load(tmp_path).categories, catalog.categories)


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    make_catalog(seed=0).save(tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(CatalogError, match="sha256 does not match"):
        Catalog.load(tmp_path)


def test_equal_arrays_are_shared_and_their_file_goes_with_them(directory: Path) -> None:
    one, other = shared(LARGE), shared(LARGE.copy())
    np.testing.assert_array_equal(one, LARGE)
    assert is_mapped(one)
    assert is_mapped(other)
    assert len(list(directory.iterdir())) == 1
    assert shared(one) is not None
    assert not is_mapped(shared(LARGE[:10]))
    assert len(list(directory.iterdir())) == 1
    del one, other
    gc.collect()
    assert not list(directory.iterdir())


def test_without_room_or_a_directory_arrays_stay_where_they_are(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_array", full)
        array = shared(LARGE)
        assert not is_mapped(array)
        assert not array.flags.writeable
    share_through(None)
    assert not is_mapped(shared(LARGE))
    assert not list(directory.iterdir())


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("explore", [0.0, 0.5])
def test_what_slates_are_chosen_by_is_held_once(explore: float) -> None:
    """In memory that all processes share; before, directions to draw rates in were also held by each for itself."""
    policy = Calibrated(random_tastes(20_000), explore=explore)
    assert is_mapped(policy.items.features)
    assert np.shares_memory(policy.features, policy.items.features)
    learned = policy.with_rates(replace(policy.current, mean=0.9 * policy.current.mean))
    assert np.shares_memory(learned.features, learned.items.features)
    assert is_mapped(learned.features)


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_version_takes_memory_for_what_differs(is_shared: bool) -> None:
    """Negative control: a version in which some row of every page differs takes as much memory as the array."""
    array = np.random.default_rng(0).random((1 << 20, 16), dtype=np.float32)
    first = shared(array) if is_shared else with_rows(array, len(array), np.array([5]), np.ones((1, 16)))
    versions, expected = [first], first.copy()
    before = own_mb()
    for number in range(10):
        changed = np.arange(number, len(first), 100_000)
        versions.append(with_rows(versions[-1], len(first), changed, np.full((len(changed), 16), number)))
        expected[changed] = number
    assert own_mb() - before < 10
    np.testing.assert_array_equal(versions[-1], expected)
    before, everywhere = own_mb(), np.arange(0, len(first), 40)
    versions.append(with_rows(first, len(first), everywhere, np.zeros((len(everywhere), 16))))
    assert own_mb() - before > 60


def own_mb() -> float:
    """Return the memory of this process that is no file's: what it has written."""
    if not SMAPS.exists():
        missing(str(SMAPS))
    anonymous = re.search(r"Anonymous: +(\d+) kB", SMAPS.read_text())
    assert anonymous is not None
    return int(anonymous[1]) / 1024


def ask(process: "subprocess.Popen[str]") -> str:
    """Let a worker choose one more slate."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


@pytest.mark.process
@pytest.mark.slow
def test_a_worker_that_is_killed_harms_no_other(tmp_path: Path) -> None:
    """kill -9 in the middle of things; the others go on, and one that starts later chooses the same."""
    catalog, directory = tmp_path / "catalog", tmp_path / "shared"
    directory.mkdir()
    random_tastes(30_000).save(catalog)
    with ExitStack() as stack:
        first, second = (stack.enter_context(scale_workers.worker(catalog, str(directory))) for _ in range(2))
        files = sorted(directory.iterdir())
        assert files
        expected = [ask(first) for _ in range(3)]
        assert [ask(second) for _ in range(2)] == expected[:2]
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert ask(second) == expected[2]
        third = stack.enter_context(scale_workers.worker(catalog, str(directory)))
        assert [ask(third) for _ in range(3)] == expected
        assert sorted(directory.iterdir()) == files
    Catalog.load(catalog)


@pytest.mark.process
@pytest.mark.slow
def test_workers_hold_the_vectors_once() -> None:
    """Negative control: workers that share nothing hold their own copies."""
    measured = scale_workers.run(n_items=60_000, n_workers=3)
    assert measured["workers_share_vectors"] < 1.7
    assert measured["workers_share_nothing"] > measured["workers_share_vectors"] + 0.5
    assert measured["workers_share_published"] < 1.9, "it is 2.04 if each copies its tables"
