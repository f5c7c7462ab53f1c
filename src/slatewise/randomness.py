"""Random numbers that depend only on (seed, user, step): not on batch, order or number of workers."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slatewise.compiled import compiled

Keys = NDArray[np.uint64]
Floats = NDArray[np.float64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def user_keys(user_ids: Iterable[object]) -> Keys:
    """Return one 64-bit key per user id, the same on every machine."""
    digests = (hashlib.blake2b(str(user).encode(), digest_size=8).digest() for user in user_ids)
    return np.array([int.from_bytes(digest, "little") for digest in digests], dtype=np.uint64)


@dataclass(frozen=True)
class Streams:
    """One stream of random numbers per user for one step of the interaction."""

    seed: int
    users: Keys
    step: int

    @property
    def starts(self) -> Keys:
        """Where the stream of each user begins (n_users,): kernels count from there and `mix`."""
        starts = np.empty(len(self.users), dtype=np.uint64)
        _fill_starts(np.uint64(self.seed % 2**64), _writable(self.users), np.uint64(self.step), starts)
        return starts

    def uniform(self, count: int) -> Floats:
        """Return numbers in [0, 1), shaped (n_users, count)."""
        draws = np.empty((len(self.users), count))
        _fill_uniform(np.uint64(self.seed % 2**64), _writable(self.users), np.uint64(self.step), draws)
        return draws

    def normal(self, count: int) -> Floats:
        """Return standard normal numbers, shaped (n_users, count), by the method of Box and Muller."""
        draws = self.uniform(2 * count)
        lengths, angles = np.sqrt(-2.0 * np.log1p(-draws[:, :count])), 2.0 * np.pi * draws[:, count:]
        normals: Floats = lengths * np.cos(angles)
        return normals


def _writable(keys: Keys) -> Keys:
    """Return keys as the kernel is compiled for them: the array itself, or a copy of a view or a read-only array."""
    return keys if keys.flags.carray else keys.copy()


@compiled
def _fill_starts(seed: np.uint64, users: Keys, step: np.uint64, starts: Keys) -> None:
    """Write where the stream of every user begins."""
    for user in range(len(users)):
        starts[user] = mix(mix(mix(seed) ^ users[user]) ^ step)


@compiled
def _fill_uniform(seed: np.uint64, users: Keys, step: np.uint64, draws: Floats) -> None:
    """Write the stream of every user: the top 53 bits of mixed multiples of GOLDEN, counted from a mixed start."""
    for user in range(len(users)):
        position = mix(mix(mix(seed) ^ users[user]) ^ step)
        for number in range(draws.shape[1]):
            position += GOLDEN
            draws[user, number] = np.float64(mix(position) >> np.uint64(11)) * 2.0**-53


@compiled
def mix(value: np.uint64) -> np.uint64:
    """Scramble a 64-bit number one to one: the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    mixed = value + GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
