"""Random numbers that depend only on (seed, user, step): not on batch, order or number of workers."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

    def uniform(self, count: int) -> Floats:
        """Return numbers in [0, 1), shaped (n_users, count)."""
        start = _mix(_mix(_mix(np.uint64(self.seed % 2**64)) ^ self.users) ^ np.uint64(self.step))
        places = (np.arange(1, count + 1, dtype=np.uint64) * GOLDEN)[None, :]
        return (_mix(start[:, None] + places) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, count: int) -> Floats:
        """Return standard normal numbers, shaped (n_users, count), by the method of Box and Muller."""
        draws = self.uniform(2 * count)
        lengths, angles = np.sqrt(-2.0 * np.log1p(-draws[:, :count])), 2.0 * np.pi * draws[:, count:]
        return lengths * np.cos(angles)


def _mix(values: Keys | np.uint64) -> Keys:
    """Scramble 64-bit numbers one to one: the finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    mixed = np.atleast_1d(np.asarray(values, dtype=np.uint64)) + GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
