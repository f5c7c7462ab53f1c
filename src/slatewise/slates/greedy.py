"""The greedy choice of a slate, lazy and exact: the one loop that every slate rule runs on, compiled.

A slate has exactly min(k, available) distinct available items, best first, and never depends on who else is in the
batch. A tie is a gain within TIE of the best, so that rounding decides nothing, and goes to the lowest index.

Items are bounded in blocks of 64, and a gain never exceeds its bound. With an int8 copy of the features (quantized.py),
blocks begin with a bound that needs no reading, and get a better one when that reaches the best gain. Only items whose
bound reaches the best gain enter the pool, where exact gains are kept; gains there only shrink, so the last known gain
of an item is a bound as well, and an item is looked at again only when that bound reaches the best gain. What is chosen
this way is what a full search of all items in every step would choose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slatewise.compiled import compiled
from slatewise.slates.available import NO_TABLE, NO_WORDS, Available, AvailableArguments, available_arguments
from slatewise.slates.kernels import (
    BLOCK,
    KEPT_VALUES,
    PARTS,
    UNIT,
    Floats,
    Integers,
    Vectors,
    Words,
    allocating,
    inner,
    inverse_lengths,
    largest_of,
    lower_cosines,
    narrow_product,
    next_set,
    ones,
    product,
    reaching,
    squared_length,
)
from slatewise.slates.quantized import quantized_bounds
from slatewise.slates.rules import (
    LARGEST_COSINE,
    MEAN_COSINE,
    OVERLAP,
    RELEVANCE,
    VOLUME,
    Rule,
    RuleArguments,
    SetMemory,
    add_direction,
    both_have_categories,
    drifts,
    first_gain,
    first_state,
    loss,
    next_state,
    size_of,
    summed_similarity,
)
from slatewise.slates.scores import (
    TABLE,
    Pass,
    ScoreArguments,
    Scores,
    bound_blocks,
    bound_items,
    exact_score,
    int8_weights,
    item_at,
    narrow_weights,
    rounding_error,
)
from slatewise.slates.threads import FEWEST_BLOCKS, bounded_by_threads

TIE = 1e-9
"""Gains are equal when they differ by less than this, relative to 1 + |gain|."""

LOWEST = float(np.finfo(np.float64).min)
CROWDED = 32
"""Where more items of a block come into question than dim over this, their cosines are looked at together first."""

CROWDED_SETS = 8
"""Where more items of a block come into question than this, their overlaps are looked at together first."""

RUN = 64
"""Bounds of blocks are compared so many at a time, in vector registers."""

EXACT = 1.0
"""The largest cosine that items of any block can have."""

UNREAD = -1
"""Stands for the number of chosen items where a block has no values yet."""

ITEM, SEEN, OWN, SIZE, STATE, GAIN = range(6)
"""The rows of the pool (6, n): item, number of chosen items it has seen, own value, size, state, last known gain."""

ActiveRule = tuple[tuple[int, float, float], Vectors, SetMemory]
"""Kind, weight and noise of a user's rule, vectors, sets."""

BlockMemory = tuple[Floats, Words, Floats, Integers, Floats, NDArray[np.int32], Floats]
"""Bounds of blocks, bits of closed items, values of items; how many chosen items the values of a block allow for,
UNREAD before they are taken from the int8 copy; for the largest cosine of a table also 1 / |x_i|; for one block sums of
products, and values less overlaps."""


@dataclass(frozen=True)
class Choice:
    """Chosen items (n_users, k), −1 where nothing was left, and, 0 for −1, what each added to the objective.

    variety is the part of a gain that is not the item's own score.
    """

    items: Integers
    gains: Floats
    variety: Floats


def choose(scores: Scores, rule: Rule, available: Available | ArrayLike, k: int, n_users: int | None = None) -> Choice:
    """Choose a slate of k items for every user, greedily by score plus variety.

    A table of scores must include `rule.first_gains`; the other forms add them themselves. Here variety is what the
    chosen items took: the gain minus all that the item would gain on an empty slate.
    """
    rows = len(scores.values) if n_users is None else n_users
    if k < 1:
        raise ValueError(f"k is {k}; a slate has at least one position")
    n_items = scores.values.shape[1] if scores.kind == TABLE else len(scores.items.features)
    allowed = available_arguments(available, rows, n_items)
    items, gains, own = np.empty((rows, k), dtype=np.int64), np.empty((rows, k)), np.empty((rows, k))
    arguments = score_arguments(scores)
    if isinstance(available, Available) and available.key:
        arguments, allowed = _from_list(scores, available, arguments, allowed)
    if rows == 1 and not allowed[0] and len(scores.items.quantized.codes) >= FEWEST_BLOCKS:
        arguments = bounded_by_threads(arguments, k)
    failed = choose_slates(arguments, rule_arguments(rule), allowed, (items, gains, own))
    if failed >= 0:
        raise ValueError("the score of an available item is not finite; mark it not available, or repair its vector")
    return Choice(items, gains, gains - own)


def _from_list(
    scores: Scores, available: Available, arguments: ScoreArguments, allowed: AvailableArguments
) -> tuple[ScoreArguments, AvailableArguments]:
    """Return how to choose from items that are asked for again: from their own copy, exactly, once there is one."""
    listed = scores.items.lists.get(available, scores.items.quantized)
    if listed is None:
        return arguments, allowed
    numbers, copy = listed
    return (*arguments[:-1], (*copy, EXACT)), (True, NO_TABLE, allowed[2], numbers, NO_WORDS)


def score_arguments(scores: Scores) -> ScoreArguments:
    """Return scores as the kernels take them."""
    items = scores.items
    tables = (scores.values, scores.matrix, items.features, items.offsets, items.base)
    return scores.kind, *tables, scores.factor, *items.extent, (*items.quantized, scores.cosine_limit)


def rule_arguments(rule: Rule) -> RuleArguments:
    """Return a rule as the kernels take it."""
    return rule.kind, rule.weights, rule.noise, rule.vectors, *rule.sets


@compiled
def choose_slates(
    scores: ScoreArguments, rule: RuleArguments, available: AvailableArguments, chosen: tuple[Integers, Floats, Floats]
) -> int:
    """Choose for every user; return the first user with a score that is not finite, or −1.

    Memory for all items is only reserved: what is written grows with the pool, apart from one bit per item.
    """
    chosen[0][:], chosen[1][:], chosen[2][:] = -1, 0.0, 0.0
    kind, weights, noise, vectors, words, set_of_item = rule
    restricted, _, _, candidates, _ = available
    n_items = scores[1].shape[1] if scores[0] == TABLE else scores[3].shape[0]
    n, k = candidates.size if restricted else n_items, chosen[0].shape[1]
    if n == 0:
        return -1
    n_blocks = (n + BLOCK - 1) // BLOCK
    keeps = n <= KEPT_VALUES
    looks = kind == LARGEST_COSINE and scores[0] == TABLE and not restricted and keeps
    values = np.empty(n_blocks * BLOCK if keeps else PARTS * BLOCK)
    seen, inverse = np.empty(n_blocks if keeps else 0, dtype=np.int64), np.empty(n if looks else 0)
    of_one_block = (np.empty(BLOCK, dtype=np.int32), np.empty(BLOCK))
    blocks = (np.empty(n_blocks), np.empty(n_blocks, dtype=np.uint64), values, seen, inverse, *of_one_block)
    sets = (words, set_of_item, np.empty(words.shape[0], dtype=np.int64), np.empty(words.shape[0]))
    pool, directions, lengths = np.empty((6, n)), np.empty((k, vectors.shape[1])), np.zeros(k + 1)
    for user in range(chosen[0].shape[0]):
        weight = weights[user if weights.size > 1 else 0]
        active = (RELEVANCE if weight == 0.0 and kind != VOLUME else kind, weight, noise)
        error = rounding_error(scores, user)
        int8 = int8_weights(scores, user, error, n)
        one_pass = (user, n, error, narrow_weights(scores, user), candidates, int8)
        if int8[0]:
            blocks[1][:] = 0  # items are looked up in `available` as they come into question
        else:
            close_unavailable(available, user, blocks[1], n)
        if not bound_blocks(scores, one_pass, values, (blocks[0], blocks[1])):
            return user
        memory = (blocks, pool, directions, lengths)
        if not choose_slate(scores, (active, vectors, sets), one_pass, (memory, available), chosen):
            return user
    return -1


@inner
def close_unavailable(available: AvailableArguments, user: int, closed: Words, n: int) -> None:
    """Set the bits of what a user may not see: positions in the catalog, or among the candidates if there are some."""
    restricted, table, excluded, candidates, words = available
    for block in range(closed.size):
        closed[block] = words[block] if words.size > 0 else np.uint64(0)
    if table.shape[0] > 0:
        row = user if table.shape[0] > 1 else 0
        for position in range(n):
            closed[position // BLOCK] |= np.uint64(not table[row, position]) << np.uint64(position % BLOCK)
    position = 0
    for number in range(excluded.size):
        item = excluded[number]
        if restricted:
            while position < n and candidates[position] < item:
                position += 1
        else:
            position = item
        if position < n and (not restricted or candidates[position] == item):
            closed[position // BLOCK] |= np.uint64(1) << np.uint64(position % BLOCK)


@inner
def is_available(available: AvailableArguments, user: int, item: int) -> bool:
    """Whether a user may see an item, where there are no candidates, or an item among them."""
    _, table, excluded, _, words = available
    if words.size > 0 and (words[item // BLOCK] >> np.uint64(item % BLOCK)) & np.uint64(1) != np.uint64(0):
        return False
    if table.shape[0] > 0 and not table[user if table.shape[0] > 1 else 0, item]:
        return False
    position = np.searchsorted(excluded, item)
    return bool(position == excluded.size or excluded[position] != item)


@inner
def choose_slate(
    scores: ScoreArguments,
    rule: ActiveRule,
    one_pass: Pass,
    given: tuple[tuple[BlockMemory, Floats, Floats, Floats], AvailableArguments],
    chosen: tuple[Integers, Floats, Floats],
) -> bool:
    """Choose one user's items one by one, and note their gains and own values. False if a score is not finite."""
    ((blocks, pool, directions, lengths), available), slate, user = given, chosen[0][one_pass[0]], one_pass[0]
    (kind, weight, _), vectors, (_, _, seen, sums) = rule
    seen[:], sums[:], blocks[3][:] = 0, 0.0, UNREAD if one_pass[5][0] else 0
    filled = size = count = 0 * slate.size  # for a constant 0, numba would compile the callees once more
    while filled < slate.size:
        headroom = 0.0
        if kind == MEAN_COSINE and count > 0:
            headroom = widen_gains(pool, size, weight, (directions, lengths, count))
        best = refresh_pool(rule, pool, size, (directions, slate, count))
        search = (pool, size, directions, slate, count, best, headroom)
        best, size = open_blocks(scores, rule, (one_pass, available), blocks, search)
        if size <= 0:
            return size == 0
        if best > -np.inf:
            position = lowest_item(pool, size, lowest_tie(best))
            slate[filled] = int(pool[ITEM, position])
            chosen[1][user, filled], chosen[2][user, filled] = pool[GAIN, position], pool[OWN, position]
            if kind != RELEVANCE and filled + 1 < slate.size:
                count = add_direction(rule[0], vectors, slate[filled], directions, count)
            filled, size = filled + 1, size - 1
            for row in range(6):
                pool[row, position] = pool[row, size]
        if kind == VOLUME and (best == -np.inf or count == vectors.shape[1]):
            begin_span(pool, size, count > 0)
            count = 0 * count
    return True


@inner
def refresh_pool(rule: ActiveRule, pool: Floats, size: int, so_far: tuple[Floats, Integers, int]) -> float:
    """Bring up to date whatever in the pool may gain most, the most promising item first; return the best gain."""
    best, limit, top = -np.inf, -np.inf, position_of_largest(pool[GAIN], size)
    for turn in range(-1 if size > 0 else 0, size):
        position = top if turn < 0 else turn
        if pool[GAIN, position] >= limit:
            best = max(best, refresh(rule[0], rule[1], rule[2], pool, position, so_far, limit))
            limit = lowest_tie(best)
        if turn < 0 and rule[0][0] == MEAN_COSINE and so_far[2] > 0:
            bound_mean_cosines(pool, size, (rule[0][1], limit), rule[1], (so_far[0], so_far[2]))
    return best


@allocating
def bound_mean_cosines(
    pool: Floats, size: int, search: tuple[float, float], vectors: Vectors, chosen: tuple[Floats, int]
) -> None:
    """Bound, in float32, what the items gain by mean cosine whose last known gains leave it open who gains most.

    The summed cosine of an item is the product of its unit vector with the sum of those chosen. Where scores are all
    alike, these are all items.
    """
    (weight, limit), (directions, count), total = search, chosen, np.zeros(vectors.shape[1], dtype=np.float32)
    for coordinate in range(total.size):
        for number in range(count):
            total[coordinate] += directions[number, coordinate]
    share, error = weight / count, UNIT * (total.size + count + 4) * count
    for position in range(size):
        if pool[GAIN, position] >= limit and 1e-30 < pool[SIZE, position] < 1e30:
            cosine = narrow_product(vectors, int(pool[ITEM, position]), total) / np.sqrt(pool[SIZE, position])
            pool[GAIN, position] = pool[OWN, position] - share * (cosine - error)


@inner
def open_blocks(
    scores: ScoreArguments,
    rule: ActiveRule,
    given: tuple[Pass, AvailableArguments],
    blocks: BlockMemory,
    search: tuple[Floats, int, Floats, Integers, int, float, float],
) -> tuple[float, int]:
    """Take items into the pool whose bounds reach the best gain, from the best block first if there is no gain yet.

    Return the best gain then and the size of the pool, −1 if a score is not finite.
    """
    pool, size, directions, slate, count, best, headroom = search
    bounds, closed, values, seen, inverse, products, lowered = blocks
    (kind, weight, _), vectors, sets = rule
    form, table, matrix, features, _, base, factor, _, _, copy = scores
    one_pass, available = given
    user, n, error, _, _, int8 = one_pass
    keeps = n <= KEPT_VALUES
    is_first, start, reach = size == 0 and bounds.size > 0, 0 * size, lowest_tie(best) - error - headroom
    if is_first:
        largest = largest_of(bounds)
        start, reach = first_reaching(bounds, 0, largest), -np.inf if int8[0] else largest - 2.0 * error
    block = first_reaching(bounds, start, reach)
    while block < bounds.size:
        shift = 0 if keeps else block * BLOCK
        first, last = block * BLOCK - shift, min(n, block * BLOCK + BLOCK) - shift
        if int8[0] and (not keeps or seen[block] == UNREAD):
            largest = quantized_bounds(copy, int8, block, products, values[first : first + BLOCK])
            if keeps:
                seen[block] = 0
            if largest < reach:
                bounds[block] = largest
                block = first_reaching(bounds, block + 1, reach)
                continue
        elif not keeps and not int8[0]:
            bound_items(scores, one_pass, block, values, shift)
        bits, bounds[block] = reaching(values[first:last], closed[block], reach)
        if inverse.size > 0 and seen[block] < count and ones(np.uint64(bits)) * CROWDED > vectors.shape[1]:
            since, scored = (directions, seen[block], count), (table, user, weight)
            subtract_cosines(vectors, inverse, since, scored, (values, first, last))
            seen[block] = count
            bits, bounds[block] = reaching(values[first:last], closed[block], reach)
        elif kind == OVERLAP and count > 0 and ones(np.uint64(bits)) > CROWDED_SETS:
            of_block = (values, first, last, block * BLOCK)
            less_overlap(weight, sets, (slate, count), (scores, one_pass), of_block, lowered)
            bits, bounds[block] = reaching(lowered[: last - first], closed[block], reach)
        closed[block] |= np.uint64(bits)
        bit = next_set(np.uint64(bits), 0)
        while bit < BLOCK:
            item = item_at(scores, one_pass, block * BLOCK + bit)
            bit = next_set(np.uint64(bits), bit + 1)
            if int8[0] and not is_available(available, user, item):
                continue
            own = exact_score(form, table, matrix, features, base, factor, user, item)
            if not abs(own) < np.inf:
                return best, -1
            pool[ITEM, size], pool[SEEN, size], pool[SIZE, size] = item, 0, size_of(kind, vectors, item)
            pool[OWN, size] = own if form == TABLE else own + first_gain(rule[0], pool[SIZE, size])
            pool[STATE, size] = first_state(kind, pool[SIZE, size])
            gain = refresh(rule[0], vectors, sets, pool, size, (directions, slate, count), lowest_tie(best))
            best, size = max(best, gain), size + 1
        reach = lowest_tie(best) - error - headroom
        block, is_first = first_reaching(bounds, 0 if is_first else block + 1, reach), False
    return best, size


@inner
def less_overlap(
    weight: float,
    sets: SetMemory,
    chosen: tuple[Integers, int],
    lookup: tuple[ScoreArguments, Pass],
    block: tuple[Floats, int, int, int],
    lowered: Floats,
) -> None:
    """Fill in the bounds of a block, lowered by the weighted overlaps of its items' categories with those chosen."""
    (slate, count), (values, first, last, start) = chosen, block
    for position in range(last - first):
        item = item_at(lookup[0], lookup[1], start + position)
        lowered[position] = values[first + position] - weight * summed_similarity(sets, item, slate, count)


@allocating
def subtract_cosines(
    vectors: Vectors,
    inverse: Floats,
    directions: tuple[Floats, int, int],
    own: tuple[Floats, int, float],
    block: tuple[Floats, int, int],
) -> None:
    """Lower the bounds of a block by the weighted cosines with items chosen since, for scores from a table.

    Bounds by scores alone let in very many items where similarity weighs much; for a whole block it is looked at fast.
    """
    (units, seen, count), (table, user, weight), (values, first, last) = directions, own, block
    rows, scales, row = vectors[first:last], inverse[first:last], user if table.shape[0] > 1 else 0
    direction, cosines = np.empty(vectors.shape[1], dtype=np.float32), np.empty(last - first)
    if seen == 0:
        inverse_lengths(rows, scales)
    for number in range(seen, count):
        for coordinate in range(direction.size):
            direction[coordinate] = units[number, coordinate]
        lower_cosines(rows, scales, direction, cosines)
        for position in range(cosines.size):
            values[first + position] = min(
                values[first + position], table[row, first + position] - weight * cosines[position]
            )


@inner
def lowest_tie(gain: float) -> float:
    """Return the lowest gain that counts as equal to this one."""
    return gain - TIE * (1.0 + abs(gain))


@inner
def position_of_largest(values: Floats, size: int) -> int:
    """Return the first position of the largest of some values."""
    largest = 0
    for position in range(1, size):
        if values[position] > values[largest]:
            largest = position
    return largest


@inner
def first_reaching(bounds: Floats, start: int, reach: float) -> int:
    """Return the first block from `start` on whose bound reaches a limit and is not −inf; n_blocks if none does."""
    limit, block = max(reach, LOWEST), start
    while block + RUN <= bounds.size and not bounds[block] >= limit:
        run, n_reaching = bounds[block : block + RUN], 0
        for position in range(RUN):
            n_reaching += run[position] >= limit
        if n_reaching > 0:
            break
        block += RUN
    while block < bounds.size and not bounds[block] >= limit:
        block += 1
    return block


@inner
def lowest_item(pool: Floats, size: int, limit: float) -> int:
    """Return the position in the pool of the lowest item whose gain reaches the limit."""
    lowest = -1
    for position in range(size):
        if pool[GAIN, position] >= limit and (lowest < 0 or pool[ITEM, position] < pool[ITEM, lowest]):
            lowest = position
    return lowest


@inner
def begin_span(pool: Floats, size: int, some_direction: bool) -> None:
    """Begin a new span: all items gain as on an empty slate; zero vectors only if the last span had no direction."""
    for position in range(size):
        has_direction = pool[SIZE, position] > 0.0 or not some_direction
        pool[SEEN, position], pool[STATE, position] = 0.0, 1.0 if has_direction else 0.0
        pool[GAIN, position] = pool[OWN, position] if has_direction else -np.inf


@inner
def widen_gains(pool: Floats, size: int, weight: float, chosen: tuple[Floats, Floats, int]) -> float:
    """Turn the last known gains of the mean cosine into bounds; return the headroom of items not yet in the pool."""
    directions, lengths, count = chosen
    drifts(directions, count, lengths)
    for position in range(size):
        smallest = pool[STATE, position] - lengths[int(pool[SEEN, position])]
        pool[GAIN, position] = pool[OWN, position] - weight * smallest / count
    return float(weight * lengths[0] / count)


@inner
def refresh(
    rule: tuple[int, float, float],
    vectors: Vectors,
    sets: SetMemory,
    pool: Floats,
    position: int,
    chosen: tuple[Floats, Integers, int],
    limit: float,
) -> float:
    """Let an item of the pool see what was chosen since it was last looked at; return its gain.

    Where that is cheap to tell, it stops as soon as the gain is below the limit: a bound is enough then.
    """
    directions, slate, count = chosen
    kind, weight, _ = rule
    item, own, size, state = int(pool[ITEM, position]), pool[OWN, position], pool[SIZE, position], pool[STATE, position]
    shared = summed_similarity(sets, item, slate, count) if kind == OVERLAP else 0.0
    number = int(pool[SEEN, position]) if kind != OVERLAP or vectors.shape[0] > 0 else count
    stops = kind in (OVERLAP, LARGEST_COSINE)
    while number < count and not (stops and own - weight * (shared + state) < limit):
        if kind != OVERLAP or not both_have_categories(sets, item, slate[number]):
            size = squared_length(vectors, item) if kind == OVERLAP and size == 0.0 else size
            state = next_state(kind, state, size, product(vectors, item, directions, number))
        number += 1
    pool[SEEN, position], pool[SIZE, position], pool[STATE, position] = number, size, state
    pool[GAIN, position] = own - loss(rule, shared + state, size, count)
    return float(pool[GAIN, position])
