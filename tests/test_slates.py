import importlib
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise import slates
from slatewise.compiled import Kernel
from slatewise.slates import (
    Available,
    Choice,
    LinearItems,
    choose,
    greedy,
    item_vectors,
    kernels,
    pack_closed,
    pack_sets,
    rules,
)
from slatewise.slates import scores as forms
from tests.support import naive

Floats = NDArray[np.float64]
SEEDS = st.integers(0, 2**32 - 1)
GREEDY = ["mmr", "largest_cosine", "dpp_greedy", "entropy_greedy", "overlap_greedy", "similarity"]
RULES = ["top_k", "epsilon_greedy", *GREEDY]


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


def run(rule: str, scores: Floats, vectors: Floats, available: Available | NDArray[np.bool_], k: int) -> Choice:
    """Any rule, with draws that belong to the user's row."""
    sets, draws = pack_sets(vectors > 0.5), np.random.default_rng(5).random((100, k, 2))[: len(scores)]
    largest = rules.largest_cosine(item_vectors(vectors), 0.4)
    choices = {
        "top_k": lambda: slates.top_k(scores, available, k),
        "epsilon_greedy": lambda: slates.epsilon_greedy(scores, available, k, 0.4, draws),
        "mmr": lambda: slates.mmr(scores, vectors, available, k, 0.6),
        "largest_cosine": lambda: choose(slates.table(scores), largest, available, k),
        "dpp_greedy": lambda: slates.dpp_greedy(scores, vectors, available, k),
        "entropy_greedy": lambda: slates.entropy_greedy(scores, vectors, available, k, (0.7, 0.5)),
        "overlap_greedy": lambda: slates.overlap_greedy(scores, sets, available, k, 0.4),
        "similarity": lambda: choose(slates.table(scores), similarity(vectors), available, k),
    }
    return choices[rule]()


def similarity(vectors: Floats, weight: float = 0.4) -> rules.Rule:
    """Items with a coordinate above 1 have categories; others are compared by their vectors."""
    return rules.overlap(pack_sets(vectors > 1), weight, item_vectors(vectors))


def full_search(rule: str, scores: Floats, vectors: Floats, available: NDArray[np.bool_], k: int) -> naive.Slate:
    """What a search of all items in every step chooses for one user."""
    twins: dict[str, Callable[[], naive.Slate]] = {
        "mmr": lambda: naive.mmr(scores, vectors, available, k, 0.6),
        "largest_cosine": lambda: naive.largest_cosine(scores, vectors, available, k, 0.4),
        "dpp_greedy": lambda: naive.volume_greedy(scores, vectors, available, k),
        "entropy_greedy": lambda: naive.entropy_greedy(scores, vectors, available, k, (0.7, 0.5)),
        "overlap_greedy": lambda: naive.overlap_greedy(scores, vectors > 0.5, available, k, 0.4),
        "similarity": lambda: naive.overlap_greedy(scores, vectors > 1, available, k, 0.4, vectors),
    }
    return twins[rule]()


def assert_same(one: Choice, other: Choice) -> None:
    """The same items; gains up to rounding, far below TIE."""
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
    choice = slates.dpp_greedy(scores, vectors, available, k)
    for user in range(len(logits)):
        assert_slate(choice, user, naive.dpp_greedy(logits[user], vectors, available[user], k, alpha))
        assert_slate(choice, user, naive.volume_greedy(scores[user], vectors, available[user], k))


@given(seed=SEEDS, n_items=st.integers(1, 14), dim=st.integers(1, 4), k=st.integers(1, 9))
@settings(max_examples=80, deadline=None)
def test_entropy_greedy_is_the_log_determinant_greedy(seed: int, n_items: int, dim: int, k: int) -> None:
    scores, vectors, available = world(seed, n_items, dim)
    weight, noise = float(np.random.default_rng(seed).choice([0.0, 0.1, 1.0, 5.0])), 0.5
    choice = slates.entropy_greedy(scores, vectors, available, k, (weight, noise))
    for user in range(len(scores)):
        assert_slate(choice, user, naive.entropy_greedy(scores[user], vectors, available[user], k, (weight, noise)))


@given(seed=SEEDS, n_items=st.integers(1, 14), dim=st.integers(1, 4), k=st.integers(1, 9))
@settings(max_examples=80, deadline=None)
def test_mmr_is_the_papers_formula(seed: int, n_items: int, dim: int, k: int) -> None:
    scores, vectors, available = world(seed, n_items, dim)
    trade_off = float(np.random.default_rng(seed).choice([0.0, 0.3, 0.9, 1.0]))
    choice = slates.mmr(scores, vectors, available, k, trade_off)
    for user in range(len(scores)):
        assert_slate(choice, user, naive.mmr(scores[user], vectors, available[user], k, trade_off))


@pytest.mark.parametrize("seed", range(8))
def test_mmr_tells_cosines_apart_that_float32_cannot(seed: int) -> None:
    """Equal scores, nearly equal directions, and lengths whose squares float32 cannot hold."""
    random = np.random.default_rng(seed)
    directions = random.normal(size=(6, 8))[random.integers(0, 6, 200)] + 1e-7 * random.normal(size=(200, 8))
    vectors = directions * 10.0 ** random.choice([-42, -20, 0, 0, 0, 20, 42], 200)[:, None]
    scores, everything = np.full(200, 0.5), np.ones(200, dtype=bool)
    choice = slates.mmr(scores[None], vectors, everything[None], 9, 0.1)
    assert_slate(choice, 0, naive.mmr(scores, vectors, everything, 9, 0.1))


@given(seed=SEEDS, n_items=st.integers(1, 14), dim=st.integers(1, 4), k=st.integers(1, 9))
@settings(max_examples=80, deadline=None)
def test_the_largest_cosine_counts_unless_it_is_negative(seed: int, n_items: int, dim: int, k: int) -> None:
    scores, vectors, available = world(seed, n_items, dim)
    weight = float(np.random.default_rng(seed).choice([0.0, 0.3, 0.9, 1.0]))
    choice = choose(slates.table(scores), rules.largest_cosine(item_vectors(vectors), weight), available, k)
    for user in range(len(scores)):
        assert_slate(choice, user, naive.largest_cosine(scores[user], vectors, available[user], k, weight))


@given(seed=SEEDS, n_items=st.integers(1, 30), k=st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_top_k_sorts_by_score_then_index(seed: int, n_items: int, k: int) -> None:
    scores, _, available = world(seed, n_items, 2)
    items = slates.top_k(scores, available, k).items
    for user in range(len(scores)):
        assert [item for item in items[user] if item >= 0] == naive.top_k(scores[user], available[user], k)


@given(seed=SEEDS, rule=st.sampled_from(GREEDY), k=st.integers(1, 8), n_items=st.sampled_from([20, 64, 130, 300]))
@settings(max_examples=100, deadline=None)
def test_a_lazy_search_finds_what_a_full_search_finds(seed: int, rule: str, k: int, n_items: int) -> None:
    logits, vectors, available = world(seed, n_items, dim=3, n_users=2)
    random = np.random.default_rng(seed)
    scores = logits * random.choice([0.0, 1e-12, 0.01, 1.0, 6.0, 1e6])
    largest = 1e3 if rule == "entropy_greedy" else 1e6  # beyond, what entropy leaves of a length is rounding
    vectors = vectors * random.choice([1e-6, 1.0, largest])
    choice = run(rule, scores, vectors, available, k)
    for user in range(2):
        expected, _ = full_search(rule, scores[user], vectors, available[user], k)
        assert choice.items[user][choice.items[user] >= 0].tolist() == expected


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
@pytest.mark.parametrize("rule", GREEDY)
@pytest.mark.parametrize("share", [1.0, 0.3, 0.004])
def test_adversaries_get_the_slate_of_a_full_search(rule: str, kind: str, share: float) -> None:
    random = np.random.default_rng(8)
    vectors = random.normal(size=(1000, 4))
    scores, vectors = ADVERSARIES[kind](random.normal(size=(2, 4)) @ vectors.T, vectors)
    available = random.random((2, 1000)) < share
    available[:, 17] = True
    choice = run(rule, scores, vectors, available, 6)
    for user in range(2):
        assert_slate(choice, user, full_search(rule, scores[user], vectors, available[user], 6))


@pytest.fixture
def plain_python(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let all kernels run as plain Python, where a test can replace one of them."""
    for module in (kernels, rules, forms, greedy):
        for name, value in list(vars(module).items()):
            kernel = getattr(value, "kernel", value)
            if isinstance(kernel, Kernel):
                monkeypatch.setattr(module, name, kernel.__wrapped__)
        if "ones" in vars(module):
            monkeypatch.setattr(module, "ones", lambda word: int(word).bit_count())
    return monkeypatch


@pytest.mark.parametrize("rule", GREEDY)
def test_kernels_do_the_same_in_plain_python(rule: str, request: pytest.FixtureRequest) -> None:
    logits, vectors, available = world(4, n_items=150, dim=3, n_users=3)
    compiled = run(rule, logits, vectors, available, 6)
    request.getfixturevalue("plain_python")
    assert_same(run(rule, logits, vectors, available, 6), compiled)


def test_last_known_gains_are_only_bounds(plain_python: pytest.MonkeyPatch) -> None:
    """Negative control: if items in the pool were not looked at again, slates would be wrong."""
    logits, vectors, available = world(4, n_items=400, dim=5, n_users=10)
    honest = slates.dpp_greedy(logits, vectors, available, 5).items
    last_known = lambda _rule, pool, size, _so_far: pool[greedy.GAIN, :size].max(initial=-np.inf)  # noqa: E731
    plain_python.setattr(greedy, "refresh_pool", last_known)
    assert np.mean((slates.dpp_greedy(logits, vectors, available, 5).items != honest).any(axis=1)) > 0.5


def test_blocks_must_be_opened_again(plain_python: pytest.MonkeyPatch) -> None:
    """Negative control: if only the items of the first choice were candidates, slates would be wrong."""
    logits, vectors, available = world(4, n_items=400, dim=5, n_users=10)
    honest = slates.dpp_greedy(logits, vectors, available, 5).items
    open_blocks = greedy.open_blocks

    def once(*given: Any) -> tuple[float, int]:
        size, best = given[4][1], given[4][5]
        return open_blocks(*given) if size == 0 else (best, size)

    plain_python.setattr(greedy, "open_blocks", once)
    assert np.mean((slates.dpp_greedy(logits, vectors, available, 5).items != honest).any(axis=1)) > 0.5


@given(seed=SEEDS, n_blocks=st.sampled_from([1, 63, 64, 65, 128, 300]), share=st.floats(0.0, 0.2))
def test_no_block_that_reaches_is_passed_over(seed: int, n_blocks: int, share: float) -> None:
    random = np.random.default_rng(seed)
    bounds = np.where(random.random(n_blocks) < share, 1.0, random.choice([-np.inf, np.nan, 0.0], size=n_blocks))
    start, kernel = int(random.integers(0, n_blocks + 1)), cast(Kernel, greedy.first_reaching)
    for reach, reaches in ((1.0, bounds == 1.0), (-np.inf, np.isfinite(bounds))):
        found = start + np.flatnonzero(reaches[start:])
        assert kernel.__wrapped__(bounds, start, reach) == (found[0] if len(found) else n_blocks)


def test_a_run_that_is_passed_over_unseen_would_be_noticed(plain_python: pytest.MonkeyPatch) -> None:
    """Negative control: a search that looks only at the first block of every run gives other slates."""
    logits, vectors, available = world(4, n_items=6_400, dim=5, n_users=10)
    honest = slates.dpp_greedy(logits, vectors, available, 5).items

    def coarse(bounds: Floats, start: int, reach: float) -> int:
        limit = max(reach, greedy.LOWEST)
        return next((block for block in range(start, len(bounds), greedy.RUN) if bounds[block] >= limit), len(bounds))

    plain_python.setattr(greedy, "first_reaching", coarse)
    assert np.mean((slates.dpp_greedy(logits, vectors, available, 5).items != honest).any(axis=1)) > 0.5


def test_kernels_for_other_kernels_say_so() -> None:
    with pytest.raises(TypeError, match="product is for other kernels"):
        kernels.product(np.ones((1, 2)), 0, np.ones((1, 2)), 0)


@pytest.mark.parametrize("rule", [*RULES, "int8 copy"])
def test_kernels_give_back_all_arrays(rule: str) -> None:
    """Most of them count no references to arrays; those that do, and allocate some, must be even in the end."""
    scores, vectors, available = world(12, n_items=200, dim=4, n_users=4)
    items = LinearItems.of(vectors, np.zeros(200), base=np.zeros(200), is_quantized=True)
    nrt: Any = importlib.import_module("numba.core.runtime.nrt")
    nrt._nrt.memsys_enable_stats()

    def counts() -> list[int]:
        if rule == "int8 copy":
            choose(items.linear(vectors[:4]), similarity(vectors), available, 4)
        else:
            run(rule, scores, vectors, available, 4)
        made = nrt.rtsys.get_allocation_stats()
        return [made.alloc - made.free, *map(sys.getrefcount, (scores, vectors, available, items.features))]

    counts()
    assert counts() == counts()


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
        np.testing.assert_array_equal(single.gains[0], whole.gains[user])


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
    items = slates.dpp_greedy(dpp_scores(logits, 3.0), vectors, np.ones((1, 2000)), 50).items
    assert all(len(set(row)) == 50 and min(row) >= 0 for row in items.tolist())


def test_alpha_100_neither_overflows_nor_forgets_quality() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(500, 10))
    logits = 20 * rng.normal(size=(5, 10)) @ vectors.T
    choice = slates.dpp_greedy(dpp_scores(logits, 100.0), vectors, np.ones((5, 500)), 10)
    assert np.isfinite(choice.gains).all()
    np.testing.assert_array_equal(choice.items[:, 0], logits.argmax(axis=1))


def test_gains_of_a_slate_within_the_rank_sum_to_log_f() -> None:
    """f(S) = ∏ p · det(L_S) of Algorithm 2."""
    logits, alpha = np.random.default_rng(2).normal(size=30), 1.5
    vectors = np.random.default_rng(3).normal(size=(30, 6))
    choice = slates.dpp_greedy(dpp_scores(logits[None], alpha), vectors, np.ones((1, 30)), 5)
    chosen = choice.items[0]
    table = np.exp(alpha * logits[chosen])[:, None] * vectors[chosen]
    log_f = -np.logaddexp(0, -logits[chosen]).sum() + np.linalg.slogdet(table @ table.T)[1]
    assert choice.gains.sum() == pytest.approx(log_f, rel=1e-9)


def test_duplicates_wait_until_the_space_is_spanned() -> None:
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    scores = np.array([[5.0, 5.0, -5.0, 50.0]])
    assert slates.dpp_greedy(scores, vectors, np.ones((1, 4)), 4).items.tolist() == [[0, 2, 1, 3]]


@pytest.mark.parametrize("n_items", [23, 4001])
@pytest.mark.parametrize("rule", GREEDY)
def test_equal_items_are_taken_in_order_wherever_they_stand(rule: str, n_items: int) -> None:
    vector = np.random.default_rng(1).normal(size=7)
    items = run(rule, np.full((2, n_items), 0.3), np.tile(vector, (n_items, 1)), np.ones((2, n_items), dtype=bool), 6)
    assert items.items.tolist() == [[0, 1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize("rule", GREEDY)
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
    narrow = slates.dpp_greedy(scores, vectors, np.ones((1, 3000)), 20)
    wide = slates.dpp_greedy(scores, vectors.astype(np.float64), np.ones((1, 3000)), 20)
    np.testing.assert_array_equal(narrow.items, wide.items)
    np.testing.assert_allclose(narrow.gains, wide.gains, rtol=1e-11, atol=1e-11)


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
    scores, vectors = np.zeros((2, 5)), np.ones((5, 2))
    available = np.ones((2, 5), dtype=bool)
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="not finite"):
            slates.top_k(scores + bad, available, 2)
    with pytest.raises(ValueError, match="k is 0"):
        slates.top_k(scores, available, 0)
    with pytest.raises(ValueError, match=r"scores are \(5,\)"):
        slates.top_k(scores[0], available[0], 2)
    with pytest.raises(ValueError, match=r"available is shaped \(2, 4\)"):
        slates.top_k(scores, available[:, :4], 2)
    with pytest.raises(ValueError, match=r"scores are \(2, 4\) for 5 items"):
        slates.dpp_greedy(scores[:, :4], vectors, available[:, :4], 2)
    with pytest.raises(ValueError, match="trade_off is 2"):
        slates.mmr(scores, vectors, available, 2, 2.0)
    with pytest.raises(ValueError, match=r"noise 0\.0"):
        slates.entropy_greedy(scores, vectors, available, 2, (1.0, 0.0))
    with pytest.raises(ValueError, match="weight is -1"):
        slates.overlap_greedy(scores, pack_sets(vectors > 0), available, 2, -1)
    with pytest.raises(ValueError, match="two in"):
        slates.epsilon_greedy(scores, available, 2, 0.1, np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match="int64"):
        slates.dpp_greedy(scores, np.ones((5, 2), dtype=np.int64), available, 2)
    slates.top_k(np.where([True] * 4 + [False], scores, np.nan), [[True] * 4 + [False]], 2)


@given(st.integers(0, 10_000), st.integers(1, 12), st.floats(0, 2), st.sampled_from([0, 1, 6, 64, 65, 130]))
@settings(max_examples=60, deadline=None)
def test_overlap_greedy_by_a_loop(seed: int, k: int, weight: float, n_categories: int) -> None:
    random = np.random.default_rng(seed)
    scores, categories = random.normal(size=(3, 80)), random.random((80, n_categories)) < random.choice([0.05, 0.3])
    available = random.random((3, 80)) < 0.8
    choice = slates.overlap_greedy(scores, pack_sets(categories), available, k, weight)
    for user in range(3):
        assert_slate(choice, user, naive.overlap_greedy(scores[user], categories, available[user], k, weight))


@given(SEEDS, st.integers(1, 15), st.floats(0, 2), st.sampled_from([1, 3, 20]))
@settings(max_examples=60, deadline=None)
def test_similarity_by_a_loop(seed: int, k: int, weight: float, dim: int) -> None:
    scores, vectors, available = world(seed, n_items=150, dim=dim)
    choice = choose(slates.table(scores), similarity(vectors, weight), available, k)
    for user in range(3):
        slate = naive.overlap_greedy(scores[user], vectors > 1, available[user], k, weight, vectors)
        assert_slate(choice, user, slate)


def test_vectors_of_items_that_all_have_categories_are_never_looked_at() -> None:
    sets, vectors = pack_sets(np.ones((5, 2), dtype=bool)), np.full((5, 3), np.nan)
    rule = rules.overlap(sets, 0.5, vectors)
    assert rule.vectors.size == 0
    assert rules.overlap(pack_sets(np.eye(5, 4, dtype=bool)), 0.5, vectors).vectors.shape == (5, 3)


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_overlaps_of_candidates_are_those_of_a_full_search(weight: float) -> None:
    """Nearly all items overlap, so that many of a block come into question at once; equal sets share their sum."""
    random = np.random.default_rng(12)
    scores, categories = 0.1 * random.normal(size=(1, 400)), random.random((400, 6)) < 0.5
    available = Available.of(400, excluded=[3, 70, 71], candidates=np.flatnonzero(random.random(400) < 0.7))
    choice = choose(slates.table(scores), rules.overlap(pack_sets(categories), weight), available, 30)
    assert_slate(choice, 0, naive.overlap_greedy(scores[0], categories, available.table()[0], 30, weight))


@given(SEEDS, st.sampled_from([3, 64, 300, 1000]), st.sampled_from([0.02, 0.5, 0.98]))
@settings(max_examples=30, deadline=None)
def test_closed_items_are_those_that_a_table_marks(seed: int, n_items: int, share: float) -> None:
    random = np.random.default_rng(seed)
    is_open, excluded = random.random(n_items) < share, random.choice(n_items, 3, replace=False)
    available = Available(n_items, np.sort(excluded), closed=pack_closed(is_open))
    expected = is_open.copy()
    expected[excluded] = False
    np.testing.assert_array_equal(available.table()[0], expected)
    items = LinearItems.of(random.normal(size=(n_items, 4)), np.zeros(n_items), base=np.zeros(n_items))
    scores, rule = (
        items.linear(random.normal(size=(1, 4))),
        rules.overlap(pack_sets(random.random((n_items, 3)) < 0.5), 0.2),
    )
    assert_same(choose(scores, rule, available, 8), choose(scores, rule, expected[None], 8))


def test_equal_categories_are_one_set() -> None:
    indicators = np.zeros((4, 70), dtype=bool)
    indicators[[0, 2], 69], indicators[1, [0, 69]] = True, True
    words, of_item = pack_sets(indicators)
    assert words.shape == (3, 2)
    assert of_item[0] == of_item[2]
    unpacked = np.unpackbits(words[of_item].view(np.uint8), axis=1, bitorder="little")[:, :70]
    np.testing.assert_array_equal(unpacked, indicators)


def test_every_user_may_have_a_weight_of_their_own() -> None:
    random = np.random.default_rng(7)
    scores, sets = random.normal(size=(3, 200)), pack_sets(random.random((200, 5)) < 0.4)
    weights = np.array([0.0, 0.3, 2.0])
    choice = choose(slates.table(scores), rules.overlap(sets, weights), np.ones((1, 200)), 8)
    for user, weight in enumerate(weights):
        same = slates.overlap_greedy(scores[user : user + 1], sets, np.ones((1, 200)), 8, weight)
        np.testing.assert_array_equal(same.items[0], choice.items[user])


def test_rows_are_the_same_however_the_table_is_stored() -> None:
    random = np.random.default_rng(6)
    by_rows, scores = random.normal(size=(90, 7)).astype(np.float32), random.normal(size=(1, 90))
    expected = slates.dpp_greedy(scores, by_rows, np.ones((1, 90)), 9)
    for stored in (np.asfortranarray(by_rows), by_rows.repeat(2, 0)[::2]):
        assert_same(slates.dpp_greedy(scores, stored, np.ones((1, 90)), 9), expected)
    np.testing.assert_allclose(
        slates.squared_lengths(by_rows), np.square(by_rows.astype(float)).sum(axis=1), rtol=1e-12
    )
    assert np.shares_memory(item_vectors(by_rows), by_rows)


class LinearWorld:
    """Large parts that cancel to nearly equal scores, which float32 cannot tell apart."""

    def __init__(self, seed: int, level: float, scale: float, n_items: int = 400) -> None:
        random = np.random.default_rng(seed)
        self.features = random.normal(size=(n_items, 5)).astype(np.float32)
        self.weights = scale * random.normal(size=(1, 5))
        products = self.features.astype(np.float64) @ self.weights[0]
        self.base = level * (1.0 + 1e-8 * random.normal(size=n_items)) - products
        self.items = LinearItems.of(self.features, self.base, base=self.base)

    @property
    def exact(self) -> Floats:
        """The scores in float64."""
        return np.asarray(self.features.astype(np.float64) @ self.weights[0] + self.base)

    def choose(self, available: Available, k: int) -> list[int]:
        items = choose(self.items.linear(self.weights), rules.relevance(), available, k).items[0]
        return [int(item) for item in items if item >= 0]


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
    linear = LinearWorld(seed, level, scale)
    expected = slates.top_k(linear.exact[None], available, k).items[0]
    assert linear.choose(available, k) == expected[expected >= 0].tolist()


def test_without_the_rounding_error_the_bounds_would_lie(plain_python: pytest.MonkeyPatch) -> None:
    """Negative control: float32 bounds that are taken at their word lose items that belong into the slate."""
    worlds, everything = [LinearWorld(seed, 1e3, 1e3) for seed in range(20)], Available.of(400)
    honest = [linear.choose(everything, 5) for linear in worlds]
    assert honest == [slates.top_k(linear.exact[None], everything, 5).items[0].tolist() for linear in worlds]
    plain_python.setattr(greedy, "rounding_error", lambda *_: 0.0)
    assert sum(linear.choose(everything, 5) != slate for linear, slate in zip(worlds, honest, strict=True)) > 3


@pytest.mark.parametrize("restricted", [False, True])
def test_large_catalogs_whose_bounds_are_not_kept(restricted: bool) -> None:
    """The same choice when bounds are worked out again, with many items excluded, from a table and from features."""
    random, n_items = np.random.default_rng(3), kernels.KEPT_VALUES + 1000
    features, weights = random.normal(size=(n_items, 3)).astype(np.float32), np.array([[0.5, -0.2, 0.1]])
    exact = features.astype(np.float64) @ weights[0]
    best = np.argsort(-exact)[:500]
    candidates = random.permutation(n_items)[: n_items - 500] if restricted else None
    available = Available.of(n_items, best[::2], candidates)
    items = LinearItems.of(features, np.zeros(n_items), base=np.zeros(n_items))
    for form in (items.linear(weights), slates.table(exact[None])):
        chosen = choose(form, rules.relevance(), available, 40).items[0].tolist()
        assert chosen == naive.top_k(exact, available.table()[0], 40)
    expected, _ = naive.volume_greedy(exact, features.astype(np.float64), available.table()[0], 7)
    assert slates.dpp_greedy(exact[None], features, available, 7).items[0].tolist() == expected


@given(
    seed=SEEDS, rule=st.sampled_from(GREEDY), k=st.integers(1, 30), n_candidates=st.sampled_from([None, 0, 1, 5, 300])
)
@settings(max_examples=80, deadline=None)
def test_item_numbers_say_the_same_as_a_table(seed: int, rule: str, k: int, n_candidates: int | None) -> None:
    scores, vectors, _ = world(seed, 200, 3, n_users=1)
    random = np.random.default_rng(seed)
    candidates = None if n_candidates is None else random.integers(0, 200, size=n_candidates)
    available = Available.of(200, random.integers(0, 200, size=random.choice([0, 3, 150])), candidates)
    assert_same(run(rule, scores, vectors, available, k), run(rule, scores, vectors, available.table(), k))


def test_available_says_the_same_as_its_table() -> None:
    both = Available.of(6, excluded=[4, 4, 1], candidates=[5, 4, 4])
    assert both.table().tolist() == [[False, False, False, False, False, True]]
    assert Available.of(3).table().all()
    table = np.array([[True, False]])
    np.testing.assert_array_equal(slates.as_table(table, 1, 2), table)
    assert slates.as_table(table, 3, 2).shape == (3, 2)


@pytest.mark.parametrize("numbers", [[-1], [3], [0.5], [True]])
def test_available_refuses_what_is_no_item(numbers: list[int]) -> None:
    for given_numbers in ({"excluded": numbers}, {"candidates": numbers}):
        with pytest.raises(ValueError, match=next(iter(given_numbers))):
            Available.of(3, **given_numbers)


@pytest.mark.parametrize("rule", [rules.relevance(), rules.overlap(pack_sets(np.ones((300, 2), dtype=bool)), 0.1)])
def test_no_candidates_give_an_empty_slate(rule: rules.Rule) -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    items = LinearItems.of(vectors, np.zeros(300), base=np.zeros(300))
    choice = choose(items.linear(np.ones((1, 6))), rule, Available.of(300, candidates=[]), 10)
    assert (choice.items == -1).all()
