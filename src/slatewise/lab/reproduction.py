"""The paper's tables and figures: which experiments each needs and how it is presented."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from slatewise.data.dataset import Dataset
from slatewise.lab.beyond import People, Verdicts
from slatewise.lab.beyond_report import (
    belief_figure,
    best_table,
    equal_diversity_table,
    rule_figure,
    sentences,
    verdict_table,
)
from slatewise.lab.experiment import AT, Arm, Experiment, Results, load_experiment, shipped
from slatewise.lab.metrics import per_split, per_user, precision_by_interaction, summary
from slatewise.report import Comparison, Section, Table, table1, table1_rows, table2, table2_json, table3, table3_rows
from slatewise.report.comparison_figure import comparison_figures
from slatewise.report.figures import figure_alpha, figure_learning_curve, figure_size

TARGETS: dict[str, tuple[str, ...]] = {
    "table1": (),
    "table2": ("table2",),
    "table3": ("table2",),
    "figure-alpha": ("figure-alpha",),
    "figure-size": ("figure-size",),
    "all": ("table2", "figure-alpha", "figure-size"),
    "readings": ("readings",),
    "beyond": ("table2", "beyond"),
    "rounds": ("rounds",),
    "baselines": ("baselines",),
    "attention": (),
    "calibration": (),
    "fans": (),
    "newcomers": (),
    "living": (),
    "regret": (),
}
"""What can be reproduced, and the experiments that each target needs."""

COMPARISONS = ("table2", "readings", "baselines", "rounds")
"""The experiments whose arms are policies side by side, so that another policy can join them."""

PAPER = ["table1", "table2", "table3", "figure-alpha", "figure-size"]
"""What the paper shows: the target `all`."""


@dataclass(frozen=True, eq=False)
class ExperimentRun:
    """An experiment and its results on one data set."""

    experiment: Experiment
    results: Results


Runs = Mapping[str, ExperimentRun]
"""Runs by the name of the experiment."""


def find_experiment(name: str, splits: int, seed: int, more_policies: Sequence[str] = ()) -> Experiment:
    """Load one of the experiments that come with slatewise; more policies join it if it compares policies."""
    experiment = replace(load_experiment(shipped()[name]), splits=splits, seed=seed)
    if name not in COMPARISONS:
        return experiment
    present = {arm.label for arm in experiment.arms}
    first = experiment.arms[0]
    more = [Arm(policy, rounds=first.rounds, k=first.k) for policy in more_policies if policy not in present]
    return replace(experiment, arms=(*experiment.arms, *more))


def sections(target: str, dataset: Dataset, runs: Runs) -> tuple[Section, ...]:
    """Return the sections of a report."""
    return tuple(SECTIONS[name](dataset, runs) for name in _parts(target))


def as_json(target: str, dataset: Dataset, runs: Runs) -> dict[str, Any]:
    """Return a target's results as a JSON document."""
    if target == "all":
        return {name: as_json(name, dataset, runs) for name in _parts(target)}
    return DOCUMENTS[target](dataset, runs)


def _parts(target: str) -> list[str]:
    return PAPER if target == "all" else [target]


def _summary(dataset: Dataset, run: ExperimentRun) -> pl.DataFrame:
    return summary(per_split(per_user(run.results.records, dataset.categories)))


def _table1(dataset: Dataset, _runs: Runs) -> dict[str, Any]:
    return {"rows": table1_rows([dataset.describe()])}


def _comparison(name: str) -> Callable[[Dataset, Runs], dict[str, Any]]:
    def document(dataset: Dataset, runs: Runs) -> dict[str, Any]:
        run = runs[name]
        return table2_json(_summary(dataset, run), dataset.name, run.experiment.splits)

    return document


def _table3(dataset: Dataset, runs: Runs) -> dict[str, Any]:
    return {"dataset": dataset.name, "rows": table3_rows(_summary(dataset, runs["table2"]), dataset.name)}


def _rows(name: str) -> Callable[[Dataset, Runs], dict[str, Any]]:
    def document(dataset: Dataset, runs: Runs) -> dict[str, Any]:
        return {"dataset": dataset.name, "rows": _summary(dataset, runs[name]).to_dicts()}

    return document


def _beyond(dataset: Dataset, runs: Runs) -> dict[str, Any]:
    combined = _with_rivals(runs)
    return {**_comparison("beyond")(dataset, {"beyond": combined}), **_verdicts(dataset, combined).as_json()}


def _with_rivals(runs: Runs) -> ExperimentRun:
    """Combine our policy with the rivals of Table 2, which were run on the same users and splits."""
    ours, rivals = runs["beyond"].results, runs["table2"].results
    records = pl.concat([ours.records, rivals.records])
    return ExperimentRun(runs["beyond"].experiment, Results(records, pl.concat([ours.choices, rivals.choices])))


def _verdicts(dataset: Dataset, run: ExperimentRun) -> Verdicts:
    return Verdicts.of(People.of(per_user(run.results.records, dataset.categories)), dataset.name)


def _long_horizon(dataset: Dataset, runs: Runs) -> dict[str, Any]:
    users = per_user(runs["rounds"].results.records, dataset.categories, (50, 100, 200))
    return {"dataset": dataset.name, "rows": summary(per_split(users)).to_dicts()}


def _mean_curve(frame: pl.DataFrame) -> list[tuple[int, float, float]]:
    """Return the precision of everything shown so far, by slate size: means over splits."""
    means = frame.group_by("size", "shown", maintain_order=True).agg(pl.col("precision").mean())
    return [(int(size), float(shown), round(float(precision), 4)) for size, shown, precision in means.iter_rows()]


def _size_document(dataset: Dataset, runs: Runs) -> dict[str, Any]:
    curve = precision_by_interaction(runs["figure-size"].results.records)
    rows = _mean_curve(curve.with_columns(size=pl.col("policy").cast(pl.Int64)))
    means = _summary(dataset, runs["figure-size"]).to_dicts()
    keys = ("size", "shown", "precision")
    return {"dataset": dataset.name, "rows": means, "course": [dict(zip(keys, row, strict=True)) for row in rows]}


DOCUMENTS: dict[str, Callable[[Dataset, Runs], dict[str, Any]]] = {
    "table1": _table1,
    "table2": _comparison("table2"),
    "readings": _comparison("readings"),
    "baselines": _comparison("baselines"),
    "beyond": _beyond,
    "rounds": _long_horizon,
    "table3": _table3,
    "figure-alpha": _rows("figure-alpha"),
    "figure-size": _size_document,
}


def _table1_section(dataset: Dataset, _runs: Runs) -> Section:
    return Section("Table 1: the data", tables=(table1(table1_rows([dataset.describe()])),))


def _table2_section(dataset: Dataset, runs: Runs) -> Section:
    document = DOCUMENTS["table2"](dataset, runs)
    choices = runs["table2"].results.choices
    tables = (table2(document), *([_choices_table(choices)] if len(choices) else []))
    return Section("Table 2: precision and diversity", tables=tables, figures=comparison_figures(document))


def _comparison_section(name: str, heading: str) -> Callable[[Dataset, Runs], Section]:
    def section(dataset: Dataset, runs: Runs) -> Section:
        table = table2(DOCUMENTS[name](dataset, runs))
        return Section(heading, tables=(replace(table, name=name, caption=f"{heading}, {dataset.name}"),))

    return section


def _beyond_section(dataset: Dataset, runs: Runs) -> Section:
    combined = _with_rivals(runs)
    verdicts, means = _verdicts(dataset, combined), _summary(dataset, combined)
    caption = f"Our policy against every rival on {dataset.name}"
    whole = table2_json(means.filter(~pl.col("policy").str.contains(AT)), dataset.name, combined.experiment.splits)
    tables = [replace(table2(whole), name="beyond", caption=caption), best_table(verdicts, dataset.name)]
    tables += [verdict_table(verdicts, dataset.name), equal_diversity_table(verdicts, dataset.name)]
    tables += [_choices_table(combined.results.choices)]
    figures = (belief_figure(means, dataset.name), rule_figure(means, dataset.name))
    return Section("Beyond the paper", sentences(verdicts, dataset.name), tuple(tables), figures)


def _rounds_section(dataset: Dataset, runs: Runs) -> Section:
    records = runs["rounds"].results.records
    figure = figure_learning_curve(precision_by_interaction(records), "course", "Twenty rounds of ten items.")
    rows = tuple(
        (str(row["policy"]), *(round(row[key], 4) for key in ("p@50", "p@100", "p@200", "diversity")))
        for row in _long_horizon(dataset, runs)["rows"]
    )
    table = Table("rounds", "Means over splits.", ("policy", "P@50", "P@100", "P@200", "diversity"), rows)
    return Section("Twenty rounds", tables=(table,), figures=(figure,))


def _choices_table(choices: pl.DataFrame) -> Table:
    rows = tuple((str(row["policy"]), int(row["split"]), str(row["options"])) for row in choices.to_dicts())
    caption = "Options chosen by F on validation users, who are some of the training users of each split."
    return Table("tuned", caption, ("policy", "split", "options"), rows)


def _table3_section(dataset: Dataset, runs: Runs) -> Section:
    rows = table3_rows(_summary(dataset, runs["table2"]), dataset.name)
    return Section("Table 3: relative improvements of DC²B", tables=(table3(rows, dataset.name),))


def _alpha_section(dataset: Dataset, runs: Runs) -> Section:
    splits = per_split(per_user(runs["figure-alpha"].results.records, dataset.categories))
    frame = splits.with_columns(alpha=pl.col("policy").cast(pl.Float64))
    rows = tuple(
        (
            float(row["policy"]),
            Comparison(row["p@50"], sd=row["p@50 sd"]),
            Comparison(row["diversity"], sd=row["diversity sd"]),
        )
        for row in summary(splits).to_dicts()
    )
    table = Table("alpha", "DC²B by α", ("α", "P@50", "diversity"), rows)
    return Section("Figure: the influence of α", tables=(table,), figures=(figure_alpha(frame),))


def _size_section(_dataset: Dataset, runs: Runs) -> Section:
    curve = precision_by_interaction(runs["figure-size"].results.records)
    frame = curve.with_columns(size=pl.col("policy").cast(pl.Int64))
    rows = tuple((size, f"{shown:g}", precision) for size, shown, precision in _mean_curve(frame))
    table = Table("size", "DC²B by slate size", ("size", "items shown", "precision"), rows)
    return Section("Figure: the slate size", tables=(table,), figures=(figure_size(frame),))


SECTIONS: dict[str, Callable[[Dataset, Runs], Section]] = {
    "table1": _table1_section,
    "table2": _table2_section,
    "table3": _table3_section,
    "figure-alpha": _alpha_section,
    "figure-size": _size_section,
    "readings": _comparison_section("readings", "Readings of what the paper leaves open"),
    "baselines": _comparison_section("baselines", "Baselines that do not learn"),
    "beyond": _beyond_section,
    "rounds": _rounds_section,
}
