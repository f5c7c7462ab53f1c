"""One policy against every rival: each metric, and precision at equal diversity, with a verdict for every cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from slatewise.lab.experiment import AT
from slatewise.lab.metrics import precision_columns
from slatewise.lab.significance import WON, Cell, Floats, corrected, paired_significance, paired_t
from slatewise.report.paper import METRICS, TABLE_2, TUNED, column_of

OURS = "dc2b-calibrated"
PAPER = "the paper's best"
FLOOR = ("random",)
"""Not rivals: random slates are the most diverse of all and relevant to nobody."""


@dataclass(frozen=True, eq=False)
class People:
    """What each person got from each policy: one row per policy and person, averaged over the splits that tested them.

    Every policy was tested on the same people; `ours` is compared with all others.
    """

    frame: pl.DataFrame
    ours: str = OURS

    @classmethod
    def of(cls, users: pl.DataFrame, ours: str = OURS) -> "People":
        """Average `metrics.per_user` and add what each person adds to F; what nobody has a value of is left out.

        F is the harmonic mean of the means P and D, as in the tables. A person with p and d adds
        2(D²p + P²d) / (P + D)² to it: the linear part of F, whose mean over people is F.
        """
        means = users.drop("dataset", "split").group_by("policy", "user", maintain_order=True).mean()
        precision, diversity = pl.col(precision_columns(users)[-1]), pl.col("diversity")
        p, d = precision.mean().over("policy"), diversity.mean().over("policy")
        f = pl.when(p + d > 0).then(2 * (d**2 * precision + p**2 * diversity) / (p + d) ** 2).when(p + d == 0).then(0.0)
        means = means.with_columns(f=f)
        known = [name for name in means.columns if means[name].null_count() < len(means)]
        return cls(means.select(known).sort("user", maintain_order=True), ours)

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics: precisions, then diversity and F."""
        return [name for name in self.frame.columns if name not in ("policy", "user")]

    @property
    def precision(self) -> str:
        """The precision of everything shown."""
        return precision_columns(self.frame)[-1]

    @cached_property
    def parts(self) -> dict[str, pl.DataFrame]:
        """One frame per policy, by person."""
        return {str(name): part for (name,), part in self.frame.group_by(["policy"], maintain_order=True)}

    def values(self, policy: str, metric: str) -> Floats:
        """Return a metric of a policy, person by person."""
        return np.asarray(self.parts[policy][metric].to_numpy(), dtype=np.float64)

    @property
    def rivals(self) -> list[str]:
        """The labels of all other policies, without floors and points of curves."""
        return [name for name in self.parts if name != self.ours and name not in FLOOR and AT not in name]

    def curve(self, label: str) -> list[str]:
        """Return the points of a policy's curve, by rising diversity."""
        points = [name for name in self.parts if name.startswith(f"{label}{AT}")]
        return sorted(points, key=lambda name: float(self.values(name, "diversity").mean()))


@dataclass(frozen=True, eq=False)
class Verdicts:
    """All comparisons of one data set, corrected together: with each rival by metric, at equal diversity, the paper."""

    by_metric: list[Cell]
    at_equal_diversity: list[Cell]
    paper: list[Cell]
    best: list[dict[str, Any]]

    @classmethod
    def of(cls, people: People, dataset: str) -> "Verdicts":
        """Compare everything and correct for the number of comparisons."""
        groups = [_by_metric(people), _at_equal_diversity(people), _with_paper(people, dataset)]
        cells = iter(corrected([cell for group in groups for cell in group]))
        by_metric, equal, paper = ([next(cells) for _ in group] for group in groups)
        return cls(by_metric, equal, paper, [_best(people, by_metric, paper, metric) for metric in people.metrics])

    def as_json(self) -> dict[str, Any]:
        """Return every cell with its verdict, and the best rival of each metric."""
        return {
            "cells_won": {row["metric"]: {k: v for k, v in row.items() if k != "metric"} for row in self.best},
            "cells": [cell.as_dict() for cell in self.by_metric],
            "equal_diversity": [cell.as_dict() for cell in self.at_equal_diversity],
        }


def _by_metric(people: People) -> list[Cell]:
    """Compare our policy with every rival, metric by metric."""
    return [
        _compare((rival, metric), people.values(people.ours, metric), people.values(rival, metric))
        for rival in people.rivals
        for metric in people.metrics
    ]


def _at_equal_diversity(people: People) -> list[Cell]:
    """Compare precision at each point of our curve with each rival's curve there; points out of its reach are left out.

    Between two points of a rival's curve, people get the first with the probability that makes the mean diversity equal
    to ours, and the second otherwise; this is what they get on average.
    """
    cells: list[Cell] = []
    if "diversity" not in people.metrics:
        return cells
    for ours in sorted(people.curve(people.ours)):
        for rival in people.rivals:
            theirs = mixture(people, people.curve(rival), float(people.values(ours, "diversity").mean()))
            if theirs is not None:
                names, values = (rival, people.precision), people.values(ours, people.precision)
                cells.append(_compare(names, values, theirs, float(ours.split(AT)[1])))
    return cells


def mixture(people: People, curve: Sequence[str], diversity: float) -> Floats | None:
    """Return each person's precision in the mixture of two neighbors on a curve that has this diversity, or None."""
    for low, high in pairwise(curve):
        below, above = (float(people.values(name, "diversity").mean()) for name in (low, high))
        if below <= diversity <= above:
            share = (diversity - below) / (above - below) if above > below else 0.0
            return (1.0 - share) * people.values(low, people.precision) + share * people.values(high, people.precision)
    return None


def _with_paper(people: People, dataset: str) -> list[Cell]:
    """Compare our people with the paper's best published mean of each metric; nothing if it has none.

    The mean is taken as exact. It is one of other splits, and the paper does not print its error.
    """
    column = column_of(dataset)
    if column is None or people.ours != OURS:
        return []
    best = {metric: max(row[metric] for row in TABLE_2[column].values()) for metric in METRICS}
    return [
        _compare((PAPER, metric), values, np.full_like(values, best[metric]))
        for metric in METRICS
        for values in [people.values(people.ours, metric)]
    ]


def _compare(names: tuple[str, str], ours: Floats, theirs: Floats, at: float | None = None) -> Cell:
    return Cell(*names, float(ours.mean()), float(theirs.mean()), paired_t(ours - theirs), at)


def _best(people: People, by_metric: list[Cell], paper: list[Cell], metric: str) -> dict[str, Any]:
    """Describe the comparison with the best rival of a metric and with the paper."""
    rival = max((cell for cell in by_metric if cell.metric == metric), key=lambda cell: cell.theirs)
    published = next((cell for cell in paper if cell.metric == metric), None)
    p_t, p_wilcoxon = paired_significance(people.values(people.ours, metric) - people.values(rival.rival, metric))
    return {
        "metric": metric,
        "ours": rival.ours,
        "paper_best": published and published.theirs,
        "paper_verdict": published and published.verdict,
        "beats_paper": published and published.verdict == WON,
        "rival": rival.rival,
        "rival_best": rival.theirs,
        "verdict": rival.verdict,
        "beats_rival": rival.verdict == WON,
        "p_t": p_t,
        "p_wilcoxon": p_wilcoxon,
        "p_holm": rival.p_holm,
    }


def is_drawn(name: str, names: Sequence[str]) -> bool:
    """Whether a single point of the figure is worth its place: no floor, no reading, tuned rather than not."""
    return name not in (OURS, *FLOOR) and f"{name}{TUNED}" not in names and "(zero" not in name
