"""POST /v1/rerank: the same as `diversify`, for items of the catalog or vectors sent along."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from slatewise.catalog import Catalog
from slatewise.recommender import Recommender
from slatewise.slates import diversify
from tests.support.serving import Local, local, small_catalog


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    with local(tmp_path) as started:
        yield started


def rerank(service: Local, **body: Any) -> list[dict[str, Any]]:
    response = service.client.post("/v1/rerank", json=body)
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = response.json()["results"]
    return results


def random_scores(n_items: int) -> list[float]:
    return [float(score) for score in np.random.default_rng(1).normal(size=n_items)]


@pytest.mark.parametrize("method", ["overlap", "dpp", "mmr", None])
def test_items_of_the_catalog(service: Local, method: str | None) -> None:
    catalog, items, scores = small_catalog(), list(range(50, 10, -1)), random_scores(40)
    given: dict[str, Any] = {} if method is None else {"method": method}
    features: dict[str, Any] = {"vectors": catalog.vectors[items], "categories": catalog.categories[items]}
    expected = diversify(scores, **features, k=7, diversity=0.6, **given)
    results = rerank(service, items=items, scores=scores, k=7, diversity=0.6, **given)
    assert [result["index"] for result in results] == expected.indices.tolist()
    assert [result["gain"] for result in results] == pytest.approx(expected.gains.tolist())
    assert [(result["id"], result["score"]) for result in results] == [
        (items[index], scores[index]) for index in expected.indices.tolist()
    ]


@pytest.mark.parametrize("method", ["dpp", "mmr"])
def test_vectors_sent_along(service: Local, method: Any) -> None:
    vectors, scores = np.random.default_rng(0).normal(size=(30, 4)), random_scores(30)
    expected = diversify(scores, vectors=vectors, k=5, diversity=0.3, method=method)
    results = rerank(service, vectors=vectors.tolist(), scores=scores, k=5, diversity=0.3, method=method)
    assert [result["index"] for result in results] == expected.indices.tolist()
    assert all(set(result) == {"index", "score", "gain"} for result in results)


def test_categories_sent_along(service: Local) -> None:
    categories = [["Drama"], ["Drama"], ["Comedy"], []]
    results = rerank(service, categories=categories, scores=[0.9, 0.8, 0.7, 0.1], k=2, diversity=0.9)
    assert [result["index"] for result in results] == [0, 2]


def test_without_diversity_the_best_scores_come_first(service: Local) -> None:
    scores = random_scores(20)
    results = rerank(service, items=list(range(20)), scores=scores, k=20, diversity=0)
    assert [result["score"] for result in results] == sorted(scores, reverse=True)


def test_uuids_are_written_as_text(tmp_path: Path) -> None:
    ids = [UUID(int=number) for number in range(5)]
    catalog = Catalog.from_vectors(ids, np.eye(5))
    with local(tmp_path, Recommender(catalog)) as service:
        results = rerank(service, items=[str(identifier) for identifier in ids[:3]], scores=[1, 3, 2], diversity=0)
        assert [result["id"] for result in results] == [str(ids[1]), str(ids[2]), str(ids[0])]
        unknown = service.client.post("/v1/rerank", json={"items": [7], "scores": [1]})
        assert unknown.status_code == 422


def test_nothing_is_recorded(service: Local) -> None:
    rerank(service, items=[1, 2, 3], scores=[1, 2, 3])
    assert "slatewise_slates_total{" not in service.client.get("/metrics").text


def test_the_number_of_vector_components_is_bounded(tmp_path: Path) -> None:
    """With a larger body limit, the bound of a million numbers is what counts."""
    with local(tmp_path, largest_body=16_000_000) as service:
        body = {"scores": [1] * 1001, "vectors": [[1] * 1000] * 1001, "method": "dpp"}
        response = service.client.post("/v1/rerank", json=body)
        assert response.status_code == 422
        assert "1,000,000" in response.json()["detail"]
