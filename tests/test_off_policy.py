"""Judging a policy by the log of a service: what it would have got, when that can be told, and what is said if not."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from slatewise.evaluation import estimators, verdict
from slatewise.evaluation.intervals import Estimate, estimate
from slatewise.evaluation.logged_slates import (
    CASCADE,
    DIRECT,
    DRAWS,
    INDEPENDENT,
    INTERACTION,
    PSEUDO_INVERSE,
    STANDARD,
    LoggedSlates,
    unseen_by_draws,
)
from slatewise.evaluation.verdict import Evaluation
from slatewise.policies import make_policy
from slatewise.randomness import Streams, user_keys
from slatewise.recommender import Event, Pin, PolicyShare, Recommender, RequestError, SlateRules, off_policy
from slatewise.recommender.off_policy_batch import LoggedCase, with_shown
from tests.support.recommending import Clock, make_catalog

Floats = NDArray[np.float64]
RATES = np.random.default_rng(4).uniform(0.1, 0.5, 12)
CATALOG = replace(make_catalog(12), log_odds=np.log(RATES / (1.0 - RATES)))
LIKES = np.random.default_rng(5).beta(1.0, 2.0, 12)
"""What share of people clicks each item, wherever it is shown."""
DRAWN = {"drawn": PolicyShare("dc2b-calibrated", options={"explore_slates": 0.6})}
K = 2


def serve(recommender: Recommender, n_users: int, clock: Clock, seed: int = 0, likes: Floats = LIKES) -> None:
    """Show one slate to each user, who clicks by LIKES."""
    draw = np.random.default_rng(seed)
    for user in range(n_users):
        clock.now += 1.0
        slate = recommender.recommend(f"user {user}", K)
        clicked = [item.id for item in slate.items if draw.random() < likes[int(item.id) - 100]]
        recommender.feedback(slate.slate_id, clicked, final=True)


def truth(name: str, options: dict[str, float], likes: Floats = LIKES) -> float:
    """The clicks per first slate of a policy, by showing it to many."""
    policy, n = make_policy(name, CATALOG, **options), 20_000
    available = np.ones((n, CATALOG.n_items), dtype=bool)
    chosen = policy.select(policy.start(n), available, K, Streams(9, user_keys(range(n)), 0))
    return float(likes[chosen.items].sum(axis=1).mean())


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    clock = Clock()
    recommender = Recommender(CATALOG, DRAWN, clock=clock)
    serve(recommender, 800, clock)
    return recommender


@pytest.mark.parametrize(
    ("name", "options"),
    [("random", {}), ("dc2b-calibrated", {"explore_slates": 0.3}), ("popular", {}), ("drawn", {})],
)
def test_estimates_cover_what_the_policy_gets(recommender: Recommender, name: str, options: dict[str, float]) -> None:
    """A target that draws, one that does not, and the one that made the log."""
    found = recommender.evaluate(name, options)
    propensities = [row["choice"]["propensities"][0] for row in recommender.export("user 0")["slates"]]
    assert propensities != [1.0 / 12.0]  # negative control: it is not a uniform draw that is judged
    expected = truth("dc2b-calibrated" if name == "drawn" else name, options or _options(name))
    for estimator in (STANDARD, INTERACTION, CASCADE):
        one = found.estimates[estimator]
        middle, reach = (one.low + one.high) / 2.0, 1.7 * (one.high - one.low) / 2.0
        assert abs(expected - middle) < reach, (estimator, one, expected)
    assert (found.slates, found.users, found.drawn, found.skipped) == (800, 800, 1.0, {})
    assert found.estimates[DIRECT].effective_slates == 800


def test_an_evaluation_as_a_table_and_in_a_notebook(recommender: Recommender) -> None:
    found = recommender.evaluate("popular")
    table = found.to_polars()
    assert table["estimator"].to_list() == ["what was shown", *found.estimates]
    assert table["value"].to_list() == [found.logged.value, *(one.value for one in found.estimates.values())]
    assert table["warning"].to_list()[1:] == [one.warning for one in found.estimates.values()]
    shown = replace(found, policy="a<b")._repr_html_()
    assert "a&lt;b on 800 slates" in shown
    assert "a<b" not in shown
    assert all(f"{one.value:.3f}" in shown for one in found.estimates.values())


def _options(name: str) -> dict[str, float]:
    return {"explore_slates": 0.6} if name == "drawn" else {}


def test_the_policy_of_the_log_gets_what_it_got(recommender: Recommender) -> None:
    found = recommender.evaluate("drawn")
    for estimator in (STANDARD, INTERACTION):
        assert found.estimates[estimator].value == pytest.approx(found.logged.value)
        assert found.estimates[estimator].effective_slates == pytest.approx(800)
    assert found.difference.value == pytest.approx(0.0, abs=0.02)
    assert "may get more or less" in found.in_words()


def arrays_of(recommender: Recommender, name: str, options: dict[str, float]) -> LoggedSlates:
    """What `Recommender.evaluate` hands to the estimators."""
    logs = list[LoggedSlates]()

    def judge(policy: str, log: LoggedSlates, *others: Any) -> Evaluation:
        logs.append(log)
        return verdict.judge(policy, log, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(off_policy, "judge", judge)
        recommender.evaluate(name, options)
    return logs[0]


def covers(found: Estimate, value: float) -> bool:
    return found.low <= value <= found.high


def without_noise_of_fitting(fitted: LoggedSlates) -> Estimate:
    """The direct method by the spread of its predictions alone: a broken interval."""
    return estimate(estimators.direct_method(fitted.direct), fitted.users)


@pytest.mark.parametrize(("name", "options"), [("dc2b-calibrated", {"explore_slates": 0.3}), ("popular", {})])
def test_intervals_of_the_direct_method_know_that_the_model_was_fitted(
    recommender: Recommender, name: str, options: dict[str, float]
) -> None:
    """New people see logged slates; the model is right but for how many look at each place, and people differ."""
    log, n_logs, n_users, covered, careless = arrays_of(recommender, name, options), 400, 200, 0, 0
    seen = np.array([1.0, 0.6])
    expected = float((seen * log.direct).sum(axis=1).mean())
    for seed in range(n_logs):
        draw = np.random.default_rng(seed)
        rows = draw.integers(0, len(log.users), n_users)
        taken = LoggedSlates(**{field.name: getattr(log, field.name)[rows] for field in fields(log)})
        clicks = draw.random((n_users, K)) < draw.choice([0.5, 1.5], (n_users, 1)) * seen * taken.predicted
        fitted = replace(taken, users=np.arange(n_users), rewards=clicks.astype(float)).with_fitted_model()
        covered += covers(fitted.estimates()[DIRECT], expected)
        careless += covers(without_noise_of_fitting(fitted), expected)
    assert stats.binomtest(covered, n_logs, 0.95).pvalue > 0.001, covered
    assert careless < 0.5 * n_logs  # negative control


@pytest.mark.slow
def test_the_direct_method_covers_what_the_policy_gets() -> None:
    """Whole logs of a recommender, whose people click as the model says."""
    model: Any = make_policy("dc2b-calibrated", CATALOG)
    likes, n_logs, covered, careless = model.probabilities(model.start(1))[0], 60, 0, 0
    expected = truth("popular", {}, likes)
    for seed in range(n_logs):
        clock = Clock()
        with Recommender(CATALOG, DRAWN, clock=clock, seed=seed) as recommender:
            serve(recommender, 120, clock, seed, likes)
            covered += covers(recommender.evaluate("popular").estimates[DIRECT], expected)
            fitted = arrays_of(recommender, "popular", {}).with_fitted_model()
            careless += covers(without_noise_of_fitting(fitted), expected)
    assert stats.binomtest(covered, n_logs, 0.95).pvalue > 0.001, covered
    assert careless < 0.5 * n_logs  # negative control


def test_fitting_the_model_moves_the_direct_method_as_its_terms_say(recommender: Recommender) -> None:
    """Against a slow twin: the estimate with one slate counted a little more, worked out again."""
    log = arrays_of(recommender, "random", {})
    fitted, n, more = log.with_fitted_model(), len(log.users), 1e-6
    terms = estimators.fitted_direct_method(fitted.rewards, fitted.predicted, fitted.direct)
    assert terms.mean() == pytest.approx(fitted.direct.sum(axis=1).mean())

    def counted(row: int, weight: float) -> float:
        counts = np.ones(n)
        counts[row] += weight
        clicks, predictions, own = (counts @ table for table in (log.rewards, log.predicted, log.direct))
        return float((clicks / predictions * own).sum() / counts.sum())

    for row in range(0, n, 97):
        moved = n * (counted(row, more) - counted(row, -more)) / (2.0 * more)
        assert terms[row] - terms.mean() == pytest.approx(moved, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [("dc2b-calibrated", {"explore_slates": 0.3, "diversity": 0.8}), ("popular", {}), ("random", {}), ("dc2b", {})],
)
def test_slates_worked_out_together_or_one_by_one_give_the_same(
    name: str, options: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users with more slates and fewer, of two lengths, rates that change, a diversity, events and late feedback."""
    with Recommender(CATALOG, DRAWN, clock=Clock()) as recommender:
        serve_eventfully(recommender, np.random.default_rng(6))
        together = arrays_of(recommender, name, options)
        monkeypatch.setattr(off_policy, "MAX_SLATES", 1)
        one_by_one = arrays_of(recommender, name, options)
    assert len(together.users) == 24
    for one, other in zip(vars(together).values(), vars(one_by_one).values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


def test_a_read_that_the_store_repeats_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As PostgreSQL's store does when it loses a connection. The control: a reader that adds to itself counts twice."""

    def added(reader: Any, *arguments: Any, **named: Any) -> Any:
        reader.read_user(*arguments, **named)
        return reader

    with Recommender(CATALOG, DRAWN, clock=Clock()) as recommender:
        serve_eventfully(recommender, np.random.default_rng(6))
        once, read = recommender.evaluate("popular"), recommender.store.read
        monkeypatch.setattr(recommender.store, "read", lambda job: (read(job), read(job))[1])
        assert recommender.evaluate("popular") == once
        monkeypatch.setattr(off_policy.OffPolicyReader, "with_user", added)
        assert recommender.evaluate("popular").slates == 2 * once.slates


def serve_eventfully(recommender: Recommender, draw: np.random.Generator) -> None:
    shown = []
    for step in range(24):
        user = f"user {draw.integers(6)}"
        slate = recommender.recommend(user, 2 + step % 2, diversity=0.9 if step % 5 == 0 else None)
        recommender.feedback(slate.slate_id, [item.id for item in slate.items if draw.random() < 0.4], final=True)
        shown.append(slate)
        if step % 6 == 5:
            recommender.learn_rates()
            recommender.record_events([Event(f"user {step % 4}", 103, "purchase")])
            recommender.feedback(shown[-5].slate_id, [shown[-5].items[-1].id])


def test_a_shown_item_that_no_other_draw_has_there_can_be_judged() -> None:
    """Little exploration: the item at the second place is nearly always drawn first."""
    clock, catalog = Clock(), make_catalog(30)
    shares = {"drawn": PolicyShare("dc2b-calibrated", options={"explore_slates": 0.05})}
    with Recommender(catalog, shares, clock=clock) as recommender:
        for user in range(60):
            clock.now += 1.0
            slate = recommender.recommend(f"user {user}", 5)
            recommender.feedback(slate.slate_id, [slate.items[0].id], final=True)
        found = recommender.evaluate("popular")
    assert all(math.isfinite(one.value) for one in found.estimates.values())


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_dividing_by_a_mean_of_draws_with_the_shown_slate_is_right_on_average(share: float) -> None:
    """A share of slates has item 0 at the first place; a reward of 1 for it at the second, where it is rarer."""
    draw, n = np.random.default_rng(0), 200_000
    is_above = draw.random((n, DRAWS + 1)) < share
    chance = np.where(is_above, 0.0, 0.9)  # of item 0 at the second place, given the first
    shown = draw.random(n) < chance[:, 0]
    others = chance[:, 1:].mean(axis=1)
    weights = shown / np.where(shown, with_shown(others, chance[:, 0]), 1.0)
    expected = 1.0 - share ** (DRAWS + 1)  # all but what no draw has there
    assert weights.mean() == pytest.approx(expected, abs=4.0 * weights.std() / math.sqrt(n))
    alone = np.divide(shown, others, out=np.zeros(n), where=others > 0.0)
    if share > 0.8:  # negative control: the other draws alone
        assert (others[shown] == 0.0).any()
    else:
        assert alone.mean() - 1.0 > 8.0 * alone.std() / math.sqrt(n)


@pytest.mark.parametrize("explore_slates", [0.6, 0.02])
def test_the_policy_of_the_log_is_not_warned_of(explore_slates: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marginals of drawn slates have noise; the control: the target draws with the numbers of the logging policy."""
    clock, starts = Clock(), LoggedCase.starts.fget  # type: ignore[attr-defined]
    shares = {"drawn": PolicyShare("dc2b-calibrated", options={"explore_slates": explore_slates})}
    with Recommender(CATALOG, shares, clock=clock) as recommender:
        for user in range(500):
            clock.now += 1.0
            slate = recommender.recommend(f"user {user}", 5)
            recommender.feedback(slate.slate_id, [slate.items[0].id], final=True)
        found = recommender.evaluate("drawn")
        monkeypatch.setattr(LoggedCase, "starts", property(lambda case: np.tile(starts(case)[:DRAWS], 2)))
        shared = arrays_of(recommender, "drawn", {})
    assert [found.estimates[name].warning for name in (INDEPENDENT, PSEUDO_INVERSE)] == [None, None]
    weights = (shared.target_marginal / shared.logged_marginal)[:, 1:]
    assert (weights.mean(axis=0) + 5.0 * weights.std(axis=0) / math.sqrt(500) < 1.0).any()


def test_what_draws_may_miss_is_a_bound() -> None:
    """By any probabilities of being further up, at all places above: the share of an item that no slate has here."""
    draw, places = np.random.default_rng(0), 4
    for _ in range(300):
        above = draw.beta(draw.uniform(0.1, 9.0), 0.3, 12)
        above *= min(1.0, places / above.sum())
        assert ((1.0 - above) * above ** (DRAWS + 1)).sum() <= unseen_by_draws(places + 1)[-1] + 1e-12
    worst = np.full(17, DRAWS / (DRAWS + 1))  # and it is reached, for sixteen places
    assert ((1.0 - worst) * worst ** (DRAWS + 1)).sum() == pytest.approx(unseen_by_draws(17)[-1])


def test_a_deterministic_log_is_warned_of() -> None:
    clock = Clock()
    with Recommender(CATALOG, "dc2b-calibrated", clock=clock) as recommender:
        with pytest.raises(RequestError, match="no slate has been closed yet"):
            recommender.evaluate("popular")
        serve(recommender, 40, clock)
        found = recommender.evaluate("random")
        assert found.drawn == 0.0
        assert "were not drawn at random" in found.in_words()
        with pytest.raises(RequestError, match="there is no policy"):
            recommender.evaluate("magic")
        with pytest.raises(RequestError, match="has no option"):
            recommender.evaluate("popular", {"diversity": 1})


def test_what_cannot_be_judged_is_left_out_and_counted() -> None:
    with Recommender(CATALOG, DRAWN) as recommender:
        for user, rules in (("ann", SlateRules()), ("ben", SlateRules(pin=(Pin(101, 1),)))):
            slate = recommender.recommend(user, K, rules=rules)
            recommender.feedback(slate.slate_id, [slate.items[0].id], final=True)
        recommender.recommend("open", K)
        found = recommender.evaluate("random")
        assert found.slates == 1
        assert found.skipped == {"its slate had rules other than filters": 1}
        assert math.isinf(found.logged.high)
        content = json.loads(json.dumps(found.as_json(), allow_nan=False))
        assert content["logged"]["high"] is None


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from slatewise.cli import app

    url, clock = f"sqlite:///{tmp_path}/slates.db", Clock()
    CATALOG.save(tmp_path / "catalog")
    with Recommender(CATALOG, DRAWN, url, clock=clock) as recommender:
        serve(recommender, 5, clock)
    (tmp_path / "slatewise.toml").write_text(
        '[policies.drawn]\npolicy = "dc2b-calibrated"\nshare = 1.0\noptions = {explore_slates = 0.6}\n'
    )
    common = ["evaluate", "--catalog", f"{tmp_path}/catalog", "--store", url, "--config", f"{tmp_path}/slatewise.toml"]
    chosen = [*common, "--policy", "dc2b-calibrated", "--option", "explore_slates=0.5"]
    app(chosen, standalone_mode=False)
    assert "doubly robust" in capsys.readouterr().out
    app([*chosen, "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["slates"] == 5
    with pytest.raises(SystemExit, match="is not key=value"):
        app([*common, "--policy", "popular", "--option", "diversity"], standalone_mode=False)


def test_the_log_for_other_programs(tmp_path: Path) -> None:
    """Each format holds the same clicks and propensities; slates that were not drawn are in the Parquet file only."""
    import polars as pl

    from slatewise.cli import app

    url, clock = f"sqlite:///{tmp_path}/slates.db", Clock()
    with Recommender(CATALOG, DRAWN, url, clock=clock) as recommender:
        serve(recommender, 6, clock)
        clock.now += 1.0
        plain = recommender.recommend("plain", K, policy="popular")
        recommender.feedback(plain.slate_id, final=True)
        logged = [row for user in range(6) for row in recommender.export(f"user {user}")["slates"]]
    for program in ("parquet", "obp", "vw"):
        app(
            ["store", "export", "--store", url, "--for", program, "--to", f"{tmp_path}/{program}"],
            standalone_mode=False,
        )
    table = pl.read_parquet(tmp_path / "parquet").sort("created_at", "place")
    propensities = [p for row in logged for p in row["choice"]["propensities"]]
    assert table["propensity"].to_list() == [*propensities, None, None]
    drawn = table.filter(pl.col("propensity").is_not_null())
    with np.load(tmp_path / "obp", allow_pickle=False) as arrays:
        order = np.lexsort((arrays["position"], arrays["slate_id"]))
        assert sorted(arrays["reward"]) == sorted(drawn["clicked"].cast(pl.Float64))
        joint = arrays["pscore"][order].reshape(6, K)
        assert sorted(joint[:, 0]) == pytest.approx(sorted(np.array(propensities).reshape(6, K).prod(axis=1)))
        assert (arrays["pscore_cascade"][order].reshape(6, K)[:, -1] == joint[:, -1]).all()
        assert set(arrays["items"][arrays["action"]]) == set(drawn["item"])
    lines = (tmp_path / "vw").read_text().splitlines()
    labels = [line.split(" ")[0].split(":") for line in lines]
    ids = json.loads((tmp_path / "vw.items.json").read_text())
    assert sorted(float(label[2]) for label in labels) == sorted(propensities)
    assert sum(-int(label[1]) for label in labels) == drawn["clicked"].sum()
    assert {ids[int(label[0]) - 1] for label in labels} == set(drawn["item"])
    with pytest.raises(SystemExit, match="give --for one of obp, parquet, vw and --to FILE"):
        app(["store", "export", "--store", url, "--for", "csv"], standalone_mode=False)


@pytest.mark.parametrize(
    ("program", "words"), [("obp", "`explore_slates`"), ("vw", "`--for parquet`"), ("parquet", "")]
)
def test_an_export_without_drawn_slates_says_what_to_do(
    program: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from slatewise.cli import app

    url = f"sqlite:///{tmp_path}/slates.db"
    with Recommender(CATALOG, "popular", url) as recommender:
        recommender.feedback(recommender.recommend("plain", K).slate_id, final=True)
    app(["store", "export", "--store", url, "--for", program, "--to", f"{tmp_path}/out"], standalone_mode=False)
    said = capsys.readouterr().err
    assert words in said
    assert ("propensities" in said) == (program != "parquet")
