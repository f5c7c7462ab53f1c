"""What operators see of an experiment: the difference, with an interval for any time, and how long to wait."""

from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import Visit

CONTROL = {"policy": "popular", "share": 0.5, "verdict": "the control"}
FIGURES = {
    "users": 120,
    "slates": 300,
    "clicks": 90,
    "click_rate": {"value": 0.3, "low": 0.25, "high": 0.35},
    "diversity": {"value": 0.8, "low": 0.78, "high": 0.82},
}
NOTHING = {"difference": {"value": None, "low": None, "high": None}, "slates_needed": None, "days_needed": None}
SEEN = {"difference": {"value": 0.012, "low": -0.003, "high": 0.027}, "slates_needed": 4200, "days_needed": None}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            SEEN,
            "click rate +1.2 points against Most popular (−0.3 to +2.7, at any time) · about 4,200 more slates to know",
        ),
        ({**SEEN, "days_needed": 2.2}, "(−0.3 to +2.7, at any time) · about 3 more days to know"),
        ({**NOTHING, "difference": {"value": -0.02, "low": None, "high": None}}, "click rate −2.0 points against"),
        ({**SEEN, "slates_needed": 0}, "(−0.3 to +2.7, at any time)"),
    ],
)
def test_a_comparison_shows_its_difference_and_what_it_still_takes(visit: Visit, said: Any, words: str) -> None:
    def with_experiment(route: Route) -> None:
        live = route.fetch().json()
        learning = {"policy": "dc2b-calibrated", "share": 0.5, "verdict": "not decided", "control": "popular", **said}
        live["policies"] = [{**FIGURES, **NOTHING, **CONTROL}, {**FIGURES, **learning}]
        route.fulfill(json=live)

    page = visit().page
    page.route("**/v1/live", with_experiment)
    page.goto(page.url.split("?")[0].rstrip("/") + "/live")
    expect(page.locator(".verdicts li")).to_have_count(2)
    expect(page.locator(".verdicts li").last).to_contain_text(words)
    expect(page.locator(".verdicts li").first.locator(".note")).to_have_text("")
