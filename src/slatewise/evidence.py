"""What users' reactions to items say about their taste: evidence, and what an item without a reaction means.

An item that nobody looked at is no refusal. `Reactions` is what a client reported, `Attention` decides what it means,
and `Evidence` is what policies learn from.
"""

from collections.abc import Callable
from dataclasses import dataclass
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
        A key of `ATTENTION_RULES`, for slates of which the client did not say what was seen: `all` was looked at;
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
        has_value = reactions.has_value
        seen, examined = ATTENTION_RULES[self.rule](self, reactions)
        is_told = reactions.is_seen_told[:, None]
        seen = np.where(is_told, reactions.seen, seen) | has_value
        return Evidence(
            np.where(seen, reactions.items, -1),
            np.where(has_value, reactions.value, 0.0),
            np.where(has_value, 1.0, self.skip_weight),
            np.where(is_told, 1.0, examined),
        )

    def examination(self, n_places: int) -> Floats:
        """Return the curve for so many places (n_places,)."""
        places = np.minimum(np.arange(n_places), len(self.curve) - 1)
        return np.array(self.curve)[places]


Rule = Callable[[Attention, Reactions], tuple[Booleans, Floats]]
"""Returns which items were seen and the probability that they were looked at, both (n_users, k)."""


def _everything(_attention: Attention, reactions: Reactions) -> tuple[Booleans, Floats]:
    """Everything was looked at: the paper."""
    return np.ones(reactions.items.shape, dtype=np.bool_), np.ones(reactions.items.shape)


def _until_last_click(attention: Attention, reactions: Reactions) -> tuple[Booleans, Floats]:
    """Users look from the top to the last item they reacted to; what is below is left to the curve, or unknown."""
    from_below = reactions.has_value[:, ::-1]
    seen = np.logical_or.accumulate(from_below, axis=1)[:, ::-1]
    if not attention.curve:
        return seen, np.ones(seen.shape)
    return np.ones(seen.shape, dtype=np.bool_), np.where(seen, 1.0, attention.examination(seen.shape[1]))


def _by_place(attention: Attention, reactions: Reactions) -> tuple[Booleans, Floats]:
    """Each place is looked at with its probability, which clicks depend on too; a dislike is certain."""
    examined = np.where(reactions.value == 0.0, 1.0, attention.examination(reactions.items.shape[1]))
    return np.ones(examined.shape, dtype=np.bool_), examined


ATTENTION_RULES: dict[str, Rule] = {
    "all": _everything,
    "until-last-click": _until_last_click,
    "curve": _by_place,
}
"""What was looked at if the client does not say."""

SERVICE_DEFAULT = Attention("until-last-click", skip_weight=0.3, curve=(0.5,))
"""What a service assumes before it has fitted anything: safe in every world of `slatewise reproduce attention`.

Both numbers were chosen on validation users; the rule of the laboratory is `Attention()`, that of the paper.
"""


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
