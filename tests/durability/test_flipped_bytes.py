"""Flipped bytes in the store and in the catalog: noticed, repaired or refused, never served."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from slatewise.catalog import Catalog, CatalogError
from slatewise.catalog.model_files import MANIFEST
from slatewise.recommender import Recommender, state_codec
from slatewise.store import StoreError, open_store, rows, sql
from slatewise.store.protocol import BeliefRecord
from tests.durability.conftest import make_catalog
from tests.support.served import Caller, Place, start, start_by_command

USERS = tuple(f"user-{number}" for number in range(6))
N_SLATES = 10
N_FLIPS = 80


@dataclass(frozen=True)
class Truth:
    """A store as it was closed, and what the recommender says about each user on it."""

    path: Path
    views: dict[str, Any]


def views(recommender: Recommender, user: str) -> dict[str, Any]:
    """Everything a client can see of a user, except names drawn again."""
    return {
        "export": recommender.export(user),
        "next": recommender.preview(user, 5),
        "belief": recommender.explain(user),
    }


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory, catalog: Catalog) -> Truth:
    path = tmp_path_factory.mktemp("truth") / "slates.db"
    draw = random.Random(0)
    with Recommender(catalog, store=f"sqlite:///{path}") as recommender:
        for user in USERS * N_SLATES:
            slate = recommender.recommend(user, 5)
            recommender.feedback(slate.slate_id, [item.id for item in draw.sample(slate.items, 2)])
        return Truth(path, {user: views(recommender, user) for user in USERS})


def flip(path: Path, place: int) -> None:
    """Invert one byte, and leave the file what it is otherwise: a process may have mapped it."""
    with path.open("r+b") as file:
        file.seek(place)
        flipped = file.read(1)[0] ^ 0xFF
        file.seek(place)
        file.write(bytes([flipped]))


def served_wrong(truth: Truth, path: Path, catalog: Catalog) -> list[str]:
    """Return the users about whom something untrue is said; an error is no untruth."""
    try:
        with Recommender(catalog, store=f"sqlite:///{path}") as recommender:
            return [user for user in USERS if _view(recommender, user) not in (None, truth.views[user])]
    except StoreError:
        return []


def _view(recommender: Recommender, user: str) -> dict[str, Any] | None:
    try:
        return views(recommender, user)
    except StoreError:
        return None


def flips(truth: Truth, tmp_path: Path, catalog: Catalog) -> Iterator[list[str]]:
    """Flip one byte after another, each in a fresh copy; without end."""
    draw = random.Random(1)
    path = tmp_path / "flipped.db"
    while True:
        shutil.copy(truth.path, path)
        flip(path, draw.randrange(path.stat().st_size))
        yield served_wrong(truth, path, catalog)
        for file in tmp_path.glob("flipped.db*"):
            file.unlink()


def test_no_flipped_byte_of_the_store_is_served(truth: Truth, tmp_path: Path, catalog: Catalog) -> None:
    assert [wrong for wrong in islice(flips(truth, tmp_path, catalog), N_FLIPS) if wrong] == []


def test_without_checksums_flipped_bytes_are_served(truth: Truth, tmp_path: Path, catalog: Catalog) -> None:
    with patch.object(rows, "is_intact", lambda *_: True):
        assert any(islice(flips(truth, tmp_path, catalog), 50 * N_FLIPS))


def stored_belief(path: Path) -> bytes:
    store = open_store(f"sqlite:///{path}")
    belief = store.read(lambda t: t.belief(USERS[0]))
    store.close()
    assert belief.content is not None
    return belief.content


def flip_the_belief(truth: Truth, path: Path) -> None:
    """Copy the store, and flip a byte of a number that was learned about the first user: of the policy's state."""
    shutil.copy(truth.path, path)
    content = stored_belief(path)
    state = state_codec.from_bytes(content)["shift"].tobytes()
    flip(path, path.read_bytes().index(content) + content.index(state) + 6)


def test_without_its_checksum_a_flipped_belief_is_served(truth: Truth, tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "slates.db"
    flip_the_belief(truth, path)
    assert served_wrong(truth, path, catalog) == []
    with patch.object(sql, "belief_record", lambda values: BeliefRecord(*values[:-1])):
        assert served_wrong(truth, path, catalog) == [USERS[0]]


def test_a_flipped_belief_is_rebuilt_from_the_log(truth: Truth, tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "slates.db"
    flip_the_belief(truth, path)
    with Recommender(catalog, store=f"sqlite:///{path}") as recommender:
        assert dict(recommender.verify())[USERS[0]]
        assert recommender.rebuilt == 0
        assert {user: views(recommender, user) for user in USERS} == truth.views
        assert recommender.rebuilt == 1
        recommender.recommend(USERS[0])
        assert dict(recommender.verify())[USERS[0]] is None


def catalog_files(place: Place) -> list[Path]:
    found = sorted(place.catalog.iterdir())
    assert MANIFEST in {path.name for path in found}
    return found


def test_a_flipped_catalog_is_refused_and_the_old_one_goes_on(place: Place) -> None:
    service = start(place)
    preview = {"user": "ann", "k": 10, "preview": True}
    draw = random.Random(2)
    with Caller(place) as caller:
        before = caller.ask("POST", "/v1/slates", preview)
        assert before.status == 200
        for path in catalog_files(place):
            for _ in range(5):
                flip(path, byte := draw.randrange(path.stat().st_size))
                assert caller.ask("POST", "/v1/catalog/reload", {}).status == 409
                assert caller.ask("POST", "/v1/slates", preview) == before
                flip(path, byte)
        assert caller.ask("POST", "/v1/catalog/reload", {}).status == 200
        make_catalog(seed=5).save(place.catalog)
        assert caller.ask("POST", "/v1/catalog/reload", {}).status == 200
        assert caller.ask("POST", "/v1/slates", preview) != before
    service.kill()


def flip_a_vector(place: Place, catalog: Catalog) -> None:
    """Invert a byte in the middle of the item vectors."""
    arrays = next(path for path in catalog_files(place) if path.suffix == ".safetensors")
    flip(arrays, arrays.read_bytes().index(catalog.vectors.tobytes()) + 1001)


def test_no_service_starts_on_a_flipped_catalog(place: Place, catalog: Catalog) -> None:
    flip_a_vector(place, catalog)
    with pytest.raises(AssertionError, match="damaged"):
        start_by_command(place)


def test_without_hashes_a_flipped_catalog_would_be_served(place: Place, catalog: Catalog) -> None:
    flip_a_vector(place, catalog)
    with pytest.raises(CatalogError):
        Catalog.load(place.catalog)
    with patch("slatewise.catalog.model_files.check_arrays_file"):
        assert (Catalog.load(place.catalog).vectors != catalog.vectors).sum() == 1
