"""What is said about clicks where people click less, or more, than training users liked; choices stay as they are."""

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from slatewise.belief.rates import NORMAL_95, RateEvidence, Rates
from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings, Factors
from slatewise.data.synthetic import World, WorldSize, make_world
from slatewise.evidence import SERVICE_DEFAULT, Attention
from slatewise.policies.protocol import sigmoid
from slatewise.recommender import PolicyShare, Recommender, rate_publications, recommend
from slatewise.recommender.rate_publications import PublishedRates, RatesHistory, latest_rates
from slatewise.recommender.slate_rules import SlateRules
from tests.support.recommending import served_catalog

WORLD = make_world(WorldSize(n_users=1_000, n_items=80, n_categories=5, dim=3), seed=5)
POLICY = "dc2b-calibrated"
POLICIES = {POLICY: PolicyShare(POLICY, options={"explore": 0.5})}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """Trained on two hundred people; the others visit."""
    data, n_users = WORLD.dataset, 200
    is_known = data.users < n_users
    known: dict[str, Any] = {
        "users": data.users[is_known],
        "items": data.items[is_known],
        "user_ids": data.user_ids[:n_users],
    }
    return Catalog.train(replace(data, **known), BprSettings(epochs=1))


def opened(catalog: Catalog, attention: Attention = SERVICE_DEFAULT, store: str = "memory://") -> Recommender:
    ticks = itertools.count(1_000.0)
    return Recommender(catalog, POLICIES, store, attention=attention, clock=lambda: float(next(ticks)))


def likes(world: World) -> Any:
    return sigmoid(world.tastes @ world.vectors.T + world.popularity)


def visit(recommender: Recommender, share: float, visitors: range) -> np.ndarray[Any, Any]:
    """Let people click a share of what they like, a slate each; return what was said and is true (n, k, 2)."""
    random, chances, rows = np.random.default_rng(1), share * likes(WORLD), []
    for number, visitor in enumerate(visitors):
        slate = recommender.recommend(str(number), 10)
        items = [int(item.id) for item in slate.items]
        chance = chances[200 + visitor % 800, items]
        rows.append([(item.probability, true) for item, true in zip(slate.items, chance, strict=True)])
        clicked = [item for item, is_clicked in zip(items, random.random(10) < chance, strict=True) if is_clicked]
        recommender.feedback(slate.slate_id, clicked, seen=10)
        if number % 20 == 19:
            recommender.learn_rates()
    return np.array(rows)


@pytest.mark.parametrize("attention", [Attention(), SERVICE_DEFAULT], ids=["in full", "skips of little weight"])
@pytest.mark.parametrize("share", [1.0, 0.1])
def test_what_is_said_is_clicked(catalog: Catalog, share: float, attention: Attention) -> None:
    """On the last of 900 first slates, to a fifth; and rates to a third, where they were ten times what is clicked."""
    with opened(catalog, attention) as recommender:
        said, true = visit(recommender, share, range(900))[-300:].mean(axis=(0, 1))
        assert 0.8 < said / true < 1.2
        rates = [recommender.rate(item).value for item in range(80)]
        assert 0.75 < np.mean(rates) / (share * likes(WORLD)[200:].mean()) < 1.33


def test_intervals_hold_the_share_of_clicks_where_a_tenth_of_the_likes_is_clicked() -> None:
    """Trained items and new ones, whose likes are drawn from what is known of them; each was seen 300 times."""
    random, n = np.random.default_rng(5), 4_000
    strength = np.where(np.arange(n) % 2 == 0, 10.0, 400.0)
    truth = random.beta(strength * 0.3, strength * 0.7)
    clicked = random.binomial(300, 0.1 * truth).astype(np.float64)
    evidence = RateEvidence(np.full(n, 300.0), clicked, np.zeros(n))
    rates = Rates(np.full(n, 0.3), strength).after(evidence)
    intervals = np.array([rates.interval(item) for item in range(n)])
    is_held = (intervals[:, 0] <= 0.1 * truth) & (0.1 * truth <= intervals[:, 1])
    assert 0.93 <= is_held[strength < 100.0].mean() <= 0.99
    assert is_held[strength > 100.0].mean() >= 0.93
    assert np.mean(rates.shares) == pytest.approx(0.03, rel=0.05)


def test_shares_and_intervals_by_their_textbook() -> None:
    """c·μ, not above 1, known as from s / c observations; an item that is clicked more often than c, too."""
    level, beyond = 0.25, np.array([0.0, 0.0, 2.0, 9.0])
    rates = Rates(np.array([0.2, 0.4, 0.999, 0.999]), np.array([10.0, 100.0, 50.0, 50.0]), level, beyond)
    for item in range(4):
        share, n = min(level * (rates.mean[item] + beyond[item]), 1.0), rates.strength[item] / level
        assert rates.clicks(item) == pytest.approx((share, n))
        for end in rates.interval(item):
            assert (end - share) ** 2 == pytest.approx(NORMAL_95**2 * end * (1.0 - end) / n, abs=1e-9)


def test_an_item_that_everybody_clicks_is_said_to_be_where_nothing_else_is_clicked() -> None:
    mean, seen = np.full(100, 0.3), np.full(100, 200.0)
    clicked = np.where(np.arange(100) == 7, 200.0, 2.0)
    rates = Rates(mean, np.where(np.arange(100) == 7, 5.0, 500.0)).after(RateEvidence(seen, clicked, np.zeros(100)))
    assert rates.level < 0.1
    assert rates.mean.max() < 1.0
    assert rates.interval(7)[0] > 0.5
    assert rates.as_clicks(np.array([1.0]), np.array([7]))[0] == pytest.approx(rates.clicks(7)[0], abs=1e-3)


def test_few_skips_say_little_and_nothing_says_nothing() -> None:
    """The prior is worth twenty clicks that were expected and made."""
    before = Rates(np.full(50, 0.3), np.full(50, 1_000_000.0))
    nothing = before.after(RateEvidence.nothing(50))
    assert nothing.level == 1.0
    assert [nothing.interval(item) for item in range(50)] == [before.interval(item) for item in range(50)]
    skips = RateEvidence(np.where(np.arange(50) < 10, 1.0, 0.0), np.zeros(50), np.zeros(50))
    assert before.after(skips).level == pytest.approx(20.0 / 23.0, rel=1e-4)


def test_levels_change_what_is_said_and_no_choice(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slates of a recommender that says what it chooses by have the same items, explained by the same."""
    runs = []
    for is_said in (True, False):
        with opened(catalog) as recommender:
            if not is_said:
                monkeypatch.setattr(recommend, "as_clicks", lambda chosen, _: chosen)
            visit(recommender, 0.1, range(120))
            runs.append([choice for n in range(120) for choice in choices(recommender, str(n))])
    told, silent = ([[one[0] for one in choice["items"]] for choice in run] for run in runs)
    assert [choice.pop("items") and choice for choice in runs[0]] == [
        choice.pop("items") and choice for choice in runs[1]
    ]
    assert told[0] == silent[0]
    assert np.mean(told[-20:]) < 0.5 * np.mean(silent[-20:])


def choices(recommender: Recommender, user: str) -> list[Any]:
    return [*recommender.store.read(lambda transaction: transaction.choices_of(user)).values()]


def test_what_was_said_is_said_again_by_replay_and_by_other_workers(catalog: Catalog) -> None:
    again: list[tuple[float | None, ...]] = []

    def noting(*given: Any) -> Any:
        chosen = recommend.choose_items(*given)
        again.append(tuple(item.probability for item in chosen[1]))
        return chosen

    with opened(catalog) as recommender, pytest.MonkeyPatch.context() as patch:
        visit(recommender, 0.1, range(120))
        patch.setattr("slatewise.recommender.replay.choose_items", noting)
        assert all(replayed.is_same for replayed in recommender.replay())
        logged = [tuple(item[0] for item in one["items"]) for n in range(120) for one in choices(recommender, str(n))]
        assert sorted(logged) == sorted(again)
        worker = Recommender(catalog, POLICIES, recommender.store)
        worker.learn_rates()
        assert worker.preview("new").items == recommender.preview("new").items
        assert worker.rate(3) == recommender.rate(3)


def test_rates_published_before_there_were_levels_have_none(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they are said to be stays what it was, until rates are published again."""

    def without_level(store: Any, digest: str, version: int, content: Any, now: float) -> bool:
        earlier = {name: content[name] for name in ("unseen", "rates")}
        return rate_publications.publish(store, digest, version, earlier, now)

    with opened(catalog) as recommender:
        with monkeypatch.context() as patch:
            patch.setattr("slatewise.recommender.live_rates.publish", without_level)
            said, true = visit(recommender, 0.1, range(200))[-50:].mean(axis=(0, 1))
        assert said / true > 5.0
        assert all(replayed.is_same for replayed in recommender.replay())
        slate = recommender.recommend("one more")
        recommender.feedback(slate.slate_id, [], seen=10)
        recommender.learn_rates()
        assert np.mean([item.probability or 0.0 for item in recommender.preview("new").items]) < 0.3 * said
        assert all(replayed.is_same for replayed in recommender.replay())


def test_min_probability_is_about_what_is_said(catalog: Catalog) -> None:
    with opened(catalog) as recommender:
        visit(recommender, 0.1, range(200))
        usual = recommender.preview("new", 10).items
        highest, lowest = max(item.probability or 0.0 for item in usual), min(item.probability or 0.0 for item in usual)
        assert highest < 0.3
        some = recommender.preview("new", 10, rules=SlateRules(min_probability=(highest + lowest) / 2)).items
        assert 1 <= len(some) < 10
        assert min(item.probability or 0.0 for item in some) >= (highest + lowest) / 2
        assert len(recommender.preview("new", 10, rules=SlateRules(min_probability=lowest - 1e-6)).items) == 10


def test_levels_are_kept_in_snapshots(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"EVERY": 3, "KEPT": 2, "PER_PART": 7}.items():
        monkeypatch.setattr(rate_publications, name, value)
    with opened(catalog.with_items([900], categories=[["Comedy"]])) as recommender:
        for number in range(60):
            slate = recommender.recommend(str(number), 10, candidates=[900, *range(30)])
            recommender.feedback(slate.slate_id, [one.id for one in slate.items if one.id == 900], seen=10)
            recommender.learn_rates()
        served, read = served_catalog(recommender), recommender.store.read
        digest = served.digest
        latest = read(partial(latest_rates, digest=digest, known=PublishedRates()))
        assert latest.level < 0.5
        assert latest.beyond[900] > 0.0
        published = latest.on(served)
        assert published is not None
        assert (served.policy(POLICY).version, served.rates.level) == (latest.version, latest.level)
        for name in ("mean", "strength", "beyond"):
            assert np.array_equal(getattr(served.rates, name), getattr(published, name)), name
        past = read(lambda transaction: RatesHistory(transaction, digest).at(latest.version - 2))
        assert past is not None
        assert past.level != latest.level
        assert recommender.rate(900).low > 1.5 * latest.level


def test_a_changed_item_leaves_the_level() -> None:
    world = make_world(WorldSize(n_users=60, n_items=40, n_categories=4, dim=3), seed=2)
    with opened(Catalog.from_factors(world.dataset, Factors(world.tastes, world.vectors), {})) as recommender:
        policy: Any = served_catalog(recommender).policy(POLICY).policy
        half = policy.with_rates(replace(policy.current, mean=policy.current.mean.copy(), level=0.5))
        grown = policy.catalog.with_items([900], categories=[[]])
        assert half.with_items(grown, np.array([40])).current.level == 0.5
