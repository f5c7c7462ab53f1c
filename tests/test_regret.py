import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from slatewise import belief
from slatewise.belief import Beliefs
from slatewise.lab import regret_bound
from slatewise.lab.regret import Settings, as_json, bounds, checkpoints, n_steps, run, sections, summary
from slatewise.lab.regret_bound import Problem
from slatewise.lab.regret_worlds import (
    LEARNERS,
    Booleans,
    Cell,
    Floats,
    Integers,
    Learner,
    Worlds,
    greedy,
    play,
)
from slatewise.report import Report, markdown_table, write_report

SMALL = Cell(dim=3, size=2, items=8, rounds=40)
LEARNING = Cell(dim=2, size=2, alpha=0.5, items=12, rounds=300)


def reward(world: Worlds, user: int, slate: tuple[int, ...]) -> float:
    """f(S) = ∏ p_i det(L_S) as printed, with the kernel L = VVᵀ, V_i = r_i^α x_i."""
    theta, chosen = world.truths[user], world.vectors[list(slate)]
    quality = [math.exp(theta @ x) for x in chosen]
    rows = np.array([r**world.cell.alpha * x for r, x in zip(quality, chosen, strict=True)])
    return float(math.prod(r / (1 + r) for r in quality) * np.linalg.det(rows @ rows.T))


@pytest.fixture(scope="module")
def grown() -> pl.DataFrame:
    """The summary of a small world in which there is something to learn."""
    learners = ("dc2b", "thompson", "random", "never-learns", "oracle")
    return summary(run(Settings((LEARNING,), learners, worlds=40)))


def row(frame: pl.DataFrame, learner: str) -> dict[str, float]:
    return frame.row(by_predicate=pl.col("learner") == learner, named=True)


@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_the_reward_is_the_papers(alpha: float) -> None:
    world = Worlds.draw(replace(SMALL, alpha=alpha, size=3), 5, 1)
    slates = np.array([[4, 0, 7], [1, 2, 3], [7, 6, 5], [0, 1, 2], [3, 6, 1]])
    expected = [reward(world, user, tuple(slate)) for user, slate in enumerate(slates)]
    assert world.rewards(slates) == pytest.approx(expected)
    assert (world.rewards(slates[:, ::-1]) == world.rewards(slates)).all()


def test_worlds_keep_what_the_theorem_assumes() -> None:
    bounded, free = (Worlds.draw(replace(SMALL, radius=radius), 200, 0) for radius in (1.0, math.inf))
    assert np.linalg.norm(bounded.vectors, axis=1) == pytest.approx(1.0)
    assert np.linalg.norm(bounded.truths, axis=1).max() <= 1.0 + 1e-12
    assert np.linalg.norm(free.truths, axis=1).max() > 2.0


def test_the_oracle_is_the_greedy_step_by_step_and_the_optimum_is_the_best_of_all_subsets() -> None:
    world = Worlds.draw(SMALL, 30, 2)
    slates = greedy(world, world.truths, np.ones((30, SMALL.items), dtype=bool))
    best = world.best_rewards()
    for user, slate in enumerate(slates):
        first = max(range(SMALL.items), key=lambda item: reward(world, user, (item,)))
        second = max(set(range(SMALL.items)) - {first}, key=lambda item: reward(world, user, (first, item)))
        assert set(slate.tolist()) == {first, second}
        every = [reward(world, user, pair) for pair in itertools.combinations(range(SMALL.items), 2)]
        assert best[user] == pytest.approx(max(every))
    assert (world.rewards(slates) <= best * (1 + 1e-12)).all()
    assert (world.rewards(slates) < best * (1 - 1e-6)).any(), "in small worlds greedy is not always the best"


@pytest.mark.parametrize("cell", [SMALL, replace(SMALL, items=20, rounds=10, withdraws=True)])
def test_the_oracle_has_no_regret_at_all(cell: Cell) -> None:
    frame = run(Settings((cell,), ("oracle", "random"), worlds=6))
    oracle = frame.filter(pl.col("learner") == "oracle")
    assert (oracle["regret"] == 0).all()
    assert (oracle["relative_regret"] == 0).all()
    assert (frame.filter(pl.col("learner") == "random", pl.col("round") == cell.rounds)["regret"] > 0).all()


def test_withdrawn_items_are_not_shown_again() -> None:
    shown = []

    def select(worlds: Worlds, beliefs: Beliefs, available: Booleans, number: int) -> Integers:
        slates = LEARNERS["random"].select(worlds, beliefs, available, number)
        shown.append(slates)
        return slates

    cell = replace(SMALL, items=20, rounds=10, withdraws=True)
    play(Worlds.draw(cell, 4, 0), Learner(select, learns=False))
    everything = np.sort(np.concatenate(shown, axis=1), axis=1)
    assert (everything == np.arange(20)).all()


def test_learning_bends_regret_and_nothing_else_does(grown: pl.DataFrame) -> None:
    for idle in ("random", "never-learns"):
        assert row(grown, idle)["slope"] == pytest.approx(1.0, abs=0.05)
        assert row(grown, idle)["relative_slope_low"] > 0.9
    learned = row(grown, "thompson")
    assert learned["relative_slope_high"] < 0.8
    assert learned["relative_regret_high"] < 0.5 * row(grown, "never-learns")["relative_regret"]
    assert row(grown, "oracle")["slope"] is None


def test_the_push_of_equation_8_makes_regret_linear(grown: pl.DataFrame) -> None:
    pushed = row(grown, "dc2b")
    assert pushed["relative_slope_low"] > 0.9
    assert pushed["relative_regret_low"] > 2.0 * row(grown, "thompson")["relative_regret"]


def test_an_interval_covers_its_mean(grown: pl.DataFrame) -> None:
    measured = grown.filter(pl.col("learner") != "oracle")
    for name in ("regret", "relative_regret", "slope", "relative_slope"):
        assert measured[name].is_between(measured[f"{name}_low"], measured[f"{name}_high"]).all()


def test_same_seed_same_rows_and_worlds_do_not_depend_on_how_many_there_are() -> None:
    settings = Settings((SMALL,), ("dc2b", "thompson"), worlds=5, seed=3)
    frame = run(settings)
    assert_frame_equal(frame, run(settings))
    more = run(replace(settings, worlds=8)).filter(pl.col("world") < 5)
    assert_frame_equal(frame, more, rel_tol=1e-9, abs_tol=1e-9)
    assert not frame.equals(run(replace(settings, seed=4)))


def test_records_hold_cumulative_sums() -> None:
    world = Worlds.draw(SMALL, 5, 0)
    gained, oracle = play(world, LEARNERS["thompson"])
    frame = run(Settings((SMALL,), ("thompson",), worlds=5))
    assert frame.filter(pl.col("world") == 2)["round"].to_list() == checkpoints(SMALL.rounds).tolist()
    last = frame.filter(pl.col("round") == SMALL.rounds)
    assert last["regret"].to_list() == pytest.approx((oracle - gained).sum(axis=1))
    assert last["relative_regret"].to_list() == pytest.approx((1 - gained / oracle).sum(axis=1))
    assert last["optimum_regret"].to_list() == pytest.approx((world.best_rewards()[:, None] - gained).sum(axis=1))


def test_the_bound_by_hand() -> None:
    problem, rounds = Problem(dim=2, size=2, alpha=0.5), 1000
    h = 5 / 4 * math.exp(2)
    dimension = 6 * math.e / (math.e - 1) * math.log(3 * (2 * h * 2 * rounds) ** 2) + 1
    covering = (h * 2 * math.sqrt(2) * rounds**2) ** 2
    width = 8 * math.log(covering * rounds**2) + 2 / rounds * (7.5 + math.log(2 * rounds**4))
    assert math.exp(regret_bound.log_slope(problem)) == pytest.approx(h)
    assert regret_bound.log_covering_number(problem, rounds**-2) == pytest.approx(math.log(covering))
    assert regret_bound.margin_dimension(problem, 1 / rounds) == pytest.approx(dimension)
    assert regret_bound.confidence_width(problem, rounds) == pytest.approx(width)
    expected = 4 * math.sqrt(dimension * width * rounds) + 1 + (dimension + 1)
    assert regret_bound.regret_bound(problem, rounds) == pytest.approx(expected)


def test_the_bound_says_something_only_after_millions_of_rounds() -> None:
    problem = Problem(dim=2, size=2, alpha=0.5)
    first = regret_bound.first_meaningful_round(problem)
    assert 4e6 < first < 6e6
    assert regret_bound.regret_bound(problem, int(first * 1.01)) < first * 1.01
    assert regret_bound.regret_bound(problem, int(first / 1.01)) > first / 1.01
    assert math.isfinite(regret_bound.regret_bound(Problem(10, 10, 1000.0), 5))


def test_the_bound_grows_like_theorem_1() -> None:
    problem = Problem(5, 3, 1.0)
    ratios = [regret_bound.regret_bound(problem, 10**k) / regret_bound.regret_rate(problem, 10**k) for k in (6, 12, 24)]
    assert max(ratios) < 1.5 * min(ratios)


@pytest.mark.parametrize(("size", "alpha"), [(1, 1.0), (2, 0.5), (2, 3.0), (3, 1.0)])
def test_a_reward_above_the_papers_ceiling_is_attained_and_random_search_finds_no_higher_one(
    size: int, alpha: float
) -> None:
    found = 0.0
    rng = np.random.default_rng(0)
    for _ in range(20):
        vectors = rng.normal(size=(14, size))
        truths = rng.normal(size=(50, size))
        vectors, truths = (table / np.linalg.norm(table, axis=1, keepdims=True) for table in (vectors, truths))
        cell = Cell(dim=size, size=size, alpha=alpha, items=14)
        found = max(found, float(Worlds(cell, vectors, truths, 0).best_rewards().max()))
    ceiling = regret_bound.least_ceiling(Problem(size, size, alpha))
    assert 0.8 * ceiling < found <= ceiling * (1 + 1e-5)
    assert ceiling > regret_bound.CEILING


def test_equation_13_fails_where_the_sum_of_the_items_hides_what_theta_does() -> None:
    """docs/theory.md: θ − θ* orthogonal to Σ x_i, and yet the reward changes."""
    theta = np.array([1.0, -1.0]) / math.sqrt(2)
    cell = Cell(dim=2, size=2, items=2)
    world = Worlds(cell, np.eye(2), np.stack([theta, np.zeros(2)]), 0)
    assert theta @ np.eye(2).sum(axis=0) == pytest.approx(0.0)
    changed, before = world.rewards(np.array([[0, 1], [0, 1]]))
    assert before - changed == pytest.approx(0.0288, abs=1e-4)


def test_lemma_2_fails_for_tents() -> None:
    """docs/theory.md: n actions, each independent of the others, and a bound below n."""
    n = 100
    half = 1.0 / n
    centres = -1.0 + half * (2.0 * np.arange(n) + 1.0)

    def values(theta: float) -> Floats:
        heights: Floats = np.maximum(0.0, half - np.abs(theta - centres))
        return heights

    tolerance = 0.5 * half
    for action in range(n):
        gap = np.abs(values(centres[action]) - values(-1.0))
        assert gap[action] > tolerance
        assert math.sqrt(np.square(np.delete(gap, action)).sum()) <= tolerance
    lemma = 3 * math.e / (math.e - 1) * math.log(3 * (2 / tolerance) ** 2) + 1
    assert lemma == pytest.approx(63.1, abs=0.1)
    assert lemma < n


def test_settings_that_cannot_work_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="size is 3"):
        Cell(dim=2, size=3)
    with pytest.raises(ValueError, match="withdraw 20 items, but there are 10"):
        Cell(items=10, rounds=10, withdraws=True)
    with pytest.raises(ValueError, match="no learner luck"):
        Settings(learners=("luck",))
    with pytest.raises(ValueError, match="rounds is 1"):
        regret_bound.regret_bound(Problem(2, 2, 1.0), 1)
    with pytest.raises(ValueError, match="alpha positive"):
        Problem(2, 2, 0.0)


@pytest.mark.slow
def test_sections_tables_figures_and_json_of_a_run(tmp_path: Path) -> None:
    cells = (SMALL, replace(SMALL, radius=math.inf), replace(SMALL, items=20, rounds=10, withdraws=True))
    settings = Settings(cells, ("dc2b", "thompson"), worlds=6)
    steps: list[None] = []
    frame = run(settings, lambda: steps.append(None))
    assert len(steps) == n_steps(settings)
    growth, bound = sections(frame)
    assert len(growth.tables[0].rows) == 6
    assert len(bound.tables[0].rows) == 3
    assert "‖θ*‖ free" in markdown_table(bound.tables[0])
    write_report(tmp_path, Report("regret", "command", "no data", "", (0,), "machine", sections=(growth, bound)))
    assert {path.stem for path in tmp_path.glob("*.png")} == {"figure-regret", "figure-regret-bound"}
    assert {path.stem for path in tmp_path.glob("*.csv")} == {"regret", "regret-bound"}
    document = json.loads(json.dumps(as_json(frame), allow_nan=False))
    assert [len(document["rows"]), len(document["bounds"])] == [6, 3]
    table = bounds(frame)
    assert table["greedy_is_optimum"].null_count() == 1
    assert (table["trivial_bound"] == table["rounds"]).all()


def test_the_slope_is_that_of_the_second_half() -> None:
    late = 2 * pl.col("round") >= pl.col("rounds")
    bent = pl.when(late).then(pl.col("round").sqrt()).otherwise(pl.col("round") ** 2)
    frame = run(Settings((SMALL,), ("random",), worlds=3)).with_columns(regret=bent)
    assert [row(summary(frame), "random")[name] for name in ("slope", "slope_low", "slope_high")] == pytest.approx(
        [0.5] * 3
    )


def exact_thompson_regret(world: Worlds, particles: Floats, rounds: int) -> Floats:
    """Regret per world of Thompson sampling as in Lemma 1: samples of the exact posterior, the best of all pairs.

    The posterior is the prior's own draws, weighted by the likelihood of the clicks.
    """
    rng = np.random.default_rng(0)
    pairs = np.array(list(itertools.combinations(range(world.cell.items), 2)))
    volumes = np.log([np.linalg.det(chosen @ chosen.T) for chosen in world.vectors[pairs]])
    weights = np.full((len(world.truths), len(particles)), 1.0 / len(particles))
    lost = np.zeros(len(world.truths))
    for _ in range(rounds):
        thetas = particles[[rng.choice(len(particles), p=chances) for chances in weights]]
        slates = pairs[(world.scores(thetas)[:, pairs].sum(axis=2) + volumes).argmax(axis=1)]
        lost += world.best_rewards() - world.rewards(slates)
        shown = world.vectors[slates]
        clicks = rng.random(slates.shape) < 1 / (1 + np.exp(-np.einsum("wkd,wd->wk", shown, world.truths)))
        logits = np.einsum("wkd,nd->wkn", shown, particles) * np.where(clicks, 1.0, -1.0)[:, :, None]
        weights *= np.prod(1 / (1 + np.exp(-logits)), axis=1)
        weights /= weights.sum(axis=1, keepdims=True)
    return lost


def test_with_c_1_even_exact_thompson_sampling_loses_more_than_lemma_1_allows() -> None:
    cell, rounds = Cell(alpha=3.0), 10
    particles = Worlds.draw(cell, 3000, 1).truths
    lost = exact_thompson_regret(Worlds.draw(cell, 60, 0), particles, rounds)
    error = lost.std(ddof=1) / math.sqrt(len(lost))
    assert lost.mean() - 4 * error > regret_bound.regret_bound(Problem(cell.dim, cell.size, cell.alpha), rounds)


@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_with_the_push_the_mean_of_an_item_always_shown_grows_without_end(alpha: float) -> None:
    """docs/theory.md: as t^(1 − 1/2c) with c = p + 2α − ½."""
    beliefs, means = belief.start(1, [0.0], [[1.0]]), []
    shown = belief.Feedback.of(np.ones((1, 1, 1)), [[0.7]])
    for _ in range(1000):
        beliefs = belief.update(beliefs, shown, exposure_push=2 * alpha)
        means.append(float(belief.mean(beliefs)[0, 0]))
    assert math.log10(means[999] / means[99]) == pytest.approx(1 - 1 / (2 * (0.2 + 2 * alpha)), abs=0.002)
