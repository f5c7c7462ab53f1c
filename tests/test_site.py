"""The documentation site: it builds without the network, its links lead somewhere, and its tutorials run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from release.reference_pages import EXAMPLES, PAGES, all_metrics, errors_page, http_page, metrics_page, settings_page
from release.site import rewritten
from slatewise.service.metrics import Metrics
from slatewise.service.routes import ROUTES
from slatewise.service.settings import Settings
from tests.conftest import ROOT
from tests.support.tutorial import blocks, run_tutorial

DOCS = ROOT / "docs"
WRITTEN = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
TUTORIALS = sorted(path.stem for path in (DOCS / "tutorials").glob("*.md"))
SAYS = {
    "own-csv": r"first: .+\nsecond: ",
    "shop": r"(?s)\* │ (\w{16}).*\* │ (?!\1)\w{16}",
    "compare": r"dc2b-calibrated over popular: [+-]0\.\d+ in p@50, 95 % interval [+-]0",
    "plug-in": r"'bonus': 6\.0",
}


def in_nav(part: object) -> list[str]:
    if isinstance(part, str):
        return [part]
    inner = part.values() if isinstance(part, dict) else part
    return [page for one in inner for page in in_nav(one)]  # type: ignore[attr-defined]


def test_every_page_is_in_the_navigation() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(in_nav(site["nav"])) == sorted([*WRITTEN, *PAGES])


@pytest.mark.parametrize("page", WRITTEN)
def test_links_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)]*)?\)", text):
        if "://" in link:
            continue
        target = os.path.normpath(Path("docs", page).parent / link) if link else f"docs/{page}"
        uri = os.path.relpath(ROOT / target, DOCS)
        assert (ROOT / target).exists() or uri in PAGES, link
        if anchor and target.endswith(".md"):
            content = PAGES[uri]() if uri in PAGES else (ROOT / target).read_text(encoding="utf-8")
            assert anchor.removeprefix("#") in anchors(content), link + anchor


def anchors(text: str) -> set[str]:
    """The headings of a page, as their addresses are written, and other places that have one."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain} | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.startswith(("tutorials", "how-to"))])
def test_python_on_the_pages_is_python(page: str) -> None:
    for language, _, content in blocks((DOCS / page).read_text(encoding="utf-8")):
        if language == "python":
            compile(content, page, "exec")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_runs_line_by_line(name: str, tmp_path: Path) -> None:
    printed = run_tutorial((DOCS / "tutorials" / f"{name}.md").read_text(encoding="utf-8"), tmp_path)
    assert re.search(SAYS[name], printed), printed


@pytest.mark.slow
@pytest.mark.process
def test_a_tutorial_with_a_mistake_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="No such file"):
        run_tutorial("```sh\nslatewise train --interactions nothing.csv --out shop 2>&1\necho fine\n```", tmp_path)


@pytest.mark.slow
@pytest.mark.process
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=400)  # noqa: S603
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"?(https?:)?//", page.read_text("utf-8"))
        assert not loaded, page


def test_every_route_with_a_body_has_an_example_that_is_valid() -> None:
    for endpoint in ROUTES:
        if endpoint.body is not None:
            endpoint.body.validate_python(EXAMPLES[endpoint.handler.__name__])
    page = http_page()
    for endpoint in ROUTES:
        assert f"## {endpoint.method} {endpoint.path}\n" in page
    assert len(EXAMPLES) == sum(endpoint.body is not None for endpoint in ROUTES)


def test_every_setting_error_and_metric_is_listed() -> None:
    assert all(f"| `{name}` |" in settings_page() for name in Settings.model_fields)
    assert "urn:slatewise:problem:unknown-slate" in errors_page()
    registered = {family.name for family in Metrics().registry.collect()}
    listed = {name.removesuffix("_total") for name, *_ in all_metrics()}
    assert registered <= listed
    assert "slatewise_store_up" in metrics_page()


def test_links_out_of_the_documentation_lead_to_copies() -> None:
    text = "[a](../../README.md#speed) [b](../serving.md) [c](https://x.example/) [d](missing.md)"
    assert rewritten(text, "tutorials/shop.md") == (
        "[a](../repository/README.md#speed) [b](../serving.md) [c](https://x.example/) [d](missing.md)"
    )
