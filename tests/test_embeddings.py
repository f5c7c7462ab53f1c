import numpy as np
import pytest

from slatewise.catalog.embeddings import BprSettings, train_bpr
from slatewise.data.synthetic import WorldSize, make_world

WORLD = make_world(WorldSize(n_users=150, n_items=80, n_categories=6, dim=4), seed=5)


def test_same_seed_same_bits_other_seed_other_bits() -> None:
    first, again, other = (train_bpr(WORLD.dataset, BprSettings(epochs=5, seed=seed)) for seed in (1, 1, 2))
    assert first.item_vectors.tobytes() == again.item_vectors.tobytes()
    assert first.user_vectors.tobytes() == again.user_vectors.tobytes()
    assert first.item_vectors.tobytes() != other.item_vectors.tobytes()


def test_every_epoch_is_reported() -> None:
    epochs = []
    factors = train_bpr(WORLD.dataset, BprSettings(dim=3, epochs=7), lambda: epochs.append(1))
    assert len(epochs) == 7
    assert factors.user_vectors.shape == (150, 3)
    assert factors.item_vectors.shape == (80, 3)


def area_under_curve(epochs: int) -> float:
    """How often a liked item scores above one that is not liked, over all training pairs."""
    factors = train_bpr(WORLD.dataset, BprSettings(epochs=epochs, learning_rate=0.05))
    scores = factors.user_vectors @ factors.item_vectors.T
    liked = np.zeros(scores.shape, dtype=bool)
    liked[WORLD.dataset.users, WORLD.dataset.items] = True
    return float(np.mean([(row[mask][:, None] > row[~mask]).mean() for row, mask in zip(scores, liked, strict=True)]))


def test_it_learns_to_rank_liked_items_first_and_an_untrained_model_does_not() -> None:
    assert area_under_curve(epochs=60) > 0.85
    assert area_under_curve(epochs=1) < 0.7


def test_items_nobody_liked_sink() -> None:
    """They take part as negatives, so the crowd's mean vector ranks them below what people like."""
    dataset = WORLD.dataset
    counts = np.bincount(dataset.items, minlength=dataset.n_items)
    factors = train_bpr(dataset, BprSettings(epochs=60, learning_rate=0.05))
    scores = factors.item_vectors @ factors.user_vectors.mean(axis=0)
    assert scores[counts >= 30].mean() > scores[counts <= 2].mean() + 0.5


def test_divergence_is_told() -> None:
    with np.errstate(all="ignore"), pytest.raises(ArithmeticError, match="learning rate 1e"):
        train_bpr(WORLD.dataset, BprSettings(epochs=30, learning_rate=1e20))


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0 and 50"):
        train_bpr(WORLD.dataset, BprSettings(dim=0))
