import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
import pytest

import slatewise
from slatewise.data.tables import DataError
from slatewise.lab import metrics
from slatewise.report import (
    Comparison,
    Figure,
    Report,
    Section,
    Table,
    latex_table,
    machine,
    markdown_table,
    paper,
    table1,
    table1_rows,
    table2,
    table2_json,
    table3,
    table3_rows,
    versions,
    write_report,
)
from slatewise.report.comparison_figure import comparison_figures
from slatewise.report.document import COUNT, csv_text
from slatewise.report.figures import Point, figure_alpha, figure_size, scatter_precision_diversity
from slatewise.report.html import STYLE, page
from slatewise.report.plotting import INK
from tests.conftest import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Theme = Literal["light", "dark"]

HALF_DIGIT = 0.5e-4
CATEGORIES = np.random.default_rng(0).random((60, 5)) < 0.4
HOSTILE = "<script>alert('x')</script> & \"more\""


def cells() -> Iterator[tuple[str, str, dict[str, float]]]:
    for dataset, rows in paper.TABLE_2.items():
        for policy, row in rows.items():
            yield dataset, policy, row


def harmonic(left: float, right: float) -> float:
    return 2 * left * right / (left + right)


def test_f_of_table_2_follows_from_its_precision_and_diversity_except_in_one_cell() -> None:
    strange = []
    for dataset, policy, row in cells():
        low, high = (harmonic(row["p@50"] + error, row["diversity"] + error) for error in (-HALF_DIGIT, HALF_DIGIT))
        if not low - HALF_DIGIT <= row["f"] <= high + HALF_DIGIT:
            strange.append((dataset, policy, round(harmonic(row["p@50"], row["diversity"]), 4), row["f"]))
    assert strange == [("ml-1m", "mmr", 0.4243, 0.4221)]


def test_table_3_follows_from_table_2_except_in_one_cell() -> None:
    strange = []
    for dataset, policy, row in cells():
        for metric, printed in paper.TABLE_3[dataset].get(policy, {}).items():
            ours = paper.TABLE_2[dataset]["dc2b"][metric]
            low, high = (100 * ((ours - e) / (row[metric] + e) - 1) for e in (HALF_DIGIT, -HALF_DIGIT))
            if not low - 0.005 <= printed <= high + 0.005:
                strange.append((dataset, policy, metric, round(100 * (ours / row[metric] - 1), 2), printed))
    assert strange == [("anime", "ec-bandit", "diversity", -1.24, -1.21)]


def test_density_of_table_1_follows_from_its_counts() -> None:
    for row in paper.TABLE_1.values():
        assert row["interactions"] / row["users"] / row["items"] == pytest.approx(row["density"], abs=HALF_DIGIT)


def test_a_sample_is_compared_with_the_full_set_and_says_so() -> None:
    assert paper.published("anime-5k", "dc2b") == paper.TABLE_2["anime"]["dc2b"]
    assert paper.published("ml-1m", "dc2b (tuned)") == paper.TABLE_2["ml-1m"]["dc2b"]
    assert paper.published("ml-1m", "popular") is None
    assert paper.published("your data", "dc2b") is None
    described = {"name": "anime-5k", "users": 1, "items": 2, "interactions": 2, "categories": 1, "density": 1.0}
    laid_out = table1(table1_rows([described]))
    assert laid_out.rows[0][0] == "anime-5k (a sample of Anime)"
    assert not any(cell.is_notable for cell in laid_out.rows[0] if isinstance(cell, Comparison))
    assert "for the full set" in laid_out.notes[-1]


def records(n_splits: int = 2) -> pl.DataFrame:
    """Six users, five slates of ten, three policies."""
    rng = np.random.default_rng(5)
    shape = (n_splits, 3, 6, 5, 10)
    split, policy, user, number, position = (axis.ravel() for axis in np.indices(shape))
    shown = np.stack([rng.permutation(60)[:50] for _ in range(n_splits * 3 * 6)]).ravel()
    names = pl.Series(["mmr", "dc2b", "popular"]).gather(policy)
    columns = {"split": split, "policy": names, "user": user, "round": number, "position": position, "item": shown}
    return pl.DataFrame(columns).with_columns(
        dataset=pl.lit("ml-1m"), clicked=pl.Series(rng.random(len(shown)) < 0.3), user=pl.col("user").cast(pl.Int32)
    )


def results(shown: pl.DataFrame) -> pl.DataFrame:
    return metrics.summary(metrics.per_split(metrics.per_user(shown, CATEGORIES)))


def by_size(shown: pl.DataFrame) -> Figure:
    course = metrics.precision_by_interaction(shown.filter(policy="dc2b"))
    return figure_size(course.with_columns(size=pl.lit(10)))


def by_alpha(shown: pl.DataFrame) -> Figure:
    splits = metrics.per_split(metrics.per_user(shown, CATEGORIES)).filter(policy="dc2b")
    return figure_alpha(pl.concat([splits.with_columns(alpha=pl.lit(alpha)) for alpha in paper.ALPHAS]))


def plane() -> Figure:
    points = [Point("MMR", 0.25, 0.82), Point("MMR", 0.26, 0.81, is_published=True)]
    points += [Point(str(knob), 0.3 - knob / 10, 0.8 + knob / 10, line="knob") for knob in (0.0, 0.5, 1.0)]
    return scatter_precision_diversity(points, "figure-plane", "Precision against diversity")


def report(shown: pl.DataFrame) -> Report:
    summary = results(shown)
    tables = (table2(table2_json(summary, "ml-1m", 2)), table3(table3_rows(summary, "ml-1m"), "ml-1m"))
    section = Section("Table 2", (HOSTILE,), tables, (by_alpha(shown), by_size(shown)))
    command = "slatewise reproduce all --data ml-1m"
    return Report("A title", command, "ml-1m", "ab" * 32, (0, 1), "a machine", {"slatewise": "0"}, (section,))


@pytest.fixture(scope="module")
def made() -> Report:
    return report(records())


def test_table_2_for_programs_has_exactly_the_promised_shape() -> None:
    document = json.loads(json.dumps(table2_json(results(records()), "ml-1m", 2), allow_nan=False))
    metric_keys = {"p@10", "p@30", "p@50", "diversity", "f"}
    assert set(document) == {"dataset", "splits", "rows"}
    assert [row["policy"] for row in document["rows"]] == ["mmr", "dc2b", "popular"]
    for row in document["rows"]:
        assert set(row) == metric_keys | {"policy", "sd", "paper"}
        assert set(row["sd"]) == metric_keys
        assert row["paper"] is None if row["policy"] == "popular" else set(row["paper"]) == metric_keys


def test_one_split_has_no_deviation() -> None:
    document = table2_json(results(records(1)), "ml-1m", 1)
    assert document["rows"][0]["sd"]["f"] is None
    assert "±" not in markdown_table(table2(document))


def test_table_3_is_the_relative_improvement_and_tuned_goes_with_tuned() -> None:
    rows = [("mmr", 0.2), ("dc2b", 0.3), ("mmr (tuned)", 0.25), ("dc2b (tuned)", 0.5), ("popular", 0.0)]
    columns = {"dataset": "ml-1m", "policy": [name for name, _ in rows], "p@50": [value for _, value in rows]}
    found = table3_rows(pl.DataFrame(columns), "ml-1m")
    assert [(row["policy"], row["p@50"]) for row in found] == [("mmr", 50.0), ("mmr (tuned)", 100.0), ("popular", None)]
    assert found[0]["paper"] == paper.TABLE_3["ml-1m"]["mmr"]
    with pytest.raises(DataError, match="'dc2b', which was not run"):
        table3_rows(pl.DataFrame(columns).head(1), "ml-1m")
    with pytest.raises(DataError, match="no results for the data set 'anime', only for ml-1m"):
        table2_json(pl.DataFrame(columns), "anime", 1)


@pytest.mark.parametrize(
    ("ours", "notable", "text"),
    [
        (0.33, False, "0.3300 ± 0.0100 (0.3000, +0.0300)"),
        (0.331, True, "0.3310 ± 0.0100 (0.3000, **▲ +0.0310**)"),
        (0.2, True, "0.2000 ± 0.0100 (0.3000, **▼ −0.1000**)"),
        (0.29999, False, "0.3000 ± 0.0100 (0.3000, 0.0000)"),
    ],
)
def test_notable_differences_are_marked_by_more_than_colour(ours: float, notable: bool, text: str) -> None:
    cell = Comparison(ours, 0.3, 0.01)
    assert cell.is_notable is notable
    assert text in markdown_table(Table("t", "c", ("a", "b"), (("x", cell),)))


def test_tables_as_csv_and_markdown_keep_odd_words_whole() -> None:
    table = Table("t", "c", ("a|b", "n"), (("x, y", Comparison(3, 2, format=COUNT)), ("z", None), ("1\n2", 7)))
    assert csv_text(table) == 'a|b,n,n paper,n difference\n"x, y",3,2,1\nz,,,\n"1\n2",,,\n'
    assert "| a\\|b | n |" in markdown_table(table)
    assert "| x, y | 3 (2, **▲ +1**) |" in markdown_table(table)
    assert "| 1 2 | 7 |" in markdown_table(table)


class Links(HTMLParser):
    """Collects everything a browser might fetch or run, and every id."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")


def test_the_page_is_one_file_that_opens_offline(made: Report) -> None:
    html = page(made)
    parsed = Links()
    parsed.feed(html)
    assert parsed.links
    assert all(link.startswith("#") and link[1:] in parsed.ids for link in parsed.links)
    assert not parsed.tags & {"script", "link", "img", "iframe", "object", "embed"}
    assert len(parsed.ids) == len(set(parsed.ids))
    assert not re.search(r"url\((?!#)|@import", html)


def test_every_text_is_escaped(made: Report) -> None:
    table = Table("t", HOSTILE, (HOSTILE, HOSTILE), ((HOSTILE, HOSTILE),), (HOSTILE,))
    figure = replace(plane(), caption=HOSTILE)
    section = Section(HOSTILE, (HOSTILE,), (table,), (figure,))
    words = replace(made, title=HOSTILE, command=HOSTILE, data=HOSTILE, digest=HOSTILE, machine=HOSTILE)
    html = page(replace(words, versions={HOSTILE: HOSTILE}, sections=(section,)))
    assert "<script" not in html
    assert html.count("&lt;script&gt;") > 10


def test_a_report_made_again_from_stored_records_is_the_same_bytes(tmp_path: Path, made: Report) -> None:
    records().write_parquet(tmp_path / "records.parquet")
    again = report(pl.read_parquet(tmp_path / "records.parquet"))
    write_report(tmp_path / "first", made)
    write_report(tmp_path / "second", again)
    first, second = ({path.name: path.read_bytes() for path in (tmp_path / d).iterdir()} for d in ("first", "second"))
    assert first == second
    figures = {f"figure-{name}.{kind}" for name in ("alpha", "size") for kind in ("png", "svg", "pdf")}
    tables = {f"table{number}.{kind}" for number in (2, 3) for kind in ("csv", "tex")}
    assert set(first) == {"report.html", *tables, *figures}


def test_a_table_as_latex_has_booktabs_rules_and_no_commands_of_its_data() -> None:
    cell = Comparison(0.5, paper=0.4, sd=0.01)
    table = Table("odd", "100 % of a_b", ("name", "P@50"), (("x & y", cell), (r"\input{z}", None)), ("α ≥ 1",))
    lines = latex_table(table).splitlines()
    assert [line for line in lines if line.endswith("rule")] == [r"\toprule", r"\midrule", r"\bottomrule"]
    assert r"\caption{100 \% of a\_b}" in lines
    assert r"x \& y & 0.5000 $\pm$ 0.0100 (0.4000) \\" in lines
    assert r"\textbackslash{}input\{z\} & -- \\" in lines


def test_tables_are_frames_and_show_in_notebooks() -> None:
    table = Table("t", "A <caption>", ("policy", "F"), (("ease", Comparison(0.5, sd=0.01)), ("dc2b", Comparison(0.6))))
    frame = table.to_polars()
    assert frame["policy"].to_list() == ["ease", "dc2b"]
    assert frame["F"].to_list() == [0.5, 0.6]
    assert "A &lt;caption&gt;" in table._repr_html_()


def test_a_page_leads_with_what_was_found(made: Report) -> None:
    assert 'class="lead"' not in page(replace(made, sections=(Section("s"),)))
    html = page(replace(made, sections=(Section("s"), Section("t", ("Ours wins <all>.", "More.")))))
    assert '<p class="lead">Ours wins &lt;all&gt;.</p>' in html


def test_another_report_is_not_overwritten_silently(tmp_path: Path, made: Report) -> None:
    target = write_report(tmp_path, made)
    write_report(tmp_path, made)
    for other in (replace(made, digest="cd"), replace(made, command="other --command")):
        with pytest.raises(DataError, match="written by `slatewise reproduce all --data ml-1m`"):
            write_report(tmp_path, other)
    write_report(tmp_path, replace(made, title="Another", digest="cd"), overwrite=True)
    assert "Another" in target.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["../outside", "a b", ""])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, made: Report, name: str) -> None:
    section = Section("s", tables=(Table(name, "c", ("a",), (("x",),)),))
    with pytest.raises(DataError, match="cannot name a table or figure"):
        write_report(tmp_path / "new", replace(made, sections=(section,)))
    assert not (tmp_path / "new").exists()


DRAWN = {"alpha": lambda: by_alpha(records()), "one split": lambda: by_size(records(1)), "plane": plane}


@pytest.mark.parametrize("name", DRAWN)
def test_figures_are_images_that_take_the_colours_of_the_page(name: str) -> None:
    figure = DRAWN[name]()
    assert figure.png.startswith(b"\x89PNG")
    assert len(figure.png) > 5_000
    for svg in (figure.svg, figure.standalone_svg):
        root = ElementTree.fromstring(svg)  # noqa: S314
        assert root.attrib["role"] == "img"
        assert root.attrib["aria-label"] == figure.description
    assert "currentColor" in figure.svg
    assert INK not in figure.svg
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px", figure.svg)]
    assert min(sizes) >= 9


def test_our_values_and_the_papers_share_a_figure() -> None:
    document = table2_json(results(records()), "ml-1m", 2)
    precision, diversity = comparison_figures(document)
    [mmr, _, popular] = document["rows"]
    assert f"MMR: ours {mmr['p@50']:.3f}, the paper's {mmr['paper']['p@50']:.3f}" in precision.description
    assert "DC²B: ours" in diversity.description
    assert popular["paper"] is None
    assert "popular" not in precision.svg
    assert comparison_figures({**document, "rows": [popular]}) == ()


LOOK = """() => {
    const colour = (element, name) => getComputedStyle(element).getPropertyValue(name);
    const words = [...document.querySelectorAll('body *')].filter(e => [...e.childNodes].some(
        n => n.nodeType === 3 && n.textContent.trim()) && e.localName !== 'style');
    return {
        overflow: document.documentElement.scrollWidth - innerWidth,
        paper: colour(document.body, 'background-color'),
        card: colour(document.querySelector('section'), 'background-color'),
        inks: words.map(e => colour(e, e.ownerSVGElement ? 'fill' : 'color')),
        lines: [...document.querySelectorAll('svg path')].map(e => colour(e, 'stroke')).filter(c => c !== 'none'),
        sizes: words.filter(e => e.ownerSVGElement).map(
            e => parseFloat(colour(e, 'font-size')) * Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b)),
    };
}"""


def luminance(color: str) -> float:
    red, green, blue = (int(number) / 255 for number in re.findall(r"\d+", color)[:3])
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("Chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


def look(browser: "Browser", path: Path, theme: Theme, width: int) -> dict[str, Any]:
    """Open a report and measure what a reader would see; a request that leaves the file is an error."""
    page = browser.new_page(color_scheme=theme, viewport={"width": width, "height": 900})
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    seen: dict[str, Any] = page.evaluate(LOOK)
    page.close()
    assert requests == [path.as_uri()]
    return seen


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_a_reader_sees_everything(browser: "Browser", made: Report, tmp_path: Path, theme: Theme, width: int) -> None:
    """In both themes, on a phone and on a desktop: nothing hangs over, every word and line stands out."""
    seen = look(browser, write_report(tmp_path, made), theme, width)
    assert seen["overflow"] <= 0
    assert (luminance(seen["paper"]) < 0.05) == (theme == "dark")
    assert len(seen["inks"]) > 100
    for ground in (seen["paper"], seen["card"]):
        assert min(contrast(ink, ground) for ink in seen["inks"]) >= 4.5
        assert min(contrast(line, ground) for line in seen["lines"]) >= 3
    assert min(seen["sizes"]) >= (7.5 if width == 320 else 12)


def test_what_a_reader_could_not_see_is_found(browser: "Browser", made: Report, tmp_path: Path) -> None:
    path = write_report(tmp_path, made)
    html = path.read_text(encoding="utf-8")
    path.write_text(
        html.replace("</h1>", '</h1><div style="color: #333; width: 2000px">hidden</div>'), encoding="utf-8"
    )
    seen = look(browser, path, "dark", 1280)
    assert seen["overflow"] > 0
    assert min(contrast(ink, seen["paper"]) for ink in seen["inks"]) < 4.5


COLOR = re.compile(r"(--[\w-]+): (light-dark\(#\w{6}, #\w{6}\))")


def test_colors_and_type_are_those_of_the_page() -> None:
    """What both have is the same, and the report has what matters."""
    page = (Path(slatewise.__file__).parent / "service" / "page" / "style.css").read_text(encoding="utf-8")
    ours, theirs = dict(COLOR.findall(STYLE)), dict(COLOR.findall(page))
    assert {name: ours[name] for name in ours.keys() & theirs.keys()} == {
        name: theirs[name] for name in ours.keys() & theirs.keys()
    }
    assert {"--paper", "--card", "--ink", "--muted", "--rule", "--accent"} <= ours.keys() & theirs.keys()
    font = re.search(r"font: 16px/1.5 [^;]+;", page)
    assert font is not None
    assert font.group() in STYLE


def test_versions_and_machine_say_what_results_depend_on() -> None:
    assert list(versions())[:4] == ["slatewise", "python", "numpy", "polars"]
    assert re.search(r"\d+ cores", machine())
