"""Random traffic, with requests and rules of every kind: int8 copies of the vectors change nothing that is shown."""

from typing import Any

import numpy as np
import pytest

from slatewise.recommender import Boost, Recommender, SlateRules
from slatewise.recommender.events import Event
from slatewise.recommender.types import NothingToShowError, PolicyShare
from slatewise.slates import list_copies
from slatewise.slates.quantized import VARIABLE
from tests.support.recommending import Clock, ids, make_catalog

N_ITEMS, STEPS, USERS = 400, 80, ("ann", "ben", "eve")
FIRST = 100
FILTERS = ("price < 3", "price < 30", "price > 50", "brand = 'x' and not (price between 20 and 80)")


class Traffic:
    """Visitors, a shop and its items, all of them drawn by a seed."""

    def __init__(self, policy: str, seed: int) -> None:
        self.random, self.catalog = np.random.default_rng(seed), make_catalog(N_ITEMS, seed, FIRST)
        options = {"explore": 0.5} if policy == "dc2b-calibrated" else {}
        shares = {policy: PolicyShare(policy, 1.0, options)}
        self.recommender = Recommender(self.catalog, shares, seed=seed, clock=Clock())
        self.slates: list[list[Any]] = []
        self.prices = {item: float(self.random.integers(100)) for item in self.some_items(300)}
        self.put(*self.prices)

    def run(self) -> list[list[Any]]:
        """Return the items of every slate; an empty one where nothing is left to show."""
        actions = (self.show, self.show, self.show, self.learn_rates, self.withdraw, self.add, self.tell)
        for step in range(STEPS):
            actions[self.random.integers(len(actions))](step)
        self.recommender.close()
        return self.slates

    def some_items(self, n: int) -> list[int]:
        return [int(item) for item in FIRST + self.random.choice(N_ITEMS, n, replace=False)]

    def put(self, *items: int) -> None:
        self.recommender.put_items(
            {
                "id": item,
                "categories": ["ABCD"[item % 4], "EFG"[item % 3]],
                "attributes": {"price": self.prices[item], "brand": "xyz"[item % 5 % 3]},
            }
            for item in items
        )

    def show(self, _step: int) -> None:
        options, draw = dict[str, Any](), self.random
        if draw.random() < 0.4:
            options["exclude"] = self.some_items(int(draw.choice([1, 10, 150])))
        if draw.random() < 0.2:
            options["candidates"] = self.some_items(int(draw.choice([15, 200])))
        if draw.random() < 0.2:
            options["categories"] = [str(draw.choice([*"ABCD"]))]
        if draw.random() < 0.5:
            boost = (Boost("price > 40", 3.0),) if draw.random() < 0.3 else ()
            options["rules"] = SlateRules(filter=str(draw.choice(FILTERS)), boost=boost)
        try:
            slate = self.recommender.recommend(str(draw.choice(USERS)), int(draw.choice([1, 5, 10, 25])), **options)
        except NothingToShowError:
            self.slates.append([])
            return
        shown = ids(slate)
        assert not {*shown} & {*options.get("exclude", ())}
        self.slates.append(shown)
        clicked = [item for item in shown if draw.random() < 0.2]
        self.recommender.feedback(slate.slate_id, clicked, seen=int(draw.integers(len(shown) + 1)))

    def learn_rates(self, _step: int) -> None:
        self.recommender.learn_rates()

    def withdraw(self, _step: int) -> None:
        self.recommender.withdraw_items(self.some_items(int(self.random.choice([1, 10]))))

    def add(self, step: int) -> None:
        item = FIRST + N_ITEMS + step
        self.prices[item] = float(step)
        self.put(item)

    def tell(self, step: int) -> None:
        kind, item = ("purchase", self.some_items(1)[0]) if self.random.random() < 0.5 else ("more", "A")
        self.recommender.record_event(Event(str(self.random.choice(USERS)), item, kind, event_id=str(step)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["dc2b-calibrated", "dc2b"])
def test_traffic_is_served_the_same_with_and_without_the_copy(
    policy: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exclusions and shown items together, once in no common order, came through the copy: this would have seen it."""
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(list_copies, "ENOUGH", 2)
    with_copy = Traffic(policy, seed).run()
    monkeypatch.setenv(VARIABLE, "never")
    assert with_copy == Traffic(policy, seed).run()
    assert sum(map(bool, with_copy)) > 10
