"""Several `at_least` rules at once: what of them can still be met, the first rule first.

What is found is exact for the first two rules; a third one may get less than it could if all of them overlap. Items
differ only by the rules that they meet: bit j of an item's pattern says whether it meets rule j.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]


def patterns(is_met: Sequence[Booleans]) -> Integers:
    """Return the pattern of every item, of which rules are met by whom.

    >>> patterns([np.array([True, False, True]), np.array([False, False, True])]).tolist()
    [1, 0, 3]
    """
    return np.asarray(sum(met.astype(np.int64) << rule for rule, met in enumerate(is_met)))


def reachable(missing: Sequence[int], supply: Mapping[int, int], n_places: int) -> tuple[int, ...]:
    """Return how many of the missing items of each rule fit into the places that are left.

    supply: how many items there are of each pattern. A rule takes items that help the rules after it as well.

    >>> reachable([2, 4], {1: 9, 2: 9}, 4), reachable([2, 4], {1: 9, 2: 9, 3: 1}, 4)
    ((2, 2), (2, 3))
    """
    lacking, left = tuple(max(0, number) for number in missing), dict(supply)
    for rule in range(len(lacking)):
        while lacking[rule] and n_places:
            fitting = [pattern for pattern, number in left.items() if number and pattern >> rule & 1]
            if not fitting:
                break
            best = max(fitting, key=partial(_helps, lacking))
            helped = [number for number, is_helped in zip(lacking, _helps(lacking, best), strict=True) if is_helped]
            n_taken = min(left[best], n_places, *helped)
            left[best] -= n_taken
            n_places -= n_taken
            lacking = _after(lacking, best, n_taken)
    return tuple(max(0, number) - rest for number, rest in zip(missing, lacking, strict=True))


def keeping_reach(missing: Sequence[int], supply: Mapping[int, int], n_places: int) -> list[int] | None:
    """Return the patterns of items after which as much can be met as before; None if all can be chosen.

    >>> keeping_reach([1, 1], {0: 5, 1: 5, 2: 5}, 2), keeping_reach([1, 1], {0: 5, 1: 5, 2: 5, 3: 1}, 2)
    ([1, 2], None)
    """
    reach = reachable(missing, supply, n_places)
    kept = [
        pattern
        for pattern, number in supply.items()
        if number
        and reachable(_after(reach, pattern), {**supply, pattern: number - 1}, n_places - 1) == _after(reach, pattern)
    ]
    return None if len(kept) == sum(number > 0 for number in supply.values()) else kept


def _helps(lacking: tuple[int, ...], pattern: int) -> list[bool]:
    """Return which of the rules that lack items an item helps."""
    return [number > 0 and pattern >> rule & 1 == 1 for rule, number in enumerate(lacking)]


def _after(missing: Sequence[int], pattern: int, n_taken: int = 1) -> tuple[int, ...]:
    """Return what is missing after items of a pattern were taken."""
    return tuple(max(0, number - n_taken * (pattern >> rule & 1)) for rule, number in enumerate(missing))
