"""What users' reactions to items say about their taste: evidence, and what an item without a reaction means.

An item that nobody looked at is no refusal. `Reactions` is what a client reported, `Attention` decides what it means,
and `Evidence` is what policies learn from.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise.compiled import compiled

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Items that users reacted to, or saw and passed over: arrays (n_users, n) that policies learn from.

    Parameters
    ----------
    items : array of int
        Item numbers; −1 where there is nothing to learn from: not seen, unknown to the catalog, or padding.
    value : array of float
        How much the item was liked, from 0 (refused) to 1 (liked).
    weight : array of float
        How much it counts, 0 or more. A negative weight takes the same evidence back, exactly for arrays in
        `Policy.additive`; policies without any refuse it.
    examined : array of float
        The probability that the item was looked at, above 0 and up to 1; 1 where it is known.
    reported : array of bool, optional
        Which of it are likes that were reported from elsewhere, without anything that was passed over: they say which
        items are liked, not how many. Policies that make no difference take them for items that were seen.

    Examples
    --------
    >>> import numpy as np
    >>> from slatewise.evidence import Evidence
    >>> evidence = Evidence.of_clicks(np.array([[7, 2, -1]]), np.array([[True, False, False]]))
    >>> evidence.value.tolist(), evidence.liked.tolist()
    ([[1.0, 0.0, 0.0]], [[True, False, False]])
    """

    items: Integers
    value: Floats
    weight: Floats
    examined: Floats
    reported: Booleans | None = None

    @classmethod
    def of_clicks(cls, items: Integers, clicks: Booleans) -> "Evidence":
        """Return the evidence of slates that were looked at from top to bottom, as in the paper: weight 1."""
        ones = np.ones(items.shape)
        return cls(items, clicks.astype(np.float64), ones, ones)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Items, values, weights and probabilities of examination: what evidence always has."""
        return self.items, self.value, self.weight, self.examined

    @property
    def liked(self) -> Booleans:
        """Which items were liked, for policies that know only clicks."""
        return np.asarray((self.value > 0.5) & (self.items >= 0))

    @property
    def is_reported(self) -> Booleans:
        """Which of it are reported likes, also where nothing was said about that."""
        return np.zeros(self.items.shape, dtype=np.bool_) if self.reported is None else self.reported

    @property
    def counted(self) -> Floats:
        """The weight, 0 where there is no item."""
        return self.weight * (self.items >= 0)

    def count_rounds(self, rounds: Integers) -> Integers:
        """Return how many updates have taught a user (n_users,) anything; taking evidence back counts down."""
        counted = np.array(rounds)
        _count_rounds(self.items, self.weight, counted)
        return counted


@dataclass(frozen=True, eq=False)
class Reactions:
    """How users reacted to slates, as far as the client said: arrays (n_users, k), top place first.

    `items` are item numbers, −1 where a place holds none. `value` is 1 for a click, 0 to 1 for a graded reaction, 0 for
    a dislike and NaN where nothing was said about the item. `seen` says what was reported as seen; an item with a value
    was seen anyway. `is_seen_told` (n_users,) is whether the client said what was seen at all.
    """

    items: Integers
    value: Floats
    seen: Booleans
    is_seen_told: Booleans

    @property
    def has_value(self) -> Booleans:
        """Which items users reacted to."""
        return np.asarray(~np.isnan(self.value) & (self.items >= 0))


@dataclass(frozen=True)
class Attention:
    """What an item without a reaction means.

    Parameters
    ----------
    rule : str
        One of `ATTENTION_RULES`, for slates of which the client did not say what was seen: `all` was looked at;
        everything `until-last-click`, and what is below it with the probability in `curve` (without one it teaches
        nothing); or each place with the probability in `curve`.
    skip_weight : float
        The weight of an item that was seen and not clicked; a dislike always weighs 1.
    curve : tuple of float
        The probability that each place is looked at; the last one holds for all later places.

    Examples
    --------
    >>> import numpy as np
    >>> from slatewise.evidence import Attention, Reactions
    >>> nothing, clicked = np.nan, 1.0
    >>> reactions = Reactions(
    ...     items=np.array([[5, 6, 7]]),
    ...     value=np.array([[nothing, clicked, nothing]]),
    ...     seen=np.zeros((1, 3), dtype=bool),
    ...     is_seen_told=np.array([False]),
    ... )
    >>> Attention("until-last-click").evidence(reactions).items.tolist()
    [[5, 6, -1]]
    >>> Attention("curve", curve=(1.0, 0.5)).evidence(reactions).examined.tolist()
    [[1.0, 0.5, 0.5]]
    """

    rule: str = "all"
    skip_weight: float = 1.0
    curve: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.rule not in ATTENTION_RULES:
            raise ValueError(f"attention is {self.rule!r}; choose one of {', '.join(ATTENTION_RULES)}")
        if not 0.0 <= self.skip_weight < np.inf:
            raise ValueError(f"skip_weight is {self.skip_weight}; give 0 or a positive number")
        if not all(0.0 < share <= 1.0 for share in self.curve):
            raise ValueError(f"curve is {self.curve}; give probabilities above 0 and up to 1")
        if self.rule == "curve" and not self.curve:
            raise ValueError("curve is empty; give the probability that each place is looked at")

    def evidence(self, reactions: Reactions) -> Evidence:
        """Return what reactions teach; what the client reported as seen overrides the rule."""
        shape = reactions.items.shape
        arrays = np.empty(shape, dtype=np.int64), np.empty(shape), np.empty(shape), np.empty(shape)
        given = (
            np.ascontiguousarray(reactions.items, dtype=np.int64),
            np.ascontiguousarray(reactions.value, dtype=np.float64),
            np.ascontiguousarray(reactions.seen, dtype=np.bool_),
            np.ascontiguousarray(reactions.is_seen_told, dtype=np.bool_),
        )
        _attend(ATTENTION_RULES.index(self.rule), float(self.skip_weight), self._shares, given, arrays)
        return Evidence(*arrays)

    @cached_property
    def _shares(self) -> Floats:
        """The curve as an array; 0 if there is none."""
        return np.array(self.curve or (0.0,), dtype=np.float64)


ATTENTION_RULES = ("all", "until-last-click", "curve")
"""What was looked at if the client does not say."""
ALL, UNTIL_LAST_CLICK, CURVE = range(3)

SERVICE_DEFAULT = Attention("until-last-click", skip_weight=0.3, curve=(0.5,))
"""What a service assumes before it has fitted anything: safe in every world of `slatewise reproduce attention`.

Both numbers were chosen on validation users; the rule of the laboratory is `Attention()`, that of the paper.
"""


@compiled
def _attend(
    rule: int,
    skip_weight: float,
    curve: Floats,
    reactions: tuple[Integers, Floats, Booleans, Booleans],
    evidence: tuple[Integers, Floats, Floats, Floats],
) -> None:
    """Fill in the evidence of reactions, as `Attention` says.

    `all` was looked at: the paper. `until-last-click`: users look from the top to the last item they reacted to, and
    what is below is left to the curve, or unknown without one. `curve`: each place is looked at with its probability,
    which clicks depend on too; a dislike is certain.
    """
    items, value, seen, is_seen_told = reactions
    seen_items, seen_value, weight, examined = evidence
    n_places = items.shape[1]
    for user in range(items.shape[0]):
        last = -1
        for place in range(n_places):
            if items[user, place] >= 0 and not np.isnan(value[user, place]):
                last = place
        for place in range(n_places):
            has_value = items[user, place] >= 0 and not np.isnan(value[user, place])
            share = curve[min(place, curve.size - 1)]
            is_seen, chance = True, 1.0
            if is_seen_told[user]:
                is_seen = seen[user, place] or has_value
            elif rule == UNTIL_LAST_CLICK and place > last:
                is_seen, chance = share > 0.0, share if share > 0.0 else 1.0
            elif rule == CURVE and value[user, place] != 0.0:
                chance = share
            seen_items[user, place] = items[user, place] if is_seen else -1
            seen_value[user, place] = value[user, place] if has_value else 0.0
            weight[user, place] = 1.0 if has_value else skip_weight
            examined[user, place] = chance


@compiled
def _count_rounds(items: Integers, weight: Floats, rounds: Integers) -> None:
    """Count a round up for users with an item of positive weight, and down for those with a negative one."""
    for user in range(len(rounds)):
        is_added, is_removed = False, False
        for place in range(items.shape[1]):
            if items[user, place] >= 0:
                is_added |= weight[user, place] > 0.0
                is_removed |= weight[user, place] < 0.0
        rounds[user] += int(is_added) - int(is_removed)
