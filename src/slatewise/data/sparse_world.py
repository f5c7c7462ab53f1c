"""Large synthetic worlds, drawn without looking at every pair of a user and an item, and written as Parquet files."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.compiled import compiled
from slatewise.data.synthetic import World, WorldSize, make_world

Floats = NDArray[np.float64]

USERS_AT_ONCE = 10_000
LARGE = 0.7
"""Where so many would be looked at, every item is: that is cheaper than drawing which."""


@dataclass(frozen=True, eq=False)
class SparseWorld:
    """Items with their truth, and users whose tastes and likes are drawn when they are asked for.

    P(like) = σ(popularity + taste · vector) with vectors of length 1, as in `slatewise.data.synthetic`.
    """

    size: WorldSize
    items: World
    seed: int

    @classmethod
    def draw(cls, size: WorldSize, seed: int = 0) -> "SparseWorld":
        """Draw the items; the same size and seed always give the same world, whoever is asked for first."""
        one_user = WorldSize(1, size.n_items, size.n_categories, size.dim, size.top_log_odds, size.taste_spread)
        return cls(size, make_world(one_user, seed), seed)

    def likes(self, chunk: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the items that one user after another of a chunk likes, ascending, and where those of each begin."""
        random = np.random.default_rng([self.seed, chunk])
        n_users = min(USERS_AT_ONCE, self.size.n_users - chunk * USERS_AT_ONCE)
        tastes = self.size.taste_spread * random.standard_normal((n_users, self.size.dim))
        order = np.argsort(-self.items.popularity, kind="stable")
        truth = (self.items.vectors[order], np.exp(self.items.popularity[order]))
        seed, liked, starts = int(random.integers(2**32)), np.empty(200 * n_users, np.int32), np.zeros(n_users + 1, int)
        while draw_likes(tastes, truth, seed, liked, starts) < 0:
            liked = np.empty(2 * len(liked), np.int32)
        items = order[liked[: starts[-1]]]
        keys = np.repeat(np.arange(n_users) * self.size.n_items, np.diff(starts)) + items
        return (np.sort(keys) % self.size.n_items).astype(np.int32), starts

    @property
    def n_chunks(self) -> int:
        """Number of chunks of users."""
        return -(-self.size.n_users // USERS_AT_ONCE)

    def write(self, folder: Path) -> Iterator[int]:
        """Write a Parquet file of likes for each chunk of users; yield the number of likes in each."""
        yield from (self.write_chunk(folder, chunk) for chunk in range(self.n_chunks))

    def write_chunk(self, folder: Path, chunk: int) -> int:
        """Write the likes of one chunk of users; return how many there are."""
        folder.mkdir(parents=True, exist_ok=True)
        items, starts = self.likes(chunk)
        users = np.repeat(np.arange(len(starts) - 1) + chunk * USERS_AT_ONCE, np.diff(starts))
        frame = pl.DataFrame({"user_id": users, "item_id": items.astype(np.int64)})
        frame.write_parquet(folder / f"likes-{chunk:05d}.parquet")
        return len(items)

    def write_items(self, file: Path) -> None:
        """Write the table of items as Parquet: ids, titles and categories."""
        dataset = self.items.dataset
        names = np.array(dataset.category_names)
        categories = ["|".join(names[has]) for has in dataset.categories]
        table = {"item_id": dataset.item_ids, "title": dataset.titles, "categories": categories}
        pl.DataFrame(table).write_parquet(file)


@compiled
def draw_likes(
    tastes: Floats, truth: tuple[Floats, Floats], seed: int, liked: NDArray[np.int32], starts: NDArray[np.int64]
) -> int:
    """Draw likes by thinning; items are in the order of falling odds. Return −1 if there is no room for all.

    θ·x ≤ |θ|, so no item from a rank on is liked with more than p = o·e^|θ| / (1 + o·e^|θ|) of that rank. The next
    rank at which a coin of p falls is drawn at once (Devroye 1986, X.2), and what is there is kept with probability
    P(like) / p. A user who would like nothing likes the likeliest item that was looked at.
    """
    np.random.seed(seed)  # noqa: NPY002
    (vectors, odds), n_liked = truth, 0
    for user in range(len(tastes)):
        most = np.exp(np.sqrt(np.square(tastes[user]).sum()))
        rank, likeliest, largest, n_before = 0, 0, -1.0, n_liked
        while rank < len(odds):
            bound = odds[rank] * most / (1.0 + odds[rank] * most)
            if bound < LARGE:
                rank += int(min(np.log1p(-np.random.random()) / np.log1p(-bound), 1e9))  # noqa: NPY002
                if rank >= len(odds):
                    break
            else:
                bound = 1.0
            product = 0.0
            for axis in range(tastes.shape[1]):
                product += tastes[user, axis] * vectors[rank, axis]
            odds_here = odds[rank] * np.exp(product)
            if odds_here > largest:
                largest, likeliest = odds_here, rank
            if np.random.random() * bound * (1.0 + odds_here) < odds_here:  # noqa: NPY002
                if n_liked == len(liked):
                    return -1
                liked[n_liked] = rank
                n_liked += 1
            rank += 1
        if n_liked == n_before:
            if n_liked == len(liked):
                return -1
            liked[n_liked] = likeliest
            n_liked += 1
        starts[user + 1] = n_liked
    return n_liked
