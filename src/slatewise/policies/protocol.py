"""What a policy is, three pure functions over the state of a batch of users, and what helps to write one.

The helpers are public: a policy of your own may use them as the shipped ones do (examples/custom_policy.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from slatewise.belief import Beliefs, Factored
from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.randomness import Streams
from slatewise.slates import Available, as_table

__all__ = [
    "Booleans",
    "ExplainablePolicy",
    "Floats",
    "Integers",
    "Policy",
    "ScoreTerms",
    "Slates",
    "State",
    "as_table",
    "at_items",
    "check_choice",
    "check_count",
    "check_no_retraction",
    "check_not_negative",
    "check_positive",
    "check_share",
    "check_truth",
    "explainable",
    "log_sigmoid",
    "pick",
    "sigmoid",
    "symmetric",
]

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]

State = dict[str, NDArray[Any]]
"""Named arrays with a leading user axis: everything a policy knows about its users."""


@dataclass(frozen=True)
class Slates:
    """Chosen items (n_users, k), −1 where the catalog ran out, and why: each array (n_users, k).

    probability and deviation describe the click probability the policy believes in (NaN where it has no belief);
    diversity_gain is what the item added to the variety of its slate, in the units of the policy's rule. A policy that
    draws items says how probable each was at its place, given the items before it: its propensity. beliefs are what a
    slate of one user was chosen by, for its reasons; of many users nobody keeps them.
    """

    items: Integers
    probability: Floats
    deviation: Floats
    diversity_gain: Floats
    propensity: Floats | None = None
    beliefs: Factored | None = None


class Policy(Protocol):
    """A way to choose slates and to learn from reactions; it holds configuration and catalog, never users.

    Examples
    --------
    >>> import numpy as np
    >>> from slatewise import Catalog, make_policy
    >>> from slatewise.evidence import Evidence
    >>> from slatewise.randomness import Streams, user_keys
    >>> policy = make_policy("dc2b-calibrated", Catalog.from_vectors(["tea", "coffee", "cocoa"], np.eye(3)))
    >>> state, everything = policy.start(n_users=2), np.ones((2, 3), dtype=bool)
    >>> slates = policy.select(state, everything, k=2, random=Streams(0, user_keys(["ann", "ben"]), step=0))
    >>> slates.items.shape
    (2, 2)
    >>> evidence = Evidence.of_clicks(slates.items, clicks=np.array([[True, False], [False, False]]))
    >>> state = policy.update(state, evidence)
    """

    @property
    def catalog(self) -> Catalog:
        """The items to choose from."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether the user must react to each item before the next one is chosen."""

    @property
    def additive(self) -> tuple[str, ...]:
        """The arrays of a state that are `start` plus a sum over evidence; empty if order matters.

        Evidence in them can age, start + factor · (state − start), and be taken back by the same evidence with its
        weight negated.
        """

    def start(self, n_users: int) -> State:
        """Return the state of users never seen before."""

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose min(k, available) distinct available items for each user.

        `available` is a boolean array (n_users, n_items), or for a single user an `Available`: exclusions and
        candidates by number, which costs nothing that grows with the catalog. Both ways choose the same items.
        """

    def update(self, state: State, evidence: Evidence) -> State:
        """Learn from evidence (n_users, n); a place without an item or weight teaches nothing."""


@dataclass(frozen=True, eq=False)
class ScoreTerms:
    """What the score of each chosen item (k,) before variety is the sum of, in probability.

    prior: what somebody never seen would get; learned: what evidence about the user adds; explored: what a draw from
    what is uncertain, or a bound above it, adds; is_drawn: whether each place was drawn at random, not only by score.
    """

    prior: Floats
    learned: Floats
    explored: Floats
    is_drawn: bool = False


class ExplainablePolicy(Policy, Protocol):
    """A policy that can say why: its belief is a Gaussian N(m, Σ) about a vector θ, which items multiply by theirs.

    Σ⁻¹m is a sum over evidence: an observation j adds its shift s_j, for most policies a number times the x_j of its
    item. So its share in m·x_i is x_iᵀ Σ s_j, exactly. A policy with these methods can be asked for more of a category,
    shows what it believes about a user's taste, and cites likes as reasons.
    """

    @property
    def belief_arrays(self) -> tuple[str, str]:
        """The names of the arrays of a state that hold Σ⁻¹ and Σ⁻¹m."""

    @property
    def belief_vectors(self) -> NDArray[np.float32]:
        """The vectors of all items that θ is about, up to scale."""

    def belief_in(self, state: State) -> Beliefs:
        """Return the belief inside a state."""

    def chosen_at(self, items: Integers) -> Floats:
        """Return the x_i of some items as they are chosen by."""

    def shifts(self, evidence: Evidence) -> Floats:
        """Return what each observation of one user (1, n) adds to Σ⁻¹m: (n, dim)."""

    def score_terms(self, beliefs: Factored, items: Integers, random: Streams) -> ScoreTerms:
        """Return what the scores of items (k,) chosen for one user are made of."""


def explainable(policy: Policy) -> ExplainablePolicy | None:
    """Return the policy itself if it can say why, else None."""
    return cast(ExplainablePolicy, policy) if hasattr(policy, "score_terms") else None


def check_positive(name: str, value: float) -> None:
    """Refuse an option that must be a positive finite number."""
    if not 0.0 < _number(value) < np.inf:
        raise ValueError(f"{name} is {value!r}; give a positive number")


def check_count(name: str, value: int) -> None:
    """Refuse an option that must be a whole number of 1 or more."""
    if not isinstance(value, Integral) or not 1.0 <= _number(value) < np.inf:
        raise ValueError(f"{name} is {value!r}; give a whole number of 1 or more")


def check_share(name: str, value: float, below: float = np.inf) -> None:
    """Refuse an option that must lie between 0 and 1, and perhaps stay below a limit."""
    if not (0.0 <= _number(value) <= 1.0 and value < below):
        raise ValueError(f"{name} is {value!r}; give a number from 0 to 1" + (" (1 excluded)" if below <= 1.0 else ""))


def check_not_negative(name: str, value: float) -> None:
    """Refuse an option that must be 0 or a positive finite number."""
    if not 0.0 <= _number(value) < np.inf:
        raise ValueError(f"{name} is {value!r}; give 0 or a positive number")


def check_truth(name: str, value: bool) -> None:
    """Refuse an option that must be true or false."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} is {value!r}; give true or false")


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Refuse an option that must be one of some words."""
    known = tuple(choices)
    if value not in known:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(known)}")


def _number(value: object) -> float:
    """Return a number as a float; everything else, truth values too, as NaN, which is in no range."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.inf


def check_no_retraction(name: str, evidence: Evidence) -> None:
    """Refuse negative weights in a policy that cannot take evidence back."""
    if (evidence.weight < 0.0).any():
        raise ValueError(f"{name} cannot take evidence back; learn again from the start, without it")


def at_items(table: NDArray[Any], items: Integers) -> NDArray[Any]:
    """Pick from a table (n_items, ...) the rows of chosen items (n_users, k); any row stands in for −1.

    >>> at_items(np.array([10, 20, 30]), np.array([[2, 0, -1]])).tolist()
    [[30, 10, 10]]
    """
    return table[np.maximum(items, 0)]


def pick(scores: NDArray[Any], items: Integers) -> NDArray[Any]:
    """Pick from (n_users, n_items) the entries of chosen items (n_users, k); any entry stands in for −1.

    >>> pick(np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([[1], [0]])).tolist()
    [[0.2], [0.3]]
    """
    return np.take_along_axis(scores, np.maximum(items, 0), axis=1)


def symmetric(matrices: Floats) -> Floats:
    """Average with the transpose, so that a stored triangle is the whole matrix to the last bit."""
    halves: Floats = 0.5 * (matrices + np.swapaxes(matrices, -1, -2))
    return halves


def sigmoid(logits: NDArray[Any]) -> Floats:
    """Return 1 / (1 + exp(−z)) without overflow (equation 3).

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logits)), dtype=np.float64)


def log_sigmoid(logits: NDArray[Any]) -> Floats:
    """Return log σ(z) = −log(1 + exp(−z)) without overflow or underflow.

    >>> log_sigmoid(np.array([-1000.0, 1000.0])).tolist()
    [-1000.0, 0.0]
    """
    negative: Floats = np.minimum(logits, 0.0)
    return np.asarray(negative - np.log1p(np.exp(-np.abs(logits))), dtype=np.float64)
