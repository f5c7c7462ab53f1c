"""What travels to workers arrives whole, and is opened once."""

import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slatewise.catalog import Catalog, CatalogError
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import Dataset
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab.parcels import Packed, opened

DATASET = make_world(WorldSize(n_users=30, n_items=20, n_categories=4, dim=3), seed=1).dataset
NAMES = np.array([f"né {number:02}" for number in range(30)], dtype=object)
UUIDS = np.array([uuid.UUID(int=number) for number in range(30)], dtype=object)


@pytest.mark.parametrize("ids", [DATASET.user_ids, NAMES, UUIDS], ids=["int", "text", "uuid"])
def test_a_data_set_arrives_as_it_was(ids: np.ndarray[tuple[int], np.dtype[np.object_]], tmp_path: Path) -> None:
    sent = replace(DATASET, user_ids=ids, notes=("one note",), name="größe")
    packed = Packed.of(sent)
    for arrived in (packed.open(), packed.store(tmp_path / "x").open()):
        assert isinstance(arrived, Dataset)
        assert arrived.digest == sent.digest
        assert arrived.user_ids.tolist() == ids.tolist()
        assert arrived.user_ids.dtype == ids.dtype
        assert (arrived.name, arrived.notes, arrived.titles) == (sent.name, sent.notes, sent.titles)
        assert not arrived.items.flags.writeable


def test_a_catalogue_arrives_as_it_was() -> None:
    sent = Catalog.train(DATASET, BprSettings(dim=2, epochs=1)).with_co_likes(DATASET)
    arrived = Packed.of(sent).open()
    for name in ("vectors", "taste_vectors", "log_odds", "categories", "co_likes", "population_covariance"):
        assert getattr(arrived, name).tobytes() == getattr(sent, name).tobytes()
    assert list(arrived.titles) == list(sent.titles)


def test_a_parcel_is_named_by_all_of_its_content() -> None:
    changed = [replace(DATASET, name="x"), replace(DATASET, users=DATASET.users[1:], items=DATASET.items[1:])]
    names = {Packed.of(dataset).digest for dataset in (DATASET, *changed)}
    assert len(names) == 3
    assert Packed.of(DATASET) == Packed.of(DATASET)


def test_a_flipped_bit_is_noticed() -> None:
    packed = Packed.of(DATASET)
    for name, content in packed.files.items():
        flipped = bytearray(content)
        flipped[len(flipped) // 2] ^= 1
        with pytest.raises(CatalogError, match=r"damaged|not a catalog manifest"):
            replace(packed, files={**packed.files, name: bytes(flipped)}).open()


def test_a_parcel_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened.cache_clear()
    calls: list[Packed] = []
    monkeypatch.setattr(Packed, "open", lambda self: calls.append(self))
    for _ in range(3):
        opened(Packed.of(DATASET))
    assert len(calls) == 1
    opened(Packed.of(replace(DATASET, name="another")))
    assert len(calls) == 2
    opened.cache_clear()
