"""Each policy against its textbook formulas, one user at a time."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies import Available, make_policy
from slatewise.policies.calibrated import Calibrated
from slatewise.policies.ease import Ease
from slatewise.randomness import Streams, user_keys
from tests.support import naive

N_ITEMS, DIM = 30, 4
VECTORS = np.random.default_rng(0).normal(size=(N_ITEMS, DIM))
CLICKED = {3, 7, 11, 20}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    random = np.random.default_rng(1)
    names = ["A", "B", "A|C", "", "B|C|D", "D"]
    plain = Catalog.from_vectors(range(N_ITEMS), VECTORS, categories=[names[item % 6] for item in range(N_ITEMS)])
    parts: dict[str, Any] = {name: getattr(plain, name) for name in plain.__dataclass_fields__}
    mean, log_odds = random.normal(size=DIM), random.normal(size=N_ITEMS)
    return Catalog(**{**parts, "population_mean": mean, "log_odds": log_odds})


def streams(step: int = 0) -> Streams:
    return Streams(0, user_keys([1]), step)


def sigma(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def everything() -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.ones((1, N_ITEMS), dtype=bool)


def test_logrank_sorts_by_the_mean_users_taste(catalog: Catalog) -> None:
    quality = [sigma(float(catalog.population_mean @ vector)) for vector in catalog.vectors]
    expected = sorted(range(N_ITEMS), key=lambda item: -quality[item])[:6]
    policy = make_policy("logrank", catalog)
    slates = policy.select(policy.start(1), everything(), 6, streams())
    assert slates.items[0].tolist() == expected
    np.testing.assert_allclose(slates.probability[0], [quality[item] for item in expected], rtol=1e-6)


def test_popular_sorts_by_log_odds(catalog: Catalog) -> None:
    policy = make_policy("popular", catalog)
    items = policy.select(policy.start(1), everything(), 6, streams()).items[0]
    assert items.tolist() == sorted(range(N_ITEMS), key=lambda item: -catalog.log_odds[item])[:6]


def test_dpp_map_is_a_greedy_of_quality_and_log_determinant(catalog: Catalog) -> None:
    """Chen et al.: argmax θ r_i + (1 − θ) log det S, with r = exp(ū·x) and S the cosines; k within the rank."""
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    quality = np.exp(catalog.vectors.astype(float) @ catalog.population_mean)

    def value(slate: list[int]) -> float:
        return 0.6 * quality[slate].sum() + 0.4 * np.linalg.slogdet(unit[slate] @ unit[slate].T)[1]  # type: ignore[no-any-return]

    chosen: list[int] = []
    for _ in range(DIM):
        left = [item for item in range(N_ITEMS) if item not in chosen]
        chosen.append(max(left, key=lambda item: value([*chosen, item])))
    policy = make_policy("dpp-map", catalog)
    assert policy.select(policy.start(1), everything(), DIM, streams()).items[0].tolist() == chosen


def test_epsilon_greedy_explores_as_often_as_it_says(catalog: Catalog) -> None:
    """Places that differ from the plain ranking, counted; ε = 0 must count none and ε = 1 nearly all."""
    n_users = 4_000
    best = make_policy("logrank", catalog)
    ranked = best.select(best.start(1), everything(), 1, streams()).items[0, 0]

    def share(epsilon: float) -> float:
        policy = make_policy("epsilon-greedy", catalog, epsilon=epsilon)
        available = np.ones((n_users, N_ITEMS), dtype=bool)
        random = Streams(0, user_keys(range(n_users)), 0)
        return float((policy.select(policy.start(n_users), available, 1, random).items[:, 0] != ranked).mean())

    assert share(0.0) == 0.0
    expected = 0.3 * (1 - 1 / N_ITEMS)
    assert abs(share(0.3) - expected) < 4 * math.sqrt(expected * (1 - expected) / n_users)
    assert share(1.0) > 0.9


def test_c2ucb_by_its_textbook(catalog: Catalog) -> None:
    """V = λ₀I + Σ xxᵀ, b = Σ yx, upper bound θ̂·x + a √(xᵀV⁻¹x), then the entropy greedy by determinants."""
    policy = make_policy("c2ucb", catalog, ridge=2.0, exploration=0.7)
    vectors = catalog.vectors.astype(float) * math.sqrt(DIM)
    gram, reward = 2.0 * np.eye(DIM), np.zeros(DIM)
    state, available = policy.start(1), everything()
    for step in range(3):
        inverse = np.linalg.inv(gram)
        bound = np.array([inverse @ reward @ x + 0.7 * math.sqrt(x @ inverse @ x) for x in vectors])
        expected, _ = naive.entropy_greedy(bound, vectors, available[0], 5, (0.1, 1.0))
        slates = policy.select(state, available, 5, streams(step))
        assert slates.items[0].tolist() == expected
        clicks = np.isin(slates.items, list(CLICKED))
        state = policy.update(state, Evidence.of_clicks(slates.items, clicks))
        for item, clicked in zip(expected, clicks[0], strict=True):
            gram += np.outer(vectors[item], vectors[item])
            reward += clicked * vectors[item]
            available[0, item] = False


def test_dc2b_by_its_textbook(catalog: Catalog) -> None:
    """Algorithm 1 for one user: sample, greedy by determinants, update with explicit inverses."""
    policy = make_policy("dc2b", catalog, vector_length=0.5, alpha=1.5, iterations=4)
    vectors = catalog.vectors.astype(float) * 0.5
    mean, covariance = catalog.population_mean / 0.5, np.eye(DIM)
    state, available = policy.start(1), everything()
    for step in range(3):
        root = np.linalg.inv(np.linalg.cholesky(np.linalg.inv(covariance))).T
        theta = mean + root @ streams(step).normal(DIM)[0]
        expected, _ = naive.dpp_greedy(vectors @ theta, vectors, available[0], DIM, 1.5)
        slates = policy.select(state, available, DIM, streams(step))
        assert slates.items[0].tolist() == expected
        clicks = np.isin(slates.items, list(CLICKED))
        state = policy.update(state, Evidence.of_clicks(slates.items, clicks))
        plain = {"offsets": np.zeros(DIM), "weights": np.ones(DIM)}
        mean, covariance = naive.update((mean, covariance), vectors[expected], clicks[0].astype(float), plain, 3.0, 4)
        np.testing.assert_allclose(np.linalg.inv(state["precision"][0]), covariance, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(np.linalg.solve(state["precision"][0], state["shift"][0]), mean, rtol=1e-8)
        available[0, expected] = False


@pytest.mark.parametrize("category_weight", [0.0, 0.4])
def test_calibrated_by_its_textbook(catalog: Catalog, category_weight: float) -> None:
    """Bayesian linear regression with known noise, refitted from scratch; slates by loops over Jaccard similarities."""
    policy = make_policy("dc2b-calibrated", catalog, diversity=0.6, category_weight=category_weight)
    rates = [sigma(value) for value in catalog.log_odds]
    tastes, vectors = catalog.taste_vectors.astype(float), catalog.vectors.astype(float)
    if category_weight:
        wider = naive.with_categories(tastes, rates, catalog.categories, category_weight)
        tastes = wider.astype(np.float32).astype(float)
    rank = tastes.shape[1]
    noise = [max(p * (1 - p) - float(t @ t), 0.2 * p * (1 - p)) for p, t in zip(rates, tastes, strict=True)]
    favourites = sum(sorted(rates)[-10:]) / 10
    state, available = policy.start(1), everything()
    history: list[tuple[int, float]] = []
    for step in range(3):
        precision = np.eye(rank)
        for item, _ in history:
            precision += np.outer(tastes[item], tastes[item]) / noise[item]
        shift = sum(((y - rates[i]) * tastes[i] / noise[i] for i, y in history), np.zeros(rank))
        theta = np.linalg.inv(precision) @ shift
        scores = np.array(rates) + tastes @ theta
        weight = (0.2 if step == 0 else 0.6) ** 2 * favourites
        expected, _ = naive.overlap_greedy(scores, catalog.categories, available[0], 5, weight, vectors)
        slates = policy.select(state, available, 5, streams(step))
        assert slates.items[0].tolist() == expected
        np.testing.assert_allclose(slates.probability[0], np.clip(scores[expected], 0, 1), rtol=1e-9)
        strengths = catalog.rate_strengths
        variances = [tastes[i] @ np.linalg.inv(precision) @ tastes[i] for i in expected]
        of_rates = [rates[i] * (1 - rates[i]) / (strengths[i] + 1) for i in expected]
        spread = [math.sqrt(sum(both)) for both in zip(variances, of_rates, strict=True)]
        np.testing.assert_allclose(slates.deviation[0], spread, rtol=1e-8)
        clicks = np.isin(slates.items, list(CLICKED))
        state = policy.update(state, Evidence.of_clicks(slates.items, clicks))
        history += [(item, float(clicked)) for item, clicked in zip(expected, clicks[0], strict=True)]
        available[0, expected] = False


def test_ease_by_its_textbook() -> None:
    """Each column of B is the ridge regression of one item's likes on all others' (the diagonal held at zero)."""
    from slatewise.data.synthetic import WorldSize, make_world

    dataset = make_world(WorldSize(n_users=80, n_items=12, n_categories=3, dim=3), seed=4).dataset
    catalog = Catalog.from_vectors(range(12), np.eye(12)).with_co_likes(dataset)
    likes = np.zeros((80, 12))
    likes[dataset.users, dataset.items] = 1.0
    expected = np.zeros((12, 12))
    for item in range(12):
        others = [other for other in range(12) if other != item]
        gram = likes[:, others].T @ likes[:, others] + 5.0 * np.eye(11)
        expected[others, item] = np.linalg.solve(gram, likes[:, others].T @ likes[:, item])
    policy = make_policy("ease", catalog, regularisation=5.0)
    assert isinstance(policy, Ease)
    np.testing.assert_allclose(policy.weights, expected, atol=1e-6)
    state = policy.start(1)
    first = policy.select(state, np.ones((1, 12), dtype=bool), 3, streams())
    state = policy.update(state, Evidence.of_clicks(first.items, np.array([[True, False, True]])))
    folded = expected[first.items[0, 0]] + expected[first.items[0, 2]]
    folded[first.items[0]] = -np.inf
    left = np.ones((1, 12), dtype=bool)
    left[0, first.items[0]] = False
    assert policy.select(state, left, 3, streams(1)).items[0].tolist() == np.argsort(-folded)[:3].tolist()


@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize("clicked", [True, False])
def test_ec_bandit_by_its_textbook(clicked: bool, soft: bool, catalog: Catalog) -> None:
    """Qi et al.: a click teaches both 1; otherwise q = σ_E(1 − σ_C) / (1 − σ_Cσ_E) is the chance of examination."""
    policy = make_policy("ec-bandit", catalog, soft_negatives=soft)
    state = policy.start(1)
    slates = policy.select(state, everything(), 1, streams())
    x = catalog.vectors[slates.items[0]].astype(float) * policy.vector_length  # type: ignore[attr-defined]
    beliefs = {}
    for name in ("relevance", "examination"):
        covariance = np.linalg.inv(state[f"{name}_precision"][0])
        beliefs[name] = (covariance @ state[f"{name}_shift"][0], covariance)
    relevant, examined = (sigma(float(x[0] @ beliefs[name][0])) for name in ("relevance", "examination"))
    q = examined * (1 - relevant) / (1 - examined * relevant)
    after = policy.update(state, Evidence.of_clicks(slates.items, np.array([[clicked]])))
    label = {"relevance": float(clicked), "examination": 1.0 if clicked else q}
    weight = {"relevance": q if soft and not clicked else 1.0, "examination": 1.0}
    assert slates.probability[0, 0] == pytest.approx(relevant * examined)
    for name, belief in beliefs.items():
        options = {"offsets": np.zeros(1), "weights": np.array([weight[name]])}
        mean, covariance = naive.update(belief, x, np.array([label[name]]), options, 0.0, 60)
        np.testing.assert_allclose(np.linalg.inv(after[f"{name}_precision"][0]), covariance, rtol=1e-5)
        np.testing.assert_allclose(
            np.linalg.solve(after[f"{name}_precision"][0], after[f"{name}_shift"][0]), mean, rtol=1e-4, atol=1e-8
        )


def large_catalog(n_items: int = 6_000) -> Catalog:
    """Enough items that pruning has something to leave out."""
    random = np.random.default_rng(2)
    names = [("A", "B", "A|C", "", "B|C|D", "D")[item % 6] for item in range(n_items)]
    plain = Catalog.from_vectors(range(n_items), random.normal(size=(n_items, DIM)), categories=names)
    mean, log_odds = random.normal(size=DIM), random.normal(size=n_items) - 2.0
    return replace(plain, population_mean=mean, log_odds=log_odds)


@pytest.mark.parametrize("name", ["dc2b", "dc2b-calibrated", "c2ucb", "ec-bandit", "mmr", "dpp-map", "popular"])
def test_one_user_gets_the_slates_of_a_batch_without_a_copy_of_the_vectors(name: str) -> None:
    policy, n_items = make_policy(name, large_catalog()), 6_000
    state, available = policy.start(3), np.ones((3, n_items), dtype=bool)
    for step in range(3):
        slates = policy.select(state, available, 10, Streams(0, user_keys([1, 2, 3]), step))
        for user in range(3):
            fresh = make_policy(name, policy.catalog)
            one = {key: array[user : user + 1] for key, array in state.items()}
            seen = Available.of(n_items, np.flatnonzero(~available[user]))
            single = fresh.select(one, seen, 10, Streams(0, user_keys([user + 1]), step))
            np.testing.assert_array_equal(single.items[0], slates.items[user])
            assert not any(copies(part, policy.catalog) for part in vars(fresh).values())
        state = policy.update(state, Evidence.of_clicks(slates.items, slates.items % 3 == 0))
        np.put_along_axis(available, slates.items, False, axis=1)


def copies(part: object, catalog: Catalog) -> bool:
    """Whether something prepared is a table of the size of the vectors that does not share their memory."""
    tables = [part, *(vars(part).values() if hasattr(part, "__dict__") and part is not catalog else ())]
    sources = (catalog.vectors, catalog.taste_vectors)
    return any(
        isinstance(table, np.ndarray)
        and table.shape == catalog.vectors.shape
        and not any(np.shares_memory(table, source) for source in sources)
        for table in tables
    )


def test_another_diversity_shares_everything_prepared() -> None:
    catalog = large_catalog()
    policy = Calibrated(catalog, diversity=0.5, temperature=0.1)
    other = policy.with_diversity(0.9)
    plain = make_policy("dc2b-calibrated", catalog, diversity=0.9, temperature=0.1)
    state = plain.start(1)
    for step in range(3):
        seen = Available.of(catalog.n_items, range(step))
        expected = plain.select(state, seen, 10, streams(step))
        np.testing.assert_array_equal(other.select(state, seen, 10, streams(step)).items, expected.items)
        state = plain.update(state, Evidence.of_clicks(expected.items, expected.items % 3 == 0))
    assert (policy.select(state, seen, 10, streams(2)).items != expected.items).any()
    assert (policy.diversity, other.diversity) == (0.5, 0.9)
    for table in ("vectors", "items", "rates", "noise", "category_sets"):
        assert vars(other)[table] is vars(policy)[table]
    with pytest.raises(ValueError, match=r"diversity is 1\.5"):
        policy.with_diversity(1.5)
