"""Synthetic worlds with known truth: users with taste vectors, items with categories, long-tailed popularity."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slatewise.data.dataset import Dataset

Floats = NDArray[np.float64]

CHUNK_CELLS = 4_000_000
CATEGORIES = (
    *("Adventure", "Biography", "Comedy", "Crime", "Documentary", "Drama", "Family", "Fantasy", "History"),
    *("Horror", "Music", "Mystery", "Nature", "Romance", "Satire", "Science Fiction", "Sport", "Travel"),
)
FIRST_WORDS = (
    *("Amber", "Borrowed", "Crooked", "Distant", "Electric", "Forgotten", "Gentle", "Hollow", "Invisible", "Jade"),
    *("Kindred", "Lunar", "Midnight", "Northern", "Open", "Paper", "Quiet", "Restless", "Silver", "Tidal"),
)
SECOND_WORDS = (
    *("Archive", "Bridge", "Carnival", "Detective", "Engine", "Frontier", "Garden", "Harbour", "Island", "Journey"),
    *("Kingdom", "Lantern", "Machine", "Notebook", "Orchard", "Planet", "Question", "River", "Summer", "Voyage"),
)


@dataclass(frozen=True)
class WorldSize:
    """How large a synthetic world is, and how users differ.

    top_log_odds: the log-odds of the most popular item; taste_spread: the standard deviation of users' own log-odds.
    """

    n_users: int = 800
    n_items: int = 400
    n_categories: int = 12
    dim: int = 8
    top_log_odds: float = 1.0
    taste_spread: float = 1.0


@dataclass(frozen=True, eq=False)
class World:
    """The observed data set, and the truth behind it: P(like) = σ(popularity + taste · vector)."""

    dataset: Dataset
    tastes: Floats
    vectors: Floats
    popularity: Floats


def make_world(size: WorldSize | None = None, seed: int = 0) -> World:
    """Draw a world; the same size and seed always give the same one.

    Parameters
    ----------
    size : WorldSize, optional
        Numbers of users, items, categories and dimensions; 800 users and 400 items by default.
    seed : int
        The seed of all draws.

    Returns
    -------
    World
        The data set, and the true tastes, vectors and popularity.

    Examples
    --------
    >>> from slatewise.data.synthetic import WorldSize, make_world
    >>> make_world(WorldSize(n_users=50, n_items=30), seed=1).dataset.n_items
    30
    """
    size = size or WorldSize()
    random = np.random.default_rng(seed)
    categories = _draw_categories(size, random)
    centers = random.normal(size=(size.n_categories, size.dim))
    vectors = categories @ centers / categories.sum(axis=1, keepdims=True)
    vectors += 0.3 * random.normal(size=vectors.shape)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    popularity = size.top_log_odds - 1.1 * np.log(random.permutation(size.n_items) + 1.0)
    tastes = size.taste_spread * random.normal(size=(size.n_users, size.dim))
    users, items = _draw_likes(tastes, vectors, popularity, random)
    dataset = Dataset(
        name="synthetic",
        user_ids=np.arange(size.n_users),
        item_ids=np.arange(size.n_items),
        titles=_titles(size.n_items),
        category_names=_category_names(size.n_categories),
        categories=categories,
        users=users,
        items=items,
    )
    return World(dataset, tastes, vectors, popularity)


def load_synthetic() -> Dataset:
    """A generated world of 800 users and 400 items whose true preferences are known."""
    return make_world().dataset


def _draw_categories(size: WorldSize, random: np.random.Generator) -> NDArray[np.bool_]:
    """One to three categories per item, some categories more common than others."""
    weights = 1.0 / np.sqrt(np.arange(size.n_categories) + 1.0)
    keys = random.random((size.n_items, size.n_categories)) ** (1.0 / weights)
    ranks = np.argsort(np.argsort(-keys, axis=1), axis=1)
    return ranks < random.integers(1, 4, size=(size.n_items, 1))


def _draw_likes(
    tastes: Floats, vectors: Floats, popularity: Floats, random: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Draw who likes what, in chunks of users; a user who would like nothing likes the most probable item."""
    users, items = [], []
    step = max(1, CHUNK_CELLS // len(vectors))
    for start in range(0, len(tastes), step):
        logits = tastes[start : start + step] @ vectors.T
        logits += popularity
        likes = random.logistic(size=logits.shape) < logits
        without_likes = np.flatnonzero(~likes.any(axis=1))
        likes[without_likes, logits[without_likes].argmax(axis=1)] = True
        chunk_users, chunk_items = np.nonzero(likes)
        users.append((chunk_users + start).astype(np.int32))
        items.append(chunk_items.astype(np.int32))
    return np.concatenate(users), np.concatenate(items)


def _titles(n_items: int) -> tuple[str, ...]:
    words = len(FIRST_WORDS) * len(SECOND_WORDS)
    titles = []
    for item in range(n_items):
        first, second = FIRST_WORDS[item % len(FIRST_WORDS)], SECOND_WORDS[(item * 7 + item // 20) % len(SECOND_WORDS)]
        titles.append(f"{first} {second}" + (f" {item // words + 1}" if item >= words else ""))
    return tuple(titles)


def _category_names(n_categories: int) -> tuple[str, ...]:
    more = (f"Category {number}" for number in range(len(CATEGORIES) + 1, n_categories + 1))
    return tuple(sorted((*CATEGORIES, *more)[:n_categories]))
