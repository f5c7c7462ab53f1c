"""What an item without a reaction means, by loops over users and places."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slatewise.evidence import ATTENTION_RULES, Attention, Evidence, Reactions

SEEDS = st.integers(0, 2**32 - 1)
CURVE = (0.9, 0.6, 0.25)


def random_reactions(seed: int, n_users: int = 5, k: int = 6) -> Reactions:
    """Clicks, grades, dislikes and silence on slates with gaps; some clients tell what was seen, some do not."""
    random, shape = np.random.default_rng(seed), (n_users, k)
    value = random.choice([np.nan, np.nan, np.nan, 0.0, 0.4, 1.0], shape)
    items = np.where(random.random(shape) < 0.15, -1, random.integers(0, 40, shape))
    return Reactions(items, value, random.random(shape) < 0.5, random.random(n_users) < 0.4)


def by_loops(attention: Attention, reactions: Reactions) -> list[list[tuple[int, float, float, float] | None]]:
    """Return item, value, weight and examination of every place, or None where nothing is learned."""
    rows = []
    for items, values, seen, is_told in zip(*vars(reactions).values(), strict=True):
        reacted = [item >= 0 and not math.isnan(value) for item, value in zip(items, values, strict=True)]
        last = max((place for place, has_value in enumerate(reacted) if has_value), default=-1)
        row: list[tuple[int, float, float, float] | None] = []
        for place, (item, value) in enumerate(zip(items, values, strict=True)):
            above = place <= last or attention.curve != ()
            known = {"all": True, "until-last-click": above, "curve": True}[attention.rule]
            if item < 0 or not (reacted[place] or (seen[place] if is_told else known)):
                row.append(None)
                continue
            by_place = {"all": False, "until-last-click": place > last, "curve": True}[attention.rule]
            certain = is_told or not by_place or value == 0.0
            examined = 1.0 if certain else CURVE[min(place, 2)]
            if reacted[place]:
                row.append((item, value, 1.0, examined))
            else:
                row.append((item, 0.0, attention.skip_weight, examined))
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("rule", "curve"), [("all", ()), ("until-last-click", ()), ("until-last-click", CURVE), ("curve", CURVE)]
)
@given(seed=SEEDS, skip_weight=st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=40, deadline=None)
def test_every_rule_by_loops(rule: str, curve: tuple[float, ...], seed: int, skip_weight: float) -> None:
    attention, reactions = Attention(rule, skip_weight, curve), random_reactions(seed)
    evidence = attention.evidence(reactions)
    for user, row in enumerate(by_loops(attention, reactions)):
        for place, expected in enumerate(row):
            if expected is None:
                assert evidence.items[user, place] == -1
            else:
                found = (array[user, place] for array in evidence.arrays)
                assert tuple(found) == expected


@given(seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_looking_at_everything_is_what_the_paper_assumes(seed: int) -> None:
    random = np.random.default_rng(seed)
    items, clicks = random.integers(-1, 30, (4, 5)), random.random((4, 5)) < 0.3
    clicks &= items >= 0
    value, unknown = np.where(clicks, 1.0, np.nan), np.zeros(4, dtype=bool)
    found = Attention().evidence(Reactions(items, value, np.zeros_like(clicks), unknown))
    for name, array in vars(Evidence.of_clicks(items, clicks)).items():
        np.testing.assert_array_equal(getattr(found, name), array)


@pytest.mark.parametrize("rule", ATTENTION_RULES)
def test_what_was_told_overrides_every_rule(rule: str) -> None:
    items, value = np.array([[3, 4, 5, 6]]), np.array([[np.nan, np.nan, 1.0, np.nan]])
    seen = np.array([[True, False, False, False]])
    evidence = Attention(rule, curve=CURVE).evidence(Reactions(items, value, seen, np.array([True])))
    assert evidence.items.tolist() == [[3, -1, 5, -1]]
    assert evidence.examined.tolist() == [[1.0] * 4]


def test_a_slate_without_any_reaction_teaches_nothing_until_the_last_click() -> None:
    silent = Reactions(np.arange(3)[None], np.full((1, 3), np.nan), np.zeros((1, 3), bool), np.zeros(1, bool))
    assert (Attention("until-last-click").evidence(silent).items == -1).all()
    assert (Attention("all").evidence(silent).items >= 0).all()


def test_rounds_count_what_taught_anything_and_back() -> None:
    items, ones = np.array([[1, 2], [-1, -1], [3, 4]]), np.ones((3, 2))
    weight = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    rounds = Evidence(items, ones, weight, ones).count_rounds(np.array([0, 0, 5]))
    assert rounds.tolist() == [1, 0, 5]
    assert Evidence(items, ones, -weight, ones).count_rounds(rounds).tolist() == [0, 0, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "some"}, "attention is 'some'; choose one of all, until-last-click, curve"),
        ({"skip_weight": -0.1}, r"skip_weight is -0\.1; give 0 or a positive number"),
        ({"skip_weight": math.nan}, "skip_weight is nan"),
        ({"rule": "curve"}, "curve is empty"),
        ({"curve": (1.0, 0.0)}, r"curve is \(1\.0, 0\.0\); give probabilities above 0"),
        ({"curve": (1.2,)}, "give probabilities above 0 and up to 1"),
    ],
)
def test_attention_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Attention(**options)
