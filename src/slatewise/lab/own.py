"""The report of any experiment: metrics of its arms, the first arm against all others, curves."""

from typing import Any

import polars as pl

from slatewise.data.dataset import Dataset
from slatewise.lab.beyond import People, Verdicts
from slatewise.lab.beyond_report import curves, equal_diversity_table, sentences, verdict_table
from slatewise.lab.experiment import AT, Experiment, Results
from slatewise.lab.metrics import CUT_OFFS, per_split, per_user, precision_by_interaction, precision_columns, summary
from slatewise.report import Comparison, Figure, Section, Table
from slatewise.report.figures import Point, figure_learning_curve, scatter_precision_diversity
from slatewise.report.paper import METRIC_TITLES

UNTESTED = (
    "Nothing was tested: that needs two arms or more, `random` not counted, that were shown to the same people and "
    "showed them equally many items."
)


def metrics_by_user(experiment: Experiment, dataset: Dataset, results: Results) -> pl.DataFrame:
    """Return `metrics.per_user` with the cut-offs that the arms reach."""
    reached = {arm.rounds * arm.k for arm in experiment.arms}
    return per_user(results.records, dataset.categories, sorted({*CUT_OFFS, *reached}))


def metrics_table(means: pl.DataFrame, title: str) -> Table:
    """Format means and standard deviations over splits, a row per arm."""
    metrics = [
        name for name in means.columns if name not in ("dataset", "policy", "splits") and not name.endswith(" sd")
    ]
    rows: tuple[tuple[str | Comparison, ...], ...] = tuple(
        (str(row["policy"]), *(Comparison(row[name], sd=row[f"{name} sd"]) for name in metrics))
        for row in means.to_dicts()
    )
    titles = (METRIC_TITLES.get(name, name.replace("p@", "P@")) for name in metrics)
    return Table("metrics", title, ("policy", *titles), rows)


def sections(experiment: Experiment, dataset: Dataset, results: Results) -> tuple[Section, ...]:
    """Return what was found, the tables and the figures; the first arm is compared with all others."""
    users = metrics_by_user(experiment, dataset, results)
    means, ours = summary(per_split(users)), experiment.arms[0].label
    tables, prose = [metrics_table(means, f"{experiment.title}, {dataset.name}")], [UNTESTED]
    if _is_paired(users, ours):
        verdicts, difference = Verdicts.of(People.of(users, ours), dataset.name), f"{ours} minus each other"
        verdict, *method = sentences(verdicts, dataset.name, ours)
        prose = [f"{verdict} {_highest(verdicts, ours)}", *method]
        tables += [verdict_table(verdicts, dataset.name, difference)]
        tables += [equal_diversity_table(verdicts, dataset.name, difference)] if verdicts.at_equal_diversity else []
    return (Section(experiment.title, tuple(prose), tuple(tables), _figures(means, results)),)


def as_json(experiment: Experiment, dataset: Dataset, results: Results) -> dict[str, Any]:
    """Return metrics, the options that tuning chose, and every verdict."""
    users = metrics_by_user(experiment, dataset, results)
    ours = experiment.arms[0].label
    verdicts = Verdicts.of(People.of(users, ours), dataset.name).as_json() if _is_paired(users, ours) else {}
    rows = summary(per_split(users)).drop("dataset").to_dicts()
    choices = results.choices.drop("dataset").to_dicts()
    return {"experiment": experiment.name, "dataset": dataset.name, "rows": rows, "choices": choices, **verdicts}


def _is_paired(users: pl.DataFrame, ours: str) -> bool:
    """Whether there are rivals, and all arms were tested on the same people and reached the same cut-offs."""
    arms = users.group_by("policy").agg(pl.len(), pl.col(precision_columns(users)).null_count())
    return len(arms) > 1 and arms.drop("policy").n_unique() == 1 and bool(People.of(users, ours).rivals)


def _highest(verdicts: Verdicts, ours: str) -> str:
    """Say how the first arm compares with the highest of the others, with the test, never by sign alone."""
    words = [
        f"{METRIC_TITLES.get(row['metric'], row['metric'].replace('p@', 'P@'))} {row['ours']:.4f} against "
        f"{row['rival_best']:.4f} of {row['rival']} ({row['verdict']}, p = {row['p_holm']:.2g})"
        for row in verdicts.best
        if row["metric"] != "diversity"
    ]
    return f"{ours} against the highest of the others: {'; '.join(words)}."


def _figures(means: pl.DataFrame, results: Results) -> tuple[Figure, ...]:
    """Plot how precision grows with rounds and, where diversity is known, precision against it."""
    learned = precision_by_interaction(results.records.filter(~pl.col("policy").str.contains(AT, literal=True)))
    figures = [figure_learning_curve(learned, "learning", "Precision of all items shown so far.")]
    if means["diversity"].null_count() == 0:
        precision = precision_columns(means)[-1]
        single = [
            Point(row["policy"], row[precision], row["diversity"])
            for row in means.to_dicts()
            if AT not in row["policy"]
        ]
        caption = "Precision against diversity: up and right is better."
        figures.append(scatter_precision_diversity([*curves(means), *single], "front", caption))
    return tuple(figures)
