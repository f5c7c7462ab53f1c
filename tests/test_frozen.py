"""Quick instances of frozen dataclasses are those that their own ways would give."""

from dataclasses import FrozenInstanceError, asdict, dataclass, replace

import pytest

from slatewise.frozen import changed, made
from slatewise.recommender import Recommender
from slatewise.recommender.views import SlateItem
from tests.test_recommender import make_catalog


@dataclass(frozen=True)
class Thing:
    name: str
    size: int = 1


def test_quick_instances_are_like_any_others() -> None:
    thing = made(Thing, name="a", size=2)
    assert thing == Thing("a", 2)
    assert changed(thing, size=3) == replace(thing, size=3) == Thing("a", 3)
    assert thing == Thing("a", 2)
    with pytest.raises(FrozenInstanceError):
        thing.size = 5  # type: ignore[misc]


def test_items_of_a_slate_have_all_their_fields() -> None:
    for item in Recommender(make_catalog()).recommend("ann", 5).items:
        assert item == SlateItem(**asdict(item))
        assert vars(item) == vars(SlateItem(**asdict(item)))
