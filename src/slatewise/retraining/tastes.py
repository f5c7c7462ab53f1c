"""What a catalog makes of a log: each person's taste step by step, and what it predicts before each slate."""

import math
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from slatewise.belief import LinearModel
from slatewise.belief.linear_algebra import add_item, cholesky, product, solve_lower, solve_upper, write_identity
from slatewise.compiled import compiled
from slatewise.retraining.log import Booleans, Floats, Integers, InteractionLog

SECONDS_PER_DAY = 86_400.0
LEAST_PROBABILITY = 0.001
MOST_GROUPS, LEAST_PEOPLE = 32, 500
"""Into how many groups people are divided at most, and how many are in each unless there are fewer in all."""


def predict(log: InteractionLog, items: Integers, model: LinearModel, half_life: float = math.inf) -> Floats:
    """Return the probability that each seen item is liked (n_observations,), from the person's earlier steps only.

    Items are numbered as in the model, −1 for those that it does not have. half_life is the one of beliefs, in days.
    """
    likes = np.zeros(len(items))
    rank = model.vectors.shape[1]
    _fold(*_arguments(log, items, model, half_life), likes, np.empty((0, rank)), np.empty((0, 0)))
    return np.clip(likes, LEAST_PROBABILITY, 1.0 - LEAST_PROBABILITY)


def tastes(
    log: InteractionLog, items: Integers, model: LinearModel, half_life: float = math.inf
) -> tuple[Floats, Floats]:
    """Return each person's mean taste after the whole log (n_people, rank), and the mean covariance around it.

    The mean over people counts each of them as often as they saw an item. People are divided among threads in groups
    that depend on the log alone, and summed in the order of these, so that the result has the same bits on any machine.
    """
    rank, n_groups = model.vectors.shape[1], max(1, min(MOST_GROUPS, log.n_people // LEAST_PEOPLE))
    means, spreads, likes = np.zeros((log.n_people, rank)), np.zeros((n_groups, rank, rank)), np.zeros(len(items))
    (people, starts, at, is_slate), observed, known, seconds = _arguments(log, items, model, half_life)
    bounds = np.linspace(0, log.n_people, n_groups + 1).astype(int)

    def fold(group: int) -> None:
        first, last = bounds[group : group + 2]
        mine = (people[first : last + 1], starts, at, is_slate)
        _fold(mine, observed, known, seconds, likes, means[first:last], spreads[group])

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(fold, range(n_groups)))
    n_seen = max(1, int((np.repeat(log.is_slate, np.diff(log.starts)) & (items >= 0)).sum()))
    return means, spreads.sum(axis=0) / n_seen


def _arguments(
    log: InteractionLog, items: Integers, model: LinearModel, half_life: float
) -> tuple[
    tuple[Integers, Integers, Floats, Booleans],
    tuple[Integers, Floats, Floats, Floats],
    tuple[np.ndarray[tuple[int, ...], np.dtype[np.float32]], Floats, Floats],
    float,
]:
    steps = (log.people, log.starts, log.at, log.is_slate)
    observed = (items, log.value, log.weight, log.examined)
    return steps, observed, (model.vectors, model.expected, model.noise), half_life * SECONDS_PER_DAY


@compiled
def _fold(
    steps: tuple[Integers, Integers, Floats, Booleans],
    observed: tuple[Integers, Floats, Floats, Floats],
    model: tuple[np.ndarray[tuple[int, ...], np.dtype[np.float32]], Floats, Floats],
    half_life: float,
    likes: Floats,
    means: Floats,
    spread: Floats,
) -> None:
    """Learn the steps of one person after the other; write μ + m·t of what a slate shows before it is learned.

    If they have room, the last mean of each person is written to `means`, and the covariances are added to `spread`.
    """
    people, starts, at, is_slate = steps
    items, values, weights, examined = observed
    vectors, expected, noise = model
    rank = vectors.shape[1]
    precision, root = np.empty((rank, rank)), np.empty((rank, rank))
    shift, mean, vector = np.empty(rank), np.empty(rank), np.empty(rank)
    for person in range(len(people) - 1):
        write_identity(precision)
        for axis in range(rank):
            shift[axis] = 0.0
        clock, n_seen = -math.inf, 0
        for step in range(people[person], people[person + 1]):
            fade = 1.0
            if half_life < math.inf and clock > -math.inf:
                fade = 2.0 ** (-abs(at[step] - clock) / half_life)
                if at[step] > clock:
                    for row in range(rank):
                        shift[row] *= fade
                        for column in range(rank):
                            start = 1.0 if row == column else 0.0
                            precision[row, column] = start + fade * (precision[row, column] - start)
                    fade = 1.0
            clock = max(clock, at[step])
            if is_slate[step]:
                for axis in range(rank):
                    mean[axis] = shift[axis]
                if cholesky(precision, root):
                    solve_lower(root, mean)
                    solve_upper(root, mean)
                for entry in range(starts[step], starts[step + 1]):
                    item = items[entry]
                    if item >= 0:
                        n_seen += 1
                        for axis in range(rank):
                            vector[axis] = vectors[item, axis]
                        likes[entry] = expected[item] + product(mean, vector)
            for entry in range(starts[step], starts[step + 1]):
                item, chance, weight = items[entry], examined[entry], fade * weights[entry]
                if item >= 0 and weight != 0.0:
                    for axis in range(rank):
                        vector[axis] = vectors[item, axis]
                    variance = chance * chance * noise[item] + chance * (1.0 - chance) * expected[item]
                    pull = weight * chance * (values[entry] - chance * expected[item]) / variance
                    add_item(precision, shift, vector, weight * chance * chance / variance, pull)
        if len(means) and cholesky(precision, root):
            for axis in range(rank):
                means[person, axis] = shift[axis]
            solve_lower(root, means[person])
            solve_upper(root, means[person])
            for column in range(rank):
                for axis in range(rank):
                    vector[axis] = 1.0 if axis == column else 0.0
                solve_lower(root, vector)
                solve_upper(root, vector)
                for row in range(rank):
                    spread[row, column] += n_seen * vector[row]
