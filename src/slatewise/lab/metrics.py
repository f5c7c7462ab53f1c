"""From flat records of shown items to precision, diversity and F: per user, per split and over all splits.

A run is one policy on one split of one data set. Python loops over runs, never over users.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.data.tables import DataError, require_columns
from slatewise.slates.similarity import slate_varieties

RUN = ("dataset", "split", "policy")
SHOWN = (*RUN, "user", "round", "position", "item", "clicked")
CUT_OFFS = (10, 30, 50)

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32] | NDArray[np.float64]
ItemTables = tuple[NDArray[np.bool_], Vectors | None]
"""Categories and vectors of the items."""


def per_user(
    records: pl.DataFrame,
    categories: NDArray[np.bool_],
    cut_offs: Sequence[int] = CUT_OFFS,
    vectors: Vectors | None = None,
) -> pl.DataFrame:
    """Return `dataset, split, policy, user`, a column `p@N` for every cut-off, and `diversity`.

    `p@N` is the share clicked among the first N items shown: null for a user who was shown fewer, and the column is
    left out if everybody was. `diversity` is the mean over rounds of `slate_diversity`, without slates about which
    nothing is known; null if there are no others. `categories` is the indicator matrix of the data set (n_items,
    n_categories), and `vectors` (n_items, dim) compare items without categories.
    """
    _check(records, categories)
    users = pl.concat([_users_of_run(run, (categories, vectors), cut_offs) for run in _runs(records)])
    unreached = [name for name in precision_columns(users) if users[name].null_count() == len(users)]
    return users.drop(unreached)


def per_split(users: pl.DataFrame) -> pl.DataFrame:
    """Average `per_user` over the users of each run and add `f`, the harmonic mean of precision and diversity.

    As in the paper, F is computed from the averages, and from the precision at the largest cut-off (P@50).
    """
    means = pl.exclude(*RUN, "user").mean()
    averages = users.group_by(RUN, maintain_order=True).agg(means)
    precision, diversity = pl.col(precision_columns(users)[-1]), pl.col("diversity")
    harmonic = 2 * precision * diversity / (precision + diversity)
    return averages.with_columns(f=harmonic.fill_nan(0.0))


def summary(splits: pl.DataFrame) -> pl.DataFrame:
    """Return per data set and policy the number of `splits`, and every metric's mean (`f`) and deviation (`f sd`).

    The standard deviation is that of a sample (n − 1); one split says nothing about it, so it is null then.
    """
    metrics = pl.exclude(*RUN)
    return splits.group_by("dataset", "policy", maintain_order=True).agg(
        metrics.mean(), metrics.std(ddof=1).name.suffix(" sd"), splits=pl.len()
    )


def precision_by_interaction(records: pl.DataFrame) -> pl.DataFrame:
    """Return the learning curve of every run: `dataset, split, policy, interactions, shown, precision`.

    One row per round: after `interactions` slates, `shown` items were shown to each user, and `precision` is the
    share clicked of all items shown so far.
    """
    require_columns(records, SHOWN, "records")
    return pl.concat([_learning_curve(run) for run in _runs(records)])


def slate_diversity(
    slates: NDArray[np.integer[Any]], categories: NDArray[np.bool_], vectors: Vectors | None = None
) -> Floats:
    """Return the mean over unordered pairs of 1 − similarity: the paper's ILD (n_slates,).

    `slates` holds item numbers (n_slates, size); −1 pads short slates. Two items are as similar as the Jaccard index of
    their categories, as in the paper; where one has no categories, as the cosine of their vectors (n_items, dim), not
    below 0. Pairs about which nothing is known are left out, and a slate without others yields NaN. The paper's sum
    over i ≠ j counts each pair twice; its published values are means over unordered pairs, as here.
    """
    return slate_varieties(slates, categories, vectors)


def precision_columns(frame: pl.DataFrame) -> list[str]:
    """Return the `p@N` columns of a frame, by ascending N."""
    return sorted(
        (name for name in frame.columns if name.startswith("p@") and name[2:].isdigit()), key=lambda name: int(name[2:])
    )


def _runs(records: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of one run after another; rows that stand together are not copied."""
    differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in RUN)
    heads = records.lazy().select(RUN).with_row_index("start").filter(differs).collect()
    pieces: dict[tuple[Any, ...], list[pl.DataFrame]] = {}
    for (start, *run), end in zip(heads.iter_rows(), [*heads["start"][1:], len(records)], strict=True):
        pieces.setdefault(tuple(run), []).append(records.slice(start, end - start).select(SHOWN))
    for parts in pieces.values():
        yield parts[0] if len(parts) == 1 else pl.concat(parts)


def _learning_curve(run: pl.DataFrame) -> pl.DataFrame:
    rounds = run.group_by(*RUN, "round").agg(pl.col("clicked").sum(), pl.len()).sort("round")
    clicked, shown = (pl.col(name).cast(pl.Int64).cum_sum() for name in ("clicked", "len"))
    columns = {"interactions": pl.col("round") + 1, "shown": shown / run["user"].n_unique()}
    return rounds.select(*RUN, **columns, precision=clicked / shown)


def _users_of_run(run: pl.DataFrame, items: ItemTables, cut_offs: Sequence[int]) -> pl.DataFrame:
    run = run.sort("user", "round", "position")
    new_user = _changes(run["user"])
    new_slate = new_user | _changes(run["round"])
    _refuse_repeats(run, new_slate | _changes(run["position"]))
    starts = np.flatnonzero(new_user)
    precisions = {f"p@{n}": _precision(run["clicked"].to_numpy(), starts, n) for n in sorted(cut_offs)}
    distances = slate_diversity(_slates(run["item"].to_numpy(), np.flatnonzero(new_slate)), *items)
    user_of_slate = np.cumsum(new_user[new_slate]) - 1
    values = {**precisions, "diversity": _mean_by_group(distances, user_of_slate, len(starts))}
    columns = [pl.Series(name, value).fill_nan(None) for name, value in values.items()]
    return run[starts].select(*RUN, "user").with_columns(columns)


def _changes(column: pl.Series) -> NDArray[np.bool_]:
    values = column.to_numpy()
    return np.concatenate([[True], values[1:] != values[:-1]])


def _precision(clicked: NDArray[np.bool_], starts: NDArray[np.intp], n: int) -> Floats:
    so_far = np.concatenate([[0], np.cumsum(clicked)])
    n_shown = np.diff(np.append(starts, len(clicked)))
    ends = np.minimum(starts + n, len(clicked))
    return np.where(n_shown >= n, (so_far[ends] - so_far[starts]) / n, np.nan)


def _slates(items: NDArray[np.integer[Any]], starts: NDArray[np.intp]) -> NDArray[np.integer[Any]]:
    """Arrange the items as one row per slate (n_slates, longest), short rows padded with −1."""
    sizes = np.diff(np.append(starts, len(items)))
    filled = np.arange(sizes.max()) < sizes[:, None]
    slates = np.full(filled.shape, -1, dtype=items.dtype)
    slates[filled] = items
    return slates


def _mean_by_group(values: Floats, groups: NDArray[np.intp], n_groups: int) -> Floats:
    """Average the numbers of each group, ignoring NaN; a group without numbers yields NaN."""
    known = ~np.isnan(values)
    totals = np.bincount(groups[known], weights=values[known], minlength=n_groups)
    counts = np.bincount(groups[known], minlength=n_groups)
    return _ratio(totals, counts)


def _ratio(totals: NDArray[Any], counts: NDArray[np.intp]) -> Floats:
    """Divide, with NaN where the divisor is zero."""
    ratio = np.full(len(totals), np.nan)
    np.divide(totals, counts, out=ratio, where=counts > 0)
    return ratio


def _check(records: pl.DataFrame, categories: NDArray[np.bool_]) -> None:
    require_columns(records, SHOWN, "records")
    if records.is_empty():
        raise DataError("records are empty: nothing was simulated")
    names = records["dataset"].unique().sort().to_list()
    if len(names) > 1:
        raise DataError(
            f"records contain the data sets {', '.join(names)}, whose items are numbered separately; "
            f"measure each with its own categories and concatenate"
        )
    lowest, highest = records.select(low=pl.col("item").min(), high=pl.col("item").max()).row(0)
    if lowest < 0 or highest >= len(categories):
        raise DataError(
            f"records contain items {lowest} to {highest}, but the categories are those of {len(categories):,} items; "
            f"pass those of the data set {names[0]!r}"
        )


def _refuse_repeats(run: pl.DataFrame, new: NDArray[np.bool_]) -> None:
    if not new.all():
        repeat = run.row(int(np.argmin(new)), named=True)
        raise DataError(
            f"records of {repeat['policy']!r}, split {repeat['split']}, show user {repeat['user']} two items at round "
            f"{repeat['round']}, position {repeat['position']}: two runs under one label; give each its own"
        )
