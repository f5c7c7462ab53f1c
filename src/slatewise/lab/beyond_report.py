"""The verdicts of `beyond` as sentences, tables and figures."""

from collections.abc import Sequence

import polars as pl

from slatewise.lab.beyond import OURS, Verdicts, is_drawn
from slatewise.lab.experiment import AT
from slatewise.lab.metrics import precision_columns
from slatewise.lab.significance import LOST, TIE, Cell, count_verdicts
from slatewise.report import Figure, Table
from slatewise.report.figures import Point, scatter_precision_diversity
from slatewise.report.paper import METRIC_TITLES, TABLE_2, TUNED, column_of, policy_title

OTHER_RULES = ("+mmr", "+dpp", "+xquad", "+calibration")
NOT_REACHED = "–"
DIFFERENCE = "Ours minus each rival"


def sentences(verdicts: Verdicts, dataset: str, ours: str = OURS) -> tuple[str, ...]:
    """Say what was found: how many cells were won, and against whom any were not."""
    others = "rival" if ours == OURS else "other arm"
    prose = [
        f"Of {len(verdicts.by_metric)} comparisons of {policy_title(ours)} on {dataset}, with every {others} in every "
        f"metric: {count_verdicts(verdicts.by_metric)}."
    ]
    if verdicts.at_equal_diversity:
        cells = verdicts.at_equal_diversity
        unwon = [f"{word} {_names(cells, word)}" for word in (TIE, LOST) if any(cell.verdict == word for cell in cells)]
        rest = f" ({'; '.join(unwon)})" if unwon else ""
        prose.append(f"At equal diversity, precision along its curve: {count_verdicts(cells)} of {len(cells)}{rest}.")
    if verdicts.paper:
        prose.append(
            f"Against the paper's best published mean of each metric: {count_verdicts(verdicts.paper)}. That mean is "
            "taken as exact, though it is one of other splits and its error is not published. "
            "P@10 is the first slate, which shows what is popular, by choice: no policy can be expected to do better."
        )
    prose.append(
        "Verdicts are paired t-tests person by person at 5 %, with Holm's correction over all comparisons made here; "
        "people tested in several splits are averaged first, and count for F by what they add to it."
    )
    return tuple(prose)


def _names(cells: Sequence[Cell], verdict: str) -> str:
    """List the rivals with a verdict, and at which values of our `diversity`."""
    by_rival: dict[str, list[str]] = {}
    for cell in cells:
        if cell.verdict == verdict:
            by_rival.setdefault(cell.rival.removesuffix(TUNED), []).append(f"{cell.at:g}")
    return ", ".join(f"{rival} at {', '.join(values)}" for rival, values in by_rival.items())


def best_table(verdicts: Verdicts, dataset: str) -> Table:
    """Format the comparison with the best rival of each metric and the paper's best."""
    rows = tuple(
        (
            _title(row["metric"]),
            round(row["ours"], 4),
            row["paper_best"],
            row["paper_verdict"] or NOT_REACHED,
            policy_title(row["rival"]),
            round(row["rival_best"], 4),
            row["verdict"],
            f"{row['p_holm']:.1e}",
        )
        for row in verdicts.best
    )
    columns = ("metric", "ours", "paper's best", "verdict", "best rival", "its value", "verdict ", "p (Holm)")
    return Table(
        "cells", f"Our one setting against the best of each metric on {dataset}, means over people", columns, rows
    )


def verdict_table(verdicts: Verdicts, dataset: str, difference: str = DIFFERENCE) -> Table:
    """Format our difference from every rival in every metric, with its verdict."""
    cells = {(cell.rival, cell.metric): cell for cell in verdicts.by_metric}
    rivals = dict.fromkeys(cell.rival for cell in verdicts.by_metric)
    metrics = list(dict.fromkeys(cell.metric for cell in verdicts.by_metric))
    rows = tuple((policy_title(rival), *(_shown(cells[rival, metric]) for metric in metrics)) for rival in rivals)
    caption = f"{difference} on {dataset}, and the verdict"
    return Table("verdicts", caption, ("rival", *map(_title, metrics)), rows)


def equal_diversity_table(verdicts: Verdicts, dataset: str, difference: str = DIFFERENCE) -> Table:
    """Format our difference in P@50 from every curve, at the diversity of each point of ours."""
    cells = {(cell.rival, cell.at): cell for cell in verdicts.at_equal_diversity}
    knobs = sorted({cell.at for cell in verdicts.at_equal_diversity if cell.at is not None})
    rivals = dict.fromkeys(cell.rival for cell in verdicts.at_equal_diversity)
    rows = tuple((policy_title(rival), *(_shown(cells.get((rival, knob))) for knob in knobs)) for rival in rivals)
    caption = f"{difference}, precision at equal diversity on {dataset}, by the value of diversity of the first"
    note = f"{NOT_REACHED}: the rival's curve does not reach that diversity."
    return Table("equal-diversity", caption, ("rival", *(f"{knob:g}" for knob in knobs)), rows, (note,))


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return NOT_REACHED
    sign = "+" if cell.difference >= 0 else "−"
    return f"{sign}{abs(cell.difference):.4f} {cell.verdict}"


def _title(metric: str) -> str:
    return METRIC_TITLES.get(metric, metric.replace("p@", "P@"))


def belief_figure(summary: pl.DataFrame, dataset: str) -> Figure:
    """Plot precision against diversity: our curve, and other beliefs under the same rule for variety."""
    drawn = [point for point in curves(summary) if not point.line.endswith(OTHER_RULES)]
    caption = (
        f"Precision against diversity on {dataset}, other beliefs under our rule for variety: up and right is better; "
        f"numbers are values of `diversity`."
    )
    return scatter_precision_diversity(drawn, "pareto", caption)


def rule_figure(summary: pl.DataFrame, dataset: str) -> Figure:
    """Plot precision against diversity: our curve, EASE under other rules, policies without a knob and the paper's."""
    drawn = [point for point in curves(summary) if point.line.endswith(OTHER_RULES) or point.line == OURS]
    names = summary["policy"].to_list()
    has_curve = {name.split(AT)[0] for name in names if AT in name}
    single = [
        Point(policy_title(row["policy"]), row["p@50"], row["diversity"])
        for row in summary.to_dicts()
        if AT not in row["policy"] and row["policy"] not in has_curve and is_drawn(row["policy"], names)
    ]
    column = column_of(dataset)
    published = [] if column is None else list(TABLE_2[column].items())
    points = [Point(policy_title(name), row["p@50"], row["diversity"], is_published=True) for name, row in published]
    caption = f"Precision against diversity on {dataset}, other rules for variety, and policies without a knob"
    return scatter_precision_diversity([*drawn, *single, *points], "pareto-rules", caption)


def curves(summary: pl.DataFrame) -> list[Point]:
    """Return the points of all curves, each by rising diversity, ours first."""
    rows = [row for row in summary.sort("diversity").to_dicts() if AT in row["policy"]]
    points = []
    precision = precision_columns(summary)[-1]
    for row in sorted(rows, key=lambda row: not row["policy"].startswith(OURS)):
        label, _, value = row["policy"].partition(AT)
        points.append(Point(value, row[precision], row["diversity"], line=label.removesuffix(TUNED)))
    return points
