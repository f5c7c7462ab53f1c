import numpy as np

from slatewise.data.synthetic import WorldSize, make_world


def test_same_seed_same_world() -> None:
    assert make_world(seed=1).dataset.digest == make_world(seed=1).dataset.digest
    assert make_world(seed=1).dataset.digest != make_world(seed=2).dataset.digest


def test_the_world_is_a_valid_dataset() -> None:
    size = WorldSize(n_users=60, n_items=500, n_categories=30, dim=5)
    dataset = make_world(size, seed=3).dataset
    assert (dataset.n_users, dataset.n_items, dataset.n_categories) == (60, 500, 30)
    assert len(set(dataset.titles)) == 500
    per_item = dataset.categories.sum(axis=1)
    assert per_item.min() == 1
    assert per_item.max() == 3
    assert (np.diff(dataset.users.astype(np.int64) * 500 + dataset.items) > 0).all()
    assert set(dataset.users.tolist()) == set(range(60))


def test_likes_follow_the_stated_probabilities() -> None:
    """Pearson's chi-square over bins of predicted probability; the wrong tastes must fail it."""
    world = make_world(WorldSize(n_users=2_000, n_items=200), seed=4)
    liked = np.zeros((2_000, 200), dtype=bool)
    liked[world.dataset.users, world.dataset.items] = True

    def chi_square(tastes: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> float:
        probability = 1 / (1 + np.exp(-(world.popularity + tastes @ world.vectors.T)))
        bins = np.digitize(probability, np.quantile(probability, np.linspace(0.1, 0.9, 9)))
        expected = np.bincount(bins.ravel(), probability.ravel())
        variance = np.bincount(bins.ravel(), (probability * (1 - probability)).ravel())
        observed = np.bincount(bins.ravel(), liked.ravel())
        return float(((observed - expected) ** 2 / variance).sum())

    assert chi_square(world.tastes) < 40
    assert chi_square(world.tastes[::-1]) > 400


def test_popularity_has_a_long_tail() -> None:
    counts = np.sort(np.bincount(make_world().dataset.items, minlength=400))[::-1]
    assert counts[:40].sum() > 0.4 * counts.sum()


def test_chunks_do_not_change_the_world() -> None:
    import slatewise.data.synthetic as synthetic

    whole = make_world(seed=6).dataset.digest
    original, synthetic.CHUNK_CELLS = synthetic.CHUNK_CELLS, 4_000
    try:
        assert make_world(seed=6).dataset.digest == whole
    finally:
        synthetic.CHUNK_CELLS = original


def test_more_is_liked_where_the_odds_are_higher_and_taste_sets_people_apart() -> None:
    def likes(**options: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        dataset = make_world(WorldSize(**options), seed=7).dataset  # type: ignore[arg-type]
        return np.bincount(dataset.items, minlength=400)

    usual, generous, own = likes(), likes(top_log_odds=2.0), likes(taste_spread=3.0)
    assert generous.sum() > 1.5 * usual.sum()
    assert own.max() < usual.max()
    assert (own > 0).sum() >= (usual > 0).sum()
