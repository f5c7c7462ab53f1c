"""`diversify` against obvious loops, against pyversity, and against every misuse."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise.slates import Diversified, diversify
from tests.support import naive

Floats = NDArray[np.float64]
SEEDS = st.integers(0, 2**32 - 1)
SHARES = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])


def inputs(seed: int, n_items: int, dim: int) -> tuple[Floats, NDArray[np.float32], NDArray[np.bool_]]:
    """Scores, vectors with copies and zeros among them, and categories."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(n_items, dim)).astype(np.float32)
    vectors[random.integers(0, n_items, n_items // 4)] = vectors[0]
    vectors[random.random(n_items) < 0.1] = 0.0
    scores = random.choice([random.normal(size=n_items), random.integers(0, 3, n_items).astype(float)], axis=0)
    return scores, vectors, random.random((n_items, 5)) < 0.3


def standardized(scores: Floats) -> Floats:
    deviation = scores.std()
    return np.zeros_like(scores) if deviation < 1e-9 else np.asarray((scores - scores.mean()) / deviation)


def twin(method: str, seed: int, n_items: int, k: int, diversity: float) -> naive.Slate:
    """The same by a loop over all items in every step."""
    scores, vectors, categories = inputs(seed, n_items, 4)
    everything, wide = np.ones(n_items, dtype=bool), vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    units = wide / np.where(lengths > 0, lengths, 1.0)
    z = standardized(scores)
    if method == "overlap":
        return naive.overlap_greedy((1 - diversity) * z, categories, everything, k, diversity)
    if method == "mmr":
        return naive.largest_cosine((1 - diversity) * scores, wide, everything, k, diversity)
    return naive.volume_greedy(2 * (1 - diversity) * z, units, everything, k)


@given(seed=SEEDS, method=st.sampled_from(["overlap", "dpp", "mmr"]), k=st.integers(1, 12), diversity=SHARES)
@settings(max_examples=120, deadline=None)
def test_it_is_what_a_loop_chooses(seed: int, method: Any, k: int, diversity: float) -> None:
    n_items = int(np.random.default_rng(seed).choice([1, 5, 30, 150]))
    scores, vectors, categories = inputs(seed, n_items, 4)
    chosen = diversify(scores, vectors=vectors, categories=categories, k=k, diversity=diversity, method=method)
    assert len(chosen.indices) == len(set(chosen.indices.tolist())) == min(k, n_items)
    if diversity == 0.0:
        z = scores if method == "mmr" else standardized(scores) * (2.0 if method == "dpp" else 1.0)
        assert chosen.indices.tolist() == naive.greedy(np.ones(n_items, dtype=bool), k, lambda _, item: z[item])[0]
    elif method == "mmr" and diversity == 1.0:
        assert scores[chosen.indices[0]] == scores.max()
    else:
        items, gains = twin(method, seed, n_items, k, diversity)
        assert chosen.indices.tolist() == items
        np.testing.assert_allclose(chosen.gains, gains, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dim", [20, 384])
@pytest.mark.parametrize("n_items", [50, 1000, 5000])
@pytest.mark.parametrize("diversity", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_it_chooses_what_pyversity_chooses(n_items: int, dim: int, diversity: float) -> None:
    pyversity = pytest.importorskip("pyversity", reason="pyversity is missing: pip install '.[bench]'")
    random = np.random.default_rng(n_items + dim)
    vectors = (random.normal(size=(n_items, dim)) * random.uniform(0.5, 2.0, (n_items, 1))).astype(np.float32)
    scores = (1.0 / (1.0 + np.exp(-vectors @ random.normal(size=dim) / np.sqrt(dim)))).astype(np.float32)
    for method, peer in (("dpp", pyversity.dpp), ("mmr", pyversity.mmr)):
        ours = diversify(scores, vectors=vectors, diversity=diversity, method=method)  # type: ignore[arg-type]
        theirs = peer(vectors, scores, 10, diversity=diversity)
        if method == "mmr" or diversity < 1.0:  # else very many items tie within the rounding of pyversity's float32
            assert ours.indices.tolist() == theirs.indices.tolist()
        if 0.0 < diversity < 1.0:
            gains = np.exp(ours.gains) if method == "dpp" else ours.gains
            np.testing.assert_allclose(gains, theirs.selection_scores, rtol=2e-3, atol=2e-5)


def test_without_the_penalty_other_items_would_be_chosen() -> None:
    """Negative control: the comparison with pyversity has items to disagree about."""
    scores, vectors, _ = inputs(3, 200, 6)
    plain = diversify(scores, vectors=vectors, diversity=0.0, method="mmr").indices.tolist()
    for method in ("dpp", "mmr"):
        assert diversify(scores, vectors=vectors, method=method).indices.tolist() != plain


def test_lists_arrays_and_names_say_the_same() -> None:
    scores, vectors, categories = inputs(5, 40, 3)
    names = ["A", "B", "C", "D", "E"]
    lists = [[name for name, has in zip(names, row, strict=True) if has] for row in categories]
    expected = diversify(scores, categories=categories)
    for written in (lists, ["|".join(row) for row in lists], [row or None for row in lists], categories.astype(float)):
        np.testing.assert_array_equal(diversify(scores.tolist(), categories=written).indices, expected.indices)
    expected = diversify(scores, vectors=vectors)
    for stored in (vectors.tolist(), vectors.astype(np.float64), np.asfortranarray(vectors)):
        np.testing.assert_array_equal(diversify(scores, vectors=stored, method="dpp").indices, expected.indices)
    indices, gains = expected
    assert isinstance(expected, Diversified)
    assert indices is expected.indices
    assert gains is expected.gains


def test_inputs_are_not_changed_and_float32_is_not_copied() -> None:
    scores, vectors, categories = inputs(6, 40, 3)
    before = scores.copy(), vectors.copy(), categories.copy()
    vectors.flags.writeable = scores.flags.writeable = False
    for method in ("overlap", "dpp", "mmr"):
        diversify(scores, vectors=vectors, categories=categories, method=method)
    for array, copy in zip((scores, vectors, categories), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_scores_of_any_scale_give_the_same_slate() -> None:
    scores, vectors, categories = inputs(7, 60, 4)
    for other in (1e-9 * scores, 1e9 * scores - 5.0):
        for options in ({"categories": categories}, {"vectors": vectors}):
            expected = diversify(scores, **options).indices
            np.testing.assert_array_equal(diversify(other, **options).indices, expected)


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e-100, 1e29])
def test_scores_at_the_edge_of_what_numbers_can_hold_are_standardized(scale: float) -> None:
    """Their squares vanish; without being enlarged, they would all count as equal."""
    scores = np.array([1.0, 2.0, 4.0])
    cases: list[dict[str, Any]] = [{"categories": ["A", "B", "C"]}, {"vectors": np.eye(3), "method": "dpp"}]
    for options in cases:
        chosen, expected = diversify(scale * scores, k=2, **options), diversify(scores, k=2, **options)
        assert chosen.indices.tolist() == expected.indices.tolist() == [2, 1]
        np.testing.assert_allclose(chosen.gains, expected.gains, rtol=1e-6)


@pytest.mark.parametrize("method", ["dpp", "mmr"])
@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1e20, 1e37])
def test_vectors_of_any_scale_that_float32_holds_give_the_same_slate(scale: float, method: Any) -> None:
    """Also if some are zero."""
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    expected = diversify([5.0, 4.9, 4.8, 4.7], vectors=vectors, k=4, method=method).indices
    chosen = diversify([5.0, 4.9, 4.8, 4.7], vectors=scale * vectors, k=4, method=method).indices
    np.testing.assert_array_equal(chosen, expected)


GOOD: dict[str, Any] = {"scores": [0.1, 0.2], "vectors": [[1.0, 0.0], [0.0, 1.0]], "categories": ["A", "B"]}
MISUSES: list[tuple[dict[str, Any], str]] = [
    ({"scores": []}, "scores are shaped"),
    ({"scores": [[0.1, 0.2]]}, "scores are shaped"),
    ({"scores": ["a", "b"]}, "scores are not numbers"),
    ({"scores": None}, "scores are"),
    ({"scores": [0.1, np.nan]}, "score 1 is not finite"),
    ({"scores": [np.inf, 0.1]}, "score 0 is not finite"),
    ({"scores": [1e160, 2.0]}, r"score 0 is 1e\+160; give numbers from -1e30 to 1e30"),
    ({"scores": [1.0, -1e200]}, r"score 1 is -1e\+200; give numbers from -1e30 to 1e30"),
    ({"scores": [1, 10**400]}, "scores hold an integer beyond float64"),
    ({"k": 0}, "k is 0"),
    ({"k": 2.5}, r"k is 2\.5"),
    ({"k": True}, "k is True"),
    ({"diversity": 1.5}, r"diversity is 1\.5"),
    ({"diversity": -0.1}, r"diversity is -0\.1"),
    ({"diversity": np.nan}, "diversity is nan"),
    ({"diversity": "much"}, "diversity is 'much'"),
    ({"method": "magic"}, "method is 'magic'; choose one of overlap, dpp, mmr"),
    ({"method": ["mmr"]}, r"method is \['mmr'\]; choose one of overlap, dpp, mmr"),
    ({"vectors": None, "categories": None}, "method 'overlap' needs categories"),
    ({"vectors": None, "method": "dpp"}, "method 'dpp' needs vectors"),
    ({"vectors": None, "method": "mmr"}, "method 'mmr' needs vectors"),
    ({"categories": None, "method": "overlap"}, "method 'overlap' needs categories"),
    ({"vectors": [[1.0, 0.0]], "method": "dpp"}, r"vectors are shaped \(1, 2\)"),
    ({"vectors": [1.0, 0.0], "method": "dpp"}, r"vectors are shaped \(2,\)"),
    ({"vectors": [[1.0], [1.0, 0.0]], "method": "dpp"}, "vectors are not numbers in rows"),
    ({"vectors": [["a"], ["b"]], "method": "mmr"}, "vectors are not numbers in rows"),
    ({"vectors": [[], []], "method": "mmr"}, "vectors are shaped"),
    ({"vectors": [[1.0, 0.0], [np.nan, 0.0]], "method": "mmr"}, "vector 1 holds NaN"),
    ({"vectors": [[np.inf, 0.0], [1.0, 0.0]], "method": "dpp"}, "vector 0 holds NaN"),
    ({"vectors": [[1.0, 0.0], [1e200, 0.0]], "method": "mmr"}, "vector 1 is too large for float32; multiply"),
    ({"vectors": [[1, 0], [10**400, 0]], "method": "dpp"}, "vectors hold an integer beyond float64; multiply"),
    ({"vectors": [[1.0, 0.0], [0.0, 1e-46]], "method": "mmr"}, "vector 1 is too small for float32; multiply"),
    ({"vectors": np.eye(2) * 1e-42, "method": "dpp"}, "vector 0 is too small for float32; multiply"),
    ({"categories": ["A"]}, "categories for 1 items"),
    ({"categories": "A|B"}, "categories are not a list"),
    ({"categories": [1, 2]}, "no name"),
    ({"categories": np.full((2, 3), 2)}, "other numbers than 0 and 1"),
]


@pytest.mark.parametrize(("changes", "message"), MISUSES)
def test_every_misuse_has_one_clear_error(changes: dict[str, Any], message: str) -> None:
    diversify(**GOOD)
    with pytest.raises(ValueError, match=message):
        diversify(**{**GOOD, **changes})
