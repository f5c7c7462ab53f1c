"""Regret experiments: what learners lose to an oracle in worlds with a known θ*, compared with Theorem 1's bound."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.lab.regret_bound import (
    CEILING,
    Problem,
    confidence_width,
    first_meaningful_round,
    least_ceiling,
    margin_dimension,
    regret_bound,
    regret_rate,
)
from slatewise.lab.regret_worlds import LEARNERS, Cell, Worlds, play
from slatewise.randomness import Streams, user_keys
from slatewise.report import Section
from slatewise.report.regret_figure import bound_table, figure_bound, figure_regret, regret_table

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CHECKPOINTS = 100
RESAMPLES = 1000
LONGEST_HORIZON = 10**10
CELL_COLUMNS = [field.name for field in fields(Cell)]
CELLS = (
    Cell(),
    Cell(dim=2),
    Cell(dim=10),
    Cell(size=3),
    Cell(size=5),
    Cell(alpha=0.5),
    Cell(alpha=3.0),
    Cell(radius=inf),
    Cell(items=800, rounds=200, withdraws=True),
)
"""The center, each of d, s and α varied from it, then a world without ‖θ*‖ ≤ 1 and one that withdraws items."""


@dataclass(frozen=True)
class Settings:
    """Which learners play in which cells, over how many drawn worlds."""

    cells: tuple[Cell, ...] = CELLS
    learners: tuple[str, ...] = ("dc2b", "thompson", "posterior-mean", "random")
    worlds: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = set(self.learners) - set(LEARNERS)
        if unknown:
            raise ValueError(f"there is no learner {', '.join(sorted(unknown))}; choose from {', '.join(LEARNERS)}")
        if self.worlds < 1:
            raise ValueError(f"worlds is {self.worlds}; it must be 1 or more")


def n_steps(settings: Settings) -> int:
    """Return how many times `run` calls `on_step`."""
    return len(settings.cells) * len(settings.learners)


def run(settings: Settings | None = None, on_step: Callable[[], None] | None = None) -> pl.DataFrame:
    """Let every learner play every cell; return one row per cell, learner, world and checkpoint.

    Columns: those of Cell, then `learner`, `world`, `round`, and sums up to that round: `regret` against the greedy
    oracle, `relative_regret` (each round divided by the oracle's reward), `optimum_regret` against the best subset;
    then the mean rewards `oracle_reward` and `optimum_reward` (null if subsets are not enumerated).
    """
    settings, count = settings or Settings(), on_step or (lambda: None)
    frames = []
    for cell in settings.cells:
        worlds = Worlds.draw(cell, settings.worlds, settings.seed)
        best = worlds.best_rewards()
        for name in settings.learners:
            frames.append(_records(worlds, name, best, play(worlds, LEARNERS[name])))
            count()
    return pl.concat(frames)


def checkpoints(rounds: int) -> Integers:
    """Return the rounds, counted from 1 and evenly spaced on a logarithmic scale, at which regret is recorded."""
    return np.unique(np.rint(np.geomspace(1, rounds, CHECKPOINTS)).astype(np.int64))


def summary(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per cell and learner: means over worlds after the last round, and how regret grows.

    `slope` is d log(mean regret) / d log(round), `relative_slope` that of the relative regret, by least squares over
    the second half of the rounds (null if the mean is not positive); `_low` and `_high` are 95 % intervals by
    bootstrap over worlds. The bootstrap does not redraw the catalog, which the worlds of a cell share.
    """
    groups = frame.group_by([*CELL_COLUMNS, "learner"], maintain_order=True)
    return pl.DataFrame([_summarize(part) for _, part in groups], infer_schema_length=None)


def bounds(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per cell: how good its oracle is, Lemma 1's bound with its parts, and the rate of Theorem 1."""
    rows = []
    for keys, part in frame.group_by(CELL_COLUMNS, maintain_order=True):
        cell = dict(zip(CELL_COLUMNS, keys, strict=True))
        problem = Problem(cell["dim"], cell["size"], cell["alpha"])
        rows.append({**cell, **_oracle(part), **_bound_parts(problem, cell["rounds"])})
    return pl.DataFrame(rows, infer_schema_length=None)


def bound_curves(frame: pl.DataFrame) -> pl.DataFrame:
    """Return Lemma 1's bound over horizons up to LONGEST_HORIZON: one row per dim, size, alpha and horizon."""
    horizons = np.unique(np.geomspace(2, LONGEST_HORIZON, CHECKPOINTS).astype(np.int64)).tolist()
    rows = [
        {"dim": dim, "size": size, "alpha": alpha, "round": horizon, "bound": bound}
        for dim, size, alpha in frame.select("dim", "size", "alpha").unique(maintain_order=True).iter_rows()
        for horizon in horizons
        for bound in [regret_bound(Problem(dim, size, alpha), horizon)]
    ]
    return pl.DataFrame(rows)


def as_json(frame: pl.DataFrame) -> dict[str, Any]:
    """Return the results for programs: a row per cell and learner, and one per cell for the oracle and the bound."""
    finite = pl.when(pl.col("radius").is_finite()).then(pl.col("radius"))
    rows, bound = (part.with_columns(radius=finite) for part in (summary(frame), bounds(frame)))
    return {"rows": rows.to_dicts(), "bounds": bound.to_dicts()}


def sections(frame: pl.DataFrame) -> tuple[Section, ...]:
    """Return the sections of a report."""
    growth = (
        "A shown item is clicked with probability σ(θ*·x); clicks are all that a learner sees. Regret is how much less "
        "its slate earns than the greedy slate of the true θ*, in the paper's reward f(S) = ∏ p_i det(L_S). A slope "
        "of 1 means that nothing is learned; ½ is the √T of Theorem 1.",
        "`dc2b` is the method as printed; `thompson` is the same without the 2α that equation (8) adds to the label of "
        "every shown item, clicked or not; `posterior-mean` does not sample.",
    )
    bound = (
        f"Lemma 1 with the constants of the proof: α₀ = δ = 1/T², C = {CEILING:g}, S₀ = 1, γ = s. A bound above T·C "
        "says nothing, and rewards above C contradict its premise; docs/theory.md goes through the proof.",
    )
    figures = figure_regret(frame), figure_bound(frame, bound_curves(frame))
    return (
        Section("Regret: what learners lose to the oracle", growth, (regret_table(summary(frame)),), figures[:1]),
        Section("Regret: the bound of Theorem 1", bound, (bound_table(bounds(frame)),), figures[1:]),
    )


def _records(worlds: Worlds, learner: str, best: Floats, rewards: tuple[Floats, Floats]) -> pl.DataFrame:
    """Return one learner's cumulative sums as flat records, world by world."""
    gained, oracle = rewards
    at = checkpoints(worlds.cell.rounds)
    sums = {
        "regret": oracle - gained,
        "relative_regret": 1.0 - gained / oracle,
        "optimum_regret": best[:, None] - gained,
    }
    frame = pl.DataFrame(
        {
            "world": np.repeat(np.arange(len(best)), len(at)),
            "round": np.tile(at, len(best)),
            **{name: values.cumsum(axis=1)[:, at - 1].ravel() for name, values in sums.items()},
            "oracle_reward": np.repeat(oracle.mean(axis=1), len(at)),
            "optimum_reward": np.repeat(best, len(at)),
        }
    )
    named = [pl.lit(value).alias(name) for name, value in {**asdict(worlds.cell), "learner": learner}.items()]
    return frame.select(*named, pl.all()).with_columns(pl.col("optimum_regret", "optimum_reward").fill_nan(None))


def _summarize(part: pl.DataFrame) -> dict[str, Any]:
    last = part.filter(pl.col("round") == pl.col("rounds"))
    row = last.row(0, named=True)
    summarized = {name: row[name] for name in [*CELL_COLUMNS, "learner"]} | {"worlds": last.height}
    for name in ("regret", "relative_regret"):
        mean, low, high = _interval(_resampled(last[name].to_numpy()[:, None])[:, 0])
        summarized |= {name: mean, f"{name}_low": low, f"{name}_high": high}
    summarized["optimum_regret"] = last["optimum_regret"].mean()
    for name, column in (("slope", "regret"), ("relative_slope", "relative_regret")):
        slope, low, high = _interval(_slopes(part, column))
        summarized |= {name: slope, f"{name}_low": low, f"{name}_high": high}
    return summarized


def _slopes(part: pl.DataFrame, column: str) -> Floats:
    """Return the log-log slope of the mean regret over worlds, then that of every resample of the worlds."""
    late = part.filter(2 * pl.col("round") >= pl.col("rounds"))
    log_rounds = np.log(late["round"].unique().sort().to_numpy())
    means = _resampled(late[column].to_numpy().reshape(-1, len(log_rounds)))
    if (means <= 0.0).any():
        return np.array([np.nan])
    centered = log_rounds - log_rounds.mean()
    slopes: Floats = np.log(means) @ centered / np.square(centered).sum()
    return slopes


def _resampled(curves: Floats) -> Floats:
    """Return the mean of curves (n_worlds, n) and, below it, the means of RESAMPLES draws of worlds."""
    draws = Streams(0, user_keys(range(RESAMPLES)), 0).uniform(len(curves))
    chosen = (draws * len(curves)).astype(np.int64)
    counts = np.stack([np.bincount(row, minlength=len(curves)) for row in chosen])
    return np.concatenate([curves.mean(axis=0, keepdims=True), counts @ curves / len(curves)])


def _interval(values: Floats) -> tuple[float | None, float | None, float | None]:
    """Return the first value and the middle 95 % of the others; None if there are no numbers."""
    if np.isnan(values).any():
        return None, None, None
    low, high = np.quantile(values[1:], (0.025, 0.975))
    return float(values[0]), float(low), float(high)


def _oracle(part: pl.DataFrame) -> dict[str, Any]:
    """Return how good the greedy oracle is; under withdrawal its catalog depends on the learner, so only its reward."""
    known = part.unique(["learner", "world"])
    share = pl.col("oracle_reward") / pl.col("optimum_reward")
    is_best = pl.when(share.is_not_null()).then(share > 1.0 - 1e-9)
    return known.select(
        pl.col("oracle_reward").mean(),
        pl.max_horizontal("oracle_reward", "optimum_reward").max().alias("largest_reward"),
        is_best.mean().alias("greedy_is_optimum"),
        share.mean().alias("greedy_share"),
    ).row(0, named=True)


def _bound_parts(problem: Problem, rounds: int) -> dict[str, float]:
    return {
        "margin_dimension": margin_dimension(problem, 1.0 / rounds),
        "confidence_width": confidence_width(problem, rounds),
        "bound": regret_bound(problem, rounds),
        "rate": regret_rate(problem, rounds),
        "trivial_bound": rounds * CEILING,
        "first_meaningful_round": first_meaningful_round(problem),
        "least_ceiling": least_ceiling(problem),
    }
