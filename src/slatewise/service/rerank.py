"""A varied top k of candidates that somebody else has scored: `slatewise.diversify` over HTTP."""

import uuid
from contextlib import suppress
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from slatewise.catalog import Catalog
from slatewise.recommender.types import RequestError
from slatewise.service.http import JsonResponse, to_json
from slatewise.service.schemas import MAX_VECTOR_NUMBERS, RankedItem, RankedVector, RerankBody, RerankResults
from slatewise.service.state import ServiceState
from slatewise.slates import diversify


async def rerank(state: ServiceState, _: Request, body: RerankBody) -> Response:
    """Choose a varied top k of scored candidates; nothing is recorded.

    Candidates are `items` of the catalog, with the catalog's vectors and categories, or `vectors` and `categories`
    sent along. `diversity` goes from 0 (by score) to 1 (most varied); `method` is `overlap` (of categories), `dpp` or
    `mmr` (of vectors).
    """
    return JsonResponse(await state.run(_reranked, state.recommender.catalog, body))


def _reranked(catalog: Catalog, body: RerankBody) -> bytes:
    """Choose, and write the result as JSON."""
    if (body.items is None) == (body.vectors is None and body.categories is None):
        raise RequestError("send either items of the catalog, or vectors or categories for each score")
    features = _sent_features(body) if body.items is None else _catalog_features(catalog, body.items)
    _check_lengths(body, features)
    options: dict[str, Any] = {} if body.method is None else {"method": body.method}
    try:
        chosen = diversify(np.array(body.scores), **features, k=body.k, diversity=body.diversity, **options)
    except ValueError:
        needed = "method overlap needs categories, dpp and mmr vectors that float32 can hold; leave out what is empty"
        raise RequestError(f"these candidates cannot be reranked this way: {needed}") from None
    return to_json(RerankResults(_results(body, chosen.indices.tolist(), chosen.gains.tolist())))


def _sent_features(body: RerankBody) -> dict[str, Any]:
    features: dict[str, Any] = {}
    if body.vectors is not None:
        features["vectors"] = _matrix(body.vectors)
    if body.categories is not None:
        features["categories"] = body.categories
    return features


def _matrix(vectors: list[list[float]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return vectors of one length as an array (n_vectors, dim)."""
    lengths = {len(vector) for vector in vectors}
    if len(lengths) != 1 or 0 in lengths:
        raise RequestError("vectors must all have the same length, at least 1")
    if len(vectors) * lengths.pop() > MAX_VECTOR_NUMBERS:
        raise RequestError(f"vectors may have at most {MAX_VECTOR_NUMBERS:,} numbers in all")
    return np.array(vectors, dtype=np.float64)


def _catalog_features(catalog: Catalog, items: list[int | str]) -> dict[str, Any]:
    rows = [_row(catalog, item, index) for index, item in enumerate(items)]
    if len(set(rows)) < len(rows):
        raise RequestError("an item is listed twice; list each item once")
    features: dict[str, Any] = {"vectors": catalog.vectors[rows]}
    if catalog.n_categories:
        features["categories"] = catalog.categories[rows]
    return features


def _row(catalog: Catalog, item: int | str, index: int) -> int:
    """Return the row of an item in the catalog; JSON has UUIDs as text."""
    key: object = item
    if catalog.item_ids.kind == "uuid":
        with suppress(ValueError):
            key = uuid.UUID(str(item))
    row = catalog.item_ids.find(key)
    if row is None:
        raise RequestError(f"the item at position {index} of items is not in the catalog")
    return row


def _check_lengths(body: RerankBody, features: dict[str, Any]) -> None:
    if any(len(values) != len(body.scores) for values in features.values()):
        raise RequestError("there must be exactly one score for each item or vector, and categories for each of them")


def _results(body: RerankBody, indices: list[int], gains: list[float]) -> list[RankedItem] | list[RankedVector]:
    pairs = list(zip(indices, gains, strict=True))
    if body.items is None:
        return [RankedVector(index, body.scores[index], gain) for index, gain in pairs]
    return [RankedItem(index, body.items[index], body.scores[index], gain) for index, gain in pairs]
