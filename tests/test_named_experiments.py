"""Named experiments: who takes part, what is counted, and that start, stop and counts survive a restart."""

from dataclasses import replace
from pathlib import Path

import pytest

from slatewise.recommender import Experiment, Recommender, RequestError
from slatewise.recommender.assignment import EXPERIMENTS
from slatewise.recommender.experiments import compare_in_experiment
from slatewise.service.settings import load_settings
from slatewise.store import open_store
from slatewise.store.records import PolicyTotals
from tests.support.recommending import Clock, ids, make_catalog
from tests.support.serving import local, new_slate, small_catalog

CATALOG = make_catalog(30)
SHARES = {"dc2b-calibrated": 0.5, "popular": 0.5}
USERS = [f"user {number}" for number in range(200)]


def show(recommender: Recommender, users: list[str]) -> dict[str, str]:
    """Show a slate to each user, who clicks the first item; return their policies."""
    policies = {}
    for user in users:
        slate = recommender.recommend(user, 4)
        recommender.feedback(slate.slate_id, ids(slate)[:1], final=True)
        policies[user] = slate.policy
    return policies


def test_an_experiment_counts_for_itself_and_survives_restarts(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/slates.db", Clock()
    plan = Experiment("autumn", control="popular", holdout=0.2, effect=0.02)
    with Recommender(CATALOG, SHARES, url, clock=clock) as recommender:
        show(recommender, USERS[:50])
    started = clock.now = clock.now + 1.0
    with Recommender(CATALOG, SHARES, url, clock=clock, experiment=plan) as recommender:
        first = show(recommender, USERS)
        members = [user for user in USERS if plan.includes(user)]
        assert 140 < len(members) < 180
        assert {first[user] for user in USERS if user not in members} == {"popular"}
        results = {result.policy: result for result in recommender.experiments()}
        assert sum(result.users for result in results.values()) == len(members)  # nobody from before, nobody held out
        assert sum(result.clicks for result in results.values()) == len(members)
        assert (results["popular"].verdict, results["popular"].effect) == ("the control", 0.02)
    clock.now += 86_400.0
    with Recommender(CATALOG, SHARES, url, clock=clock, experiment=plan) as recommender:
        assert show(recommender, USERS) == first
        other = next(one for one in recommender.experiments() if one.policy != "popular")
        assert (other.experiment, other.started_at, other.stopped_at) == ("autumn", started, None)
        needed, so_far = other.slates_needed or 0, sum(one.slates for one in recommender.experiments())
        assert other.days_needed == pytest.approx(needed / so_far)
        counted = so_far
    stopped = Experiment("autumn", control="popular", holdout=0.2, effect=0.02, running=False)
    with Recommender(CATALOG, SHARES, url, clock=clock, experiment=stopped) as recommender:
        assert set(show(recommender, USERS).values()) == {"popular"}
        results_after = recommender.experiments()
        assert sum(one.slates for one in results_after) == counted  # nothing is counted any more
        assert results_after[0].stopped_at == clock.now
    with Recommender(CATALOG, SHARES, open_store(url, read_only=True), clock=clock, experiment=stopped) as reading:
        assert sum(one.slates for one in reading.experiments()) == counted
        assert reading.store.read(lambda transaction: transaction.fit(EXPERIMENTS)) is not None
    with Recommender(CATALOG, SHARES, url, clock=clock) as recommender:
        assert sum(one.slates for one in recommender.experiments()) == 50 + 3 * 200  # all that was ever counted


def test_an_experiment_is_stopped_and_goes_on_without_a_restart(tmp_path: Path) -> None:
    """Durably, in every process that shares the store; the settings have the last word."""
    url, clock, plan = f"sqlite:///{tmp_path}/slates.db", Clock(), Experiment("autumn", control="popular")
    with Recommender(CATALOG, SHARES, url, clock=clock, experiment=plan) as recommender:
        first, started = show(recommender, USERS[:60]), clock.now
        assert set(first.values()) == {"popular", "dc2b-calibrated"}
        clock.now += 100.0
        recommender.switch_experiment("autumn", running=False)
        assert set(show(recommender, USERS).values()) == {"popular"}
        stopped = recommender.experiments()
        assert sum(one.slates for one in stopped) == 60
        assert (stopped[0].started_at, stopped[0].stopped_at) == (started, clock.now)
        with Recommender(CATALOG, SHARES, recommender.store, clock=clock, experiment=plan) as other:
            assert other.experiments()[0].stopped_at == clock.now  # it stays stopped after a restart
            recommender.switch_experiment("autumn", running=True)
            assert (other.follow_experiment(), other.follow_experiment()) == (True, False)
            assert show(other, USERS[:60]) == first
            assert sum(one.slates for one in other.experiments()) == 120
            with pytest.raises(RequestError, match="no experiment of that name; that of this service is 'autumn'"):
                other.switch_experiment("winter", running=False)
    settled = Experiment("autumn", control="popular", running=False)
    with Recommender(CATALOG, SHARES, url, clock=clock, experiment=settled) as recommender:
        with pytest.raises(RequestError, match="the settings say"):
            recommender.switch_experiment("autumn", running=True)
        assert set(show(recommender, USERS).values()) == {"popular"}
    with Recommender(CATALOG, SHARES, url, clock=clock) as recommender:
        with pytest.raises(RequestError, match="this service has no named experiment"):
            recommender.switch_experiment("autumn", running=False)
        assert not recommender.follow_experiment()


@pytest.mark.parametrize(("n_users", "open_words"), [(10, "too early to tell: 30 users"), (100, "not decided: about ")])
def test_a_stopped_experiment_asks_for_nothing_more(n_users: int, open_words: str) -> None:
    """Its verdict is how it ended; a verdict that was reached stays."""
    plan = Experiment("autumn", control="popular", started_at=1.0)
    same = [counted(name, n_users, 5) for name in SHARES]
    running = compare_in_experiment(same, SHARES, plan, 9.0)[0]
    assert running.verdict.startswith(open_words)
    stopped = compare_in_experiment(same, SHARES, replace(plan, stopped_at=5.0), 9.0)[0]
    assert (stopped.verdict, stopped.stopped_at) == ("not decided when it was stopped", 5.0)
    assert (stopped.slates_needed, stopped.days_needed) == (None, None)
    better = [counted("dc2b-calibrated", 4_000, 10), counted("popular", 4_000, 5)]
    ended = compare_in_experiment(better, SHARES, replace(plan, stopped_at=5.0), 9.0)[0]
    assert ended.verdict == "better than popular"


def counted(name: str, n_users: int, clicks: int) -> PolicyTotals:
    """Users who on average clicked that many of 50 items, with a deviation of 5, in the experiment "autumn"."""
    shown, total = 50 * n_users, clicks * n_users
    squares = (2_500.0 * n_users, float((clicks**2 + 25) * n_users), 50.0 * total)
    return PolicyTotals(f"{name}@autumn", n_users, 5 * n_users, shown, total, 0.0, 0.0, *squares, 0.0, 0.0, 0.0)


def test_operators_stop_an_experiment_over_http(tmp_path: Path) -> None:
    catalog = small_catalog()
    catalog.save(tmp_path / "catalog")
    with local(tmp_path, Recommender(catalog, SHARES, experiment=Experiment("autumn", control="popular"))) as service:
        asked = {"name": "autumn", "running": False}
        stopped = service.client.request("PATCH", "/v1/experiments", json=asked)
        assert (stopped.status_code, {one["stopped_at"] is None for one in stopped.json()}) == (200, {False})
        assert {new_slate(service, f"user {number}")["policy"] for number in range(20)} == {"popular"}
        unknown = service.client.request("PATCH", "/v1/experiments", json={**asked, "name": "winter"})
        assert (unknown.status_code, "winter" in unknown.text, "'autumn'" in unknown.text) == (422, False, True)
        service.client.request("PATCH", "/v1/experiments", json={**asked, "running": True})
        assert {new_slate(service, f"user {number}")["policy"] for number in range(20)} == set(SHARES)


def test_another_experiment_splits_the_users_anew() -> None:
    splits = []
    for name in ("autumn", "winter"):
        with Recommender(CATALOG, SHARES, experiment=Experiment(name)) as recommender:
            splits.append([recommender.preview(user, 1).policy for user in USERS])
    same = sum(one == other for one, other in zip(*splits, strict=True))
    assert 70 < same < 130


def test_merged_users_take_their_counts_along() -> None:
    with Recommender(CATALOG, SHARES, experiment=Experiment("autumn")) as recommender:
        policies = show(recommender, USERS[:20])
        user, session = [name for name, policy in policies.items() if policy == "popular"][:2]
        recommender.merge(user, session)
        results = {one.policy: one for one in recommender.experiments()}
        assert (sum(one.slates for one in results.values()), sum(one.users for one in results.values())) == (20, 19)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "No Name"}, "is called 'No Name'"),
        ({"name": "a", "holdout": 1.0}, "holdout is 1.0"),
        ({"name": "a", "effect": 0.0}, "effect is 0.0"),
        ({"name": "a", "control": "magic"}, "the control is 'magic'; choose one of dc2b-calibrated, popular"),
    ],
)
def test_impossible_experiments_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recommender(CATALOG, SHARES, experiment=Experiment(**fields))  # type: ignore[arg-type]


def test_a_service_has_it_from_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "slatewise.toml"
    file.write_text('[experiment]\nname = "autumn"\nholdout = 0.1\n')
    settings = load_settings({"catalog": tmp_path}, file)
    assert settings.experiment is not None
    assert settings.experiment.experiment() == Experiment("autumn", holdout=0.1)
