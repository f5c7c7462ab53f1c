"""What is measured, in words, and the bound each figure has to keep; a name with a dot is nested in JSON."""

from dataclasses import dataclass

__all__ = ["FIGURES", "LISTS", "Bound", "Figure", "at_least", "at_most", "names_in"]


@dataclass(frozen=True)
class Bound:
    """A limit that must not be passed: from below for speedups, from above for costs."""

    limit: float
    is_floor: bool

    def is_met(self, value: float) -> bool:
        """Say whether a measured value keeps the bound."""
        return value >= self.limit if self.is_floor else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.is_floor else '≤'} {self.limit:g}"


@dataclass(frozen=True)
class Figure:
    """One measured number: the group that measures it, what it is, and its bound if it has one."""

    group: str
    label: str
    bound: Bound | None = None

    def verdict(self, value: float | None) -> str:
        """Say whether a value keeps the bound; nothing where there is no bound."""
        if value is None:
            return "not measured"
        if self.bound is None:
            return ""
        return "met" if self.bound.is_met(value) else "missed"


def at_most(limit: float) -> Bound:
    """Return the bound of a cost."""
    return Bound(limit, is_floor=False)


def at_least(limit: float) -> Bound:
    """Return the bound of a speedup."""
    return Bound(limit, is_floor=True)


FIGURES: dict[str, Figure] = {
    "pass_1m_ms": Figure("slates", "one pass X @ θ over 1,000,000 × 20 float32, ms"),
    "slate_1m_over_pass": Figure("slates", "dc2b: slate of 10 of 1,000,000 items, over one pass", at_most(1.5)),
    "slate_1m_calibrated_over_pass": Figure("slates", "dc2b-calibrated: the same, over one pass", at_most(1.2)),
    "slate_1m_filtered_over_whole": Figure(
        "slates",
        "the same with a filter, over without one: the slowest of 11 shares of the items, 1 to 99 %",
        at_most(1.3),
    ),
    "slate_1m_by_vectors_over_pass": Figure("slates", "the same without categories, over one pass"),
    "slate_10k_ms": Figure("slates", "dc2b: slate of 10 of 10,000 items, ms"),
    "slate_10k_calibrated_ms": Figure("slates", "dc2b-calibrated: the same, ms", at_most(0.1)),
    "update_us": Figure("updates", "dc2b-calibrated: belief update by one slate, µs", at_most(25)),
    "update_over_history": Figure("updates", "the same after 10,000 slates, over after 10", at_most(1.2)),
    "update_dc2b_us": Figure("updates", "dc2b: belief update by one slate, µs"),
    "update_dc2b_over_history": Figure("updates", "the same after 10,000 slates, over after 10", at_most(1.2)),
    "pyversity_grid_min": Figure("diversify", "pyversity over diversify: smallest of 20 cells", at_least(1)),
    "pyversity_grid_median": Figure("diversify", "the same: median of 20 cells", at_least(4)),
    "pyversity_grid_different": Figure("diversify", "cells in which different items came back", at_most(0)),
    "dense_greedy_2k_speedup": Figure(
        "dense", "greedy on a dense kernel over diversify, 10 of 2,000 items", at_least(20)
    ),
    "dense_greedy_2k_given_kernel_speedup": Figure("dense", "the same, its kernel built beforehand"),
    "arms_peer_speedup": Figure("arms", "bayesianbandits: 10 of 1,000 arms and update, over ours", at_least(10)),
    "arms_peer_batched_speedup": Figure("arms", "the same, ten rewards given to its learner in one call"),
    "arms_peer_disjoint_speedup": Figure("arms", "the same, one learner per arm"),
    "import_s": Figure("startup", "import slatewise, s", at_most(0.2)),
    "first_slate_cold_s": Figure("startup", "import and first slate of 10,000 items, nothing compiled yet, s"),
    "first_slate_warm_s": Figure("startup", "the same, with compiled kernels on the disk, s"),
    "core_install_mb": Figure("startup", "size of a core installation, MB"),
    "memory_over_vectors": Figure("memory", "dc2b serves 1,000,000 × 20, over the vectors' 80 MB", at_most(2.5)),
    "memory_catalog_over_vectors": Figure("memory", "the catalog's part of it: vectors, ids, log-odds"),
    "memory_peak_over_vectors": Figure("memory", "the peak, while it is loaded and checked"),
    "memory_whole_over_vectors": Figure("memory", "the same, with titles, 18 categories, taste vectors"),
    "memory_whole_catalog_over_vectors": Figure("memory", "the catalog's part of it"),
    "memory_whole_calibrated_over_vectors": Figure("memory", "dc2b-calibrated serves that catalog"),
    "simulator_speedup": Figure("simulator", "simulator over that of commit 4c27cee, the smaller of two", at_least(3)),
    "simulator_speedup_dc2b": Figure("simulator", "the same, dc2b"),
    "simulator_speedup_calibrated": Figure("simulator", "the same, dc2b-calibrated"),
    "user_rounds_per_second": Figure("growth", "simulator: user-rounds per second, dc2b-calibrated, 4,000 items"),
    "user_rounds_per_second_dc2b": Figure("growth", "simulator: the same, dc2b"),
    "exponents.users": Figure("growth", "simulator: time grows with users to the power", at_most(1.05)),
    "exponents.items": Figure("growth", "simulator: time grows with items to the power", at_most(1.05)),
    "exponents.k": Figure("growth", "simulator: time grows with k to the power", at_most(1.2)),
    "exponents.dim": Figure("growth", "simulator: time grows with the dimension to the power"),
    "exponents.dim_dc2b": Figure("growth", "simulator: the same, dc2b"),
    "history_events_per_second": Figure(
        "history", "events imported into SQLite per second, 50 for each of 2,000 users", at_least(20_000)
    ),
    "history_over_bare": Figure("history", "the same over bare inserts of ready-made rows"),
    "items_per_second": Figure("items", "items with attributes imported into SQLite per second", at_least(50_000)),
    "items_over_bare": Figure("items", "the same over polars' own read and bare inserts of ready-made rows"),
    "items_memory_over_catalog": Figure(
        "items", "service with a table about 1,000,000 items, over the same without one", at_most(2)
    ),
    "ml_1m_csv_ms": Figure("data", "polars reads ML-1M's ratings as CSV, ms"),
    "parse_archive_over_csv": Figure("data", "parse ML-1M's archive, verified and cached, over that CSV", at_most(3)),
    "parse_cache_over_csv": Figure("data", "the same from the cache, hashes checked", at_most(0.2)),
    "load_archive_over_csv": Figure("data", "load ML-1M as a Dataset from the archive, over that CSV", at_most(3)),
    "load_cache_over_csv": Figure("data", "the same from the cache", at_most(0.2)),
    "load_peak_mb": Figure("data", "peak memory of loading ML-1M, MB", at_most(600)),
    "cornac_s": Figure("data", "cornac itself trains ML-1M, 10 dimensions, 50 epochs, s"),
    "training_over_cornac": Figure("data", "our training, over cornac itself", at_most(1.2)),
    "table2_ml-100k_s": Figure(
        "laboratory", "Table 2 on ML-100K, one split, seven methods, two workers, s", at_most(20)
    ),
    "table2_ml-100k_peak_mb": Figure("laboratory", "its memory, MB", at_most(2048)),
    "table2_ml-1m_s": Figure("laboratory", "Table 2 on ML-1M likewise, s", at_most(180)),
    "table2_ml-1m_peak_mb": Figure("laboratory", "its memory, MB", at_most(2048)),
    "calibrated_over_dc2b": Figure("laboratory", "dc2b-calibrated over dc2b in the simulator, ML-1M", at_most(1.5)),
    "pass_10m_ms": Figure("hardest", "one pass X @ θ over 10,000,000 × 50 float32, ms"),
    "slate_10m_over_pass": Figure(
        "hardest", "dc2b-calibrated: slate of 10 of 10,000,000 items of equal length, over one pass", at_most(0.5)
    ),
    "slate_10m_filtered_over_pass": Figure("hardest", "the same of half of them, over one pass", at_most(0.5)),
    "slate_10m_threads2_speedup": Figure("hardest", "the same of all of them: one thread over two", at_least(1.7)),
    "exact_p50_ms": Figure("trained", "the same of 10,000,000 like those of ML-1M, median of 20 people, ms"),
    "exact_threads2_p50_ms": Figure("trained", "the same by two threads, ms"),
    "index_p50_ms": Figure("trained", "the same, chosen approximately (`approximate` = 0.35), ms", at_most(10)),
    "index_same_share": Figure("trained", "share of these slates that are the exact ones", at_least(0.95)),
    "workers_share_vectors": Figure(
        "workers", "memory of 4 workers with 1,000,000 items, over that of one: 1 if all is shared, 4 if nothing"
    ),
    "workers_share_nothing": Figure("workers", "the same, sharing only the catalog's file"),
    "workers_share_published": Figure("workers", "the same, exploring, after rates of items were published"),
    "publish_rates_ms": Figure("publications", "to publish 100 of 1,000,000 rates, and choose by them, ms"),
    "publish_rates_copied_ms": Figure("publications", "the same, if tables were copied"),
    "train_exponent": Figure("training", "train --without-bpr: time grows with likes to the power", at_most(1.1)),
    "train_memory_exponent": Figure("training", "the same, memory", at_most(1.1)),
    "train_bpr_exponent": Figure("training", "train with BPR, as by default: time, likewise", at_most(1.1)),
    "train_bpr_memory_exponent": Figure("training", "the same, memory", at_most(1.1)),
    "pg_round_trips_slate": Figure("round_trips", "PostgreSQL: round trips of a slate, user not cached", at_most(3)),
    "pg_round_trips_slate_cached": Figure("round_trips", "the same, user cached"),
    "pg_round_trips_feedback": Figure("round_trips", "PostgreSQL: round trips of a feedback event", at_most(2)),
}
LISTS = {"pyversity_grid": "diversify", "sizes": "sizes", "training": "training", "training_bpr": "training"}
"""Results that are a list of rows, and the group that measures each."""


def names_in(group: str) -> list[str]:
    """Return the names of all that a group measures."""
    figures = [name for name, figure in FIGURES.items() if figure.group == group]
    return figures + [name for name, owner in LISTS.items() if owner == group]
