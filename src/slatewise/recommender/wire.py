"""What is said between a recommender and the process that chooses for it: plain bytes, no pickle.

Both sides hold the same catalogue, so items go by number and states without names: the space tells their shapes.
Numbers stand before single bytes, so that every array begins where its machine wants it.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise.policies import State
from slatewise.recommender.choosing import Chosen
from slatewise.recommender.spaces import Space

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

SIZE = struct.Struct("<I")
ASKED = struct.Struct("<HHIdIIIII4x")
ANSWERED = struct.Struct("<I4xd")
NO_KNOB = math.nan
INTEGER, FLOAT = np.dtype(np.int64), np.dtype(np.float64)


@dataclass(frozen=True, eq=False)
class Question:
    """A slate to choose: for whom, how, and what must be learnt first (item numbers and clicks of closed slates).

    The arrays of the state stand in the order of the space's start.
    """

    policy: str
    user: str
    k: int
    diversity: float | None
    n_slates: int
    shown: Integers
    liked: tuple[int, ...]
    closed: Sequence[tuple[Integers, Booleans]]
    state: State

    def to_bytes(self) -> bytes:
        """Encode it."""
        policy, user = self.policy.encode(), self.user.encode()
        lengths = np.array([len(numbers) for numbers, _ in self.closed], dtype=np.int64)
        numbers = [numbers for numbers, _ in self.closed]
        clicks = [clicks for _, clicks in self.closed]
        knob = NO_KNOB if self.diversity is None else self.diversity
        sizes = (len(self.shown), len(self.liked), len(lengths), int(lengths.sum()))
        head = ASKED.pack(len(policy), len(user), self.k, knob, self.n_slates, *sizes)
        arrays = (self.shown, np.array(self.liked, dtype=np.int64), lengths, *numbers, *clicks)
        return b"".join([head, *(array.tobytes() for array in (*self.state.values(), *arrays)), policy, user])

    @classmethod
    def from_bytes(cls, content: bytes, start: State) -> "Question":
        """Decode it; a state has the shapes of the one that everybody starts with."""
        _, n_user, k, knob, n_slates, n_shown, n_liked, n_closed, n_numbers = ASKED.unpack_from(content)
        reader = _Reader(content, ASKED.size)
        state = reader.state(start)
        shown, liked, lengths = reader.integers(n_shown), reader.integers(n_liked), reader.integers(n_closed)
        ends = np.cumsum(lengths)[:-1]
        numbers = np.split(reader.integers(n_numbers), ends)
        clicks = np.split(reader.array(np.dtype(np.bool_), (n_numbers,)), ends)
        closed = list(zip(numbers, clicks, strict=True)) if n_closed else []
        diversity = None if math.isnan(knob) else knob
        user = content[len(content) - n_user :].decode()
        return cls(policy_of(content), user, k, diversity, n_slates, shown, tuple(liked.tolist()), closed, state)


def policy_of(content: bytes) -> str:
    """Return the policy that a question is for; it stands before the user, at the end."""
    n_policy, n_user = ASKED.unpack_from(content)[:2]
    return content[len(content) - n_user - n_policy : len(content) - n_user].decode()


def answer_bytes(chosen: Chosen, state: State) -> bytes:
    """Encode a slate and the state that it was chosen with."""
    arrays = (chosen.numbers, chosen.reasons, chosen.near, chosen.probability, chosen.deviation, chosen.gains)
    head = ANSWERED.pack(len(chosen.numbers), chosen.variety)
    return b"".join([head, *(array.tobytes() for array in (*arrays, *state.values()))])


def answer_from_bytes(content: bytes, space: Space) -> tuple[Chosen, State]:
    """Decode them."""
    count, variety = ANSWERED.unpack_from(content)
    reader = _Reader(content, ANSWERED.size)
    numbers, reasons, near = reader.array(INTEGER, (3, count))
    probability, deviation, gains = reader.array(FLOAT, (3, count))
    chosen = Chosen(numbers, probability, deviation, gains, reasons, near, variety)
    return chosen, reader.state(space.start)


class _Reader:
    """Takes arrays from bytes, one after the other."""

    def __init__(self, content: bytes, place: int) -> None:
        self.content, self.place = content, place

    def integers(self, count: int) -> Integers:
        return self.array(INTEGER, (count,))

    def array(self, kind: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        count = math.prod(shape)
        found = np.frombuffer(self.content, kind, count, self.place).reshape(shape)
        self.place += count * kind.itemsize
        return found

    def state(self, start: State) -> State:
        return {name: self.array(array.dtype, array.shape) for name, array in start.items()}
