"""The pages of the scale proof, from the figures that experiments/scale.py measured.

Run: python experiments/scale_page.py

Reads experiments/results/scale.json; writes experiments/results/scale.md and the marked part of docs/scale.md. Every
number of the arithmetic there is a measured figure, a target or an assumption below, or is computed from these.
"""

import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "experiments/results/scale.json"
RESULTS = ROOT / "experiments/results/scale.md"
DOCS = ROOT / "docs/scale.md"
BEGIN, END = "<!-- begin: experiments/scale_page.py -->\n", "<!-- end: experiments/scale_page.py -->\n"

TARGETS = {"people": 1e8, "items": 1e7, "slates_per_person_day": 1.0, "peak_over_mean": 3.0, "days_of_log": 365.0}
ASSUMED = {
    "dollars_per_core_hour": 0.04,
    "dollars_per_gb_month": 0.10,
    "busy_share": 0.5,
    "machine_cores": 32.0,
    "machine_gb": 256.0,
    "machine_disk_gb": 8000.0,
}
"""Prices of rented machines and disks, and how large one machine is; replace them with your own."""
WIDTH = 70
"""Columns of the blocks that `train` iterates: the largest rank, 50, and 20 more (`slatewise.catalog.taste`)."""
BLOCKS = 4
"""Blocks that one process holds at a time: the basis, the product, one partial sum and a copy of the decomposition."""
Figures = dict[str, float]


def inputs(measured: dict[str, Any]) -> Figures:
    """Return the measured figures that the arithmetic starts from, per person, like, slate or item."""
    small, large = measured["runs"][0], measured["runs"][-1]
    more = large["users"] - small["users"]
    stage, before = large["stages"], small["stages"]
    memory = max(stage["retraining"]["peak_mb"] - before["retraining"]["peak_mb"], 0.0)
    return {
        "items_of_run": large["items"],
        "likes_per_person": large["likes"] / large["users"],
        "train_us_per_like": 1e6 * stage["first training"]["cpu_s"] / large["likes_trained"],
        "retrain_ms_per_slate": 1e3 * stage["retraining"]["cpu_s"] / large["users"],
        "retrain_kb_per_person": 1e3 * memory / more,
        "belief_bytes": measured["store"]["belief_bytes"],
        "log_bytes_per_slate": measured["store"]["log_bytes_per_slate"],
        "request_ms": measured["store"]["cpu_ms_per_slate"],
        "slate_ns_per_item": 1e6 * measured["large_catalog"]["slate_ms"] / measured["large_catalog"]["items"],
    }


def arithmetic(known: Figures) -> Figures:
    """Return what the targets take, computed from inputs, targets and assumptions alone."""
    people, items, day = TARGETS["people"], TARGETS["items"], TARGETS["slates_per_person_day"]
    peak = people * day / 86_400 * TARGETS["peak_over_mean"]
    slate_ms = known["request_ms"] + 1e-6 * known["slate_ns_per_item"] * (items - known["items_of_run"])
    cores = peak * slate_ms / 1e3 / ASSUMED["busy_share"]
    request_cores = peak * known["request_ms"] / 1e3 / ASSUMED["busy_share"]
    beliefs, log = (
        people * known["belief_bytes"] / 1e9,
        people * day * TARGETS["days_of_log"] * known["log_bytes_per_slate"] / 1e9,
    )
    train = people * known["likes_per_person"] * known["train_us_per_like"] / 1e6 / 3_600
    retrain = people * day * known["retrain_ms_per_slate"] / 1e3 / 3_600
    hour, gb_month = ASSUMED["dollars_per_core_hour"], ASSUMED["dollars_per_gb_month"]
    return {
        "slates_per_second_at_peak": peak,
        "slate_ms": slate_ms,
        "serving_cores": cores,
        "serving_dollars_month": cores * 730 * hour,
        "indexed_cores": request_cores,
        "indexed_dollars_month": request_cores * 730 * hour,
        "beliefs_gb": beliefs,
        "log_gb": log,
        "storage_dollars_month": (beliefs + log) * gb_month,
        "database_machines": math.ceil((beliefs + log) / ASSUMED["machine_disk_gb"]),
        "train_core_hours": train,
        "train_dollars": train * hour,
        "train_gb_per_process": items * WIDTH * 8 * BLOCKS / 1e9,
        "retrain_core_hours_per_day_of_log": retrain,
        "retrain_dollars_per_day_of_log": retrain * hour,
        "retrain_gb": people * known["retrain_kb_per_person"] / 1e6,
    }


def limits(known: Figures) -> list[tuple[float, str]]:
    """Return at how many people, with ten million items, each part outgrows one machine; the smallest first."""
    found, cores = arithmetic(known), ASSUMED["machine_cores"] * TARGETS["people"]
    per_person = (known["belief_bytes"] + known["log_bytes_per_slate"] * TARGETS["days_of_log"]) / 1e9
    memory = known["retrain_kb_per_person"] / 1e6
    return sorted(
        [
            (cores / found["serving_cores"], "exact slates at the peak, in cores"),
            (cores / found["indexed_cores"], "the rest of a request, in cores"),
            (ASSUMED["machine_disk_gb"] / per_person, "beliefs and a year of log, on disk"),
            (ASSUMED["machine_gb"] / memory if memory else math.inf, "retraining, which holds the log in memory"),
        ]
    )


def section(measured: dict[str, Any]) -> str:
    """Return the part of docs/scale.md that is computed."""
    known, large = inputs(measured), measured["runs"][-1]
    found = arithmetic(known)
    first = limits(known)
    rows = "\n".join(f"| {words} | {_number(known[name])} |" for name, words in INPUTS.items())
    costs = "\n".join(f"| {words} | {_number(found[name])} |" for name, words in OUTPUTS.items())
    breaks = "\n".join(f"| {words} | {_number(number)} |" for number, words in first)
    return f"""Measured by `{measured["command"]}`: {large["users"]:,} people, {large["items"]:,} items,
rank {large["rank"]}. Machine: {measured["machine"]}; load average before the run {measured["load_before"]:g}.

| measured | |
| --- | ---: |
{rows}

Targets: {_number(TARGETS["people"])} people who ask for {TARGETS["slates_per_person_day"]:g} slate a day,
{_number(TARGETS["items"])} items, {TARGETS["peak_over_mean"]:g} times the mean at the peak, a log of
{TARGETS["days_of_log"]:g} days. Assumed, not measured: ${ASSUMED["dollars_per_core_hour"]:g} for an hour of a core,
${ASSUMED["dollars_per_gb_month"]:g} for a GB of disk a month, cores {ASSUMED["busy_share"]:.0%} busy, machines of
{ASSUMED["machine_cores"]:g} cores, {ASSUMED["machine_gb"]:g} GB and {ASSUMED["machine_disk_gb"] / 1e3:g} TB.

| computed | |
| --- | ---: |
{costs}

Where one such machine ends, with {_number(TARGETS["items"])} items: **the first thing that breaks is
{first[0][1].partition(",")[0]}**.

| what outgrows one machine | at so many people |
| --- | ---: |
{breaks}
"""


INPUTS = {
    "likes_per_person": "likes per person",
    "train_us_per_like": "first training, µs of a core per like, all passes",
    "retrain_ms_per_slate": "retraining from the log, ms of a core per slate",
    "retrain_kb_per_person": "memory that retraining takes more per person with one slate, kB",
    "belief_bytes": "belief of a person in the store, bytes",
    "log_bytes_per_slate": "slate with its feedback in the store, bytes",
    "request_ms": "slate and feedback through the store with the items of the run, ms of a core",
    "slate_ns_per_item": "exact slate of a large catalog, ns of a core per item",
}
OUTPUTS = {
    "slates_per_second_at_peak": "slates per second at the peak",
    "slate_ms": "exact slate and feedback, ms of a core",
    "serving_cores": "cores to serve exact slates at the peak",
    "serving_dollars_month": "the same, dollars a month",
    "indexed_cores": "cores if choosing costs what it did in the run, as with an index or sections",
    "indexed_dollars_month": "the same, dollars a month",
    "beliefs_gb": "beliefs, GB",
    "log_gb": "the log, GB",
    "storage_dollars_month": "beliefs and log on disk, dollars a month",
    "database_machines": "database machines, by disk alone",
    "train_core_hours": "first training on everybody, core hours",
    "train_dollars": "the same, dollars",
    "train_gb_per_process": "memory of each training process: blocks of numbers per item, GB",
    "retrain_core_hours_per_day_of_log": "retraining for each day in the log, core hours",
    "retrain_dollars_per_day_of_log": "the same, dollars",
    "retrain_gb": "memory of retraining for one day in the log, GB",
}


def page(measured: dict[str, Any]) -> str:
    """Return experiments/results/scale.md: what the run cost, stage by stage, and how that grew."""
    small, large = measured["runs"][0], measured["runs"][-1]
    rows = "\n".join(
        f"| {name} | {row['seconds']:,.0f} | {row['cpu_s']:,.0f} | {row['peak_mb']:,.0f} | "
        f"{growth(small, large, name):.2f} |"
        for name, row in large["stages"].items()
    )
    total = sum(row["seconds"] for row in large["stages"].values())
    days = "\n".join(
        f"| day {number + 1} | {' | '.join(f'{share:.4f}' for share in shares)} |"
        for number, shares in enumerate(large["liked_by_wave"])
    )
    n_waves = len(large["liked_by_wave"][0])
    return f"""# The scale proof

Command: `{measured["command"]}`

Machine: {measured["machine"]}; {measured["workers"]} processes; load average before the run
{measured["load_before"]:g}.

World: {large["users"]:,} people × {large["items"]:,} items, {large["likes"]:,} likes.
{large["likes_trained"]:,} likes of those who came first trained the first catalog (rank {large["rank"]}). Everybody got
{large["slates"] // large["users"]} slates of ten, {large["slates"]:,} in all; they looked at {large["seen"]:,.0f} items
and clicked {large["clicked"]:,.0f}. The whole loop took {total:,.0f} s. Growth is the exponent of CPU time from
{small["users"]:,} people to {large["users"]:,}; the fixed costs of small runs, such as compiling, make it smaller.

| stage | seconds | CPU seconds | peak memory, MB | growth |
| --- | ---: | ---: | ---: | ---: |
{rows}

Share of shown items that people like, by wave (rates are brought together after each; nothing is shown twice):

| | {" | ".join(f"wave {number + 1}" for number in range(n_waves))} |
| --- |{" ---: |" * n_waves}
{days}
"""


def growth(small: dict[str, Any], large: dict[str, Any], stage: str) -> float:
    """Return the exponent of a stage's CPU time over people; of the first training, over the likes it read."""
    size = "likes_trained" if stage == "first training" else "users"
    times = [max(run["stages"][stage]["cpu_s"], 0.01) for run in (small, large)]
    return math.log(times[1] / times[0]) / math.log(large[size] / small[size])


def with_section(text: str, part: str) -> str:
    """Return a document with its marked part replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{part}\n{END}{after}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "never"
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"


def main() -> None:
    """Write both pages."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    RESULTS.write_text(page(measured), encoding="utf-8")
    DOCS.write_text(with_section(DOCS.read_text(encoding="utf-8"), section(measured)), encoding="utf-8")


if __name__ == "__main__":
    main()
