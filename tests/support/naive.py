"""Slow, obvious twins of the fast functions: one user, explicit matrices, loops.

A greedy twin takes one user's scores (n_items,) and returns the chosen items and their gains. All share the two
conventions that slates.py states: a tie is a gain within TIE of the best and goes to the lowest index, and a
direction has vanished when less than VANISHED of the squared length is left.
"""

import itertools
import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Slate = tuple[list[int], list[float]]

TIE = 1e-9
VANISHED = 1e-10


def first_best(gains: dict[int, float]) -> int:
    """The lowest index among the (nearly) best gains."""
    best = max(gains.values())
    least = best - TIE * (1 + abs(best))
    return min(item for item, gain in gains.items() if gain >= least)


def greedy(available: NDArray[np.bool_], k: int, gain: Callable[[list[int], int], float]) -> Slate:
    """Add k times the item with the best gain."""
    left = [int(item) for item in np.flatnonzero(available)]
    slate: list[int] = []
    gains: list[float] = []
    while left and len(slate) < k:
        now = {item: gain(slate, item) for item in left}
        item = first_best(now)
        slate.append(item)
        gains.append(now[item])
        left.remove(item)
    return slate, gains


def top_k(scores: Floats, available: NDArray[np.bool_], k: int) -> list[int]:
    """Sort everything; what is equal stays in the order of the items."""
    values = (-scores).tolist()
    return sorted(np.flatnonzero(available).tolist(), key=values.__getitem__)[:k]


def mmr(quality: Floats, vectors: Floats, available: NDArray[np.bool_], k: int, trade_off: float) -> Slate:
    """The paper's formula, with every cosine computed when it is first needed."""
    similarity = cosines(vectors)

    def gain(slate: list[int], item: int) -> float:
        similar = [similarity(item, other) for other in slate]
        mean = sum(similar) / len(similar) if similar else 0.0
        return float(trade_off * quality[item] - (1 - trade_off) * mean)

    return greedy(available, k, gain)


def largest_cosine(scores: Floats, vectors: Floats, available: NDArray[np.bool_], k: int, weight: float) -> Slate:
    """Score minus weight times the largest cosine with what was chosen before, if that is positive."""
    similarity = cosines(vectors)

    def gain(slate: list[int], item: int) -> float:
        return float(scores[item] - weight * max([0.0, *(similarity(item, other) for other in slate)]))

    return greedy(available, k, gain)


def overlap_greedy(
    scores: Floats,
    categories: NDArray[np.bool_],
    available: NDArray[np.bool_],
    k: int,
    weight: float,
    vectors: Floats | None = None,
) -> Slate:
    """Score minus weight times every similarity with what was chosen before; what is unknown counts nothing."""
    known = np.zeros((len(categories), 1)) if vectors is None else vectors

    @cache
    def similar(item: int, other: int) -> float:
        return similarity(categories, known, item, other) or 0.0

    def gain(slate: list[int], item: int) -> float:
        return float(scores[item] - weight * sum(similar(item, other) for other in slate))

    return greedy(available, k, gain)


def softmax_propensities(
    scores: Floats, similarities: Floats, weight: float, temperature: float, slate: list[int]
) -> list[float]:
    """How probable each item of a slate is, given those before it, if everything else may be shown."""
    result = []
    for place, item in enumerate(slate):
        left = [other for other in range(len(scores)) if other not in slate[:place]]
        gains = {i: scores[i] - weight * sum(similarities[i, other] for other in slate[:place]) for i in left}
        result.append(math.exp(gains[item] / temperature) / sum(math.exp(gains[i] / temperature) for i in left))
    return result


def similarity(categories: NDArray[np.bool_], vectors: Floats, item: int, other: int) -> float | None:
    """Jaccard of the categories if both items have some, else the cosine of the vectors, not below 0; None: unknown."""
    ours, theirs = (set(categories[number].nonzero()[0].tolist()) for number in (item, other))
    if ours and theirs:
        return jaccard(ours, theirs)
    if not (vectors[item].any() and vectors[other].any()):
        return None
    return max(0.0, cosine(vectors[item], vectors[other]))


def cosine(left: Floats, right: Floats) -> float:
    """Cosine similarity; a zero vector is similar to nothing."""
    lengths = math.sqrt(float(left @ left)) * math.sqrt(float(right @ right))
    return float(left @ right) / lengths if lengths > 0 else 0.0


def cosines(vectors: Floats) -> Callable[[int, int], float]:
    """The cosine of two items, computed when it is first asked for."""
    return cache(lambda item, other: cosine(vectors[item], vectors[other]))


def entropy_greedy(
    scores: Floats, vectors: Floats, available: NDArray[np.bool_], k: int, regularizer: tuple[float, float]
) -> Slate:
    """C²UCB with two log determinants per candidate; the regularizer is (weight, noise)."""
    weight, noise = regularizer

    @cache
    def entropy(*slate: int) -> float:
        chosen = vectors[list(slate)]
        return 0.5 * float(np.linalg.slogdet(noise**2 * np.eye(len(slate)) + chosen @ chosen.T)[1])

    def gain(slate: list[int], item: int) -> float:
        return float(scores[item]) + weight * (entropy(*slate, item) - entropy(*slate))

    return greedy(available, k, gain)


def dpp_greedy(logits: Floats, vectors: Floats, available: NDArray[np.bool_], k: int, alpha: float) -> Slate:
    """Algorithm 2 by brute force: the kernel L = VVᵀ of equations (1) to (3), a determinant for every candidate.

    `span` holds the chosen items since the last new beginning; f is the product of click probabilities and det(L).
    """
    table = np.exp(logits)[:, None] ** alpha * vectors
    kernel = table @ table.T
    probability = 1 / (1 + np.exp(-logits))
    left = [int(item) for item in np.flatnonzero(available)]
    slate: list[int] = []
    gains: list[float] = []
    span: list[int] = []

    def log_f(items: list[int]) -> float:
        return float(np.log(probability[items]).sum() + np.linalg.slogdet(kernel[np.ix_(items, items)])[1])

    while left and len(slate) < k:
        new = [item for item in left if sticks_out(vectors, span, item)]
        if not new:
            span = []
            new = [item for item in left if sticks_out(vectors, span, item)]
        if new:
            now = {item: log_f([*span, item]) - log_f(span) for item in new}
        else:
            now = {item: float(2 * alpha * logits[item] + np.log(probability[item])) for item in left}
        item = first_best(now)
        span = [*span, item] if new else span
        slate.append(item)
        gains.append(now[item])
        left.remove(item)
    return slate, gains


def volume_greedy(scores: Floats, vectors: Floats, available: NDArray[np.bool_], k: int) -> Slate:
    """Score plus the logarithm of the squared distance from the span of what was chosen, by least squares.

    `span` holds the chosen items since the last new beginning; when nothing sticks out of it, it begins again.
    """
    left, span = [int(item) for item in np.flatnonzero(available)], list[int]()
    slate, gains = list[int](), list[float]()
    while left and len(slate) < k:
        now = _log_distances(scores, vectors, span, left)
        if not now:
            span = []
            now = _log_distances(scores, vectors, span, left)
        item = first_best(now or dict(zip(left, scores[left].tolist(), strict=True)))
        gains.append(now[item] if now else float(scores[item]))
        span = [*span, item] if now else span
        slate.append(item)
        left.remove(item)
    return slate, gains


def _log_distances(scores: Floats, vectors: Floats, span: list[int], items: list[int]) -> dict[int, float]:
    """The gains of the items that stick out of the span of others."""
    table = vectors[items].T
    scale = np.sqrt(np.square(vectors[span]).sum(axis=1))[:, None] if span else 1.0
    basis = np.linalg.qr((vectors[span] / scale).T)[0] if span else np.zeros((vectors.shape[1], 0))
    squared = np.square(table).sum(axis=0)
    residual = np.square(table - basis @ (basis.T @ table)).sum(axis=0)
    is_new = residual > VANISHED * squared
    numbers = np.array(items)[is_new]
    return dict(zip(numbers.tolist(), (scores[numbers] + np.log(residual[is_new])).tolist(), strict=True))


def sticks_out(vectors: Floats, span: list[int], item: int) -> bool:
    """Whether an item is linearly independent of the span: the ratio of two Gram determinants."""
    lengths = np.sqrt(np.square(vectors).sum(axis=1))
    if lengths[item] == 0:
        return False
    unit = vectors / np.where(lengths > 0, lengths, 1.0)[:, None]
    with_item = unit[[*span, item]]
    without = unit[span]
    return bool(np.linalg.det(with_item @ with_item.T) > VANISHED * np.linalg.det(without @ without.T))


def update(
    prior: tuple[Floats, Floats], vectors: Floats, clicks: Floats, options: dict[str, Floats], push: float, rounds: int
) -> tuple[Floats, Floats]:
    """Equations (7), (8), (9) for one user, as printed: mean and covariance, explicit inverses, a loop over items."""
    mean, covariance = prior
    offsets, weights = options["offsets"], options["weights"]
    new_mean, new_covariance = mean, covariance
    for _ in range(rounds):
        precision = np.linalg.inv(covariance)
        shift = np.linalg.inv(covariance) @ mean
        for x, y, offset, weight in zip(vectors, clicks, offsets, weights, strict=True):
            second = x @ new_covariance @ x + (offset + new_mean @ x) ** 2
            curvature = bound_curvature(math.sqrt(second))
            precision = precision + weight * 2 * curvature * np.outer(x, x)
            shift = shift + weight * (y + push - 0.5 - 2 * curvature * offset) * x
        new_covariance = np.linalg.inv(precision)
        new_mean = new_covariance @ shift
    return new_mean, new_covariance


def update_until(
    prior: tuple[Floats, Floats],
    vectors: Floats,
    clicks: Floats,
    options: dict[str, Floats],
    push: float,
    stopping: tuple[float, int],
) -> tuple[Floats, Floats]:
    """The same with more and more rounds, until no ξ of an item with weight moves; stopping is (tolerance, rounds)."""
    tolerance, most = stopping
    before = contact_points(prior, vectors, options["offsets"])
    for rounds in range(1, most):
        mean, covariance = update(prior, vectors, clicks, options, push, rounds)
        now = contact_points((mean, covariance), vectors, options["offsets"])
        moved = np.abs(now - before) > tolerance * (1 + now)
        if not moved[options["weights"] > 0].any():
            return update(prior, vectors, clicks, options, push, rounds + 1)
        before = now
    return update(prior, vectors, clicks, options, push, most)


def contact_points(moments: tuple[Floats, Floats], vectors: Floats, offsets: Floats) -> Floats:
    """Equation (9) for every item."""
    mean, covariance = moments
    return np.array(
        [math.sqrt(x @ covariance @ x + (o + mean @ x) ** 2) for x, o in zip(vectors, offsets, strict=True)]
    )


def add_evidence(
    belief: tuple[Floats, Floats], vectors: Floats, weights: Floats, pulls: Floats
) -> tuple[Floats, Floats]:
    """Precision and shift of one user plus one outer product and one vector per item with weight."""
    precision, shift = belief
    for x, weight, pull in zip(vectors, weights, pulls, strict=True):
        if weight > 0:
            precision, shift = precision + weight * np.outer(x, x), shift + pull * x
    return precision, shift


def with_categories(tastes: Floats, rates: list[float], categories: NDArray[np.bool_], weight: float) -> Floats:
    """Each taste vector, and one more number per category: weight·√(μ(1 − μ)) over the root of how many it has."""
    rows = []
    for taste, rate, owned in zip(tastes, rates, categories, strict=True):
        part = weight * math.sqrt(rate * (1 - rate)) / math.sqrt(max(1, sum(owned)))
        rows.append([*taste, *(part if has else 0.0 for has in owned)])
    return np.array(rows)


def uniform(seed: int, user: int, step: int, count: int) -> list[float]:
    """One user's stream of random numbers with Python's own integers: SplitMix64 from a mixed start."""
    whole, golden = 2**64, 0x9E3779B97F4A7C15

    def mix(value: int) -> int:
        value = (value + golden) % whole
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % whole
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % whole
        return value ^ (value >> 31)

    start = mix(mix(mix(seed % whole) ^ user) ^ step)
    return [(mix((start + number * golden) % whole) >> 11) / 2**53 for number in range(1, count + 1)]


def bound_curvature(xi: float) -> float:
    """λ(ξ) as printed, 1/8 in the limit."""
    return (1 / (1 + math.exp(-xi)) - 0.5) / (2 * xi) if xi > 1e-8 else 0.125


def grid_posterior(
    prior: tuple[Floats, Floats], vectors: Floats, clicks: Floats, offsets: Floats
) -> tuple[Floats, Floats]:
    """Mean and covariance of the exact logistic posterior in one or two dimensions, by summing over a fine grid."""
    mean, covariance = prior
    axes = [np.linspace(m - 9 * s, m + 9 * s, 601) for m, s in zip(mean, np.sqrt(np.diag(covariance)), strict=True)]
    theta = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    away = theta - mean
    log_density = -0.5 * np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away)
    for x, y, offset in zip(vectors, clicks, offsets, strict=True):
        logit = offset + theta @ x
        log_density += y * logit - np.logaddexp(0, logit)
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    center = density @ theta
    return center, (theta - center).T @ ((theta - center) * density[:, None])


def jaccard(left: set[int], right: set[int]) -> float:
    """Shared over united; two empty sets have similarity 0."""
    return len(left & right) / len(left | right) if left | right else 0.0


def slate_distance(slate: list[int], categories: NDArray[np.bool_], vectors: Floats) -> float | None:
    """Mean of 1 − similarity over the unordered pairs that can be compared; nothing for a slate without such pairs."""
    found = [similarity(categories, vectors, *pair) for pair in itertools.combinations(slate, 2)]
    known = [similar for similar in found if similar is not None]
    return 1 - sum(known) / len(known) if known else None


def user_metrics(
    shown: list[dict[str, int]], categories: NDArray[np.bool_], cut_offs: tuple[int, ...], vectors: Floats
) -> dict[str, float | None]:
    """Precision and diversity of one user from records with round, position, item and clicked."""
    shown = sorted(shown, key=lambda record: (record["round"], record["position"]))
    clicks = [record["clicked"] for record in shown]
    measured: dict[str, float | None] = {f"p@{n}": sum(clicks[:n]) / n if len(clicks) >= n else None for n in cut_offs}
    distances = []
    for number in sorted({record["round"] for record in shown}):
        slate = [record["item"] for record in shown if record["round"] == number]
        distances.append(slate_distance(slate, categories, vectors))
    known = [distance for distance in distances if distance is not None]
    measured["diversity"] = sum(known) / len(known) if known else None
    return measured
