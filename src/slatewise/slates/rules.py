"""The slate rules, each once: in words, and as the compiled steps of the greedy choice.

The gain of an item is its own value minus a loss, gain_i = own_i − loss_i. The own value is the score plus what variety
adds on an empty slate; the loss is what the items chosen before take from it. Losses never shrink as the slate grows,
except that of the mean cosine, which can fall below 0, but not below minus the headroom. One number per item, its
state, sums up the chosen items, so that an item can be brought up to date whenever it is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slatewise.compiled import compiled
from slatewise.slates.kernels import (
    Floats,
    Integers,
    Vectors,
    Words,
    allocating,
    inner,
    is_empty,
    jaccard_of_sets,
    product,
    read_only,
    squared_length,
)

VANISHED = 1e-10
"""A residual below this part of the squared length is rounding."""

RELEVANCE, OVERLAP, VOLUME, ENTROPY, MEAN_COSINE, LARGEST_COSINE = range(6)

NO_WEIGHT = np.zeros(1)
NO_VECTORS = read_only(np.zeros((0, 0)), np.float32)

RuleArguments = tuple[int, Floats, float, Vectors, Words, Integers]

SetMemory = tuple[Words, Integers, Integers, Floats]
"""Distinct sets, the set of each item; for each set, how many chosen items it has seen and its summed similarity."""


class CategorySets(NamedTuple):
    """The category sets of items; made by `pack_sets`.

    words: each distinct set once, as bits (n_sets, n_words); of_item: the number of each item's set (n_items,).
    """

    words: Words
    of_item: Integers


NO_SETS = CategorySets(read_only(np.zeros((0, 0)), np.uint64), read_only(np.zeros(0), np.int64))


class Rule(NamedTuple):
    """What makes a slate varied; made by one of the functions below.

    kind: which rule; weights: what variety weighs, one number or one per user; vectors: (n_items, dim) or none;
    sets: the categories of items or none.
    """

    kind: int
    weights: Floats = NO_WEIGHT
    noise: float = 0.0
    vectors: Vectors = NO_VECTORS
    sets: CategorySets = NO_SETS

    def first_gains(self, items: Integers | None = None) -> Floats:
        """Return what variety adds to some items (default: all) on an empty slate; any item stands in for −1."""
        numbers = np.arange(max(len(self.vectors), len(self.sets.of_item))) if items is None else np.maximum(items, 0)
        gains = np.empty(numbers.size)
        fill_first_gains((self.kind, self.weights[0], self.noise), self.vectors, numbers.ravel(), gains)
        return gains.reshape(numbers.shape)


def relevance() -> Rule:
    """No variety: the score is the gain."""
    return Rule(RELEVANCE)


def overlap(sets: CategorySets, weight: float | Floats, vectors: Vectors = NO_VECTORS) -> Rule:
    """Loss: weight times the summed similarity with the chosen items.

    Two items are as similar as the Jaccard index of their categories, if both have some; else as the cosine of their
    vectors, not below 0; without vectors, not at all. sets: from `pack_sets`; weight: 0 (only relevant) or more (more
    varied), one number or one per user.
    """
    weights = np.atleast_1d(np.asarray(weight, dtype=np.float64))
    if not all(0.0 <= number < np.inf for number in weights.tolist()):
        raise ValueError(f"weight is {weight}; give 0 (only relevant) or more (more varied)")
    return Rule(OVERLAP, weights, vectors=vectors_for_overlap(sets, vectors), sets=sets)


def vectors_for_overlap(sets: CategorySets, vectors: Vectors) -> Vectors:
    """Return the vectors, or none if every item has categories: then none is ever looked at."""
    has_members = np.asarray(sets.words.any(axis=1))
    return NO_VECTORS if has_members[sets.of_item].all() else read_only(vectors, vectors.dtype)


def volume(vectors: Vectors) -> Rule:
    """Loss: −log(ρ_i² / |x_i|²), ρ_i² the squared length of what is left of x_i outside the span of the chosen.

    On an empty slate an item gains log|x_i|², so gain_i = score_i + log ρ_i²: the greedy search for the largest
    determinant (Algorithm 2; Chen et al. 2018) in the log domain. When the chosen vectors span everything, or nothing
    available sticks out of their span by more than VANISHED, a new span is begun for the rest of the slate. Zero
    vectors come last, by score, and their score is their gain.
    """
    return Rule(VOLUME, vectors=vectors)


def entropy(vectors: Vectors, weight: float, noise: float) -> Rule:
    """C²UCB's regularizer weight·½ log det(noise²·I + X_S X_Sᵀ), λ and σ in the paper.

    On an empty slate an item gains weight·½ log(noise² + |x_i|²), later the same of the variance that is left of it.
    """
    if not (weight >= 0.0 and noise > 0.0):
        raise ValueError(f"entropy has weight {weight} and noise {noise}; give a weight of 0 or more, noise above 0")
    return Rule(ENTROPY, np.array([weight], dtype=np.float64), float(noise), vectors)


def mean_cosine(vectors: Vectors, weight: float) -> Rule:
    """Loss: weight times the mean cosine with the chosen items, the paper's maximal marginal relevance."""
    return Rule(MEAN_COSINE, np.array([weight], dtype=np.float64), vectors=vectors)


def largest_cosine(vectors: Vectors, weight: float) -> Rule:
    """Loss: weight times the largest cosine with a chosen item, 0 if all are negative: maximal marginal relevance."""
    return Rule(LARGEST_COSINE, np.array([weight], dtype=np.float64), vectors=vectors)


def pack_sets(indicators: NDArray[np.bool_]) -> CategorySets:
    """Turn indicators (n_items, n_members) into sets, as `overlap` takes them."""
    packed = np.packbits(np.asarray(indicators, dtype=np.bool_), axis=1, bitorder="little")
    padded = np.zeros((len(packed), 8 * max(1, -(-packed.shape[1] // 8))), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    words, numbers, first = padded.view("<u8"), np.zeros(len(packed), dtype=np.int64), np.zeros(0, dtype=np.int64)
    for word in words.T:
        distinct, of_item = np.unique(word, return_inverse=True)
        _, first, numbers = np.unique(numbers * len(distinct) + of_item, return_index=True, return_inverse=True)
    return CategorySets(read_only(words[first], np.uint64), read_only(numbers, np.int64))


@inner
def first_gain(rule: tuple[int, float, float], size: float) -> float:
    """Return what variety adds to an item on an empty slate; size is |x_i|², and a zero vector adds nothing."""
    kind, weight, noise = rule
    if kind == VOLUME:
        return float(np.log(size)) if size > 0.0 else 0.0
    return float(0.5 * weight * np.log(noise * noise + size)) if kind == ENTROPY else 0.0


@compiled
def fill_first_gains(rule: tuple[int, float, float], vectors: Vectors, items: Integers, gains: Floats) -> None:
    """Fill in what variety adds to some items on an empty slate."""
    for position in range(items.size):
        size = squared_length(vectors, items[position]) if rule[0] in (VOLUME, ENTROPY) else 0.0
        gains[position] = first_gain(rule, size)


@inner
def first_state(kind: int, size: float) -> float:
    """Return the state of an item on an empty slate; size is |x_i|².

    It is the part of |x_i|² that is left (volume), the variance that is left (entropy), the summed cosine (mean, and
    overlap where categories say nothing) or the largest cosine.
    """
    if kind == VOLUME:
        return 1.0 if size > 0.0 else 0.0
    return size if kind == ENTROPY else 0.0


@inner
def next_state(kind: int, state: float, size: float, similarity: float) -> float:
    """Return the state after one more chosen item; similarity is x_i · direction."""
    if kind == VOLUME:
        left = state - similarity * similarity / size if size > 0.0 else 0.0
        return left if left > VANISHED else 0.0
    if kind == ENTROPY:
        return max(state - similarity * similarity, 0.0)
    cosine = similarity / np.sqrt(size) if size > 0.0 else 0.0
    if kind == OVERLAP:
        return state + max(cosine, 0.0)
    return state + cosine if kind == MEAN_COSINE else max(state, cosine)


@inner
def loss(rule: tuple[int, float, float], state: float, size: float, n_chosen: int) -> float:
    """Return what the chosen items take from an item; rule is its kind, weight and noise."""
    kind, weight, noise = rule
    if kind == RELEVANCE:
        return 0.0
    if kind == VOLUME:
        return -np.log(state) if state > 0.0 else np.inf
    if kind == ENTROPY:
        return float(0.5 * weight * np.log((noise * noise + size) / (noise * noise + state)))
    return weight * state / max(n_chosen, 1) if kind == MEAN_COSINE else weight * state


@inner
def summed_similarity(sets: SetMemory, item: int, slate: Integers, count: int) -> float:
    """Return the summed Jaccard similarity of an item with those chosen so far; items of equal categories share it."""
    words, of_item, seen, sums = sets
    own = of_item[item]
    while seen[own] < count:
        sums[own] += jaccard_of_sets(words, own, of_item[slate[seen[own]]])
        seen[own] += 1
    return float(sums[own])


@inner
def both_have_categories(sets: SetMemory, item: int, other: int) -> bool:
    """Whether neither of two items has an empty set."""
    words, of_item, _, _ = sets
    return not is_empty(words, of_item[item]) and not is_empty(words, of_item[other])


@inner
def size_of(kind: int, vectors: Vectors, item: int) -> float:
    """Return |x_i|², 0 for a rule that does not need it, or not for every item."""
    return 0.0 if kind in (RELEVANCE, OVERLAP) else squared_length(vectors, item)


@inner
def add_direction(rule: tuple[int, float, float], vectors: Vectors, item: int, directions: Floats, count: int) -> int:
    """Add what a chosen item contributes to the directions (k, dim), of which `count` are in use; return the new count.

    Volume: its part outside the span of the others, of length one (Gram-Schmidt, twice, is orthogonal to rounding).
    Entropy: Ax / √(σ² + xᵀAx), where A = I − Σ vvᵀ over the directions so far is (I + X_SᵀX_S/σ²)⁻¹ (Sherman-Morrison).
    Cosines: its unit vector.
    """
    kind, _, noise = rule
    dim = directions.shape[1]
    for coordinate in range(dim):
        directions[count, coordinate] = vectors[item, coordinate]
    if kind in (VOLUME, ENTROPY):
        for _ in range(2 if kind == VOLUME else 1):
            remove_projections(directions, count)
    if kind == ENTROPY:
        along = product(vectors, item, directions, count)
    else:
        along = product(directions, count, directions, count)
    length = np.sqrt(noise * noise + along)
    if kind == VOLUME and length == 0.0:
        return count
    for coordinate in range(dim):
        directions[count, coordinate] /= length if length > 0.0 else 1.0
    return count + 1


@allocating
def remove_projections(directions: Floats, count: int) -> None:
    """Subtract from directions[count] its projections on the ones before."""
    parts = np.empty(count)
    for other in range(count):
        parts[other] = product(directions, other, directions, count)
    for other in range(count):
        for coordinate in range(directions.shape[1]):
            directions[count, coordinate] -= parts[other] * directions[other, coordinate]


@allocating
def drifts(directions: Floats, count: int, lengths: Floats) -> None:
    """Fill in, for each number s of chosen items, how long the sum of the unit vectors chosen since then is.

    The summed cosine of an item that was last looked at after s choices has fallen by that much at most.
    """
    total = np.zeros(directions.shape[1])
    lengths[count] = 0.0
    for chosen in range(count - 1, -1, -1):
        squared = 0.0
        for coordinate in range(total.size):
            total[coordinate] += directions[chosen, coordinate]
            squared += total[coordinate] * total[coordinate]
        lengths[chosen] = np.sqrt(squared)
