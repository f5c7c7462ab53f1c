"""What every policy must keep, whatever it is: the whole registry over the edge cases."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slatewise.catalog import Catalog, CatalogError
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.evidence import Evidence
from slatewise.lab.simulate import Session, simulate
from slatewise.policies import POLICIES, Available, Policy, Slates, make_policy, policy_options
from slatewise.randomness import Streams, user_keys

WORLD = make_world(WorldSize(n_users=300, n_items=120, n_categories=8, dim=5), seed=11)
LEARNERS: dict[str, dict[str, Any]] = {
    "dc2b": {"vector_length": 2.0, "exposure_push": 0.0, "alpha": 10.0},
    "c2ucb": {"ridge": 1.0, "exploration": 0.1},
    "ec-bandit": {"vector_length": 2.0},
    "dc2b-calibrated": {},
    "ease": {"regularisation": 10.0},
    "gaussian": {},
    "ials": {"dim": 4},
    "item-knn": {"neighbors": 20},
    "slim": {"ridge": 10.0, "neighbors": 20},
    "rp3beta": {"neighbors": 20},
    "logistic": {},
}
PLACE_MATTERS = {"random", "epsilon-greedy", "dc2b-calibrated with drawn slates"}  # they draw by the number of the item

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "dc2b-calibrated with categories": ("dc2b-calibrated", {"category_weight": 0.4}),
    "dc2b-calibrated with drawn slates": ("dc2b-calibrated", {"explore_slates": 0.05}),
    "ease+overlap": ("ease", {"diversity": 0.6}),
    "ease+mmr": ("ease", {"diversity": 0.6, "rerank": "mmr"}),
    "ease+dpp": ("ease", {"diversity": 0.6, "rerank": "dpp"}),
    "ease+xquad": ("ease", {"diversity": 0.6, "rerank": "xquad"}),
    "gaussian+calibration": ("gaussian", {"diversity": 0.4, "rerank": "calibration"}),
    "logistic with upper bounds": ("logistic", {"diversity": 0.5, "exploring": "ucb"}),
    "lsb with upper bounds": ("lsb", {"exploration": 0.3}),
}
"""Options under which a policy is almost another one."""

every_policy = pytest.mark.parametrize("name", [*POLICIES, *VARIANTS])


def make(name: str, catalog: Catalog) -> Policy:
    """Make a policy by its name, or by that of a variant."""
    policy, options = VARIANTS.get(name, (name, {}))
    return make_policy(policy, catalog, **options)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    train, _ = WORLD.dataset.split(0.3, seed=1)
    return (
        Catalog.train(train, BprSettings(dim=6, epochs=40, learning_rate=0.05)).with_co_likes(train).with_likes(train)
    )


NO_OPTION: list[Any] = ["hot", [1.0], math.nan, -math.inf]


@pytest.mark.parametrize("name", POLICIES.built_in)
def test_an_option_of_the_wrong_type_is_refused_by_its_name(name: str, catalog: Catalog) -> None:
    for option, default in policy_options(name).items():
        optional, is_truth = default is None, isinstance(default, bool)
        for value in [
            *NO_OPTION,
            *([] if optional else [None]),
            *([] if is_truth else [True]),
            *([0] if is_truth else []),
        ]:
            with pytest.raises(ValueError, match=rf"^{option} is {re.escape(repr(value))}; (give|choose)"):
                make_policy(name, catalog, **{option: value})


def degenerate(kind: str) -> Catalog:
    """Catalogs that break naive geometry."""
    random = np.random.default_rng(3)
    vectors = {
        "equal vectors": np.ones((30, 4)),
        "zero vectors": np.zeros((30, 4)),
        "some zero": random.normal(size=(30, 4)) * (np.arange(30) % 2)[:, None],
        "one dimension": random.normal(size=(30, 1)),
        "duplicates": np.repeat(random.normal(size=(10, 4)), 3, axis=0),
        "huge": random.normal(size=(30, 4)) * 1e6,
    }[kind]
    nothing: dict[str, Any] = {
        "co_likes": np.zeros((30, 30), dtype=np.float32),
        "likes": np.zeros((0, 2), dtype=np.int32),
    }
    return replace(Catalog.from_vectors(range(30), vectors), **nothing)


def streams(n_users: int, step: int = 0, seed: int = 0) -> Streams:
    return Streams(seed, user_keys(range(n_users)), step)


def check_slates(slates: Slates, available: np.ndarray[Any, Any], k: int) -> None:
    """Exactly min(k, available) distinct available items per user, and finite explanations."""
    assert slates.items.shape == (len(available), k)
    for items, allowed in zip(slates.items, available, strict=True):
        chosen = items[items >= 0]
        assert len(chosen) == min(k, allowed.sum())
        assert len(set(chosen.tolist())) == len(chosen)
        assert allowed[chosen].all()
        assert (items[len(chosen) :] == -1).all()
    shown = slates.items >= 0
    assert np.isfinite(slates.diversity_gain[shown]).all()
    probability = slates.probability[shown]
    assert (np.isnan(probability) | ((probability >= 0) & (probability <= 1))).all()


def play(policy: Policy, n_users: int, k: int, rounds: int = 3) -> list[Slates]:
    """Some rounds with arbitrary clicks, checking every slate on the way."""
    state, available = policy.start(n_users), np.ones((n_users, policy.catalog.n_items), dtype=bool)
    played = []
    for step in range(rounds):
        slates = policy.select(state, available, k, streams(n_users, step))
        check_slates(slates, available, k)
        clicks = (slates.items % 3 == 0) & (slates.items >= 0)
        state = policy.update(state, Evidence.of_clicks(slates.items, clicks))
        for array in state.values():
            assert np.isfinite(array).all()
            assert len(array) == n_users
        for user, items in enumerate(slates.items):
            available[user, items[items >= 0]] = False
        played.append(slates)
    return played


@every_policy
@pytest.mark.parametrize("k", [1, 10, 50])
def test_slates_are_exact_until_the_catalog_runs_out(name: str, k: int, catalog: Catalog) -> None:
    play(make(name, catalog), n_users=4, k=k)


@every_policy
@pytest.mark.parametrize("kind", ["equal vectors", "zero vectors", "some zero", "one dimension", "duplicates", "huge"])
def test_degenerate_catalogs(name: str, kind: str) -> None:
    play(make(name, degenerate(kind)), n_users=3, k=8, rounds=5)


@every_policy
def test_only_what_is_available_is_shown(name: str, catalog: Catalog) -> None:
    policy = make(name, catalog)
    available = np.zeros((3, catalog.n_items), dtype=bool)
    available[0, [5, 77]] = True
    available[1, 9] = True
    check_slates(policy.select(policy.start(3), available, 10, streams(3)), available, 10)


@every_policy
def test_same_seed_same_slates(name: str, catalog: Catalog) -> None:
    first, second = (play(make(name, catalog), 5, 10) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.items, other.items)


@every_policy
def test_batch_is_one_by_one(name: str, catalog: Catalog) -> None:
    policy = make(name, catalog)
    together = simulate(policy, WORLD.dataset.take(range(7)), Session(rounds=4, k=5))
    alone = simulate(policy, WORLD.dataset.take(range(7)), Session(rounds=4, k=5), chunk=1)
    exact = ["user", "round", "position", "item", "clicked"]
    assert together.select(exact).equals(alone.select(exact))
    for column in ("log_probability", "diversity_gain"):
        np.testing.assert_allclose(together[column].fill_null(0), alone[column].fill_null(0), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in PLACE_MATTERS])
def test_permuting_the_items_permutes_nothing_else(name: str, catalog: Catalog) -> None:
    order = np.random.default_rng(0).permutation(catalog.n_items)
    by_item = ("vectors", "log_odds", "categories", "taste_vectors")
    parts: dict[str, Any] = {part: getattr(catalog, part)[order] for part in by_item}
    assert catalog.co_likes is not None
    parts["co_likes"] = catalog.co_likes[np.ix_(order, order)]
    assert catalog.likes is not None
    parts["likes"] = np.column_stack([catalog.likes[:, 0], np.argsort(order)[catalog.likes[:, 1]]])
    same = {part: getattr(catalog, part) for part in ("item_ids", "titles", "category_names", "about")}
    population = {part: getattr(catalog, part) for part in ("population_mean", "population_covariance")}
    permuted = Catalog(**parts, **same, **population)
    available = np.ones((5, catalog.n_items), dtype=bool)

    def choose(one: Catalog) -> np.ndarray[Any, Any]:
        policy = make_policy(name, one)
        return policy.select(policy.start(5), available, 10, streams(5)).items

    np.testing.assert_array_equal(order[choose(permuted)], choose(catalog))


@every_policy
def test_inputs_are_left_alone(name: str, catalog: Catalog) -> None:
    policy = make(name, catalog)
    state, available = policy.start(3), np.ones((3, catalog.n_items), dtype=bool)
    before = {key: array.copy() for key, array in state.items()}
    slates = policy.select(state, available, 10, streams(3))
    policy.update(state, Evidence.of_clicks(slates.items, slates.items % 2 == 0))
    assert available.all()
    for key, array in state.items():
        np.testing.assert_array_equal(array, before[key])


def some_evidence(n_items: int, n_users: int = 4, sign: float = 1.0) -> Evidence:
    """Graded reactions of several weights, some to items that are looked at with less than certainty, some to none."""
    random, shape = np.random.default_rng(17), (n_users, 9)
    items = random.permuted(np.tile(np.arange(n_items), (n_users, 1)), axis=1)[:, :9]
    items[:, 4] = -1
    weight = random.choice([0.0, 0.4, 1.0, 2.5], shape)
    return Evidence(items, random.random(shape), sign * weight, random.uniform(0.1, 1.0, shape))


@every_policy
def test_evidence_taken_back_leaves_nothing_behind(name: str, catalog: Catalog) -> None:
    """An update with weights w and one with −w are the identity, in any order with others; other policies refuse."""
    policy = make(name, catalog)
    added, removed = some_evidence(catalog.n_items), some_evidence(catalog.n_items, sign=-1.0)
    items = np.random.default_rng(3).permutation(catalog.n_items)[: 4 * 9].reshape(4, 9)
    clicks = Evidence.of_clicks(items, items % 3 == 0)
    if not policy.additive:
        if set(policy.start(1)) - {"rounds"}:
            with pytest.raises(ValueError, match="cannot take evidence back"):
                policy.update(policy.start(4), removed)
        return
    expected = policy.update(policy.start(4), clicks)
    state = policy.update(policy.update(policy.update(policy.start(4), added), clicks), removed)
    assert set(policy.additive) <= set(state)
    for key, array in expected.items():
        assert array.dtype == state[key].dtype
        np.testing.assert_allclose(state[key], array, rtol=1e-12, atol=1e-12, err_msg=key)


@every_policy
def test_additive_arrays_are_the_start_and_a_sum(name: str, catalog: Catalog) -> None:
    """What two pieces of evidence add to the start is what they add one after the other."""
    policy, first = make(name, catalog), some_evidence(catalog.n_items)
    second = Evidence.of_clicks(first.items[::-1].copy(), first.items % 2 == 0)
    start = policy.start(4)
    one, other = policy.update(start, first), policy.update(start, second)
    both = policy.update(one, second)
    for key in policy.additive:
        np.testing.assert_allclose(both[key], one[key] + other[key] - start[key], rtol=1e-12, atol=1e-12)
        assert (both[key] != start[key]).any()


@every_policy
def test_what_was_not_seen_teaches_nothing(name: str, catalog: Catalog) -> None:
    policy = make(name, catalog)
    state = policy.update(policy.start(4), some_evidence(catalog.n_items))
    items = np.arange(12).reshape(4, 3)
    clicks = Evidence.of_clicks(items, items % 2 == 0)
    for nothing in (replace(clicks, items=np.full((4, 3), -1)), replace(clicks, weight=np.zeros((4, 3)))):
        after = policy.update(state, nothing)
        for key, array in state.items():
            np.testing.assert_array_equal(after[key], array, err_msg=key)


def precision_by_round(name: str, catalog: Catalog, **options: Any) -> np.ndarray[Any, Any]:
    _, test = WORLD.dataset.split(0.3, seed=1)
    records = simulate(make_policy(name, catalog, **options), test, Session(rounds=4, k=5))
    return np.array([records.filter(records["round"] == number)["clicked"].mean() for number in range(4)])


def test_policies_that_know_the_crowd_beat_chance(catalog: Catalog) -> None:
    chance = precision_by_round("random", catalog).mean()
    for name in POLICIES:
        if name != "random":
            assert precision_by_round(name, catalog).mean() > 1.5 * chance, name


@pytest.mark.parametrize("name", POLICIES.built_in)
def test_learners_learn_a_known_taste_and_others_do_not(name: str) -> None:
    """People like exactly the items along one axis; after three slates a learner shows mostly those."""
    random = np.random.default_rng(5)
    likes = np.arange(90) % 3 == 0
    vectors = np.where(likes[:, None], [1.0, 0, 0], [0, 1.0, 1.0]) + 0.3 * random.normal(size=(90, 3))
    crowd = random.random((200, 90)) < np.where((np.arange(200) % 2 == 0)[:, None] == likes, 0.6, 0.1)
    trained: dict[str, Any] = {
        "co_likes": (crowd.T.astype(float) @ crowd).astype(np.float32),
        "likes": np.argwhere(crowd),
    }
    catalog = replace(Catalog.from_vectors(range(90), vectors), **trained)
    policy = make_policy(name, catalog, **LEARNERS.get(name, {}))
    n_users = 40
    state, available = policy.start(n_users), np.ones((n_users, 90), dtype=bool)
    shares = []
    for step in range(5 if not policy.one_at_a_time else 20):
        k = 1 if policy.one_at_a_time else 4
        slates = policy.select(state, available, k, streams(n_users, step))
        state = policy.update(state, Evidence.of_clicks(slates.items, likes[slates.items]))
        np.put_along_axis(available, slates.items, False, axis=1)
        shares.append(likes[slates.items].mean())
    late = float(np.mean(shares[len(shares) * 3 // 5 :]))
    if name in LEARNERS:
        assert late > 0.6
    else:
        assert late < 0.6


BAD_OPTIONS: dict[str, dict[str, Any]] = {
    "mmr": {"trade_off": 1.5},
    "epsilon-greedy": {"epsilon": 7},
    "dpp-map": {"trade_off": 1.0, "quality_rule": "loud"},
    "c2ucb": {"ridge": 0.0, "entropy_weight": -1.0, "noise": 0.0, "exploration": -1.0, "vector_length": 0.0},
    "ec-bandit": {"prior": "flat", "prior_variance": 0.0, "vector_length": -1.0},
    "dc2b": {"alpha": 0.0, "prior": "flat", "prior_variance": -1.0, "vector_length": 0.0, "temperature": -1.0},
    "dc2b-calibrated": {"diversity": 1.1, "temperature": -1.0, "category_weight": 1.5, "explore_slates": -0.1},
    "ease": {"regularisation": 0.0, "diversity": 2.0, "rerank": "loud"},
    "gaussian": {"shrinkage": 1.5, "diversity": -0.1, "rerank": "loud"},
    "ials": {"dim": 0, "regularisation": 0.0, "unobserved": 0.0, "iterations": 0},
    "item-knn": {"neighbors": 0, "shrinkage": -1.0},
    "slim": {"ridge": 0.0, "lasso": -1.0, "neighbors": 0},
    "rp3beta": {"alpha": 0.0, "beta": -1.0, "neighbors": 0},
    "logistic": {"exploring": "loud", "exploration": -1.0, "prior_variance": 0.0},
    "lsb": {"ridge": 0.0, "exploration": -1.0},
    "cascade-lsb": {"ridge": 0.0, "exploration": -1.0},
}


@pytest.mark.parametrize(("name", "option"), [(name, option) for name in BAD_OPTIONS for option in BAD_OPTIONS[name]])
def test_options_out_of_range_are_refused_by_name(name: str, option: str, catalog: Catalog) -> None:
    with pytest.raises(ValueError, match=f"{option} is "):
        play(make_policy(name, catalog, **{option: BAD_OPTIONS[name][option]}), 1, 1, 1)


@pytest.mark.parametrize(
    ("name", "part"),
    [(name, part) for name in POLICIES.built_in for part in getattr(POLICIES[name], "needs", ())],
)
def test_missing_training_data_are_named(name: str, part: str) -> None:
    with pytest.raises(
        CatalogError, match=rf"{name} needs .* --policy {name}`, or use catalog\.with_{part}\(dataset\)"
    ):
        make_policy(name, Catalog.from_vectors(["a"], [[1.0]]))


def test_unknown_names_and_options_are_refused(catalog: Catalog) -> None:
    with pytest.raises(ValueError, match="there is no policy 'magic'; choose one of logrank"):
        make_policy("magic", catalog)
    with pytest.raises(ValueError, match="mmr has no option alpha; its options are: trade_off"):
        make_policy("mmr", catalog, alpha=1)
    with pytest.raises(ValueError, match="prior is 'flat'; choose one of zero, population"):
        make_policy("dc2b", catalog, prior="flat")


AVAILABLE = {
    "everything": Available.of(120),
    "some seen": Available.of(120, excluded=[3, 5, 77, 5, 119]),
    "a category": Available.of(120, candidates=range(0, 120, 3)),
    "a category, some seen": Available.of(120, excluded=[0, 3, 4], candidates=range(0, 120, 3)),
    "fewer than wanted": Available.of(120, excluded=[7], candidates=[2, 7, 90]),
    "one left": Available.of(120, excluded=range(119)),
    "nothing left": Available.of(120, excluded=[1], candidates=[1]),
}


@every_policy
@pytest.mark.parametrize("kind", AVAILABLE)
def test_numbers_of_items_are_as_good_as_a_table(name: str, kind: str, catalog: Catalog) -> None:
    """One user by numbers, by a table of one row, and in a batch."""
    policy, available = make(name, catalog), AVAILABLE[kind]
    state, table = policy.start(2), np.repeat(AVAILABLE[kind].table(), 2, axis=0)
    table[1] = ~table[1]
    for step in range(3):
        batch = policy.select(state, table, 6, streams(2, step))
        one = {key: array[:1] for key, array in state.items()}
        for form in (available, table[:1]):
            alone = policy.select(one, form, 6, streams(1, step))
            check_slates(alone, table[:1], 6)
            for field in ("items", "probability", "deviation", "diversity_gain"):
                expected = getattr(batch, field)[:1]
                np.testing.assert_allclose(getattr(alone, field), expected, rtol=1e-8, atol=1e-9, err_msg=field)
        state = policy.update(state, Evidence.of_clicks(batch.items, (batch.items % 3 == 0) & (batch.items >= 0)))


@every_policy
def test_what_one_user_may_see_is_not_taken_for_a_batch(name: str, catalog: Catalog) -> None:
    policy = make(name, catalog)
    with pytest.raises(ValueError, match="pass a boolean table"):
        policy.select(policy.start(2), Available.of(catalog.n_items), 3, streams(2))


@every_policy
def test_available_of_another_catalog_is_refused(name: str, catalog: Catalog) -> None:
    policy = make(name, catalog)
    with pytest.raises(ValueError, match="119"):
        policy.select(policy.start(1), Available.of(119), 3, streams(1))


@every_policy
def test_matrices_of_a_state_are_symmetric_to_the_last_bit(name: str, catalog: Catalog) -> None:
    policy = make(name, catalog)
    state, available = policy.start(3), np.ones((3, catalog.n_items), dtype=bool)
    for step in range(3):
        slates = policy.select(state, available, 7, streams(3, step))
        state = policy.update(state, Evidence.of_clicks(slates.items, slates.items % 3 == 0))
    for array in state.values():
        if array.ndim == 3:
            np.testing.assert_array_equal(array, np.swapaxes(array, 1, 2))
