from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise import slates
from slatewise.slates import Available, Bounds, Choice, Entropy, ItemVectors, LinearBounds, Ranking, greedy, vectors
from tests import naive

Floats = NDArray[np.float64]
SEEDS = st.integers(0, 2**32 - 1)
RULES = ["top_k", "epsilon_greedy", "mmr", "dpp_greedy", "entropy_greedy", "overlap_greedy"]
PRUNED = RULES[2:]


def world(seed: int, n_items: int, dim: int, n_users: int = 3) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Logits, vectors and availability; half of the worlds are on a small integer lattice, full of ties."""
    rng = np.random.default_rng(seed)
    if rng.random() < 0.5:
        vectors = rng.integers(-2, 3, size=(n_items, dim)).astype(np.float64)
        theta = rng.integers(-1, 2, size=(n_users, dim)).astype(np.float64)
    else:
        vectors, theta = rng.normal(size=(n_items, dim)), rng.normal(size=(n_users, dim))
    copies = rng.integers(0, n_items, size=(2, n_items // 3))
    vectors[copies[0]] = vectors[copies[1]]
    vectors[rng.random(n_items) < 0.1] = 0.0
    logits = np.zeros((n_users, n_items))
    for coordinate in range(dim):
        logits += theta[:, coordinate, None] * vectors[:, coordinate]
    return logits / 2, vectors, rng.random((n_users, n_items)) < rng.choice([0.2, 0.7, 1.0])


def dpp_scores(logits: Floats, alpha: float) -> Floats:
    scores: Floats = 2 * alpha * logits - np.logaddexp(0, -logits)
    return scores


def run(rule: str, scores: Floats, vectors: Floats, available: NDArray[np.bool_], k: int) -> Choice:
    """Any rule, with draws that belong to the user's row."""
    table, sets = ItemVectors.of(vectors), ItemVectors.of_sets(vectors > 0.5)
    draws = np.random.default_rng(5).random((100, k, 2))[: len(scores)]
    rules = {
        "top_k": lambda: slates.top_k(scores, available, k),
        "epsilon_greedy": lambda: slates.epsilon_greedy(scores, available, k, 0.4, draws),
        "mmr": lambda: slates.mmr(scores, table, available, k, 0.6),
        "dpp_greedy": lambda: slates.dpp_greedy(scores, table, available, k),
        "entropy_greedy": lambda: slates.entropy_greedy(scores, table, available, k, Entropy(0.7, 0.5)),
        "overlap_greedy": lambda: slates.overlap_greedy(scores, sets, available, k, 0.4),
    }
    return rules[rule]()


def alone(rule: str, scores: Floats, vectors: Floats, available: NDArray[np.bool_], k: int) -> Choice:
    """Any greedy rule, user by user."""
    rows = [run(rule, scores[user : user + 1], vectors, available[user : user + 1], k) for user in range(len(scores))]
    return Choice(*(np.concatenate([getattr(row, part) for row in rows]) for part in ("items", "gains", "variety")))


@contextmanager
def pruning(candidates_per_pick: int, growth: int = 2) -> Iterator[None]:
    """Prune hard, or (with very many candidates) not at all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(greedy, "CANDIDATES_PER_PICK", candidates_per_pick)
        patch.setattr(greedy, "CANDIDATE_GROWTH", growth)
        yield


def assert_same(one: Choice, other: Choice) -> None:
    """The same items; gains up to the order in which BLAS adds for one user, far below TIE."""
    np.testing.assert_array_equal(one.items, other.items)
    np.testing.assert_allclose(one.gains, other.gains, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(one.variety, other.variety, rtol=1e-11, atol=1e-11)


def assert_slate(choice: Choice, user: int, slate: naive.Slate) -> None:
    n_chosen = len(slate[0])
    assert choice.items[user, :n_chosen].tolist() == slate[0]
    assert (choice.items[user, n_chosen:] == -1).all()
    np.testing.assert_allclose(choice.gains[user, :n_chosen], slate[1], rtol=1e-7, atol=1e-7)
    assert (choice.gains[user, n_chosen:] == 0).all()


@given(seed=SEEDS, n_items=st.integers(1, 14), dim=st.integers(1, 4), k=st.integers(1, 9))
@settings(max_examples=80, deadline=None)
def test_dpp_greedy_is_the_determinant_greedy(seed: int, n_items: int, dim: int, k: int) -> None:
    logits, vectors, available = world(seed, n_items, dim)
    alpha = float(np.random.default_rng(seed).choice([0.01, 0.5, 1.0, 3.0]))
    scores = dpp_scores(logits, alpha)
    choice = slates.dpp_greedy(scores, ItemVectors.of(vectors), available, k)
    for user in range(len(logits)):
        assert_slate(choice, user, naive.dpp_greedy(logits[user], vectors, available[user], k, alpha))
    with pruning(1):
        assert_same(alone("dpp_greedy", scores, vectors, available, k), choice)


@given(seed=SEEDS, n_items=st.integers(1, 14), dim=st.integers(1, 4), k=st.integers(1, 9))
@settings(max_examples=80, deadline=None)
def test_entropy_greedy_is_the_log_determinant_greedy(seed: int, n_items: int, dim: int, k: int) -> None:
    scores, vectors, available = world(seed, n_items, dim)
    weight, noise = float(np.random.default_rng(seed).choice([0.0, 0.1, 1.0, 5.0])), 0.5
    choice = slates.entropy_greedy(scores, ItemVectors.of(vectors), available, k, Entropy(weight, noise))
    for user in range(len(scores)):
        assert_slate(choice, user, naive.entropy_greedy(scores[user], vectors, available[user], k, (weight, noise)))


@given(seed=SEEDS, n_items=st.integers(1, 14), dim=st.integers(1, 4), k=st.integers(1, 9))
@settings(max_examples=80, deadline=None)
def test_mmr_is_the_papers_formula(seed: int, n_items: int, dim: int, k: int) -> None:
    scores, vectors, available = world(seed, n_items, dim)
    trade_off = float(np.random.default_rng(seed).choice([0.0, 0.3, 0.9, 1.0]))
    choice = slates.mmr(scores, ItemVectors.of(vectors), available, k, trade_off)
    for user in range(len(scores)):
        assert_slate(choice, user, naive.mmr(scores[user], vectors, available[user], k, trade_off))


@given(seed=SEEDS, n_items=st.integers(1, 30), k=st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_top_k_sorts_by_score_then_index(seed: int, n_items: int, k: int) -> None:
    scores, _, available = world(seed, n_items, 2)
    items = slates.top_k(scores, available, k).items
    for user in range(len(scores)):
        assert [item for item in items[user] if item >= 0] == naive.top_k(scores[user], available[user], k)


@given(seed=SEEDS, rule=st.sampled_from(PRUNED), k=st.integers(1, 8), n_items=st.sampled_from([20, 60, 300]))
@settings(max_examples=100, deadline=None)
def test_pruning_changes_nothing(seed: int, rule: str, k: int, n_items: int) -> None:
    logits, vectors, available = world(seed, n_items, dim=3)
    random = np.random.default_rng(seed)
    scores = logits * random.choice([0.0, 1e-12, 0.01, 1.0, 6.0, 1e6])
    vectors = vectors * random.choice([1e-12, 1.0, 1e6])
    with pruning(10**6):
        full = run(rule, scores, vectors, available, k)
    with pruning(1):
        assert_same(run(rule, scores, vectors, available, k), full)
        assert_same(alone(rule, scores, vectors, available, k), full)
    assert_same(alone(rule, scores, vectors, available, k), full)


ADVERSARIES: dict[str, Callable[[Floats, Floats], tuple[Floats, Floats]]] = {
    "tiny scores": lambda scores, vectors: (0.01 * scores, vectors),
    "equal scores": lambda scores, vectors: (np.full_like(scores, 0.3), vectors),
    "equal vectors": lambda scores, vectors: (scores, np.tile(vectors[:1], (len(vectors), 1))),
    "all equal": lambda scores, vectors: (np.full_like(scores, 0.3), np.tile(vectors[:1], (len(vectors), 1))),
    "alpha 100": lambda scores, vectors: (200.0 * scores, vectors),
    "zero vectors": lambda scores, vectors: (scores, vectors * (np.arange(len(vectors)) % 50 == 0)[:, None]),
    "all zero": lambda scores, vectors: (scores, 0.0 * vectors),
    "best ones in one block": lambda scores, vectors: (np.where(np.arange(len(vectors)) % 400, -9.0, scores), vectors),
}


@pytest.mark.parametrize("kind", ADVERSARIES)
@pytest.mark.parametrize("rule", PRUNED)
@pytest.mark.parametrize("share", [1.0, 0.3, 0.004, 0.0004])
def test_adversaries_get_the_full_greedys_slate(rule: str, kind: str, share: float) -> None:
    random = np.random.default_rng(8)
    vectors = random.normal(size=(4000, 4))
    scores, vectors = ADVERSARIES[kind](random.normal(size=(2, 4)) @ vectors.T, vectors)
    available = random.random((2, 4000)) < share
    available[:, 17] = True
    with pruning(10**6):
        full = run(rule, scores, vectors, available, 10)
    assert_same(run(rule, scores, vectors, available, 10), full)
    assert_same(alone(rule, scores, vectors, available, 10), full)


def test_candidates_alone_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: were the first candidates believed to be all there is, some slates would be wrong."""
    logits, vectors, available = world(4, n_items=400, dim=5, n_users=40)
    monkeypatch.setattr(greedy, "CANDIDATES_PER_PICK", 2)
    honest = run("dpp_greedy", logits, vectors, available, 5)
    assert_same(alone("dpp_greedy", logits, vectors, available, 5), honest)
    search = greedy._most_promising
    monkeypatch.setattr(greedy, "_most_promising", lambda *given: (search(*given)[0], np.full(len(given[0]), -1e308)))
    credulous = run("dpp_greedy", logits, vectors, available, 5)
    assert np.mean((honest.items != credulous.items).any(axis=1)) > 0.05
    best = Bounds.best
    monkeypatch.setattr(Bounds, "best", lambda self, size: (best(self, size)[0], -1e308))
    credulous = alone("dpp_greedy", logits, vectors, available, 5)
    assert np.mean((honest.items != credulous.items).any(axis=1)) > 0.05


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n_items", [9, 700])
def test_batch_is_one_by_one(rule: str, n_items: int) -> None:
    scores, vectors, available = world(11, n_items, dim=4, n_users=7)
    whole = run(rule, scores, vectors, available, k=4)
    draws = np.random.default_rng(5).random((100, 4, 2))
    for user in range(7):
        row = slice(user, user + 1)
        single = run(rule, scores[row], vectors, available[row], 4)
        if rule == "epsilon_greedy":
            single = slates.epsilon_greedy(scores[row], available[row], 4, 0.4, draws[row])
        np.testing.assert_array_equal(single.items[0], whole.items[user])
        np.testing.assert_allclose(single.gains[0], whole.gains[user], rtol=1e-11, atol=1e-11)


@given(seed=SEEDS, rule=st.sampled_from(RULES), n_items=st.integers(1, 40), k=st.integers(1, 50))
@settings(max_examples=150, deadline=None)
def test_slates_have_min_of_k_and_available_distinct_items(seed: int, rule: str, n_items: int, k: int) -> None:
    scores, vectors, available = world(seed, n_items, dim=3)
    choice = run(rule, scores, vectors, available, k)
    for user, row in enumerate(choice.items):
        shown = row[row >= 0]
        assert len(shown) == min(k, available[user].sum()) == len(set(shown.tolist()))
        assert available[user, shown].all()
        assert (row[len(shown) :] == -1).all()
    assert np.isfinite(choice.gains).all()


def test_fifty_items_from_ten_dimensions() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2000, 10))
    logits = rng.normal(size=(20, 10)) @ vectors.T
    items = slates.dpp_greedy(dpp_scores(logits, 3.0), ItemVectors.of(vectors), np.ones((1, 2000)), 50).items
    assert all(len(set(row)) == 50 and min(row) >= 0 for row in items.tolist())


def test_alpha_100_neither_overflows_nor_forgets_quality() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(500, 10))
    logits = 20 * rng.normal(size=(5, 10)) @ vectors.T
    choice = slates.dpp_greedy(dpp_scores(logits, 100.0), ItemVectors.of(vectors), np.ones((5, 500)), 10)
    assert np.isfinite(choice.gains).all()
    np.testing.assert_array_equal(choice.items[:, 0], logits.argmax(axis=1))


def test_gains_of_a_slate_within_the_rank_sum_to_log_f() -> None:
    """f(S) = ∏ p · det(L_S) of Algorithm 2."""
    logits, alpha = np.random.default_rng(2).normal(size=30), 1.5
    vectors = np.random.default_rng(3).normal(size=(30, 6))
    choice = slates.dpp_greedy(dpp_scores(logits[None], alpha), ItemVectors.of(vectors), np.ones((1, 30)), 5)
    chosen = choice.items[0]
    table = np.exp(alpha * logits[chosen])[:, None] * vectors[chosen]
    log_f = -np.logaddexp(0, -logits[chosen]).sum() + np.linalg.slogdet(table @ table.T)[1]
    assert choice.gains.sum() == pytest.approx(log_f, rel=1e-9)


def test_duplicates_wait_until_the_space_is_spanned() -> None:
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    scores = np.array([[5.0, 5.0, -5.0, 50.0]])
    assert slates.dpp_greedy(scores, ItemVectors.of(vectors), np.ones((1, 4)), 4).items.tolist() == [[0, 2, 1, 3]]


@pytest.mark.parametrize("n_items", [23, 4001])
@pytest.mark.parametrize("rule", PRUNED)
def test_equal_items_are_taken_in_order_wherever_they_stand(rule: str, n_items: int) -> None:
    vector = np.random.default_rng(1).normal(size=7)
    items = run(rule, np.full((2, n_items), 0.3), np.tile(vector, (n_items, 1)), np.ones((2, n_items), dtype=bool), 6)
    assert items.items.tolist() == [[0, 1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize("rule", PRUNED)
def test_rounding_of_the_scores_decides_nothing(rule: str) -> None:
    """Scores of equal items may differ in the last bits, because a matrix product computed them; a real gap decides."""
    vectors, available = np.tile([[1.0, 2.0], [2.0, 1.0]], (20, 1)), np.ones((1, 40), dtype=bool)
    noise = 1e-13 * np.random.default_rng(0).random((1, 40))
    exact = run(rule, np.full((1, 40), 0.3), vectors, available, 8).items.tolist()
    assert run(rule, 0.3 + noise, vectors, available, 8).items.tolist() == exact
    assert run(rule, 0.3 + 1e7 * noise, vectors, available, 8).items.tolist() != exact


def test_float32_vectors_give_the_slate_of_their_float64_copies() -> None:
    rng = np.random.default_rng(9)
    vectors = rng.normal(size=(3000, 12)).astype(np.float32)
    scores = dpp_scores(rng.normal(size=(15, 12)) @ vectors.T.astype(np.float64), 2.0)
    narrow = slates.dpp_greedy(scores, ItemVectors.of(vectors), np.ones((1, 3000)), 20)
    wide = slates.dpp_greedy(scores, ItemVectors.of(vectors.astype(np.float64)), np.ones((1, 3000)), 20)
    np.testing.assert_array_equal(narrow.items, wide.items)
    np.testing.assert_allclose(narrow.gains, wide.gains, rtol=1e-11, atol=1e-11)


def test_column_ordered_tables_are_not_copied() -> None:
    table = np.asfortranarray(np.ones((50, 3), dtype=np.float32))
    assert np.shares_memory(ItemVectors.of(table).everything.columns, table)


def test_inputs_are_left_alone() -> None:
    scores, vectors, available = world(1, 30, 3)
    before = scores.copy(), vectors.copy(), available.copy()
    for rule in RULES:
        run(rule, scores, vectors, available, 5)
    for array, copy in zip((scores, vectors, available), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def chi_square(picks: NDArray[np.int64], n_items: int) -> float:
    counts = np.bincount(picks, minlength=n_items)
    return float(np.square(counts - len(picks) / n_items).sum() / (len(picks) / n_items))


def test_exploration_is_uniform_and_happens_epsilon_of_the_time() -> None:
    n_users, n_items = 20_000, 11
    scores = np.tile(np.arange(n_items, dtype=np.float64), (n_users, 1))
    draws = np.random.default_rng(3).random((n_users, 2, 2))
    always = slates.epsilon_greedy(scores, np.ones((1, n_items)), 2, 1.0, draws).items
    assert chi_square(always[:, 0], n_items) < 29.6  # 0.999 quantile, 10 degrees of freedom
    assert chi_square(always[:, 1], n_items) < 29.6
    sometimes = slates.epsilon_greedy(scores, np.ones((1, n_items)), 2, 0.3, draws).items
    assert np.mean(sometimes[:, 0] != n_items - 1) == pytest.approx(0.3 * (n_items - 1) / n_items, abs=0.015)
    squared = slates.epsilon_greedy(scores, np.ones((1, n_items)), 2, 1.0, draws**2).items
    assert chi_square(squared[:, 0], n_items) > 29.6  # negative control: draws that are not uniform are noticed


def test_exploration_reaches_the_ends_of_what_is_available() -> None:
    scores, available = np.zeros((2, 5)), np.array([[False, True, False, True, False]])
    draws = np.array([[[0.0, 0.0]], [[0.0, np.nextafter(1.0, 0.0)]]])
    assert slates.epsilon_greedy(scores, available, 1, 1.0, draws).items.tolist() == [[1], [3]]


def test_errors_say_what_to_do() -> None:
    scores, table = np.zeros((2, 5)), ItemVectors.of(np.ones((5, 2)))
    available = np.ones((2, 5), dtype=bool)
    with pytest.raises(ValueError, match="not finite"):
        slates.top_k(scores + np.nan, available, 2)
    with pytest.raises(ValueError, match="k is 0"):
        slates.top_k(scores, available, 0)
    with pytest.raises(ValueError, match=r"scores are \(5,\)"):
        slates.top_k(scores[0], available[0], 2)
    with pytest.raises(ValueError, match="5 vectors for 4 scores"):
        slates.dpp_greedy(scores[:, :4], table, available[:, :4], 2)
    with pytest.raises(ValueError, match="trade_off is 2"):
        slates.mmr(scores, table, available, 2, 2.0)
    with pytest.raises(ValueError, match=r"noise=0\.0"):
        slates.entropy_greedy(scores, table, available, 2, Entropy(1.0, 0.0))
    with pytest.raises(ValueError, match="two in"):
        slates.epsilon_greedy(scores, available, 2, 0.1, np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match="int64"):
        ItemVectors.of(np.ones((5, 2), dtype=np.int64))
    slates.top_k(np.where([True] * 4 + [False], scores, np.nan), [[True] * 4 + [False]], 2)


@given(st.integers(0, 10_000), st.integers(1, 12), st.floats(0, 2))
@settings(max_examples=60, deadline=None)
def test_overlap_greedy_by_a_loop(seed: int, k: int, weight: float) -> None:
    random = np.random.default_rng(seed)
    scores, categories = random.normal(size=(3, 40)), random.random((40, 6)) < 0.3
    available = random.random((3, 40)) < 0.8
    choice = slates.overlap_greedy(scores, ItemVectors.of(categories.astype(np.float32)), available, k, weight)
    for user in range(3):
        expected, gains = naive.overlap_greedy(scores[user], categories, available[user], k, weight)
        assert choice.items[user][choice.items[user] >= 0].tolist() == expected
        np.testing.assert_allclose(choice.gains[user][: len(gains)], gains, atol=1e-9)


def test_overlap_greedy_prunes_without_changing_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    scores, sets = random.normal(size=(5, 3000)), ItemVectors.of((random.random((3000, 8)) < 0.3).astype(np.float32))
    everything = np.ones((5, 3000))
    pruned = slates.overlap_greedy(scores, sets, everything, 10, 0.4)
    monkeypatch.setattr(greedy, "CANDIDATES_PER_PICK", 10**6)
    whole = slates.overlap_greedy(scores, sets, everything, 10, 0.4)
    np.testing.assert_array_equal(pruned.items, whole.items)
    with pytest.raises(ValueError, match="weight is -1"):
        slates.overlap_greedy(scores, sets, everything, 10, -1)


def test_rows_are_the_same_however_the_table_is_stored() -> None:
    random = np.random.default_rng(6)
    by_rows, items = random.normal(size=(90, 7)).astype(np.float32), random.integers(0, 90, size=40)
    direction = random.normal(size=7)
    first = ItemVectors.of(by_rows)
    for stored in (by_rows, np.asfortranarray(by_rows), by_rows.repeat(2, 0)[::2]):
        table = ItemVectors.of(stored)
        np.testing.assert_array_equal(table.rows(items), by_rows[items])
        np.testing.assert_array_equal(table.products(items, direction), first.products(items, direction))
        quick = table.products_to_rounding(items, direction)
        np.testing.assert_allclose(quick, table.products(items, direction), rtol=1e-12, atol=1e-13)


@given(seed=SEEDS, dim=st.integers(1, 40), n_rows=st.integers(1, 4), n_items=st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_products_have_the_same_bits_in_one_call_and_in_a_loop(seed: int, dim: int, n_rows: int, n_items: int) -> None:
    random = np.random.default_rng(seed)
    table = ItemVectors.of(random.normal(size=(50, dim)).astype(np.float32))
    candidates, directions = random.integers(0, 50, size=(n_rows, n_items)), random.normal(size=(n_rows, dim))
    together = table.take(candidates)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "SMALL", 0)
        looped = table.take(candidates)
        expected = looped.dot(directions)
    np.testing.assert_array_equal(together.squared_lengths, looped.squared_lengths)
    np.testing.assert_array_equal(together.dot(directions), expected)
    np.testing.assert_array_equal(table.products(candidates[0], directions[0]), expected[0])


def promise(seed: int, n_items: int, level: float, scale: float, available: Available) -> tuple[Bounds, Floats]:
    """Large parts that cancel to nearly equal scores, which float32 cannot tell apart; also the scores themselves."""
    random = np.random.default_rng(seed)
    table = ItemVectors.of(random.normal(size=(n_items, 5)).astype(np.float32))
    weights = scale * random.normal(size=5)
    products = table.products(np.arange(n_items), weights)
    offsets = level * (1.0 + 1e-8 * random.normal(size=n_items)) - products
    exact = products + offsets
    bounds = LinearBounds.of(np.asarray(table.table, dtype=np.float32), offsets)
    return bounds.promise(weights, available, exact.__getitem__), exact


LEVELS = st.sampled_from([0.0, 1.0, -3e3, 1e7, 1e30, 1e38])
SCALES = st.sampled_from([0.0, 1e-40, 1e-6, 1.0, 1e6, 1e36, 1e40])


@given(seed=SEEDS, level=LEVELS, scale=SCALES, k=st.integers(1, 12), gone=st.integers(0, 40), some=st.booleans())
@settings(max_examples=120, deadline=None)
def test_float32_bounds_find_the_float64_slate(
    seed: int, level: float, scale: float, k: int, gone: int, some: bool
) -> None:
    random = np.random.default_rng(seed)
    candidates = random.integers(0, 400, size=random.choice([3, 90, 350])) if some else None
    available = Available.of(400, random.integers(0, 400, size=gone), candidates)
    bounds, exact = promise(seed, 400, level, scale, available)
    items = np.arange(400) if bounds.numbers is None else bounds.numbers
    seen = available.table()[0, items]
    assert (exact[items] <= bounds.values.astype(np.float64) + bounds.error)[seen].all()
    expected = naive.top_k(exact, available.table()[0], k)
    with pruning(1):
        chosen = slates.top_k_alone(bounds, k).items[0]
        greedily = slates.choose_alone(bounds, ItemVectors.of(np.zeros((400, 1))), k, slates.overlap_rule(0.0))
    assert chosen[chosen >= 0].tolist() == expected
    full = slates.overlap_greedy(exact[None], ItemVectors.of_sets(np.zeros((400, 1), bool)), available.table(), k, 0.0)
    np.testing.assert_array_equal(greedily.items, full.items)


def test_without_their_error_the_bounds_would_lie() -> None:
    """Negative control: float32 bounds that are taken at their word lose items that belong into the slate."""
    wrong = 0
    for seed in range(40):
        bounds, exact = promise(seed, 400, 1e3, 1e3, Available.of(400))
        with pruning(1):
            chosen = slates.top_k_alone(replace(bounds, error=0.0), 5).items[0].tolist()
        wrong += chosen != naive.top_k(exact, np.ones(400, dtype=bool), 5)
    assert wrong > 5


@given(seed=SEEDS, k=st.integers(1, 30), gone=st.integers(0, 40), n_candidates=st.sampled_from([None, 0, 1, 5, 300]))
@settings(max_examples=80, deadline=None)
def test_a_ranking_gives_what_the_table_gives(seed: int, k: int, gone: int, n_candidates: int | None) -> None:
    random = np.random.default_rng(seed)
    scores = random.integers(0, 20, size=60).astype(np.float64)
    candidates = None if n_candidates is None else random.integers(0, 60, size=n_candidates)
    available = Available.of(60, random.integers(0, 60, size=gone), candidates)
    ranking, table = Ranking(scores), ItemVectors.of(random.normal(size=(60, 3)))
    expected = slates.top_k(scores[None], available.table(), k)
    assert_same(slates.top_ranked(ranking, available, k), expected)
    with pruning(1):
        ranked = ranking.promise(available, scores.__getitem__)
        assert_same(slates.top_k_alone(ranked, k), expected)
        chosen = slates.choose_alone(ranked, table, k, slates.cosine_rule(0.5))
    assert_same(chosen, slates.mmr(2.0 * scores[None], table, available.table(), k, 0.5))


def test_available_says_the_same_as_its_table() -> None:
    random = np.random.default_rng(0)
    for share in (0.0, 0.1, 0.9, 1.0):
        table = random.random((1, 50)) < share
        one = Available.one_row(table)
        np.testing.assert_array_equal(one.table(), table)
        assert len(one.excluded) + (0 if one.candidates is None else len(one.candidates)) <= 25
    both = Available.of(6, excluded=[4, 4, 1], candidates=[5, 4, 4])
    assert both.table().tolist() == [[False, False, False, False, False, True]]
    assert Available.of(3).table().all()


@pytest.mark.parametrize("numbers", [[-1], [3], [0.5], [True]])
def test_available_refuses_what_is_no_item(numbers: list[int]) -> None:
    for given_numbers in ({"excluded": numbers}, {"candidates": numbers}):
        with pytest.raises(ValueError, match=next(iter(given_numbers))):
            Available.of(3, **given_numbers)
