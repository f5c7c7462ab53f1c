"""What a policy is: three pure functions over the state of a batch of users."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.randomness import Streams
from slatewise.slates import Available

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]

State = dict[str, NDArray[Any]]
"""Named arrays with a leading user axis: everything a policy knows about its users."""


@dataclass(frozen=True)
class Slates:
    """Chosen items (n_users, k), −1 where the catalogue ran out, and why: each array (n_users, k).

    probability and deviation describe the click probability the policy believes in (NaN where it has no belief);
    diversity_gain is what the item added to the variety of its slate, in the units of the policy's rule.
    """

    items: Integers
    probability: Floats
    deviation: Floats
    diversity_gain: Floats


class Policy(Protocol):
    """A way to choose slates and to learn from clicks; it holds configuration and catalogue, never users."""

    @property
    def catalog(self) -> Catalog:
        """The items to choose from."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether each item must be answered before the next one is chosen."""

    @property
    def additive(self) -> bool:
        """Whether a slate and its clicks teach the same whatever was known: state after = state before + evidence."""

    def start(self, n_users: int) -> State:
        """Return the state of users never seen before."""

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose min(k, available) distinct available items for each user.

        `available` is a table (n_users, n_items), or for a single user an `Available`: exclusions and candidates by
        number, which costs nothing that grows with the catalogue. Both ways choose the same items.
        """

    def update(self, state: State, slates: Slates, clicks: Booleans) -> State:
        """Learn from what was clicked (n_users, k); a place without an item teaches nothing."""


def for_one(available: Booleans | Available, n_items: int) -> Available:
    """Return what a single user may see."""
    one = Available.one_row(available)
    if one.n_items != n_items:
        raise ValueError(f"available speaks of {one.n_items} items; this catalogue has {n_items}")
    return one


def for_all(available: Booleans | Available, n_users: int) -> Booleans:
    """Return what each of several users may see, as a table (n_users, n_items)."""
    if not isinstance(available, Available):
        return available
    if n_users != 1:
        raise ValueError(f"Available says what one user may see, but there are {n_users}; give a table of booleans")
    return available.table()


def check_positive(name: str, value: float) -> None:
    """Refuse an option that must be a positive finite number."""
    if not 0.0 < value < np.inf:
        raise ValueError(f"{name} is {value}; give a positive number")


def check_share(name: str, value: float, below: float = np.inf) -> None:
    """Refuse an option that must lie between 0 and 1, and perhaps stay below a limit."""
    if not (0.0 <= value <= 1.0 and value < below):
        raise ValueError(f"{name} is {value}; give a number from 0 to 1" + (" (1 excluded)" if below <= 1.0 else ""))


def check_not_negative(name: str, value: float) -> None:
    """Refuse an option that must be 0 or a positive finite number."""
    if not 0.0 <= value < np.inf:
        raise ValueError(f"{name} is {value}; give 0 or a positive number")


def scaled_vectors(catalog: Catalog, length: float) -> Floats:
    """Return the item vectors in float64, scaled to this root mean square length (a catalogue's own is 1)."""
    check_positive("vector_length", length)
    scaled: Floats = catalog.vectors.astype(np.float64) * length
    return scaled


def at_items(table: NDArray[Any], items: Integers) -> NDArray[Any]:
    """Pick from a table the rows (n_items, ...) of chosen items; any row stands in for −1."""
    return table[np.maximum(items, 0)]


def pick(scores: NDArray[Any], items: Integers) -> NDArray[Any]:
    """Pick from (n_users, n_items) the entries of chosen items (n_users, k)."""
    return np.take_along_axis(scores, np.maximum(items, 0), axis=1)


def symmetric(matrices: Floats) -> Floats:
    """Average with the transpose, so that a stored triangle is the whole matrix to the last bit."""
    halves: Floats = 0.5 * (matrices + np.swapaxes(matrices, -1, -2))
    return halves


def sigmoid(logits: NDArray[Any]) -> Floats:
    """Return 1 / (1 + exp(−z)) without overflow (equation 3)."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logits)), dtype=np.float64)


def log_sigmoid(logits: NDArray[Any]) -> Floats:
    """Return log σ(z) = −log(1 + exp(−z)) without overflow or underflow."""
    negative: Floats = np.minimum(logits, 0.0)
    return np.asarray(negative - np.log1p(np.exp(-np.abs(logits))), dtype=np.float64)
