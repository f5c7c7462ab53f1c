"""The stochastic greedy: propensities by formula are frequencies, and the log has them and chooses again."""

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from slatewise.policies import make_policy
from slatewise.randomness import GOLDEN, Streams, mix
from slatewise.recommender import AtMost, Pin, PolicyShare, Recommender, SlateRules
from slatewise.slates import Available, overlap_greedy, pack_sets, propensities, rules, table
from slatewise.slates.stochastic import SoftmaxGreedy
from tests.support import naive
from tests.support.recommending import Clock, ids, make_catalog

CATEGORIES = np.array([[1, 0], [1, 0], [1, 1], [0, 1], [0, 0], [0, 0]], dtype=bool)
VECTORS = np.random.default_rng(2).normal(size=(6, 3))
SCORES = np.array([[0.5, 0.45, 0.4, 0.32, 0.35, 0.1]])
SIMILARITIES = np.array(
    [[naive.similarity(CATEGORIES, VECTORS, item, other) or 0.0 for other in range(6)] for item in range(6)]
)
WEIGHT, TEMPERATURE, K = 0.2, 0.1, 3
SLATES = list(itertools.permutations(range(6), K))
DRAWS = 1_000_000
NOBODY = np.array([5], dtype=np.uint64)


def sampler(temperature: float = TEMPERATURE) -> SoftmaxGreedy:
    rule = rules.overlap(pack_sets(CATEGORIES), WEIGHT, VECTORS)
    return SoftmaxGreedy(SCORES, rule, temperature)


def expected(temperature: float = TEMPERATURE) -> NDArray[np.float64]:
    one_by_one = [naive.softmax_propensities(SCORES[0], SIMILARITIES, WEIGHT, temperature, [*s]) for s in SLATES]
    return np.array(one_by_one)


def propensities_of(softmax: SoftmaxGreedy, available: Any, slates: NDArray[np.int64]) -> NDArray[np.float64]:
    nothing_drawn = np.empty((len(slates), 0), dtype=np.uint64)
    return softmax.judge(available, slates, nothing_drawn).propensity


def test_propensities_are_the_formula() -> None:
    found = propensities_of(sampler(), np.ones((1, 6), dtype=bool), np.array(SLATES))
    np.testing.assert_allclose(found, expected(), rtol=1e-12)
    assert found.prod(axis=1).sum() == pytest.approx(1.0)


def test_frequencies_over_a_million_draws_are_the_propensities() -> None:
    """Chi-square over all 120 slates; negative control: a temperature that is 2 % off does not fit."""
    starts = Streams(7, np.arange(DRAWS, dtype=np.uint64), 0).starts
    drawn = sampler().draw(np.ones((1, 6), dtype=bool), K, starts)
    counts = np.bincount(drawn.items @ np.array([36, 6, 1]), minlength=216).reshape(6, 6, 6)
    observed = np.array([counts[slate] for slate in SLATES])
    p_values = []
    for temperature in (TEMPERATURE, 1.02 * TEMPERATURE):
        wanted = DRAWS * expected(temperature).prod(axis=1)
        p_values.append(float(stats.chisquare(observed, wanted * DRAWS / wanted.sum()).pvalue))
    assert p_values[0] > 1e-3 > p_values[1]


def test_marginals_and_expectations_are_sums_over_slates() -> None:
    everything, by_slate = np.ones((1, 6), dtype=bool), expected().prod(axis=1)
    slate, values = np.array([2, 3, 4]), np.arange(6.0)[None]
    starts = Streams(1, np.arange(40_000, dtype=np.uint64), 0).starts
    of_slate = sampler().judge(everything, slate[None], starts[None], values)
    found, drawn, mean = of_slate.marginal[0], of_slate.own_expected[0], of_slate.expected[0]
    exact = [sum(p for s, p in zip(SLATES, by_slate, strict=True) if s[at] == item) for at, item in enumerate(slate)]
    np.testing.assert_allclose(found, exact, rtol=0.01)
    assert found[0] == pytest.approx(exact[0], rel=1e-12)
    by_place = [sum(p * s[at] for s, p in zip(SLATES, by_slate, strict=True)) for at in range(K)]
    np.testing.assert_allclose(drawn, by_place, rtol=0.01)
    for place in range(K):
        left = [item for item in range(6) if item not in slate[:place]]
        ways = [naive.softmax_propensities(SCORES[0], SIMILARITIES, WEIGHT, 0.1, [*slate[:place], i]) for i in left]
        assert mean[place] == pytest.approx(sum(item * way[-1] for item, way in zip(left, ways, strict=True)))


@pytest.mark.parametrize("temperature", [0.1, 2e-4])
@pytest.mark.parametrize("share", [0.0, 0.05, 1.0])
def test_slates_drawn_one_after_the_other_are_as_each_by_itself(temperature: float, share: float) -> None:
    """None, some and all items without categories: what one draw takes is put back, and groups may be kept."""
    draw, n, k, n_rows, n_draws = np.random.default_rng(3), 90, 5, 4, 6
    categories = (draw.random((n, 5)) < 0.3) | np.eye(5, dtype=bool)[draw.integers(5, size=n)]
    categories[draw.random(n) < share] = False
    scores, values, vectors = draw.random((n_rows, n)), draw.random((n_rows, n)), draw.normal(size=(n, 3))
    rule = rules.overlap(pack_sets(categories), np.array([0.3, 0.1, 0.3, 0.0]), vectors)
    softmax, everything = SoftmaxGreedy(scores, rule, temperature), np.ones((1, n), dtype=bool)
    starts = Streams(2, np.arange(n_rows * n_draws, dtype=np.uint64), 0).starts.reshape(n_rows, n_draws)
    shown = np.array([draw.permutation(n)[:k] for _ in range(n_rows)])
    together, kept = softmax.judge(everything, shown, starts, values), softmax.grouped()
    alone = [softmax.judge(everything, shown, starts[:, [at]], values, kept) for at in range(n_draws)]
    for name in ("marginal", "own_expected"):
        np.testing.assert_allclose(getattr(together, name), np.mean([getattr(one, name) for one in alone], axis=0))
    assert temperature < 0.1 or not np.allclose(alone[0].own_expected, alone[1].own_expected)  # draws differ
    others = softmax.judge(everything, shown[:, ::-1], starts, values, kept)
    np.testing.assert_allclose(others.own_expected, together.own_expected)
    np.testing.assert_allclose(softmax.judge(everything, shown, starts).marginal, together.marginal)


@pytest.mark.parametrize("temperature", [0.1, 2e-4])
@pytest.mark.parametrize("entries", [propensities.TABLE, 0])
def test_groups_of_categories_say_what_items_one_by_one_do(
    temperature: float, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of more than one kind and of more than 64 items, some without categories, users of different weights.

    At the lower temperature, shares of what is left vanish next to those of what was chosen.
    """
    monkeypatch.setattr(propensities, "TABLE", entries)
    draw, n, k, n_rows = np.random.default_rng(8), 150, 6, 5
    categories = np.eye(4, dtype=bool)[draw.choice(4, n, p=[0.6, 0.2, 0.1, 0.1])][:, :3]
    vectors, scores, values = draw.normal(size=(n, 3)), draw.random((n_rows, n)), draw.random((n_rows, n))
    weights, available = np.array([0.0, 0.3, 0.05, 0.3, 0.0]), draw.random((n_rows, n)) < 0.8
    softmax = SoftmaxGreedy(scores, rules.overlap(pack_sets(categories), weights, vectors), temperature)
    similar = np.array([[naive.similarity(categories, vectors, i, j) or 0.0 for j in range(n)] for i in range(n)])
    slates = softmax.draw(available, k, Streams(3, np.arange(n_rows, dtype=np.uint64), 0).starts).items
    found = softmax.judge(available, slates, np.empty((n_rows, 0), dtype=np.uint64), values)
    for row, slate in enumerate(slates):
        for place in range(k):
            left = np.flatnonzero(available[row] & ~np.isin(np.arange(n), slate[:place]))
            gains = scores[row, left] - weights[row] * similar[np.ix_(left, slate[:place])].sum(axis=1)
            shares = np.exp((gains - gains.max()) / temperature) / np.exp((gains - gains.max()) / temperature).sum()
            assert found.propensity[row, place] == pytest.approx(shares[left == slate[place]][0], rel=1e-9)
            assert found.expected[row, place] == pytest.approx(shares @ values[row, left], rel=1e-9)


def random_number(start: np.uint64, item: int) -> float:
    """The random number of an item, where those of its place begin."""
    return float(mix(np.uint64((int(start) + int(GOLDEN) * (item + 1)) % 2**64)) >> np.uint64(11)) * 2.0**-53


def drawn_one_by_one(
    scores: NDArray[np.float64], losses: NDArray[np.float64], left: NDArray[np.bool_], k: int, start: np.uint64
) -> list[tuple[int, float]]:
    """Items and propensities by waiting times worked out in full; scores and losses (n, n) are over the temperature."""
    slate: list[tuple[int, float]] = []
    for place in range(min(k, int(left.sum()))):
        chosen, still = [item for item, _ in slate], np.flatnonzero(left)
        still = still[~np.isin(still, chosen)]
        logs = scores[still] - losses[still][:, chosen].sum(axis=1)
        shares = np.exp(logs - logs.max())
        first = np.uint64(mix(start ^ np.uint64(place)))
        uniforms = np.array([random_number(first, item) for item in still.tolist()])
        with np.errstate(divide="ignore", over="ignore"):
            best = int(np.argmin(-np.log1p(-uniforms) / shares))
        slate.append((int(still[best]), float(shares[best] / shares.sum())))
    return slate


@pytest.mark.parametrize("temperature", [1.0, 0.05, 5e-4, 1e-7])
@pytest.mark.parametrize("kind", ["relevance", "categories", "categories and vectors"])
def test_draws_are_the_shortest_waiting_times(kind: str, temperature: float) -> None:
    """At 5e-4, the shares of what is left vanish next to those of what was chosen; at 1e-7, all but the best one do."""
    draw, n, k, n_rows = np.random.default_rng(4), 90, 7, 6
    categories, vectors = draw.random((n, 3)) < 0.3, draw.normal(size=(n, 3)) * (kind == "categories and vectors")
    scores, weights = draw.random((n_rows, n)), np.array([0.0, 0.4, 0.1, 0.4, 2.0, 0.01]) * (kind != "relevance")
    available, starts = draw.random((n_rows, n)) < 0.7, Streams(6, np.arange(n_rows, dtype=np.uint64), 0).starts
    available[2:4] &= np.arange(n) % 20 == 0  # fewer items than places
    similar = np.array([[naive.similarity(categories, vectors, i, j) or 0.0 for j in range(n)] for i in range(n)])
    rule = rules.overlap(pack_sets(categories), weights, *([vectors] if vectors.any() else []))
    softmax = SoftmaxGreedy(scores, rule if kind != "relevance" else rules.relevance(), temperature)
    found = softmax.draw(available, k, starts)
    for row in range(n_rows):
        losses = weights[row] * similar / temperature
        wanted = drawn_one_by_one(scores[row] / temperature, losses, available[row], k, starts[row])
        items, propensity = map(list, zip(*wanted, strict=True))
        assert found.items[row].tolist() == items + [-1] * (k - len(items))
        np.testing.assert_allclose(found.propensity[row, : len(items)], propensity, rtol=1e-12 + 1e-14 / temperature)


def test_a_batch_is_judged_as_its_rows_are_one_by_one() -> None:
    policy, keys = make_policy("dc2b-calibrated", make_catalog(40), explore_slates=0.1), np.arange(5, dtype=np.uint64)
    random, available = Streams(0, keys, 2), np.random.default_rng(0).random((5, 40)) < 0.7
    state = {**policy.start(5), "rounds": np.array([0, 1, 0, 2, 1])}
    slates = policy.select(state, available, 4, random).items
    starts = np.random.default_rng(1).integers(2**63, size=(5, 8), dtype=np.uint64)
    together = policy.softmax(state, random).judge(available, slates, starts, policy.probabilities(state))  # type: ignore[attr-defined]
    for row in range(5):
        rows = slice(row, row + 1)
        alone = {name: array[rows] for name, array in state.items()}
        softmax, values = policy.softmax(alone, Streams(0, keys[rows], 2)), policy.probabilities(alone)  # type: ignore[attr-defined]
        again = softmax.judge(available[rows], slates[rows], starts[rows], values)
        for one, other in zip(together, again, strict=True):
            np.testing.assert_allclose(one[rows], other, rtol=1e-12)


def test_without_heat_it_is_the_greedy_choice_and_leaving_out_others_changes_nothing() -> None:
    everything, starts = np.ones((1, 6), dtype=bool), Streams(3, np.arange(200, dtype=np.uint64), 0).starts
    cold = sampler(1e-6).draw(everything, K, starts).items
    sets = pack_sets(CATEGORIES)
    with_categories = SoftmaxGreedy(SCORES, rules.overlap(sets, WEIGHT), 1e-6).draw(everything, K, starts).items
    assert (cold == cold[0]).all()
    assert (with_categories == overlap_greedy(SCORES, sets, everything, K, WEIGHT).items).all()
    for row, start in zip(sampler().draw(everything, K, starts).items, starts, strict=True):
        others = [item for item in range(6) if item not in row]
        again = sampler().draw(Available.of(6, excluded=others[:2]), K, start[None]).items[0]
        assert (again == row).all()


def test_what_is_not_available_has_no_propensity_and_short_slates_end() -> None:
    only = Available.of(6, candidates=[1, 4])
    assert propensities_of(sampler(), only, np.array([[0, 1, 2]]))[0, [0, 2]].tolist() == [0.0, 0.0]
    drawn = sampler().draw(only, K, NOBODY)
    assert sorted(drawn.items[0].tolist()) == [-1, 1, 4]
    assert drawn.propensity[0].tolist()[1:] == [1.0, 0.0]
    with pytest.raises(ValueError, match="not finite"):
        SoftmaxGreedy(np.array([[np.nan, 1.0]]), rules.relevance(), 1.0).draw(Available.of(2), 1, NOBODY)
    with pytest.raises(ValueError, match="temperature is 0"):
        SoftmaxGreedy.of(table(SCORES), rules.relevance(), 0.0)
    with pytest.raises(ValueError, match="relevance or overlap"):
        SoftmaxGreedy.of(table(SCORES), rules.volume(VECTORS), 1.0)


@pytest.mark.parametrize("name", ["random", "dc2b-calibrated"])
def test_policies_say_how_probable_their_slates_were(name: str) -> None:
    """A batch, and each of its users alone, draw the same; `softmax` gives the same propensities again."""
    options = {} if name == "random" else {"explore_slates": 0.1, "temperature": 0.5, "explore": 0.3}
    policy, keys = make_policy(name, make_catalog(40), **options), np.arange(5, dtype=np.uint64)
    state, available = policy.start(5), np.random.default_rng(0).random((5, 40)) < 0.7
    slates = policy.select(state, available, 4, Streams(0, keys, 2))
    assert slates.propensity is not None
    softmax = policy.softmax(state, Streams(0, keys, 2))  # type: ignore[attr-defined]
    np.testing.assert_allclose(propensities_of(softmax, available, slates.items), slates.propensity, rtol=1e-12)
    for user in range(5):
        alone = {key: value[user : user + 1] for key, value in state.items()}
        seen = Available.of(40, excluded=np.flatnonzero(~available[user]))
        again = policy.select(alone, seen, 4, Streams(0, keys[user : user + 1], 2))
        assert again.items.tolist() == slates.items[user : user + 1].tolist()
        assert again.propensity is not None
        np.testing.assert_allclose(again.propensity[0], slates.propensity[user], rtol=1e-12)


def test_the_log_has_propensities_and_chooses_the_same_again() -> None:
    shares = {"drawn": PolicyShare("dc2b-calibrated", options={"explore_slates": 0.2})}
    clock = Clock()
    with Recommender(make_catalog(60), shares, clock=clock) as recommender:
        for user in range(8):
            for _ in range(3):
                clock.now += 1.0
                slate = recommender.recommend(f"user {user}", 5)
                recommender.feedback(slate.slate_id, ids(slate)[:1])
        assert all(one.is_same for one in recommender.replay())
        firsts = {tuple(ids(recommender.preview(f"new {user}", 5))) for user in range(8)}
        assert len(firsts) == 8  # drawn for each user
        logged = [row["choice"] for row in recommender.export("user 0")["slates"]]
        assert all(0.0 < p < 1.0 for choice in logged for p in choice["propensities"])
        store = recommender.store
        colder = {"drawn": PolicyShare("dc2b-calibrated", options={"explore_slates": 0.1})}
        assert all(one.is_same for one in Recommender(make_catalog(60), colder, store).replay())


def test_rules_and_what_is_known_of_propensities() -> None:
    """Pinned items are certain; rules about several items may draw again, so nothing is said; without heat, nothing."""
    shares = {"drawn": PolicyShare("dc2b-calibrated", options={"explore_slates": 0.2})}
    with Recommender(make_catalog(60), shares) as recommender:
        pinned = recommender.draft(recommender.request("ann", 3, rules=SlateRules(pin=(Pin(101, 2),)))).choice(0)
        assert pinned["propensities"][1] == 1.0 != pinned["propensities"][0]
        limited = recommender.request("ann", 3, rules=SlateRules(at_most=(AtMost(1, "category"),)))
        assert "propensities" not in recommender.draft(limited).choice(0)
    with Recommender(make_catalog(60)) as recommender:
        choice = recommender.draft(recommender.request("ann", 3)).choice(0)
        assert "propensities" not in choice
        assert "explore_slates" not in choice["exploration"]
