"""Write the figures of benchmarks/README.md from benchmarks/results.json: `python experiments/write_benchmarks.py`."""

import json
from pathlib import Path
from typing import Any

from slatewise.bench.figures import FIGURES
from slatewise.bench.table import table
from slatewise.report import markdown_table

FOLDER = Path(__file__).parent.parent / "benchmarks"
AXES = {"users": "users", "items": "items", "k": "k", "dim": "dimensions", "dim_dc2b": "dimensions (dc2b)"}


def main() -> None:
    """Replace what stands between the headings."""
    results = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    page = FOLDER / "README.md"
    before, _, rest = page.read_text(encoding="utf-8").partition("## Figures\n")
    after = rest[rest.index("## What is compared") :]
    page.write_text(f"{before}## Figures\n\n{_figures(results)}\n{_growth(results)}\n{after}", encoding="utf-8")


def _figures(results: dict[str, Any]) -> str:
    found = {name: value for name, value in _flat(results).items() if name in FIGURES and value is not None}
    at = results["machine"]
    where = f"{at['processor']}, {at['cores']} cores, {at['system']}; Python {at['python']}, numpy {at['numpy']}"
    with_what = f"with {at['blas']}; pyversity {at['pyversity']}, bayesianbandits {at['bayesianbandits']}"
    return f"Made by `{results['command']}` on {where} {with_what}.\n\n{markdown_table(table(found))}"


def _growth(results: dict[str, Any]) -> str:
    lines = ["How the simulator grows (the other sizes stay at 250 users, 4,000 items, k = 10, 20 dimensions):", ""]
    lines += ["| size | user-rounds per second | exponent of the time |", "| --- | --- | ---: |"]
    for axis, label in AXES.items():
        cells = " · ".join(f"{int(size):,}: {rate:,.0f}" for size, rate in results["growth"][axis].items())
        lines.append(f"| {label} | {cells} | {results['exponents'][axis]:.2f} |")
    lines += ["", "![Time of the simulator against size, with fitted exponents](growth.svg)", ""]
    return "\n".join(lines)


def _flat(tree: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Join nested names by dots."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return found


if __name__ == "__main__":
    main()
