"""What a log says about items, and the gate: what predicts worse is refused, whatever is wrong with it."""

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies.calibrated import Calibrated
from slatewise.retraining import FitOptions, InteractionLog, LogBuilder, Verdict, compare, refit
from slatewise.retraining.tastes import predict, tastes

N_ITEMS, RANK, PEOPLE, SLATES, K = 60, 2, 300, 4, 6
DAY = 86_400.0


@dataclass(frozen=True, eq=False)
class World:
    """The true rates and tastes, and a catalog that knows the rates as they were before half of them changed."""

    truth: Catalog
    old: Catalog


def with_rates(catalog: Catalog, rates: np.ndarray, tastes: np.ndarray) -> Catalog:
    odds = np.log(rates / (1.0 - rates))
    return replace(
        catalog, log_odds=odds, taste_vectors=tastes.astype(np.float32), rate_strength=np.full(N_ITEMS, 100.0)
    )


@pytest.fixture(scope="module")
def world() -> World:
    draw = np.random.default_rng(0)
    base = Catalog.from_vectors(range(N_ITEMS), draw.normal(size=(N_ITEMS, 3)))
    rates, tastes = draw.uniform(0.1, 0.6, N_ITEMS), draw.normal(size=(N_ITEMS, RANK)) * 0.12
    before = np.where(np.arange(N_ITEMS) % 2 == 0, rates, draw.permutation(rates))
    return World(with_rates(base, rates, tastes), with_rates(base, before, tastes))


def visits(world: World, n_people: int = PEOPLE, seed: int = 1) -> LogBuilder:
    """People who are shown what the old catalog expects them to like, and like by the truth."""
    draw, builder, policy = np.random.default_rng(seed), LogBuilder(), Calibrated(world.old, diversity=0.0)
    builder.number(range(N_ITEMS))
    rates, tastes = Calibrated(world.truth).rates, world.truth.taste_vectors.astype(np.float64)
    state = policy.start(n_people)
    theta = draw.normal(size=(n_people, RANK))
    left = np.ones((n_people, N_ITEMS), dtype=bool)
    shown = []
    for _ in range(SLATES):
        mean = np.linalg.solve(state["precision"], state["shift"][..., None])[..., 0]
        wanted = policy.rates + mean @ world.old.taste_vectors.T + draw.normal(size=left.shape) * 0.1
        items = np.argsort(np.where(left, -wanted, np.inf), axis=1)[:, :K]
        left[np.arange(n_people)[:, None], items] = False
        chance = np.clip(rates[items] + np.einsum("ur,ukr->uk", theta, tastes[items]), 0.0, 1.0)
        evidence = Evidence.of_clicks(items, draw.random(items.shape) < chance)
        state = policy.update(state, evidence)
        shown.append(evidence)
    for person in range(n_people):
        for number, evidence in enumerate(shown):
            builder.add_slate(DAY * (number + person / n_people), evidence, person)
        builder.end_person()
    return builder


def follow_robots(builder: LogBuilder, n_robots: int) -> None:
    """Robots see what is worst and what is best, and like the opposite of what people like."""
    for robot in range(n_robots):
        for number in range(SLATES):
            items = np.arange(number * K, (number + 1) * K)[None] * 2 % N_ITEMS
            clicked = np.broadcast_to(np.arange(K) % 2 == 0, (1, K))
            builder.add_slate(DAY * (number + robot / n_robots), Evidence.of_clicks(items, clicked))
        builder.end_person()


def error(rates: np.ndarray, world: World, seen: np.ndarray) -> float:
    """Return how far rates are from the truth, items counting as often as they were seen."""
    return float(np.sqrt(np.average(np.square(rates - Calibrated(world.truth).rates), weights=seen)))


def judge(world: World, log: InteractionLog, candidate: Catalog | None = None) -> Verdict:
    since = log.time_of_last(0.25, 10_000)
    return compare(world.old, candidate or refit(world.old, log.before(since)), log, since)


def test_predictions_are_those_of_the_policy(world: World) -> None:
    log, policy = visits(world, 20).log(), Calibrated(world.old)
    likes = predict(log, log.numbered(world.old), policy.model)
    at = 0
    for person in range(20):
        state = policy.start(1)
        for _ in range(SLATES):
            mean = np.linalg.solve(state["precision"][0], state["shift"][0])
            items = log.items[at : at + K]
            expected = policy.rates[items] + world.old.taste_vectors[items] @ mean
            assert np.allclose(likes[at : at + K], np.clip(expected, 0.001, 0.999), atol=1e-9), person
            state = policy.update(state, Evidence.of_clicks(items[None], log.value[None, at : at + K] > 0.5))
            at += K
    assert at == len(log.items)


def test_tastes_are_the_same_in_any_number_of_groups(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log, model = visits(world, 40).log(), Calibrated(world.old, category_weight=0.0).model
    means, spread = tastes(log, log.numbered(world.old), model)
    monkeypatch.setattr("slatewise.retraining.tastes.LEAST_PEOPLE", 3)
    again, spread_again = tastes(log, log.numbered(world.old), model)
    assert np.array_equal(means, again)
    np.testing.assert_allclose(spread, spread_again, rtol=1e-12)
    assert np.array_equal(spread_again, tastes(log, log.numbered(world.old), model)[1])
    assert not np.allclose(spread, tastes(visits(world, 39).log(), log.numbered(world.old)[: -K * SLATES], model)[1])


def test_half_lives_of_beliefs_are_those_of_learning(world: World) -> None:
    """Everything fades towards the start between two slates; an event of an older time counts less from the start."""
    builder, policy = LogBuilder(), Calibrated(world.old)
    builder.number(range(N_ITEMS))
    clicks = Evidence.of_clicks(np.array([[3, 4]]), np.array([[True, False]]))
    builder.add_slate(10 * DAY, clicks)
    builder.add_event(8 * DAY, 7, 1.0, 1.0)
    builder.add_slate(12 * DAY, clicks)
    builder.end_person()
    log = builder.log()
    faded = replace(clicks, weight=np.full((1, 2), 0.5))
    event = Evidence(np.array([[7]]), np.ones((1, 1)), np.full((1, 1), 0.25), np.ones((1, 1)))
    state = policy.update(policy.update(policy.start(1), faded), event)
    mean = np.linalg.solve(state["precision"][0], state["shift"][0])
    expected = policy.rates[[3, 4]] + world.old.taste_vectors[[3, 4]] @ mean
    assert np.allclose(predict(log, log.numbered(world.old), policy.model, half_life=2.0)[-2:], expected)


def test_the_crowd_corrects_rates_and_is_not_misled_by_what_it_was_shown(world: World) -> None:
    log = visits(world).log()
    fitted = refit(world.old, log)
    liked = np.bincount(log.items, log.value, N_ITEMS)
    seen = np.bincount(log.items, minlength=N_ITEMS)
    before = Calibrated(world.old).rates
    shares = (100.0 * before + liked) / (100.0 + seen)
    off, off_before, off_by_shares = (error(rates, world, seen) for rates in (Calibrated(fitted).rates, before, shares))
    assert off < 0.6 * off_before
    assert off < off_by_shares
    assert (fitted.rate_strengths >= 100.0).all()


def test_old_observations_fade(world: World) -> None:
    log = visits(world).log()
    kept = refit(world.old, log, FitOptions(half_life=0.01, now=100 * DAY))
    assert np.allclose(Calibrated(kept).rates, Calibrated(world.old).rates, atol=1e-6)


def test_likes_from_elsewhere_tell_what_is_liked_not_how_much(world: World) -> None:
    builder = LogBuilder()
    builder.number(range(N_ITEMS))
    for _ in range(200):
        builder.add_event(0.0, 5, 1.0, 1.0)
        builder.end_person()
    before, after = (Calibrated(one).rates for one in (world.old, refit(world.old, builder.log())))
    assert after[5] > before[5] + 0.05
    assert abs(after.sum() / before.sum() - 1.0) < 0.15


def test_the_words_of_the_gate_speak_of_one_average(world: World) -> None:
    """A minority sees much and likes the opposite: means over people and over items differ."""
    builder = visits(world, 60)
    for _ in range(20):
        for number in range(60):
            items = (np.arange(K)[None] + number * K) % N_ITEMS
            builder.add_slate(DAY * SLATES, Evidence.of_clicks(items, items % 2 == 0))
        builder.end_person()
    verdict = compare(world.old, world.truth, builder.log(), 0.0)
    new, old, difference = map(float, re.findall(r"[+-]?0\.\d{4}", verdict.in_words())[:3])
    assert difference == pytest.approx(new - old, abs=1.5e-4)


def test_an_honest_training_passes(world: World) -> None:
    verdict = judge(world, visits(world).log())
    assert verdict.is_accepted, verdict.in_words()
    assert verdict.difference.high < 0.0
    assert verdict.candidate.calibration_error < verdict.serving.calibration_error
    assert verdict.in_words().startswith("accepted: on ")


def test_a_poisoned_log_is_refused(world: World) -> None:
    """One robot to three people, also in the slates that are predicted; the new catalog follows the robots."""
    builder = visits(world)
    follow_robots(builder, PEOPLE // 3)
    verdict = judge(replace(world, old=world.truth), builder.log())
    assert not verdict.is_accepted, verdict.in_words()
    assert verdict.typical_difference.low > 0.0
    control = judge(replace(world, old=world.truth), visits(world).log())
    assert control.is_accepted, control.in_words()


def test_a_catalog_without_half_of_the_items_is_refused(world: World) -> None:
    half = Catalog.from_vectors(range(N_ITEMS // 2), world.old.vectors[: N_ITEMS // 2])
    half = replace(
        half, log_odds=world.truth.log_odds[: N_ITEMS // 2], taste_vectors=world.truth.taste_vectors[: N_ITEMS // 2]
    )
    verdict = judge(world, visits(world).log(), half)
    assert not verdict.is_accepted
    assert any("lacks" in reason for reason in verdict.reasons)


def test_what_people_think_of_an_item_that_only_one_catalog_has_does_not_count(world: World) -> None:
    """A new item may be far more popular, or far less, than its content says; that tells nothing about a training."""
    more = replace(
        Catalog.from_vectors(range(N_ITEMS + 1), np.vstack([world.old.vectors, world.old.vectors[:1]])),
        log_odds=np.append(world.old.log_odds, 0.0),
        taste_vectors=np.vstack([world.old.taste_vectors, np.full(RANK, 0.3, dtype=np.float32)]),
    )
    verdicts = []
    for is_liked in (False, True):
        builder = visits(world)
        items = builder.number([N_ITEMS, 3])[None]
        for person in range(PEOPLE):
            for at in range(SLATES):
                clicked = np.array([[is_liked, (person + at) % 3 == 0]])
                builder.add_slate(DAY * (at + person / PEOPLE), Evidence.of_clicks(items, clicked))
            builder.end_person()
        verdicts.append([compare(*pair, builder.log(), 2 * DAY) for pair in ((world.old, more), (more, world.old))])
    assert verdicts[0] == verdicts[1]


def test_wrong_rates_and_tiny_logs_are_refused(world: World) -> None:
    log = visits(world).log()
    backwards = replace(world.truth, log_odds=-world.truth.log_odds)
    assert "it predicts people worse" in judge(world, log, backwards).reasons
    few = judge(world, visits(world, 8).log())
    assert not few.is_accepted
    assert "too little to tell" in few.reasons[0]
    nobody = compare(world.old, world.truth, log, since=1e18)
    assert (nobody.is_accepted, nobody.people) == (False, 0)
