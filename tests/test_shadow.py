"""A shadow policy is computed and logged, and changes no answer."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import shadow as shadow_benchmark
from slatewise.policies import make_policy
from slatewise.recommender import AtMost, PolicyShare, Recommender, SlateRules
from slatewise.service.settings import load_settings, shadow_share
from tests.support.recommending import Clock, ids, make_catalog

CATALOG = make_catalog(40)
VARIED = PolicyShare("dc2b-calibrated", options={"diversity": 1.0})


def run(shadow: str | PolicyShare | None) -> tuple[list[list[Any]], list[Any]]:
    """Show some slates; return their items, and what the log has about the shadow."""
    clock = Clock()
    with Recommender(CATALOG, clock=clock, shadow=shadow) as recommender:
        shown = []
        for _ in range(4):
            clock.now += 1.0
            slate = recommender.recommend("ann", 5)
            recommender.feedback(slate.slate_id, ids(slate)[:2])
            shown.append(ids(slate))
        assert all(one.is_same for one in recommender.replay())
        return shown, [row["choice"].get("shadow") for row in recommender.export("ann")["slates"]]


@pytest.mark.parametrize("shadow", ["popular", "random", VARIED])
def test_a_shadow_is_logged_and_changes_nothing(shadow: str | PolicyShare) -> None:
    shown, logged = run(shadow)
    assert shown == run(None)[0]
    assert all(one["policy"] == (shadow if isinstance(shadow, str) else "dc2b-calibrated") for one in logged)
    assert all(len(one["items"]) == 5 for one in logged)
    assert [one["items"] for one in logged] != shown  # negative control: it is another policy that chose
    assert run(None)[1] == [None] * 4


def test_the_same_policy_is_its_own_shadow() -> None:
    shown, logged = run("dc2b-calibrated")
    assert [one["items"] for one in logged] == shown


def test_a_shadow_that_fails_or_learns_otherwise() -> None:
    """One that fails is logged without items; slates with rules have none; one with another belief is refused."""

    class Failing(type(make_policy("popular", CATALOG))):  # type: ignore[misc]
        calls = 0

        def select(self, *arguments: Any) -> Any:
            type(self).calls += 1
            if type(self).calls > 2:  # the first two are those that prepare it
                raise ZeroDivisionError
            return super().select(*arguments)

    with Recommender(CATALOG, shadow=PolicyShare(Failing(CATALOG))) as recommender:
        choice = recommender.draft(recommender.request("ann", 3)).choice(0)
        assert choice["shadow"]["items"] is None
        limited = recommender.request("ann", 3, rules=SlateRules(at_most=(AtMost(1, "category"),)))
        assert "shadow" not in recommender.draft(limited).choice(0)
    with pytest.raises(ValueError, match="dc2b learns otherwise than dc2b-calibrated"):
        Recommender(CATALOG, shadow="dc2b")
    with pytest.raises(ValueError, match="learns otherwise"):
        Recommender(CATALOG, shadow=PolicyShare("dc2b-calibrated", options={"category_weight": 0.9}))


def test_a_service_has_it_from_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "slatewise.toml"
    file.write_text('[shadow]\npolicy = "popular"\n')
    assert shadow_share(load_settings({"catalog": tmp_path}, file).shadow) == PolicyShare("popular")


def test_the_benchmark_compares_what_differs_in_its_shadow_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same slates are shown by all of them, and each log has its own shadow."""
    monkeypatch.setattr(shadow_benchmark, "USERS", 1)
    logs: dict[str, list[dict[str, Any]]] = {}
    by_turns = shadow_benchmark.by_turns

    def noted(recommenders: dict[str, Recommender], turns: int) -> dict[str, list[float]]:
        times = by_turns(recommenders, turns)
        logs.update({name: one.export("user 0")["slates"] for name, one in recommenders.items()})
        return times

    monkeypatch.setattr(shadow_benchmark, "by_turns", noted)
    measured = shadow_benchmark.run((60,), turns=1)
    assert list(measured["60"]) == list(shadow_benchmark.SHADOWS)
    shown = [[row["items"] for row in rows] for rows in logs.values()]
    assert all(one == shown[0] for one in shown)
    assert [rows[0]["choice"].get("shadow", {}).get("policy") for rows in logs.values()] == [
        None if share is None else share.policy for share in shadow_benchmark.SHADOWS.values()
    ]
