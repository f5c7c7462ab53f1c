"""Rules for slates over HTTP: requests, scenarios in the settings, and what a wrong or hostile rule gets."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slatewise.recommender import Recommender
from slatewise.service.settings import load_settings
from tests.support.serving import Local, local, new_slate, small_catalog
from tests.test_conditions import HOSTILE

SCENARIOS: dict[str, dict[str, Any]] = {
    "home": {"filter": "id < 30", "at_most": [{"n": 2, "per": "category"}], "exclude_owned": True},
    "front": {"pin": [{"item": 7, "place": 1}], "at_least": [{"n": 1, "where": "id > 3"}]},
    "broken": {"filter": "colour = 'red'"},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    recommender = Recommender(small_catalog(), scenarios=SCENARIOS)
    with local(tmp_path_factory.mktemp("rules"), recommender) as started:
        yield started


def refused(service: Local, **body: Any) -> dict[str, Any]:
    response = service.client.post("/v1/slates", json={"user": "anna", **body})
    assert (response.status_code, response.json()["type"]) == (422, "urn:slatewise:problem:invalid")
    problem: dict[str, Any] = response.json()
    return problem


def test_rules_and_a_scenario_reach_the_recommender(service: Local) -> None:
    rules: dict[str, Any] = {
        "filter": "id > 3",
        "pin": [{"item": 7, "place": 2}, {"item": 45, "place": 1}],
        "min_probability": 0.0,
    }
    slate = new_slate(service, k=6, scenario="home", **rules)
    shown = [item["id"] for item in slate["items"]]
    assert shown[1] == 7
    assert all(3 < item < 30 for item in shown)
    [unmet] = slate["unmet"]
    assert (unmet["rule"], unmet["number"]) == ("pin", 1)
    assert unmet["reason"].startswith("the item may not be shown; ")


def test_a_wrong_rule_is_a_422_that_points_at_it(service: Local) -> None:
    wrong = refused(service, filter="id < 9 AND colour = 'red'")
    assert wrong["errors"][0]["where"] == "/filter"
    assert wrong["errors"][0]["problem"].startswith("at character 12: ")
    assert refused(service, boost=[{"where": "id <", "factor": 2.0}])["errors"][0]["where"] == "/boost/0/where"
    assert refused(service, at_most=[{"n": 0, "per": "title"}])["errors"][0]["where"] == "/at_most/0/n"
    assert "home" in refused(service, scenario="away")["detail"]
    assert refused(service, exclude="owned")["detail"] == "/exclude: Input should be a valid list"


OF_PYDANTIC = re.compile(r"Body|Value error|instance of|\^|tuple|after validation", re.IGNORECASE)


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/v1/slates", [], "/: Input should be an object, with names and values"),
        ("/v1/slates", {"user": "ann", "pin": [3]}, "/pin/0: Input should be an object, with names and values"),
        ("/v1/slates", {"user": "a\0"}, "/user: Text must not contain NUL"),
        (
            "/v1/slates",
            {"user": "a", "categories": ["A"] * 101},
            "/categories: List should have at most 100 items, not 101",
        ),
        ("/v1/feedback", "x", "/: Input should be an object, with names and values"),
        ("/v1/rerank", 3, "/: Input should be an object, with names and values"),
    ],
)
def test_what_is_wrong_with_a_body_is_said_in_plain_words(service: Local, path: str, body: Any, detail: str) -> None:
    response = service.client.post(path, json=body)
    assert (response.status_code, response.json()["detail"]) == (422, detail)
    assert not OF_PYDANTIC.search(response.text)


POINTED: dict[str, dict[str, Any]] = {
    "/pin/1/item": {"pin": [{"item": 1, "place": 1}, {"item": 1, "place": 2}]},
    "/pin/2/place": {"pin": [{"item": 1, "place": 1}, {"item": 2, "place": 2}, {"item": 3, "place": 1}]},
    "/pin/0/item": {"scenario": "front", "pin": [{"item": 7, "place": 2}]},
    "/pin/0/place": {"scenario": "front", "pin": [{"item": 8, "place": 1}]},
    "/pin/0/x": {"pin": [{"item": 1, "place": 1, "x": 1}]},
    "/scenario": {"scenario": "away"},
    "/filters": {"filters": "id < 3"},
    "/": {"anna@example.com": 1},
    "/at_least/0/where": {"scenario": "front", "at_least": [{"n": 1, "where": "colour = 'red'"}]},
}


@pytest.mark.parametrize("where", POINTED)
def test_errors_point_at_the_place_in_the_request(service: Local, where: str) -> None:
    problem = refused(service, **POINTED[where])
    assert [error["where"] for error in problem["errors"]] == [where]
    assert "anna@" not in str(problem), "what is no name of a field is not repeated"


def test_a_wrong_rule_of_a_scenario_is_said_to_be_one(service: Local) -> None:
    for own in ({}, {"filter": "id < 9"}, {"filter": "colour = 'red'"}):
        error = refused(service, scenario="broken", **own)["errors"][0]
        assert error["where"] == "/scenario"
        assert error["problem"].startswith("a rule of scenario broken cannot be used, filter: at character 1: ")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"min_probability": 1.0}, "no item passes min_probability; relax it"),
        ({"filter": "id < 0"}, "no item passes filter; relax it"),
        ({"candidates": [1], "exclude": [1]}, "no item passes candidates and exclude; relax one of them"),
        ({"categories": ["War"], "filter": "id < 0"}, "no item passes categories and filter; relax one of them"),
    ],
)
def test_nothing_to_show_names_what_to_relax(service: Local, body: dict[str, Any], named: str) -> None:
    response = service.client.post("/v1/slates", json={"user": "anna", **body})
    problem = response.json()
    assert (response.status_code, problem["type"]) == (422, "urn:slatewise:problem:nothing-to-show")
    assert problem["detail"] == f"nothing is left to show; {named}"
    assert new_slate(service, **dict([*body.items()][:-1]))["items"], "without the last of them, there is something"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_conditions_are_refused_and_say_nothing_about_files(service: Local, name: str, tmp_path: Path) -> None:
    problem = refused(service, filter=HOSTILE[name].replace("FILE", str(tmp_path / "missing.csv")))
    assert "missing.csv" not in problem["detail"]
    assert new_slate(service)["items"]


def test_scenarios_come_from_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "slatewise.toml"
    file.write_text('catalog = "shop"\n[scenarios.home]\nfilter = "stock > 0"\nat_most = [{ n = 2, per = "brand" }]\n')
    rules = load_settings({}, file).scenarios["home"].rules()
    assert rules.described() == {"filter": "stock > 0", "at_most": [{"n": 2, "per": "brand"}]}
    file.write_text('catalog = "shop"\n[scenarios.home]\nfilters = "stock > 0"\n')
    with pytest.raises(ValueError, match="scenarios"):
        load_settings({}, file)
