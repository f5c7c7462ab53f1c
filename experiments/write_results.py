"""Write experiments/results/ from the records of `slatewise reproduce`: CSV files, figures and RESULTS.md.

Run, for each data set NAME, `slatewise reproduce all --data NAME --out DIR/NAME`, then `reproduce beyond`, `rounds`,
`attention` and `fans` likewise (with --force), `python experiments/ablation.py NAME --out DIR/NAME`, then:
python experiments/write_results.py DIR
What DIR has no records of stays as RESULTS.md has it.
"""

import csv
import re
import sys
from collections.abc import Callable
from pathlib import Path

from slatewise.data.dataset import DataError, Dataset
from slatewise.data.sources import load
from slatewise.lab.experiment import load_results
from slatewise.lab.reproduction import PAPER, TARGETS, ExperimentRun, find_experiment, sections
from slatewise.report import Section, Table, machine, versions
from slatewise.report.document import csv_text, markdown_table
from slatewise.report.fans_figure import MEAN

HERE = Path(__file__).resolve().parent / "results"
NAMES = ("ml-100k", "ml-1m", "anime-5k")
SPLITS = 5
BEYOND_SPLITS = {"ml-100k": 20, "ml-1m": 10, "anime-5k": 10}
"""On how many `reproduce beyond` is reported; with fewer, RESULTS.md stays as it is."""


def load_runs(target: str, dataset: Dataset, folder: Path) -> dict[str, ExperimentRun]:
    """Load what a target needs from stored records."""
    loaded = {}
    for name in TARGETS[target]:
        n_splits = BEYOND_SPLITS[dataset.name] if target == "beyond" else SPLITS
        experiment = find_experiment(name, n_splits, 0)
        loaded[name] = ExperimentRun(experiment, load_results(folder / "records", experiment, dataset))
    return loaded


def keep(section: Section, folder: Path) -> str:
    """Write the CSV and SVG files of a section; return its Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in section.tables:
        (folder / f"{table.name}.csv").write_text(csv_text(table), encoding="utf-8")
    for figure in section.figures:
        (folder / f"{figure.name}.svg").write_text(figure.standalone_svg, encoding="utf-8")
    tables = [markdown_table(table) for table in section.tables if table.name != "tuned"]
    figures = [
        f"![{figure.caption}]({folder.name}/{figure.name}.svg)\n\n{figure.caption}" for figure in section.figures
    ]
    return "\n\n".join([*tables, *figures])


def ablation(folder: Path, name: str) -> str:
    """Return the ablation as Markdown, from the CSV that experiments/ablation.py wrote."""
    content = (folder / "ablation.csv").read_text(encoding="utf-8")
    (HERE / name / "ablation.csv").write_text(content, encoding="utf-8")
    header, *rows = list(csv.reader(content.splitlines()))
    caption = f"Ablation on {name}, validation users, {SPLITS} splits: difference from the first row, paired"
    return markdown_table(Table("ablation", caption, tuple(header), tuple(tuple(row) for row in rows)))


def attention(folder: Path, name: str) -> str:
    """Return the worlds in which people do not look at everything, from the files that `reproduce attention` wrote."""
    for file in ("attention.csv", "attention-fits.csv", "figure-attention.svg"):
        (HERE / name / file).write_text((folder / file).read_text(encoding="utf-8"), encoding="utf-8")
    rows = list(csv.DictReader((folder / "attention.csv").read_text(encoding="utf-8").splitlines()))
    columns = tuple(column for column in rows[0] if not column.endswith(" sd"))
    cells = tuple(tuple(_with_deviation(row, column) for column in columns) for row in rows)
    figure = f"![P@50 by world and evidence on {name}]({name}/figure-attention.svg)"
    return f"{markdown_table(Table('attention', f'P@50 on {name}', columns, cells))}\n{figure}"


def fans(folder: Path, name: str) -> str:
    """Return how much fans of one category see of it, the means, from the files that `reproduce fans` wrote."""
    for file in ("fans.csv", "figure-fans.svg"):
        (HERE / name / file).write_text((folder / file).read_text(encoding="utf-8"), encoding="utf-8")
    header, *rows = list(csv.reader((folder / "fans.csv").read_text(encoding="utf-8").splitlines()))
    cells = tuple(tuple(row[2:]) for row in rows if row[0] == MEAN)
    figure = f"![Share of their category in slate 5 of fans on {name}]({name}/figure-fans.svg)"
    return f"{markdown_table(Table('fans', f'Share of the category on {name}', tuple(header[2:]), cells))}\n{figure}"


def _with_deviation(row: dict[str, str], column: str) -> str:
    deviation = row.get(f"{column} sd")
    return f"{float(row[column]):.4f} ± {float(deviation):.4f}" if deviation else row[column]


def block(key: str, content: str) -> str:
    """Enclose what stands for a key of the template, so that it is found again."""
    return f"<!-- {key} -->\n{content.strip()}\n<!-- end -->"


def known_blocks() -> dict[str, str]:
    """Return what RESULTS.md has now, by key."""
    text = (HERE / "RESULTS.md").read_text(encoding="utf-8")
    return dict(re.findall(r"<!-- (\S+) -->\n(.*?)\n<!-- end -->", text, re.DOTALL))


def of_data_set(name: str, source: Path) -> dict[str, str]:
    """Return the blocks of a data set that its folder has records or files for."""
    dataset, folder, found = load(name), source / name, {}
    for target in ("all", "beyond", "rounds"):
        try:
            runs = load_runs(target, dataset, folder)
        except DataError as error:
            print(f"{name}, {target}: left as it is ({error})")
            continue
        parts = sections(target, dataset, runs)
        for key, part in zip(PAPER if target == "all" else [target], parts, strict=True):
            found[f"{name}:{key}"] = keep(part, HERE / name)
    makers: dict[str, Callable[[Path, str], str]] = {"ablation": ablation, "attention": attention, "fans": fans}
    for key, make in makers.items():
        if (folder / f"{key}.csv").is_file():
            found[f"{name}:{key}"] = make(folder, name)
    return found


def main(source: Path) -> None:
    """Fill the template."""
    text = (HERE / "RESULTS.template.md").read_text(encoding="utf-8")
    facts = {"machine": machine(), "versions": ", ".join(f"{name} {value}" for name, value in versions().items())}
    facts |= {f"{name}:digest": load(name).digest for name in NAMES}
    blocks = known_blocks()
    for name in NAMES:
        blocks |= of_data_set(name, source)
    for key, value in {**facts, **{key: block(key, content) for key, content in blocks.items()}}.items():
        text = text.replace("{{" + key + "}}", value)
    (HERE / "RESULTS.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
