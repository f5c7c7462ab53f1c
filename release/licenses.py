"""`python -m release.licenses` writes docs/licenses.md: every dependency, who needs it, and its license."""

from release.dependencies import ROOT, Dependency, dependencies

PAGE = ROOT / "docs" / "licenses.md"
HEAD = """# Licenses of dependencies

slatewise itself is under the MIT license. The packages it depends on state these licenses in their metadata.
*Needed by* names the part of slatewise that uses a package directly: `core`, which is always installed, or an extra;
without one, another package of the list needs it. `make licenses` writes this page; the exact versions of a release
are in its bill of materials (`make sbom`).

| package | needed by | license |
|---|---|---|
"""


def row(dependency: Dependency) -> str:
    """Return the line of the table for one package."""
    return f"| {dependency.name} | {', '.join(dependency.parts)} | {dependency.license} |"


def page(listed: list[Dependency]) -> str:
    """Return the whole page."""
    return HEAD + "\n".join(map(row, listed)) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(dependencies()), encoding="utf-8")
