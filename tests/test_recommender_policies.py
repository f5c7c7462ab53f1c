"""Policies that a recommender serves: by name, as objects with options, in shares of the users."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from slatewise.catalog import Catalog
from slatewise.policies import POLICIES, Available, Slates, State, make_policy
from slatewise.randomness import Streams
from slatewise.recommender import PolicyShare, Recommender, RequestError, state_codec
from slatewise.recommender.profile import SAVE_EVERY
from slatewise.store import open_store
from tests.support.recommending import folded, ids, loaded_profile, make_catalog, served_policy, stored_belief

CATALOG = make_catalog(120)
OTHER_CATALOG = make_catalog(120, seed=4, first=150)
TWO_DC2B = {
    "warm": PolicyShare("dc2b", 0.5, {"temperature": 2.0}),
    "cold": PolicyShare("dc2b", 0.5, {"temperature": 0.0, "alpha": 1.0}),
}
USERS = [str(number) for number in range(30)]


def show_and_click(recommender: Recommender, user: str, n_slates: int = 1) -> list[Any]:
    """Show slates and click on the first item of each; return all that was shown."""
    shown = []
    for _ in range(n_slates):
        slate = recommender.recommend(user, 4)
        recommender.feedback(slate.slate_id, ids(slate)[:1])
        shown += ids(slate)
    return shown


def check_belief(recommender: Recommender, user: str, name: str) -> None:
    """The profile of a user under a policy is the fold of the log under that policy."""
    profile = loaded_profile(recommender, user, name)
    assert state_codec.difference(profile.learned.state, folded(recommender, user, profile.policy)) <= 1e-9


def test_a_policy_object_is_served_with_its_options() -> None:
    policy = make_policy("dc2b", CATALOG, temperature=0)
    with Recommender(CATALOG, policy=policy) as recommender, Recommender(CATALOG, "dc2b") as default:
        assert recommender.shares == {"dc2b": 1.0}
        assert recommender.recommend("ann", 4).policy == "dc2b"
        assert served_policy(recommender).policy is policy
        assert served_policy(recommender).key != served_policy(default).key
        assert show_and_click(recommender, "ben", 3) != show_and_click(default, "ben", 3)
        check_belief(recommender, "ben", "dc2b")


@pytest.mark.parametrize("name", ["popular", "mmr", "logrank", "dpp-map", "epsilon-greedy"])
def test_a_policy_that_cannot_say_how_sure_it_is_has_no_deviation(name: str) -> None:
    with Recommender(CATALOG, name) as recommender, Recommender(CATALOG) as sure:
        assert {item.deviation for item in recommender.recommend("ann", 4).items} == {None}
        assert all(item.deviation for item in sure.recommend("ann", 4).items)


def test_a_policy_object_chooses_what_the_same_name_with_the_same_options_chooses() -> None:
    """Its beliefs are the same, too, and may be continued by the other."""
    store, options = open_store("memory://"), {"temperature": 0.5, "alpha": 2.0}
    by_object = Recommender(CATALOG, make_policy("dc2b", CATALOG, **options), store)
    by_name = Recommender(CATALOG, {"dc2b": PolicyShare("dc2b", options=options)}, store)
    assert served_policy(by_object).key == served_policy(by_name).key
    show_and_click(by_object, "ann", SAVE_EVERY + 2)
    assert by_name.preview("ann").items == by_object.preview("ann").items
    assert by_name.rebuilt == 0


def test_without_a_temperature_every_user_gets_the_same_first_slate_and_with_one_not() -> None:
    """Negative control: the option that the shares differ in has an effect."""
    for temperature, n_distinct in ((0.0, 1), (2.0, 5)):
        with Recommender(CATALOG, make_policy("dc2b", CATALOG, temperature=temperature)) as recommender:
            slates = {tuple(ids(recommender.preview(user, 4))) for user in USERS[:5]}
            assert len(slates) == n_distinct


def test_two_configurations_of_one_policy_share_the_users() -> None:
    with Recommender(CATALOG, TWO_DC2B) as recommender:
        names = {user: recommender.recommend(user, 4).policy for user in USERS}
        assert set(names.values()) == {"warm", "cold"}
        cold = {tuple(ids(recommender.preview(user, 4, policy="cold"))) for user in ("new", "newer", "newest")}
        warm = {tuple(ids(recommender.preview(user, 4, policy="warm"))) for user in ("new", "newer", "newest")}
        assert (len(cold), len(warm)) == (1, 3)
        assert served_policy(recommender, "warm").key != served_policy(recommender, "cold").key
        assert {"warm", "cold", "dc2b", "popular"} <= set(recommender.policy_names)
        results = {result.policy: result for result in recommender.experiments()}
        assert results.keys() == {"warm", "cold"}
        assert [results[name].share for name in ("warm", "cold")] == [0.5, 0.5]


def test_a_belief_of_one_configuration_is_never_used_by_the_other() -> None:
    with Recommender(CATALOG, TWO_DC2B) as recommender:
        user = next(user for user in USERS if recommender.preview(user).policy == "warm")
        show_and_click(recommender, user, SAVE_EVERY + 2)
        assert stored_belief(recommender, user).key == served_policy(recommender, "warm").key
        assert (loaded_profile(recommender, user, "warm").saved, loaded_profile(recommender, user, "cold").saved) == (
            SAVE_EVERY,
            0,
        )
        for name in ("cold", "warm", "cold"):
            recommender.recommend(user, 4, policy=name)
            assert stored_belief(recommender, user).key == served_policy(recommender, name).key
            check_belief(recommender, user, name)


@pytest.mark.parametrize(
    "policy",
    [make_policy("dc2b", CATALOG, temperature=0.0), TWO_DC2B, {"cold": PolicyShare(make_policy("dc2b", CATALOG))}],
)
def test_policies_follow_another_catalog_with_their_options(policy: Any) -> None:
    with Recommender(CATALOG, policy) as recommender:
        before = {name: served_policy(recommender, name) for name in recommender.shares}
        shown = {user: show_and_click(recommender, user, 3) for user in USERS[:6]}
        recommender.use_catalog(OTHER_CATALOG)
        for name, served in before.items():
            after = served_policy(recommender, name)
            assert after.policy.catalog is OTHER_CATALOG
            assert after.policy.temperature == served.policy.temperature  # type: ignore[attr-defined]
            assert after.policy.alpha == served.policy.alpha  # type: ignore[attr-defined]
            assert after.key != served.key
        for user, items in shown.items():
            slate = recommender.recommend(user, 4)
            assert slate.policy in before
            assert set(ids(slate)) <= set(OTHER_CATALOG.item_ids) - set(items)
            check_belief(recommender, user, slate.policy)


@dataclass(frozen=True, eq=False)
class Ordered:
    """Shows items by number, from `first` on; learns how often it was asked."""

    catalog: Catalog
    first: int = 0

    def start(self, n_users: int) -> State:
        return {"asked": np.zeros((n_users, 1))}

    def select(self, state: State, available: Any, k: int, random: Streams) -> Slates:  # noqa: ARG002
        allowed = np.ones(self.catalog.n_items, dtype=np.bool_)
        if isinstance(available, Available):
            allowed[available.excluded] = False
        numbers = np.roll(np.flatnonzero(allowed), -self.first)[None, :k]
        zeros = np.zeros(numbers.shape)
        return Slates(numbers, zeros, zeros, zeros)

    def update(self, state: State, evidence: Any) -> State:  # noqa: ARG002
        return {"asked": state["asked"] + 1.0}


class NoDataclass:
    """The same policy, not as a dataclass."""

    start, select, update = Ordered.start, Ordered.select, Ordered.update

    def __init__(self, catalog: Catalog, first: int = 0) -> None:
        self.catalog, self.first = catalog, first


def test_an_unregistered_policy_object_is_served_under_the_name_of_its_class() -> None:
    policy: Any = Ordered(CATALOG, 5)
    with Recommender(CATALOG, policy) as recommender:
        slate = recommender.recommend("ann", 3)
        assert (slate.policy, ids(slate)) == ("Ordered", [105, 106, 107])
        recommender.feedback(slate.slate_id, [])
        recommender.use_catalog(OTHER_CATALOG)
        assert ids(recommender.recommend("ann", 3)) == [155, 156, 157]
        assert loaded_profile(recommender, "ann").learned.state["asked"].item() == 1.0


def test_objects_with_other_options_have_other_beliefs_whether_they_are_dataclasses_or_not() -> None:
    for kind in (Ordered, NoDataclass):
        keys = []
        for first in (0, 0, 5):
            policy: Any = kind(CATALOG, first)
            with Recommender(CATALOG, policy) as recommender:
                keys.append(served_policy(recommender).key)
        assert keys[0] == keys[1] != keys[2], kind


def test_a_policy_that_cannot_follow_another_catalog_says_so_and_the_old_one_stays() -> None:
    policy: Any = NoDataclass(CATALOG)
    with Recommender(CATALOG, policy) as recommender:
        slate = recommender.recommend("ann", 3)
        with pytest.raises(RequestError, match="NoDataclass is no dataclass"):
            recommender.use_catalog(OTHER_CATALOG)
        recommender.feedback(slate.slate_id, ids(slate)[:1])
        assert recommender.catalog is CATALOG
        assert recommender.recommend("ann", 3).number == 1


A_CLASS: Any = POLICIES["dc2b"]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({}, "polic"),
        ({"popular": 0.5}, "sum to 0.5"),
        ({"popular": 1.5}, "the share of popular is 1.5; give"),
        ({"popular": -1.0, "mmr": 2.0}, "the share of popular is -1.0; give"),
        ({"warm": PolicyShare("dc2b", 0.7), "cold": PolicyShare("dc2b", 0.7)}, "sum to 1.4"),
        ({"warm": PolicyShare("no such")}, "no policy"),
        ({"warm": PolicyShare("dc2b", options={"no such": 1})}, "no option"),
        ({"warm": PolicyShare("dc2b", options={"temperature": -1.0})}, "temperature"),
        ("no such", "no policy"),
        ("ease", "co-likes"),
        (3, "policy is 3; give a name"),
        (A_CLASS, "policy is <class .*Dc2b'>; give a name"),
        ({"warm": PolicyShare(A_CLASS)}, "policy is <class .*Dc2b'>; give a name"),
        ({"popular": "half"}, "the share of popular is 'half'; give"),
    ],
)
def test_shares_must_make_sense(policy: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recommender(CATALOG, policy)


def test_users_are_split_between_policies_for_good() -> None:
    shares = {"dc2b-calibrated": 0.8, "popular": 0.2}
    with Recommender(CATALOG, shares) as first, Recommender(CATALOG, shares) as second:
        chosen = {user: first.preview(user, 3).policy for user in map(str, range(400))}
        assert all(second.preview(user, 3).policy == policy for user, policy in chosen.items())
    popular = sum(policy == "popular" for policy in chosen.values())
    assert 400 * 0.2 - 4 * 8 <= popular <= 400 * 0.2 + 4 * 8


def test_slates_asked_for_by_name_do_not_bias_the_comparison() -> None:
    with Recommender(CATALOG, {"dc2b-calibrated": 0.5, "popular": 0.5}) as recommender:
        for user in map(str, range(20)):
            for policy in ("popular", "dc2b-calibrated"):
                slate = recommender.recommend(user, 5, policy=policy)
                recommender.feedback(slate.slate_id, ids(slate)[:1])
        results = recommender.experiments()
    assert sum(result.users for result in results) == 20
    assert sum(result.slates for result in results) == 20


def test_experiments_count_every_user_once() -> None:
    with Recommender(CATALOG, {"dc2b-calibrated": 0.5, "popular": 0.5}) as recommender:
        clicks = {"dc2b-calibrated": 0, "popular": 0}
        for user in map(str, range(40)):
            slate = recommender.recommend(user, 5)
            clicked = ids(slate)[: int(user) % 3]
            recommender.feedback(slate.slate_id, clicked)
            clicks[slate.policy] += len(clicked)
        for result in recommender.experiments():
            assert result.clicks == clicks[result.policy]
            rate = result.click_rate
            assert rate.value == pytest.approx(result.clicks / (5 * result.users))
            assert (rate.low or 0.0) < result.clicks / (5 * result.users) < (rate.high or 0.0)
        assert sum(result.users for result in recommender.experiments()) == 40
