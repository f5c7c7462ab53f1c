"""A report as one HTML file: no request leaves it, it reads in light and dark, on a phone and aloud."""

from html import escape

from slatewise.report.drawing import Figure
from slatewise.report.parts import Cell, Comparison, Report, Section, Table, plain

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --muted: #59626c; --paper: #ffffff; --panel: #f4f6f8;
  --rule: #d4dae0; --notable: #9a3412; --notable-panel: #fdefe4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --muted: #a3adb8; --paper: #14171a; --panel: #1d2226;
  --rule: #39424b; --notable: #ffb784; --notable-panel: #3a2616; --series-1: #62b5f0; --series-2: #ff9a4d;
  --series-3: #3fc99c; --series-4: #e49acb; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1.5rem clamp(1rem, 4vw, 2.5rem) 4rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 1rem 0; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-top: 1rem; border-top: 1px solid var(--rule); }
p, .notes { max-width: 46rem; }
a { color: inherit; }
code { font: .9em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.origin { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem; margin: 0; padding: 1rem 1.2rem;
  background: var(--panel); border-radius: .5rem; }
.origin dt { color: var(--muted); } .origin dd { margin: 0; overflow-wrap: anywhere; }
.table { overflow-x: auto; margin: 1.2rem 0 .4rem; }
.table:focus-visible { outline: 2px solid var(--muted); outline-offset: 2px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .95rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .6rem; }
th, td { padding: .45rem .8rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap;
  vertical-align: top; }
thead th { vertical-align: top; color: var(--muted); font-weight: 600; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
.sd, .paper { color: var(--muted); } .paper { display: block; font-size: .85rem; font-weight: 400; }
.difference { display: inline-block; margin-left: .5em; padding: 0 .3em; }
.notable { color: var(--notable); background: var(--notable-panel); font-weight: 700; border-radius: .25rem; }
.notes { margin: .4rem 0 1.5rem; padding: 0; list-style: none; color: var(--muted); font-size: .9rem; }
figure { margin: 1.5rem 0 2rem; } figure svg { display: block; width: 100%; max-width: 36rem; height: auto; }
figcaption { max-width: 46rem; margin-top: .6rem; color: var(--muted); font-size: .9rem; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@media (max-width: 40rem) { .origin { grid-template-columns: 1fr; gap: 0; } .origin dd { margin-bottom: .6rem; }
  th, td { padding: .4rem .55rem; } }
@media print { body { max-width: none; padding: 0; } .table { overflow: visible; } }
"""


def page(report: Report) -> str:
    """Write the whole file; every text of the report is escaped."""
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        origin_marks(report),
        f"<title>{escape(report.title)}</title>",
        f"<style>{STYLE}</style>",
    ]
    body = [f"<h1>{escape(report.title)}</h1>", _contents(report), *map(_section, report.sections), _origin(report)]
    return "\n".join(
        ["<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *body, "</body>", "</html>", ""]
    )


def origin_marks(report: Report) -> str:
    """Write what a report is recognised by when it is to be replaced: its command and the digest of its data."""
    marks = {"slatewise-command": report.command, "slatewise-digest": report.digest}
    return "\n".join(f'<meta name="{name}" content="{escape(value)}">' for name, value in marks.items())


def _contents(report: Report) -> str:
    headings = [*(section.heading for section in report.sections), "How this was made"]
    links = [f'<a href="#{_anchor(heading)}">{escape(heading)}</a>' for heading in headings]
    return f'<nav aria-label="Contents">{" · ".join(links)}</nav>'


def _origin(report: Report) -> str:
    facts = {
        "Command": f"<code>{escape(report.command)}</code>",
        "Data": escape(report.data),
        "Data digest": f"<code>{escape(report.digest)}</code>",
        "Seeds": escape(", ".join(map(str, report.seeds))),
        "Versions": escape(", ".join(f"{name} {version}" for name, version in report.versions.items())),
        "Machine": escape(report.machine),
    }
    entries = "\n".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items())
    return f'<section>\n{_heading("How this was made")}\n<dl class="origin">\n{entries}\n</dl>\n</section>'


def _section(section: Section) -> str:
    parts = [_heading(section.heading), *(f"<p>{escape(line)}</p>" for line in section.prose)]
    parts += [*map(_table, section.tables), *map(_figure, section.figures)]
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def _heading(text: str) -> str:
    return f'<h2 id="{_anchor(text)}">{escape(text)}</h2>'


def _table(table: Table) -> str:
    identifier = f"caption-{_anchor(table.name)}"
    columns = "".join(_column_head(name, [row[at] for row in table.rows]) for at, name in enumerate(table.columns))
    rows = "\n".join(f"<tr>{_row_head(row[0])}{''.join(map(_cell, row[1:]))}</tr>" for row in table.rows)
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return (
        f'<div class="table" role="region" tabindex="0" aria-labelledby="{identifier}">\n<table>\n'
        f'<caption id="{identifier}">{escape(table.caption)}</caption>\n'
        f"<thead><tr>{columns}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>\n"
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
    )


def _column_head(name: str, cells: list[Cell]) -> str:
    compared = any(isinstance(cell, Comparison) and cell.paper is not None for cell in cells)
    below = '<span class="paper">paper, difference</span>' if compared else ""
    return f'<th scope="col">{escape(name)}{below}</th>'


def _row_head(cell: Cell) -> str:
    return f'<th scope="row">{escape(cell.ours_text if isinstance(cell, Comparison) else plain(cell))}</th>'


def _cell(cell: Cell) -> str:
    if not isinstance(cell, Comparison):
        return f"<td>{escape(plain(cell))}</td>"
    mean, _, spread = cell.ours_text.partition(" ± ")
    ours = escape(mean) + (f'<span class="sd"> ± {escape(spread)}</span>' if spread else "")
    return f"<td>{ours}{_beside(cell)}</td>"


def _beside(cell: Comparison) -> str:
    if cell.paper is None:
        return '<span class="paper">not in the paper</span>'
    kind = "difference notable" if cell.is_notable else "difference"
    difference = escape(cell.mark + cell.format.write(cell.difference, signed=True))
    return (
        f'<span class="paper"><span class="unseen">paper </span>{escape(cell.format.write(cell.paper))}'
        f'<span class="unseen">, difference </span><span class="{kind}">{difference}</span></span>'
    )


def _figure(figure: Figure) -> str:
    return f"<figure>\n{figure.svg}\n<figcaption>{escape(figure.caption)}</figcaption>\n</figure>"


def _anchor(text: str) -> str:
    """Turn a heading or a name into an id: letters, digits and hyphens."""
    return "-".join("".join(sign if sign.isalnum() else " " for sign in text.lower()).split()) or "part"
