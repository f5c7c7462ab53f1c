"""Any experiment of one's own: run it, then report on it."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from slatewise.catalog.embeddings import BprSettings
from slatewise.cli import console
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab.experiment import Arm, Experiment, run
from slatewise.lab.own import as_json, sections
from slatewise.report import Comparison, Table
from tests.test_cli import slatewise

DATASET = make_world(WorldSize(n_users=80, n_items=50, n_categories=5, dim=4), seed=8).dataset
ARMS = (
    Arm("dc2b-calibrated", "ours", diversities=(0.3, 0.6), rounds=3, k=4),
    Arm("gaussian", diversities=(0.0, 1.0), rounds=3, k=4),
    Arm("random", rounds=3, k=4),
)
OWN = Experiment("own", "My comparison", ARMS, splits=2, embedding=BprSettings(dim=3, epochs=2))


def test_a_report_has_a_finding_tables_tests_and_figures() -> None:
    results = run(OWN, DATASET)
    [section] = sections(OWN, DATASET, results)
    assert section.prose[0].startswith("Of 4 comparisons of ours on synthetic, with every other arm in every metric: ")
    assert [table.name for table in section.tables] == ["metrics", "verdicts", "equal-diversity"]
    assert section.tables[0].columns == ("policy", "P@10", "P@12", "Diversity", "F")
    assert [figure.name for figure in section.figures] == ["learning", "front"]
    document = as_json(OWN, DATASET, results)
    assert {(cell["rival"], cell["metric"]) for cell in document["cells"]} == {
        ("gaussian", metric) for metric in ("p@10", "p@12", "diversity", "f")
    }
    assert "precision" in results._repr_html_()
    assert len(results.to_polars()) == len(results.records)


def test_what_leads_is_what_the_tests_found() -> None:
    """Two arms that hardly differ: whichever is higher by chance, none is the best; both are called by their names."""
    arms = tuple(
        Arm("dc2b-calibrated", name, options={"temperature": noise}, diversities=(0.3, 0.6), rounds=3, k=4)
        for name, noise in (("gems", 0.0), ("rocks", 0.01))
    )
    twins = Experiment("twins", "Twins", arms, splits=2, embedding=BprSettings(dim=3, epochs=2))
    [section] = sections(twins, DATASET, run(twins, DATASET))
    assert section.prose[0].startswith(
        "Of 4 comparisons of gems on synthetic, with every other arm in every metric: 0 won"
    )
    assert "gems against the highest of the others: P@10 0." in section.prose[0]
    assert section.prose[0].count("of rocks (tie, p = ") == 3
    assert "best" not in section.prose[0]
    assert [table.caption.split(" on ")[0] for table in section.tables[1:]] == [
        "gems minus each other",
        "gems minus each other, precision at equal diversity",
    ]


def test_one_arm_alone_is_reported_without_verdicts() -> None:
    alone = Experiment("own", "Alone", (Arm("popular", rounds=2, k=3),), splits=1, embedding=BprSettings(epochs=1))
    [section] = sections(alone, DATASET, run(alone, DATASET))
    assert [table.name for table in section.tables] == ["metrics"]
    assert len(section.prose) == 1
    assert section.prose[0].startswith("Nothing was tested")


@pytest.mark.slow
@pytest.mark.process
def test_run_then_report(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'title = "Mine"\nsplits = 1\nembedding = { dim = 2, epochs = 1 }\n'
        'arms = [{ policy = "popular" }, { policy = "random", label = "anything" }]\n'
    )
    options = ("--data", "synthetic", "--out", tmp_path / "out")
    missing = slatewise("report", path, *options)
    assert missing.returncode != 0
    assert "slatewise run" in missing.stderr
    assert slatewise("run", path, *options, "--workers", "1").returncode == 0
    done = slatewise("report", path, *options)
    assert done.returncode == 0, done.stderr
    assert "Of 5 comparisons of popular on synthetic" in done.stdout
    assert "best" not in done.stdout
    assert "<h1>Mine</h1>" in (tmp_path / "out" / "report.html").read_text()
    assert {"metrics.csv", "metrics.tex", "learning.pdf", "front.svg"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }


def test_a_terminal_gets_a_drawn_table_and_a_pipe_gets_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table("t", "Mine", ("policy", "F"), (("[bold]ease", Comparison(0.5, sd=0.01)),))
    for is_terminal in (True, False):
        text = io.StringIO()
        monkeypatch.setattr(console, "stdout", Console(file=text, force_terminal=is_terminal, width=80))
        console.print_table(table)
        assert "[bold]ease" in text.getvalue()
        assert ("| --- |" in text.getvalue()) != is_terminal
        assert ("┃" in text.getvalue()) == is_terminal
