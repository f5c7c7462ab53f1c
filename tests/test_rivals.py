"""Each rival against its textbook formulas: loops, explicit matrices, one user at a time."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from slatewise.catalog import Catalog, CatalogError
from slatewise.data.dataset import Dataset
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.evidence import Evidence
from slatewise.policies import make_policy
from slatewise.policies.gaussian import Gaussian
from slatewise.policies.ials import Ials
from slatewise.policies.item_knn import ItemKnn
from slatewise.policies.rp3beta import Rp3Beta
from slatewise.policies.slim import Slim
from slatewise.randomness import Streams, user_keys
from tests.support import naive

N_ITEMS = 14
Floats = np.ndarray[Any, np.dtype[np.float64]]


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return make_world(WorldSize(n_users=90, n_items=N_ITEMS, n_categories=4, dim=3), seed=4).dataset


@pytest.fixture(scope="module")
def likes(dataset: Dataset) -> Floats:
    table = np.zeros((dataset.n_users, N_ITEMS))
    table[dataset.users, dataset.items] = 1.0
    return table


@pytest.fixture(scope="module")
def catalog(dataset: Dataset) -> Catalog:
    vectors = np.random.default_rng(1).normal(size=(N_ITEMS, 5))
    categories = [["A", "A|B", "C", "B|C|D", "", "D"][item % 6] for item in range(N_ITEMS)]
    plain = Catalog.from_vectors(dataset.item_ids.tolist(), vectors, categories=categories, interactions=dataset)
    return plain.with_co_likes(dataset).with_likes(dataset)


def streams(step: int = 0) -> Streams:
    return Streams(0, user_keys([1]), step)


def after(policy: Any, items: list[int], clicks: list[bool]) -> Any:
    return policy.update(policy.start(1), Evidence.of_clicks(np.array([items]), np.array([clicks])))


def everything() -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.ones((1, N_ITEMS), dtype=bool)


def test_the_gaussian_is_the_textbook_conditional(catalog: Catalog, likes: Floats) -> None:
    """The conditional mean of a joint normal by its precision matrix: −K_jj⁻¹ K_jS (y_S − μ_S) for one unseen j."""
    policy = Gaussian(catalog, shrinkage=0.25)
    rates = (likes.sum(axis=0) + 0.5) / (len(likes) + 1)
    expected = 0.75 * np.cov(likes.T, bias=True)
    np.fill_diagonal(expected, rates * (1 - rates))
    np.testing.assert_allclose(policy.covariance, expected, atol=1e-7)
    seen, clicks = [3, 0, 7], [True, False, True]
    scores = policy.scores(after(policy, seen, clicks))[0]
    for item in set(range(N_ITEMS)) - set(seen):
        joint = [item, *seen]
        precision = np.linalg.inv(policy.covariance[np.ix_(joint, joint)])
        moved = -precision[0, 1:] @ (np.array(clicks) - rates[seen]) / precision[0, 0]
        assert scores[item] == pytest.approx(rates[item] + moved)


def test_the_gaussian_believes_less_in_what_was_hardly_seen(catalog: Catalog) -> None:
    policy = Gaussian(catalog, shrinkage=0.25)
    clicks = Evidence.of_clicks(np.array([[3]]), np.array([[True]]))
    half = Evidence(clicks.items, clicks.value, np.array([[0.5]]), clicks.examined)
    moved = [policy.scores(policy.update(policy.start(1), one))[0] - policy.rates for one in (clicks, half)]
    np.testing.assert_allclose(moved[1], moved[0] / 2)


def test_item_knn_by_loops(catalog: Catalog, likes: Floats) -> None:
    policy = ItemKnn(catalog, neighbors=4, shrinkage=3.0)
    expected = np.zeros((N_ITEMS, N_ITEMS))
    for target in range(N_ITEMS):
        similarity = {}
        for item in set(range(N_ITEMS)) - {target}:
            both = likes[:, item] @ likes[:, target]
            similarity[item] = both / (math.sqrt(likes[:, item].sum() * likes[:, target].sum()) + 3.0)
        for item in sorted(similarity, key=lambda item: -similarity[item])[:4]:
            expected[item, target] = similarity[item]
    np.testing.assert_allclose(policy.weights, expected, atol=1e-7)


def test_slim_meets_the_conditions_of_its_minimum(catalog: Catalog, likes: Floats) -> None:
    """The gradient of ½|a − Aw|² + ½β|w|² + λ|w|₁ is 0 where w > 0, and not negative where w = 0."""
    policy = Slim(catalog, ridge=2.0, lasso=1.5, neighbors=N_ITEMS)
    weights = policy.weights
    assert (weights >= 0).all()
    assert (np.diag(weights) == 0).all()
    for target in range(N_ITEMS):
        w = weights[:, target]
        gradient = likes.T @ (likes @ w - likes[:, target]) + 2.0 * w + 1.5
        others = np.arange(N_ITEMS) != target
        assert np.abs(gradient[others & (w > 0)]).max(initial=0.0) < 0.1
        assert gradient[others & (w == 0)].min(initial=0.0) > -0.1
    assert (Slim(catalog, lasso=50.0).weights == 0).mean() > (weights == 0).mean()
    assert ((Slim(catalog, lasso=0.1, neighbors=3).weights > 0).sum(axis=0) <= 3).all()


def test_rp3beta_by_walks(catalog: Catalog, likes: Floats) -> None:
    """Probabilities of item → user → item, walk by walk."""
    policy = Rp3Beta(catalog, alpha=0.8, beta=0.5, neighbors=N_ITEMS)
    expected = np.zeros((N_ITEMS, N_ITEMS))
    for start, end in itertools.permutations(range(N_ITEMS), 2):
        for row in likes:
            if row[start] and row[end]:
                expected[start, end] += (1 / likes[:, start].sum()) ** 0.8 * (1 / row.sum()) ** 0.8
        expected[start, end] /= likes[:, end].sum() ** 0.5
    np.testing.assert_allclose(policy.weights, expected, atol=1e-12)


def test_ials_folds_users_in_at_the_minimum_of_its_loss(catalog: Catalog, likes: Floats) -> None:
    """A user's factor has no gradient, and more iterations lower the loss."""
    policy = Ials(catalog, dim=3, regularisation=0.02, unobserved=0.2)
    factors = policy.item_factors
    clicked = [2, 5, 6]
    scores = policy.scores(after(policy, [2, 3, 5, 6], [True, False, True, True]))[0]
    user = np.linalg.lstsq(factors, scores, rcond=None)[0]
    np.testing.assert_allclose(factors @ user, scores, atol=1e-10)
    gradient = 0.02 * (3 + 0.2 * N_ITEMS) * user
    for item in range(N_ITEMS):
        gradient += 0.2 * (factors[item] @ user) * factors[item]
        gradient += (factors[item] @ user - 1.0) * factors[item] if item in clicked else 0.0
    np.testing.assert_allclose(gradient, 0.0, atol=1e-10)

    def loss(iterations: int) -> float:
        one = Ials(catalog, dim=3, regularisation=0.02, unobserved=0.2, iterations=iterations)
        q = one.item_factors
        p = np.array([_least_squares(q[row > 0], 0.2 * q.T @ q, 0.02 * (row.sum() + 0.2 * N_ITEMS)) for row in likes])
        sizes = likes.sum(axis=1) + 0.2 * N_ITEMS, likes.sum(axis=0) + 0.2 * len(likes)
        penalty = sum(float(n @ np.square(x).sum(axis=1)) for n, x in zip(sizes, (p, q), strict=True))
        fitted = p @ q.T
        return float((likes * (fitted - 1) ** 2).sum() + 0.2 * np.square(fitted).sum() + 0.02 * penalty)

    losses = [loss(iterations) for iterations in (1, 2, 4, 16)]
    assert losses == sorted(losses, reverse=True)


def _least_squares(liked: Floats, gram: Floats, ridge: float) -> Floats:
    """The factor of one user, by the normal equations."""
    matrix = liked.T @ liked + gram + ridge * np.eye(gram.shape[0])
    return np.asarray(np.linalg.solve(matrix, liked.sum(axis=0)))


def test_ials_alternates_least_squares(catalog: Catalog, likes: Floats) -> None:
    """Two iterations of the compiled fit against one normal equation after the other."""
    policy = Ials(catalog, dim=3, regularisation=0.02, unobserved=0.2, iterations=2)
    q = np.random.default_rng(0).normal(0.0, 0.1 / np.sqrt(3), (N_ITEMS, 3))
    for _ in range(2):
        p = np.array([_least_squares(q[row > 0], 0.2 * q.T @ q, 0.02 * (row.sum() + 0.2 * N_ITEMS)) for row in likes])
        sizes = likes.sum(axis=0) + 0.2 * len(likes)
        q = np.array([_least_squares(p[likes[:, i] > 0], 0.2 * p.T @ p, 0.02 * sizes[i]) for i in range(N_ITEMS)])
    np.testing.assert_allclose(policy.item_factors, q, atol=1e-12)


@pytest.mark.parametrize("exploring", ["thompson", "ucb"])
def test_logistic_by_its_textbook(catalog: Catalog, exploring: str) -> None:
    policy = make_policy("logistic", catalog, exploring=exploring, exploration=0.7, prior_variance=0.5)
    rates = 1 / (1 + np.exp(-catalog.log_odds))
    vectors = catalog.taste_vectors.astype(float) / (rates * (1 - rates))[:, None]
    rank = vectors.shape[1]
    items, clicks = [4, 1, 9], [True, False, True]
    state = after(policy, items, clicks)
    options = {"offsets": catalog.log_odds[items], "weights": np.ones(3)}
    prior = (np.zeros(rank), 0.5 * np.eye(rank))
    mean, covariance = naive.update(prior, vectors[items], np.array(clicks, dtype=float), options, 0.0, 60)
    np.testing.assert_allclose(np.linalg.inv(state["precision"][0]), covariance, rtol=1e-5)
    root = np.linalg.inv(np.linalg.cholesky(np.linalg.inv(covariance))).T
    theta = mean + 0.7 * root @ streams(1).normal(rank)[0]
    widths = np.array([0.7 * math.sqrt(x @ covariance @ x) for x in vectors])
    logits = catalog.log_odds + (vectors @ theta if exploring == "thompson" else vectors @ mean + widths)
    chosen = policy.select(state, everything(), 5, streams(1)).items[0]
    assert chosen.tolist() == np.argsort(-logits)[:5].tolist()


def coverage(catalog: Catalog, item: int) -> dict[str, float]:
    """The like rate of an item, divided among its categories."""
    rate = 1 / (1 + math.exp(-catalog.log_odds[item]))
    names = catalog.categories_of(item) or ("none",)
    return {name: rate / len(names) for name in names}


@pytest.mark.parametrize("name", ["lsb", "cascade-lsb"])
def test_submodular_bandits_by_their_textbook(catalog: Catalog, name: str) -> None:
    """Regression on what each item adds to those above it; greedy by upper confidence bounds."""
    policy = make_policy(name, catalog, ridge=0.2, exploration=0.4)
    topics = [*catalog.category_names, "none"]
    gram, reward = 0.2 * np.eye(5), np.full(5, 0.2)

    def step(above: list[int], item: int) -> Floats:
        left = {topic: math.prod(1 - coverage(catalog, other).get(topic, 0.0) for other in above) for topic in topics}
        return np.array([coverage(catalog, item).get(topic, 0.0) * left[topic] for topic in topics])

    shown, clicks = [3, 8, 1, 5], [False, True, False, True]
    state = after(policy, shown, clicks)
    looked_at = 2 if name == "cascade-lsb" else 4
    for place in range(looked_at):
        delta = step(shown[:place], shown[place])
        gram += np.outer(delta, delta)
        reward += clicks[place] * delta
    np.testing.assert_allclose(state["gram"][0], gram, atol=1e-12)
    np.testing.assert_allclose(state["reward"][0], reward, atol=1e-12)
    inverse = np.linalg.inv(gram)

    def gain(slate: list[int], item: int) -> float:
        delta = step(slate, item)
        return float(inverse @ reward @ delta + 0.4 * math.sqrt(delta @ inverse @ delta))

    expected, _ = naive.greedy(everything()[0], 6, gain)
    assert policy.select(state, everything(), 6, streams()).items[0].tolist() == expected


KNOB = 0.7


def category_shares(catalog: Catalog) -> Floats:
    counts = catalog.categories.sum(axis=1, keepdims=True)
    return np.asarray(catalog.categories / np.maximum(counts, 1))


@pytest.mark.parametrize("rerank", ["overlap", "mmr", "dpp", "xquad", "calibration"])
def test_rerankings_by_their_textbook(catalog: Catalog, rerank: str) -> None:
    """Greedy by loops over the formula of each rule, on scores of a scale of their own."""
    policy = ItemKnn(catalog, diversity=KNOB, rerank=rerank)
    items, clicks = [3, 0, 7], [True, False, True]
    state = after(policy, items, clicks)
    scores = policy.scores(state)[0]
    unit = float(np.sort(scores)[-10:].mean())
    weight, vectors, shares = KNOB**2 * unit, catalog.vectors.astype(float), category_shares(catalog)
    rates = 1 / (1 + np.exp(-catalog.log_odds))
    profile = (shares[3] + shares[7] + rates @ shares / rates.sum()) / 3

    def log_volume(slate: list[int]) -> float:
        unit_vectors = vectors[slate] / np.linalg.norm(vectors[slate], axis=1, keepdims=True)
        return float(np.linalg.slogdet(unit_vectors @ unit_vectors.T)[1]) if slate else 0.0

    def divergence(slate: list[int]) -> float:
        mixed = 0.99 * shares[slate].sum(axis=0) / len(slate) + 0.01 * profile
        return float((profile * np.log(profile / mixed)).sum())

    def gain(slate: list[int], item: int) -> float:
        if rerank == "overlap":
            alike = [naive.similarity(catalog.categories, vectors, item, other) or 0.0 for other in slate]
            return float(scores[item] - weight * sum(alike))
        if rerank == "mmr":
            cosines = [naive.cosine(vectors[item], vectors[other]) for other in slate]
            return float(scores[item] - weight * max([0.0, *cosines]))
        if rerank == "dpp":
            return float(scores[item] / weight + log_volume([*slate, item]) - log_volume(slate))
        if rerank == "xquad":
            left = np.prod([1 - shares[other] for other in slate], axis=0)
            return float((1 - KNOB) * scores[item] / unit + KNOB * (profile * shares[item] * left).sum())
        return float((1 - KNOB) * scores[item] / unit - KNOB * divergence([*slate, item]))

    available = everything()
    available[0, items] = False
    expected, _ = naive.greedy(available[0], 5, gain)
    assert policy.select(state, available, 5, streams()).items[0].tolist() == expected
    assert ItemKnn(catalog).select(state, available, 5, streams()).items[0].tolist() != expected


def test_probabilities_are_re_ranked_in_the_unit_of_our_policy(catalog: Catalog) -> None:
    policy = Gaussian(catalog, shrinkage=0.25, diversity=KNOB)
    state = after(policy, [3, 0, 7], [True, False, True])
    weight = KNOB**2 * np.sort(policy.rates)[-10:].mean()
    vectors, scores = catalog.vectors.astype(float), policy.scores(state)[0]
    expected, _ = naive.overlap_greedy(scores, catalog.categories, everything()[0], 5, weight, vectors)
    assert policy.select(state, everything(), 5, streams()).items[0].tolist() == expected
    ours = make_policy("dc2b-calibrated", catalog, diversity=KNOB)
    assert weight == pytest.approx(ours.overlap_weight(False))  # type: ignore[attr-defined]


def test_first_slates_are_varied_in_the_upper_half_of_the_knob_only(catalog: Catalog) -> None:
    """In one batch: a user without and one with a history; each gets the slate it would get alone."""
    policy = Gaussian(catalog, shrinkage=0.25, diversity=0.5)
    known = after(policy, [3, 0, 7], [True, False, True])
    both = {name: np.concatenate([policy.start(1)[name], known[name]]) for name in known}
    slates = policy.select(both, np.ones((2, N_ITEMS), dtype=bool), 5, Streams(0, user_keys([1, 2]), 0)).items
    popular = make_policy("popular", catalog)
    assert slates[0].tolist() == popular.select(popular.start(1), everything(), 5, streams()).items[0].tolist()
    assert slates[1].tolist() == policy.select(known, everything(), 5, streams()).items[0].tolist()


@pytest.mark.parametrize("likes", [np.zeros((3, 3), int), np.array([[0, N_ITEMS]]), np.array([[-1, 0]]), np.eye(2)])
def test_likes_are_checked(catalog: Catalog, likes: Any) -> None:
    from dataclasses import replace

    with pytest.raises(CatalogError, match="likes"):
        replace(catalog, likes=likes)


def test_likes_are_saved_and_loaded(catalog: Catalog, tmp_path: Any) -> None:
    catalog.save(tmp_path)
    np.testing.assert_array_equal(Catalog.load(tmp_path).likes, catalog.likes)
