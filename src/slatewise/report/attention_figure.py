"""Worlds in which people do not look at everything: tables and a figure of what each kind of evidence is worth."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slatewise.report.document import Comparison, Table
from slatewise.report.plotting import INK, MARKERS, SERIES, Figure, draw_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from slatewise.attention_fit import AttentionFit

OURS = "dc2b-calibrated, diversity 0"
SHOWN = ("told", "curve", "service default", "all")
HEAD, ROW, WIDTH = 1.5, 0.5, 7.0

Rows = Sequence[Mapping[str, Any]]


def precision_table(rows: Rows, dataset: str, evidence: Sequence[str]) -> Table:
    """Format P@50 by world and policy, one column per kind of evidence."""
    cells: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["world"], row["policy"]), {})[row["evidence"]] = row
    lines = tuple(
        (
            world,
            policy,
            *(Comparison(by_evidence[name]["p@50"], sd=by_evidence[name]["sd"]) for name in evidence),
            round(by_evidence["told"]["diversity"], 4),
        )
        for (world, policy), by_evidence in cells.items()
    )
    caption = f"P@50 on {dataset} by what people look at and what the policy is told of it."
    return Table("attention", caption, ("world", "policy", *evidence, "diversity, told"), lines)


def fits_table(fits: Sequence[Mapping[str, Any]], n_places: int) -> Table:
    """Format what validation users' logs say: the skip weight of each rule, and the examination of each place."""
    grouped: dict[tuple[str, str], list[AttentionFit]] = {}
    for entry in fits:
        grouped.setdefault((entry["world"], entry["evidence"]), []).append(entry["fit"])
    lines = tuple(
        (
            world,
            evidence,
            " ".join(f"{fit.skip_weight.value:g}" for fit in group),
            f"{group[0].skip_weight.low:g} to {group[0].skip_weight.high:g}",
            *(_mean(group, place) if evidence == "curve" else None for place in range(n_places)),
        )
        for (world, evidence), group in grouped.items()
    )
    caption = "Skip weights by split, with the first one's interval; examination by place, means over splits."
    columns = ("world", "evidence", "skip weight", "interval", *(f"place {place + 1}" for place in range(n_places)))
    notes = (
        "Examination counts relative to the like rates of the training users: clicks of reticent people lower it.",
    )
    return Table("attention-fits", caption, columns, lines, notes)


def _mean(fits: Sequence["AttentionFit"], place: int) -> str:
    """Return the mean examination of a place, and half of the mean width of its interval."""
    half = np.mean([0.5 * (fit.curve[place].high - fit.curve[place].low) for fit in fits])
    return f"{np.mean([fit.curve[place].value for fit in fits]):.2f} ± {half:.2f}"


def attention_figure(rows: Rows, dataset: str) -> Figure:
    """Plot P@50 at diversity 0 by world: kinds of evidence, and tuned EASE."""
    worlds = list(dict.fromkeys(row["world"] for row in rows))
    series = {name: _values(rows, worlds, (OURS, name)) for name in SHOWN}
    series["ease, tuned"] = _values(rows, worlds, ("ease", "all"))
    described = "; ".join(
        f"{world}: " + ", ".join(f"{name} {values[number]:.3f}" for name, values in series.items())
        for number, world in enumerate(worlds)
    )
    caption = f"P@50 of liked items on {dataset}, our policy at diversity 0 by what it is told, and tuned EASE."
    inches = (WIDTH, HEAD + ROW * len(worlds))
    return draw_figure("figure-attention", (caption, described), lambda canvas: _draw(canvas, worlds, series), inches)


def _values(rows: Rows, worlds: Sequence[str], of: tuple[str, str]) -> list[float]:
    precisions = {row["world"]: float(row["p@50"]) for row in rows if (row["policy"], row["evidence"]) == of}
    return [precisions[world] for world in worlds]


def _draw(canvas: "Canvas", worlds: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    """Plot one line per world, the first on top."""
    axes = canvas.subplots()
    heights = [float(height) for height in reversed(range(len(worlds)))]
    for number, (name, values) in enumerate(series.items()):
        color = SERIES[number] if number < len(SERIES) else INK
        filled = color if number < len(SERIES) else "none"
        axes.plot(values, heights, MARKERS[number], color=color, markerfacecolor=filled, linestyle="none", label=name)
    by_world = np.array(list(series.values()))
    axes.hlines(heights, by_world.min(axis=0), by_world.max(axis=0), color=INK, alpha=0.25, linewidth=1.0, zorder=0)
    axes.set_yticks(heights, worlds)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("P@50 (share liked)")
    canvas.legend(loc="outside upper center", ncols=3)
