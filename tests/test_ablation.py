"""Every variant of the ablation changes something: one that overrides what is no longer called would not."""

import runpy
from collections.abc import Callable
from typing import Any

import pytest

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import Dataset
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab.simulate import Session, simulate
from tests.conftest import ROOT

Variant = Callable[[Catalog, Dataset], Any]
VARIANTS: dict[str, Variant] = runpy.run_path(str(ROOT / "experiments" / "ablation.py"))["VARIANTS"]
REFERENCE = "as it is"
TOO_LARGE = {"rank 25", "rank 100"}
"""What so small a world has no use for: there are fewer directions of taste."""


@pytest.fixture(scope="module")
def world() -> tuple[Dataset, Catalog]:
    people = make_world(WorldSize(n_users=300, n_items=200, n_categories=8), seed=3).dataset
    return people, Catalog.train(people, BprSettings(epochs=2))


def shown(variant: str, world: tuple[Dataset, Catalog]) -> list[Any]:
    people, catalog = world
    return simulate(VARIANTS[variant](catalog, people), people.take(range(60)), Session(seed=0))["item"].to_list()


@pytest.fixture(scope="module")
def reference(world: tuple[Dataset, Catalog]) -> list[Any]:
    return shown(REFERENCE, world)


@pytest.mark.parametrize("variant", sorted(VARIANTS.keys() - {REFERENCE} - TOO_LARGE))
def test_a_variant_shows_other_items(variant: str, world: tuple[Dataset, Catalog], reference: list[Any]) -> None:
    assert shown(variant, world) != reference


def test_the_reference_shows_the_same_items_again(world: tuple[Dataset, Catalog], reference: list[Any]) -> None:
    assert shown(REFERENCE, world) == reference
