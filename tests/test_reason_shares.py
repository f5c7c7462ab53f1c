"""What each observation adds to m·x, for the policies of the paper: recomputed one number at a time, and complete."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise import belief
from slatewise.evidence import Evidence
from slatewise.policies import make_policy
from slatewise.recommender.reasons import like_shares
from tests.support.recommending import make_catalog

CATALOG = make_catalog(40)
CHOSEN = np.array([3, 17, 30])
Pull = Callable[[float, float, float], float]


def dc2b_pull(value: float, weight: float, examined: float) -> float:
    """Equation (8) at α = 3: y + 2α − ½ for each item, a refusal as far as it was looked at."""
    return weight * (1.0 if value > 0.5 else examined) * (value + 6.0 - 0.5)


def c2ucb_pull(value: float, weight: float, examined: float) -> float:
    """Ridge regression of the reward y on q·x."""
    return weight * examined * value


PULLS: dict[str, Pull] = {"dc2b": dc2b_pull, "c2ucb": c2ucb_pull}


def evidence_from(seed: int) -> Evidence:
    draw = np.random.default_rng(seed)
    items = draw.choice(40, (1, 8), replace=False)
    value = np.where(draw.random((1, 8)) < 0.7, draw.integers(0, 2, (1, 8)), draw.random((1, 8)))
    return Evidence(items, value.astype(float), draw.uniform(0.3, 2.0, (1, 8)), draw.uniform(0.2, 1.0, (1, 8)))


def parts(policy: Any, evidence: Evidence, pull: Pull) -> tuple[NDArray[np.float64], NDArray[np.float64], Any]:
    """What the start and each observation add to m·x of the chosen items: (k,), (k, n), and the belief now."""
    start, (precision, shift) = policy.start(1), policy.belief_arrays
    now = policy.update(start, evidence)
    covariance = np.linalg.inv(now[precision][0])
    scale = policy.length if hasattr(policy, "length") else policy.vector_length
    vectors = CATALOG.vectors.astype(float) * scale
    pulls = [
        pull(*numbers) for numbers in zip(evidence.value[0], evidence.weight[0], evidence.examined[0], strict=True)
    ]
    rows = [
        [
            float(vectors[chosen] @ covariance @ vectors[item]) * p
            for item, p in zip(evidence.items[0], pulls, strict=True)
        ]
        for chosen in CHOSEN
    ]
    first = [float(vectors[chosen] @ covariance @ start[shift][0]) for chosen in CHOSEN]
    return np.array(first), np.array(rows), policy.belief_in(now)


@pytest.mark.parametrize("name", PULLS)
@given(seed=st.integers(0, 2**32 - 1))
def test_shares_are_those_of_the_textbook_and_add_up_to_the_mean(name: str, seed: int) -> None:
    policy: Any
    policy, evidence = make_policy(name, CATALOG), evidence_from(seed)
    first, shares, now = parts(policy, evidence, PULLS[name])
    found = like_shares(policy, belief.factor(now), CHOSEN, evidence)
    np.testing.assert_allclose(found, shares, rtol=1e-6, atol=1e-9)
    mean = policy.chosen_at(CHOSEN) @ belief.mean(now)[0]
    np.testing.assert_allclose(first + found.sum(axis=1), mean, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", PULLS)
def test_without_one_observation_the_shares_do_not_add_up(name: str) -> None:
    """Negative control: what is left out is missing from the mean."""
    policy: Any
    policy, evidence = make_policy(name, CATALOG), evidence_from(0)
    first, _, now = parts(policy, evidence, PULLS[name])
    liked = int(np.argmax(evidence.value[0]))
    weight = evidence.weight.copy()
    weight[0, liked] = 0.0
    found = like_shares(policy, belief.factor(now), CHOSEN, replace(evidence, weight=weight))
    mean = policy.chosen_at(CHOSEN) @ belief.mean(now)[0]
    assert np.abs(first + found.sum(axis=1) - mean).max() > 1e-3


@pytest.mark.parametrize("name", PULLS)
def test_a_share_is_what_the_mean_loses_without_that_pull(name: str) -> None:
    """The definition: take one pull out of Σ⁻¹m and leave Σ as it is."""
    policy: Any
    policy, evidence = make_policy(name, CATALOG), evidence_from(1)
    _, shares, now = parts(policy, evidence, PULLS[name])
    shown = policy.chosen_at(CHOSEN)
    for place, item in enumerate(evidence.items[0]):
        pull = PULLS[name](evidence.value[0, place], evidence.weight[0, place], evidence.examined[0, place])
        without = belief.Beliefs(now.precision, now.shift - pull * policy.chosen_at(np.array([item])))
        lost = shown @ (belief.mean(now)[0] - belief.mean(without)[0])
        np.testing.assert_allclose(shares[:, place], lost, rtol=1e-6, atol=1e-9)
