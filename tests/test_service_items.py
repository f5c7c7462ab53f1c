"""The item table over HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slatewise.catalog import Catalog
from slatewise.recommender import Recommender
from tests.support.serving import Local, local, small_catalog
from tests.test_serve import eventually

TEA = {
    "title": "Tea",
    "categories": ["Hot"],
    "attributes": {"price": 3, "tags": ["a"], "since": {"time": "2026-01-31"}},
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    with local(tmp_path) as started:
        yield started


def test_a_day_in_the_shop(service: Local) -> None:
    client = service.client
    put = client.request("PUT", "/v1/items/1000", json=TEA)
    assert (put.status_code, put.json()["id"], put.json()["trained"]) == (200, 1000, False)
    assert put.json()["attributes"] == {"price": 3.0, "tags": ["a"], "since": {"time": 1769817600.0}}
    slate = client.post("/v1/slates", json={"user": "anna", "k": 2, "candidates": [1000, 3]}).json()
    assert {item["title"] for item in slate["items"]} == {"Tea", "Film 3"}
    assert client.delete("/v1/items/1000").status_code == 204
    wanted = {"user": "ben", "candidates": [1000], "preview": True}
    assert client.post("/v1/slates", json=wanted).status_code == 422
    late = {"slate_id": slate["slate_id"], "clicked": [1000], "disliked": [3]}
    assert client.post("/v1/feedback", json=late).status_code == 200
    assert client.get("/v1/users/anna").json()["liked"] == [[1000, "Tea"]]
    patched = client.request("PATCH", "/v1/items/1000", json={"available": True, "attributes": {"price": None}})
    assert (patched.json()["available"], sorted(patched.json()["attributes"])) == (True, ["since", "tags"])
    assert client.post("/v1/slates", json=wanted).status_code == 200
    assert client.get("/v1/items/1000").json() == patched.json()


def test_items_in_bulk_all_or_none(service: Local) -> None:
    client = service.client
    body = {"items": [{"id": number, "title": f"New {number}"} for number in range(70, 75)]}
    assert client.post("/v1/items", json=body).json() == {"items": 5, "version": 1}
    assert client.post("/v1/items", json=body).json() == {"items": 5, "version": 1}
    found = client.get("/v1/items?query=new&limit=2").json()
    assert (found["total"], len(found["items"])) == (5, 2)
    client.delete("/v1/items/71")
    assert client.get("/v1/items?query=new&available=false").json()["items"][0]["id"] == 71
    assert client.get("/v1/items?query=new&available=true").json()["total"] == 4
    for wrong in ([{"id": 90}, {"id": 90}], [{"id": 90}, {"id": "x"}], [], [{"title": "no id"}]):
        assert client.post("/v1/items", json={"items": wrong}).status_code == 422
    assert client.get("/v1/items/90").status_code == 404


def test_a_wrong_item_among_several_is_pointed_at(service: Local) -> None:
    client = service.client
    client.request("PUT", "/v1/items/1000", json=TEA)
    wrong = {
        "/items/1/attributes/price": [{"id": 70}, {"id": 71, "attributes": {"price": "cheap"}}],
        "/items/2/attributes/size": [
            {"id": 70 + n, "attributes": {"size": size}} for n, size in enumerate([1, 2, "xl"])
        ],
        "/items/1/id": [{"id": 70}, {"id": 70}],
        "/items/1": [{"id": 70}, {"id": "x"}],
        "/items/2": [{"id": 70}, {"id": 71}, {"id": 72, "published_at": "soon"}],
    }
    for where, items in wrong.items():
        assert client.post("/v1/items", json={"items": items}).json()["errors"][0]["where"] == where
    for method in ("PUT", "PATCH"):
        refused = client.request(method, "/v1/items/7", json={"attributes": {"price": "cheap"}}).json()
        assert refused["errors"][0]["where"] == "/attributes/price"
    assert service.recommender.snapshot.version == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"unknown": 1},
        {"title": 1},
        {"title": "x" * 1001},
        {"categories": "Hot"},
        {"categories": [1]},
        {"attributes": {"1": 1}},
        {"attributes": {"title": "x"}},
        {"attributes": {"x": [1]}},
        {"attributes": {"x": {"date": 1}}},
        {"attributes": {"x": {"time": "soon"}}},
        {"attributes": {"x": None}},
        {"attributes": {"x" * 65: 1}},
        {"vector": [1e31]},
        {"vector": []},
        {"available": 1},
        {"available": None},
        {"published_at": "soon"},
        {"published_at": True},
    ],
    ids=str,
)
def test_what_is_wrong_is_refused(service: Local, wrong: dict[str, Any]) -> None:
    refused = service.client.request("PUT", "/v1/items/5", json=wrong)
    assert refused.status_code == 422, refused.json()
    assert service.recommender.snapshot.version == 0


def test_times_look_as_the_documentation_says(service: Local) -> None:
    """Every form of a time in docs/serving.md means the same moment, and only at its place."""
    client, text, number = service.client, "2026-01-31T12:00:00Z", 1769860800
    for moment in (text, number):
        item = {"published_at": moment, "attributes": {"since": {"time": moment}}}
        kept = client.request("PUT", "/v1/items/5", json=item).json()
        assert (kept["published_at"], kept["attributes"]) == (number, {"since": {"time": number}})
        for condition in ("since = TIMESTAMP '2026-01-31 12:00:00'", "since < DATE '2026-02-01'"):
            found = client.post("/v1/slates", json={"user": "anna", "preview": True, "filter": condition}).json()
            assert [one["id"] for one in found["items"]] == [5]
    assert client.request("PUT", "/v1/items/6", json={"published_at": {"time": number}}).status_code == 422
    assert client.request("PUT", "/v1/items/6", json={"attributes": {"since": text}}).status_code == 422, "it is text"


def test_what_is_not_there_is_not_found(service: Local) -> None:
    for method, body in (("GET", None), ("PATCH", {"available": True}), ("DELETE", None)):
        answer = service.client.request(method, "/v1/items/999", **({} if body is None else {"json": body}))
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:slatewise:problem:unknown-item")
    assert service.client.request("PUT", "/v1/items/abc", json={}).status_code == 422
    assert service.client.request("PUT", "/v1/items/5", content="{}").status_code == 415
    assert service.client.get("/v1/items/%ff").status_code == 400


def test_ids_in_paths_are_of_the_type_of_the_catalog(tmp_path: Path) -> None:
    catalog = Catalog.from_vectors(["a/b", "42"], np.eye(2))
    catalog.save(tmp_path / "catalog")
    with local(tmp_path, Recommender(catalog)) as service:
        assert service.client.get("/v1/items/42").json()["id"] == "42"
        assert service.client.get("/v1/items/a%2Fb").json()["id"] == "a/b"
        assert service.client.request("PUT", "/v1/items/x%2F%C3%BC", json={}).json()["id"] == "x/ü"


def test_a_catalog_that_is_loaded_later_is_prepared_for_new_items(tmp_path: Path) -> None:
    with local(tmp_path) as service:
        small_catalog(80, seed=1).save(tmp_path / "catalog")
        assert service.client.post("/v1/catalog/reload", json={}).status_code == 200
        trained = service.recommender.catalog.trained
        assert trained.n_items == 80
        assert eventually(lambda: "content_model" in vars(trained))
