"""kill -9 while versions of a catalog are written, promoted and rolled back: one of them is in use, whole."""

import json
import multiprocessing
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from unittest.mock import patch

import pytest

from slatewise.catalog import Catalog, CatalogError
from slatewise.catalog.versions import promote, rollback, versions
from tests.durability.conftest import make_catalog

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])
pytestmark = [pytest.mark.process, pytest.mark.slow]
LONGEST_ROUND = 0.15
SEEDS = range(3)


def change(directory: Path) -> None:
    """Save, promote and go back for ever."""
    catalogs = [make_catalog(seed=seed) for seed in SEEDS]
    while True:
        for number, catalog in enumerate(catalogs):
            name = catalog.save(directory, promote=number != 1)[:16]
            promote(directory, name)
            rollback(directory)


def write_in_place(target: Path, chunks: Iterable[bytes], mode: int = 0o666) -> None:
    """What must be noticed: a file that is written piece by piece under its own name."""
    content = b"".join(chunks)
    with target.open("wb", buffering=0) as file:
        for start in range(0, len(content), 500):
            file.write(content[start : start + 500])
            time.sleep(0.0005)
    target.chmod(mode & 0o644)


def change_in_place(directory: Path) -> None:
    with patch("slatewise.catalog.model_files.write_whole", write_in_place):
        change(directory)


def rounds(directory: Path, work: Callable[[Path], None], n_rounds: int) -> list[str]:
    """Return what was found wrong after each kill."""
    draw, complaints, whole = random.Random(1), [], [make_catalog(seed=seed) for seed in SEEDS]
    for catalog in whole[:2]:
        catalog.save(directory)
    for _ in range(n_rounds):
        process = FORKS.Process(target=work, args=(directory,), daemon=True)
        before = (directory / "catalog.json").stat().st_mtime_ns
        process.start()
        while (directory / "catalog.json").stat().st_mtime_ns == before:
            time.sleep(0.001)
        time.sleep(draw.uniform(0.0, LONGEST_ROUND))
        process.kill()
        process.join()
        try:
            found = Catalog.load(directory)
            assert any((found.vectors == catalog.vectors).all() for catalog in whole)
            for version in versions(directory):
                promote(directory, version.name)
                Catalog.load(directory)
        except (CatalogError, AssertionError, json.JSONDecodeError) as error:
            complaints.append(str(error))
            return complaints
    return complaints


def test_a_killed_writer_leaves_one_whole_version_in_use(tmp_path: Path, n_rounds: int) -> None:
    assert rounds(tmp_path, change, min(n_rounds, 40)) == []


def test_files_that_are_written_in_place_would_be_noticed(tmp_path: Path) -> None:
    assert rounds(tmp_path, change_in_place, 40) != []
