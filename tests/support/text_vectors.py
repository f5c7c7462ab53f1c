"""Vectors of titles: hashed trigrams of letters, the same on every machine."""

from collections.abc import Iterable
from zlib import crc32

import numpy as np
from numpy.typing import NDArray


def text_vectors(titles: Iterable[str], dim: int = 48) -> NDArray[np.float64]:
    """Return the counts of each title's trigrams (n_titles, dim), by the hash of the trigram."""
    lines = [f" {title.casefold()} " for title in titles]
    vectors = np.zeros((len(lines), dim))
    for row, line in enumerate(lines):
        for start in range(len(line) - 2):
            vectors[row, crc32(line[start : start + 3].encode()) % dim] += 1.0
    return vectors
