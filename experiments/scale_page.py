"""The pages of the scale proof, from the figures that experiments/scale.py and two benchmarks measured.

Run: python experiments/scale_page.py

Reads experiments/results/scale.json (a whole service), benchmarks/results.json (slates of ten million items) and
benchmarks/retraining.json (training from logs of several lengths); writes experiments/results/scale.md and the marked
part of docs/scale.md. Every number of the arithmetic there is a measured figure, a target or an assumption below, or is
computed from these.
"""

import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "experiments/results/scale.json"
BENCHMARKS = ROOT / "benchmarks/results.json"
RETRAINING = ROOT / "benchmarks/retraining.json"
RESULTS = ROOT / "experiments/results/scale.md"
DOCS = ROOT / "docs/scale.md"
BEGIN, END = "<!-- begin: experiments/scale_page.py -->\n", "<!-- end: experiments/scale_page.py -->\n"

TARGETS = {
    "people": 1e8,
    "items": 1e7,
    "slates_per_person_day": 1.0,
    "peak_over_mean": 3.0,
    "days_of_log": 365.0,
    "hours_to_retrain": 24.0,
}
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
MEGABYTE = 2**20
Figures = dict[str, float]


def load() -> dict[str, Any]:
    """Return everything that was measured: the run, with what the benchmarks say in keys of their own."""
    measured: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    benchmarks = json.loads(BENCHMARKS.read_text(encoding="utf-8"))
    retraining = json.loads(RETRAINING.read_text(encoding="utf-8"))
    return {**measured, "exact_p50_ms": benchmarks["exact_p50_ms"], "retraining": retraining}


def inputs(measured: dict[str, Any]) -> Figures:
    """Return the measured figures that the arithmetic starts from, per person, like, slate or item."""
    large = measured["runs"][-1]
    return {
        "likes_per_person": large["likes"] / large["users"],
        "train_us_per_like": 1e6 * large["stages"]["first training"]["cpu_s"] / large["likes_trained"],
        **retraining(measured["retraining"]),
        "belief_bytes": measured["store"]["belief_bytes"],
        "log_bytes_per_slate": measured["store"]["log_bytes_per_slate"],
        "request_ms": measured["store"]["cpu_ms_per_slate"],
        "exact_p50_ms": measured["exact_p50_ms"],
    }


def retraining(measured: dict[str, Any]) -> Figures:
    """Return what training from the log takes for one more person with one slate, and for one more slate of a person.

    Differences between sizes leave out what does not grow with the log.
    """
    once = [row for row in measured["training"] if row["slates_each"] == 1]
    often = [row for row in measured["training"] if row["slates_each"] > 1]
    people = once[-1]["people"] - once[0]["people"]
    slates = often[-1]["people"] * (often[-1]["slates_each"] - often[0]["slates_each"])
    return {
        "read_ms_per_slate": measured["read_ms_per_slate"],
        "fit_ms_per_person": 1e3 * (once[-1]["fit_cpu_s"] - once[0]["fit_cpu_s"]) / people,
        "fit_ms_per_slate": 1e3 * (often[-1]["fit_cpu_s"] - often[0]["fit_cpu_s"]) / slates,
        "retrain_kb_per_person": MEGABYTE / 1e3 * (once[-1]["peak_mb"] - once[0]["peak_mb"]) / people,
        "retrain_kb_per_slate": MEGABYTE / 1e3 * (often[-1]["peak_mb"] - often[0]["peak_mb"]) / slates,
    }


def retraining_of_a_person(known: Figures) -> Figures:
    """Return what the whole log of one person takes: reading and fitting in seconds of a core, memory in GB."""
    slates = TARGETS["slates_per_person_day"] * TARGETS["days_of_log"]
    return {
        "read_s": slates * known["read_ms_per_slate"] / 1e3,
        "fit_s": (known["fit_ms_per_person"] + (slates - 1) * known["fit_ms_per_slate"]) / 1e3,
        "gb": (known["retrain_kb_per_person"] + (slates - 1) * known["retrain_kb_per_slate"]) / 1e6,
    }


def arithmetic(known: Figures) -> Figures:
    """Return what the targets take, computed from inputs, targets and assumptions alone."""
    people, day, each = TARGETS["people"], TARGETS["slates_per_person_day"], retraining_of_a_person(known)
    peak = people * day / 86_400 * TARGETS["peak_over_mean"]
    slate_ms = known["request_ms"] + known["exact_p50_ms"]
    cores = peak * slate_ms / 1e3 / ASSUMED["busy_share"]
    request_cores = peak * known["request_ms"] / 1e3 / ASSUMED["busy_share"]
    beliefs, log = (
        people * known["belief_bytes"] / 1e9,
        people * day * TARGETS["days_of_log"] * known["log_bytes_per_slate"] / 1e9,
    )
    train = people * known["likes_per_person"] * known["train_us_per_like"] / 1e6 / 3_600
    retrain = people * (each["read_s"] + each["fit_s"]) / 3_600
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
        "train_gb_per_process": TARGETS["items"] * WIDTH * 8 * BLOCKS / 1e9,
        "read_core_hours": people * each["read_s"] / 3_600,
        "fit_core_hours": people * each["fit_s"] / 3_600,
        "retrain_dollars": retrain * hour,
        "retrain_gb": people * each["gb"],
    }


def limits(known: Figures) -> list[tuple[float, str]]:
    """Return at how many people, with ten million items, each part outgrows one machine; the smallest first."""
    found, cores = arithmetic(known), ASSUMED["machine_cores"] * TARGETS["people"]
    each, days, hours = retraining_of_a_person(known), TARGETS["days_of_log"], TARGETS["hours_to_retrain"]
    per_person = (found["beliefs_gb"] + found["log_gb"]) / TARGETS["people"]
    return sorted(
        [
            (cores / found["serving_cores"], "exact slates at the peak, in cores"),
            (cores / found["indexed_cores"], "the rest of a request, in cores"),
            (ASSUMED["machine_disk_gb"] / per_person, f"beliefs and {days:g} days of log, on disk"),
            (ASSUMED["machine_gb"] / each["gb"], f"retraining from {days:g} days of log, in memory"),
            (
                hours * 3_600 / (each["read_s"] + each["fit_s"]),
                f"retraining from {days:g} days of log, within {hours:g} hours on one core",
            ),
        ]
    )


def section(measured: dict[str, Any]) -> str:
    """Return the part of docs/scale.md that is computed."""
    known, large, again = inputs(measured), measured["runs"][-1], measured["retraining"]
    found = arithmetic(known)
    first = limits(known)
    rows = "\n".join(f"| {words} | {_number(known[name])} |" for name, words in INPUTS.items())
    costs = "\n".join(f"| {words} | {_number(found[name])} |" for name, words in OUTPUTS.items())
    breaks = "\n".join(f"| {words} | {_number(number)} |" for number, words in first)
    return f"""Measured by `{measured["command"]}`: {large["users"]:,} people, {large["items"]:,} items,
rank {large["rank"]}. Machine: {measured["machine"]}; load average before the run {measured["load_before"]:g}.
Training from the log by `{again["command"]}` ({again["machine"]["processor"]}, load average before
{again["load_before"]:.2g}); slates of ten million items are `exact_p50_ms` of benchmarks/results.json
(`python -m benchmarks --scale`), for people who have reacted to five slates.

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
{first[0][1]}**. All rows count the same {TARGETS["days_of_log"]:g} days.

| what outgrows one machine | at so many people |
| --- | ---: |
{breaks}
"""


INPUTS = {
    "likes_per_person": "likes per person",
    "train_us_per_like": "first training, µs of a core per like, all passes",
    "read_ms_per_slate": "retraining: reading a slate with its feedback from the store, ms of a core",
    "fit_ms_per_person": "fitting one more person with one slate, ms of a core",
    "fit_ms_per_slate": "fitting one more slate of somebody, ms of a core",
    "retrain_kb_per_person": "memory of retraining for one more person with one slate, kB",
    "retrain_kb_per_slate": "for one more slate of somebody, kB",
    "belief_bytes": "belief of a person in the store, bytes",
    "log_bytes_per_slate": "slate with its feedback in the store, bytes",
    "request_ms": "slate and feedback through the store with the items of the run, ms of a core",
    "exact_p50_ms": "exact slate of 10,000,000 items like those of ML-1M, median (`exact_p50_ms`), ms of one thread",
}
OUTPUTS = {
    "slates_per_second_at_peak": "slates per second at the peak",
    "slate_ms": "exact slate of 10,000,000 items and feedback: the last two together, ms of a core",
    "serving_cores": "cores to serve exact slates at the peak",
    "serving_dollars_month": "the same, dollars a month",
    "indexed_cores": "cores if choosing cost what it did in the run, from 10,000 items",
    "indexed_dollars_month": "the same, dollars a month",
    "beliefs_gb": "beliefs, GB",
    "log_gb": "the log, GB",
    "storage_dollars_month": "beliefs and log on disk, dollars a month",
    "database_machines": "database machines, by disk alone",
    "train_core_hours": "first training on everybody, core hours",
    "train_dollars": "the same, dollars",
    "train_gb_per_process": "memory of each training process: blocks of numbers per item, GB",
    "read_core_hours": "each retraining: reading the log of 365 days, core hours",
    "fit_core_hours": "fitting it, core hours",
    "retrain_dollars": "both, dollars",
    "retrain_gb": "memory of retraining from the log of 365 days, GB",
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
    measured = load()
    RESULTS.write_text(page(measured), encoding="utf-8")
    DOCS.write_text(with_section(DOCS.read_text(encoding="utf-8"), section(measured)), encoding="utf-8")


if __name__ == "__main__":
    main()
