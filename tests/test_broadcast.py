"""What is sent to workers arrives intact, and is loaded once."""

import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slatewise.catalog import Catalog, CatalogError
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import Dataset
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab.broadcast import MemoryBroadcast, load_broadcast

DATASET = make_world(WorldSize(n_users=30, n_items=20, n_categories=4, dim=3), seed=1).dataset
NAMES = np.array([f"né {number:02}" for number in range(30)], dtype=object)
UUIDS = np.array([uuid.UUID(int=number) for number in range(30)], dtype=object)


@pytest.mark.parametrize("ids", [DATASET.user_ids, NAMES, UUIDS], ids=["int", "text", "uuid"])
def test_a_data_set_arrives_as_it_was(ids: np.ndarray[tuple[int], np.dtype[np.object_]], tmp_path: Path) -> None:
    sent = replace(DATASET, user_ids=ids, notes=("one note",), name="größe")
    broadcast = MemoryBroadcast.of(sent)
    for arrived in (broadcast.open(), broadcast.store(tmp_path / "x").open()):
        assert isinstance(arrived, Dataset)
        assert arrived.digest == sent.digest
        assert arrived.user_ids.tolist() == ids.tolist()
        assert arrived.user_ids.dtype == ids.dtype
        assert (arrived.name, arrived.notes, arrived.titles) == (sent.name, sent.notes, sent.titles)
        assert not arrived.items.flags.writeable


def test_a_catalog_arrives_as_it_was() -> None:
    sent = Catalog.train(DATASET, BprSettings(dim=2, epochs=1)).with_co_likes(DATASET)
    arrived = MemoryBroadcast.of(sent).open()
    for name in ("vectors", "taste_vectors", "log_odds", "categories", "co_likes", "population_covariance"):
        assert getattr(arrived, name).tobytes() == getattr(sent, name).tobytes()
    assert list(arrived.titles) == list(sent.titles)


def test_a_broadcast_is_named_by_all_of_its_content() -> None:
    changed = [replace(DATASET, name="x"), replace(DATASET, users=DATASET.users[1:], items=DATASET.items[1:])]
    names = {MemoryBroadcast.of(dataset).digest for dataset in (DATASET, *changed)}
    assert len(names) == 3
    assert MemoryBroadcast.of(DATASET) == MemoryBroadcast.of(DATASET)


def test_a_flipped_bit_is_noticed() -> None:
    broadcast = MemoryBroadcast.of(DATASET)
    for name, content in broadcast.files.items():
        flipped = bytearray(content)
        flipped[len(flipped) // 2] ^= 1
        with pytest.raises(CatalogError, match=r"damaged|not a catalog manifest"):
            replace(broadcast, files={**broadcast.files, name: bytes(flipped)}).open()


def test_a_broadcast_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    load_broadcast.cache_clear()
    calls: list[MemoryBroadcast] = []
    monkeypatch.setattr(MemoryBroadcast, "open", lambda self: calls.append(self))
    for _ in range(3):
        load_broadcast(MemoryBroadcast.of(DATASET))
    assert len(calls) == 1
    load_broadcast(MemoryBroadcast.of(replace(DATASET, name="another")))
    assert len(calls) == 2
    load_broadcast.cache_clear()
