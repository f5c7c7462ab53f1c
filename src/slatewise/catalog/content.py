"""What is expected of an item that nobody has seen: ridge regression from content to its like rate and its vectors.

The features are 1, categories, pairs of categories, words of the title and, in a catalog of given vectors, the vector.
The regression is fitted on the items of the training; how much it shrinks, and whether pairs help, is decided by the
error of predicting each item from all others, which a ridge has in closed form.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

SHRINKAGES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
LEAST_ITEMS = 3
"""A word or a pair of categories says something if so many items of the training have it."""
MOST_WORDS, MOST_PAIRS = 1_000, 300
MOST_ITEMS = 20_000
WORD = re.compile(r"\w+")


@dataclass(frozen=True, eq=False)
class Content:
    """What is known of items before anybody has seen them; vectors (n_items, dim) only where all items have one."""

    titles: Sequence[str]
    categories: Booleans
    vectors: Floats | None = None

    def take(self, rows: NDArray[np.int64]) -> "Content":
        """Return the content of some of the items."""
        titles = [self.titles[row] for row in rows.tolist()]
        return Content(titles, self.categories[rows], None if self.vectors is None else self.vectors[rows])


@dataclass(frozen=True)
class Features:
    """Which columns of categories, words and pairs of categories are features; categories may get new columns later."""

    n_categories: int
    words: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, content: Content, *, with_pairs: bool) -> "Features":
        """Choose the most frequent words and pairs."""
        counts = Counter(word for title in content.titles for word in _words(title))
        words = [word for word, count in counts.most_common(MOST_WORDS) if count >= LEAST_ITEMS]
        pairs = _pairs(content.categories) if with_pairs else ()
        return cls(content.categories.shape[1], tuple(sorted(words)), pairs)

    def table(self, content: Content) -> Floats:
        """Return the features of items (n_items, n_features)."""
        categories = content.categories[:, : self.n_categories].astype(np.float64)
        has_word = np.zeros((len(categories), len(self.words)))
        columns = {word: column for column, word in enumerate(self.words)}
        for row, title in enumerate(content.titles):
            has_word[row, [columns[word] for word in _words(title) if word in columns]] = 1.0
        pairs = [categories[:, first] * categories[:, second] for first, second in self.pairs]
        vectors = [] if content.vectors is None else [content.vectors]
        return np.column_stack([np.ones(len(categories)), categories, has_word, *pairs, *vectors])


@dataclass(frozen=True, eq=False)
class Design:
    """A weighted table of features, decomposed once for ridges of any shrinkage; its first column, 1, is not shrunk."""

    rows: Floats
    weights: Floats
    center: Floats
    eigenvalues: Floats
    basis: Floats

    @classmethod
    def of(cls, table: Floats, weights: Floats) -> "Design":
        """Center the columns by their weighted means, so that the constant is what is left, and decompose XᵀWX."""
        center = np.average(table[:, 1:], axis=0, weights=weights)
        centered = table[:, 1:] - center
        eigenvalues, basis = np.linalg.eigh((centered.T * weights) @ centered)
        return cls(centered @ basis, weights, center, np.maximum(eigenvalues, 0.0), basis)

    def ridges(self, targets: Floats, shrinkages: Iterable[float]) -> Iterator["Ridge"]:
        """Fit (XᵀWX + λI)⁻¹XᵀWy for each λ; the residual of i without i is that with i over 1 − h_i (leverage)."""
        means = np.average(targets, axis=0, weights=self.weights)
        centered = targets - means
        products, squares = (self.rows.T * self.weights) @ centered, np.square(self.rows)
        for shrinkage in shrinkages:
            scale = 1.0 / (self.eigenvalues + shrinkage)
            slopes = scale[:, None] * products
            leverage = self.weights * (squares @ scale + 1.0 / self.weights.sum())
            residuals = (centered - self.rows @ slopes) / np.maximum(1.0 - leverage, 1e-6)[:, None]
            weights = self.basis @ slopes
            error = float(np.einsum("ij,ij->i", residuals, residuals) @ self.weights)
            yield Ridge(np.vstack([means - self.center @ weights, weights]), residuals, error)


@dataclass(frozen=True, eq=False)
class Ridge:
    """Weights (n_features, n_targets), residuals (n_items, n_targets) of items predicted from all others, and error."""

    weights: Floats
    residuals: Floats
    error: float


@dataclass(frozen=True, eq=False)
class Expected:
    """What content says about items: like rates, how many observations each is worth, taste and other vectors."""

    rates: Floats
    strengths: Floats
    tastes: Floats
    vectors: Floats


@dataclass(frozen=True, eq=False)
class Trained:
    """What training found out about items: their rates, from n_users users, tastes (n_items, rank) and vectors."""

    rates: Floats
    n_users: float
    tastes: Floats
    vectors: Floats

    @property
    def variances(self) -> Floats:
        """The variance μ(1 − μ) of a like."""
        return np.asarray(self.rates * (1.0 - self.rates))


@dataclass(frozen=True, eq=False)
class ContentModel:
    """Ridges from content to rates and to tastes.

    Tastes grow with √(μ(1 − μ)), so they are predicted in these units, with weights μ(1 − μ): what counts is the error
    of t itself. Rates of all trained items come from the same users, so each item counts the same.
    """

    features: Features
    taste_features: Features
    rate_weights: Floats
    taste_weights: Floats
    rate_range: tuple[float, float]
    strength: float
    strength_without_content: float
    rank: int

    @classmethod
    def fit(cls, content: Content, trained: Trained) -> "ContentModel":
        """Fit on trained items; of very many, on some evenly chosen ones."""
        rows = np.unique(np.linspace(0, len(trained.rates) - 1, MOST_ITEMS).astype(np.int64))
        content, rates, variances = content.take(rows), trained.rates[rows], trained.variances[rows]
        rate_features, rate_ridge = best_ridge(designs(content, np.ones(len(rows))), rates[:, None])
        tastes = trained.tastes[rows] / np.sqrt(variances)[:, None]
        choices = designs(content, variances / variances.mean())
        taste_features, taste_ridge = best_ridge(choices, np.column_stack([tastes, trained.vectors[rows]]))
        return cls(
            rate_features,
            taste_features,
            rate_ridge.weights[:, 0],
            taste_ridge.weights,
            (float(rates.min()), float(rates.max())),
            prior_strength(rate_ridge.residuals[:, 0], rates, trained.n_users),
            prior_strength(rates - rates.mean(), rates, trained.n_users),
            tastes.shape[1],
        )

    def expect(self, content: Content) -> Expected:
        """Predict items; rates stay within those of the trained items.

        An item that has nothing in common with the trained ones may be as liked as any of them, so its rate is worth as
        many observations as the mean of all rates is. Without a category of the training nobody knows what an item is
        similar to: its vector is 0 then, since the constant alone would make all such items alike. Its tastes are those
        of the average item nevertheless.
        """
        has_category = content.categories[:, : self.taste_features.n_categories].any(axis=1, keepdims=True)
        table = self.features.table(content)
        rates = np.clip(table @ self.rate_weights, *self.rate_range)
        strengths = np.where(table[:, 1:].any(axis=1), self.strength, self.strength_without_content)
        predicted = self.taste_features.table(content) @ self.taste_weights
        tastes = predicted[:, : self.rank] * np.sqrt(rates * (1.0 - rates))[:, None]
        vectors = predicted[:, self.rank :] * has_category
        return Expected(rates, strengths, tastes, vectors)


def designs(content: Content, weights: Floats) -> list[tuple[Features, Design]]:
    """Return the features that may be used: without pairs of categories, and with them if there are any."""
    possible = [Features.of(content, with_pairs=with_pairs) for with_pairs in (False, True)]
    return [
        (features, Design.of(features.table(content), weights))
        for features in possible
        if features is possible[0] or features.pairs
    ]


def best_ridge(choices: Sequence[tuple[Features, Design]], targets: Floats) -> tuple[Features, Ridge]:
    """Return the features and the ridge, of all shrinkages, that predict items best from the others."""
    fitted = ((features, ridge) for features, design in choices for ridge in design.ridges(targets, SHRINKAGES))
    return min(fitted, key=lambda pair: pair[1].error)


def prior_strength(residuals: Floats, rates: Floats, n_users: float) -> float:
    """Return how many observations a predicted rate is worth: s of a Beta(sμ, s(1 − μ)) with the residuals' variance.

    Its variance is μ(1 − μ) / (s + 1). Residuals contain the chance in the rates of the trained items as well, which is
    taken off. A prediction is never worth more than the users of the training, or less than one observation.
    """
    variance = float((rates * (1.0 - rates)).sum())
    unexplained = float(np.square(residuals).sum()) - variance / n_users
    return float(np.clip(variance / max(unexplained, 1e-12) - 1.0, 1.0, max(n_users, 1.0)))


def _words(title: str) -> set[str]:
    return set(WORD.findall(title.casefold()))


def _pairs(categories: Booleans) -> tuple[tuple[int, int], ...]:
    """Return the most frequent pairs of categories that some items have both of."""
    together = categories.T.astype(np.float64) @ categories
    possible: Iterable[tuple[int, int]] = combinations(range(categories.shape[1]), 2)
    frequent = [pair for pair in possible if together[pair] >= LEAST_ITEMS]
    return tuple(sorted(sorted(frequent, key=lambda pair: -together[pair])[:MOST_PAIRS]))
