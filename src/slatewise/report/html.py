"""A report as one HTML file: it makes no requests and works in light and dark mode, on phones and screen readers."""

from dataclasses import dataclass
from html import escape

from slatewise.report.document import Cell, Comparison, Report, Section, Table, plain
from slatewise.report.plotting import Figure

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --muted: #59626c; --paper: #ffffff; --panel: #f4f6f8;
  --rule: #d4dae0; --link: #0a5c94; --notable: #9a3412; --notable-panel: #fdefe4; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --muted: #a3adb8; --paper: #14171a;
  --panel: #1d2226; --rule: #39424b; --link: #8cc8f5; --notable: #ffb784; --notable-panel: #3a2616;
  --series-1: #62b5f0; --series-2: #ff9a4d; --series-3: #3fc99c; --series-4: #e49acb; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 88rem; padding: 1.5rem clamp(1rem, 4vw, 2.5rem) 4rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: clamp(1.5rem, 1.2rem + 1.5vw, 2.1rem); line-height: 1.2; margin: 1rem 0; text-wrap: balance; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 2.5rem 0 1rem; padding-top: 1.2rem;
  border-top: 1px solid var(--rule); }
p, .notes { max-width: 46rem; } .lead { font-size: 1.15rem; }
a { color: var(--link); text-underline-offset: .2em; } a:focus-visible { outline: 2px solid; outline-offset: 2px; }
nav ul { display: flex; flex-wrap: wrap; gap: .5rem 1.4rem; margin: 0; padding: 0; list-style: none; }
nav a { display: inline-block; padding: .15rem 0; }
code { font: .9em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.origin { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem; margin: 0; padding: 1rem 1.2rem;
  background: var(--panel); border-radius: .5rem; }
.origin dt { color: var(--muted); } .origin dd { margin: 0; overflow-wrap: anywhere; }
.parts { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 1.5rem 3rem; }
.parts > * { max-width: 100%; min-width: 0; margin: 0; }
.table { position: relative; overflow-x: auto; max-width: 100%; }
.table:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .95rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .6rem; }
caption span { position: sticky; left: 0; display: inline-block; max-width: min(46rem, 100vw - 2rem); }
th, td { padding: .45rem .8rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap;
  vertical-align: top; }
thead th { color: var(--muted); font-weight: 600; }
th:first-child, .text { text-align: left; }
th:first-child { position: sticky; left: 0; background: var(--paper); padding-left: 0; }
tbody tr:hover > * { background: var(--panel); }
.sd, .paper { color: var(--muted); } .paper { display: block; font-size: .85rem; font-weight: 400; }
.difference { display: inline-block; margin-left: .5em; padding: 0 .3em; }
.notable { color: var(--notable); background: var(--notable-panel); font-weight: 700; border-radius: .25rem; }
.notes { margin: .6rem 0 0; padding: 0; list-style: none; color: var(--muted); font-size: .9rem; }
.drawing { overflow-x: auto; } .drawing svg { display: block; max-width: 100%; min-width: 21rem; height: auto; }
figcaption { max-width: 36rem; margin-top: .6rem; color: var(--muted); font-size: .9rem; }
.visually-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
@media (max-width: 40rem) { .origin { grid-template-columns: 1fr; gap: 0; } .origin dd { margin-bottom: .6rem; }
  th, td { padding: .4rem .55rem; } th:first-child { max-width: 9rem; white-space: normal; } }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print { :root { color-scheme: light; } body { max-width: none; padding: 0; } .table { overflow: visible; }
  nav { display: none; } figure, tr { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Layout:
    """How a column is laid out: with or without the paper's numbers below ours, as text or as numbers."""

    is_compared: bool
    is_text: bool

    @property
    def attribute(self) -> str:
        """The HTML attribute of the column's cells."""
        return ' class="text"' if self.is_text else ""


def page(report: Report) -> str:
    """Return the whole file; all text of the report is escaped."""
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        origin_tags(report),
        f"<title>{escape(report.title)}</title>",
        f"<style>{STYLE}</style>",
    ]
    lead = [f'<p class="lead">{escape(report.finding)}</p>'] if report.finding else []
    body = [f"<h1>{escape(report.title)}</h1>", *lead, _contents(report)]
    body += [*map(_section, report.sections), _origin(report)]
    return "\n".join(
        ["<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *body, "</body>", "</html>", ""]
    )


def origin_tags(report: Report) -> str:
    """Return the tags that identify a report before it is replaced: its command and the digest of its data."""
    tags = {"slatewise-command": report.command, "slatewise-digest": report.digest}
    return "\n".join(f'<meta name="{name}" content="{escape(value)}">' for name, value in tags.items())


def _contents(report: Report) -> str:
    headings = [*(section.heading for section in report.sections), "How this report was made"]
    links = [f'<a href="#{_anchor(heading)}">{escape(heading)}</a>' for heading in headings]
    return f'<nav aria-label="Contents"><ul>{"".join(f"<li>{link}</li>" for link in links)}</ul></nav>'


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
    return f'<section>\n{_heading("How this report was made")}\n<dl class="origin">\n{entries}\n</dl>\n</section>'


def _section(section: Section) -> str:
    parts = [_heading(section.heading), *(f"<p>{escape(line)}</p>" for line in section.prose)]
    parts += ['<div class="parts">', *map(_figure, section.figures), *map(table_html, section.tables), "</div>"]
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def _heading(text: str) -> str:
    return f'<h2 id="{_anchor(text)}">{escape(text)}</h2>'


def table_html(table: Table) -> str:
    """Return a table as HTML, with its caption and notes."""
    identifier = f"caption-{_anchor(table.name)}"
    columns = [[row[index] for row in table.rows] for index in range(len(table.columns))]
    layouts = [Layout(any(map(_has_paper, column)), any(map(_is_text, column))) for column in columns]
    heads = "".join(map(_column_header, table.columns, layouts))
    rows = "\n".join(f"<tr>{_row_header(row[0])}{''.join(map(_cell, row[1:], layouts[1:]))}</tr>" for row in table.rows)
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return (
        f'<div>\n<div class="table" role="region" tabindex="0" aria-labelledby="{identifier}">\n<table>\n'
        f'<caption id="{identifier}"><span>{escape(table.caption)}</span></caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>\n"
        + (f'<ul class="notes">{notes}</ul>\n' if notes else "")
        + "</div>"
    )


def _has_paper(cell: Cell) -> bool:
    return isinstance(cell, Comparison) and cell.paper is not None


def _is_text(cell: Cell) -> bool:
    """Return whether a cell is text, not a number, an interval or a dash."""
    return isinstance(cell, str) and bool(cell.strip(" +-–—−")) and not cell.lstrip("+-−")[:1].isdigit()


def _column_header(name: str, layout: Layout) -> str:
    below = '<span class="paper">paper, difference</span>' if layout.is_compared else ""
    return f'<th scope="col"{layout.attribute}>{escape(name)}{below}</th>'


def _row_header(cell: Cell) -> str:
    text = cell.ours_text if isinstance(cell, Comparison) else f"{cell:g}" if isinstance(cell, float) else plain(cell)
    return f'<th scope="row">{escape(text)}</th>'


def _cell(cell: Cell, layout: Layout) -> str:
    if not isinstance(cell, Comparison):
        return f"<td{layout.attribute}>{escape(plain(cell))}</td>"
    mean, _, spread = cell.ours_text.partition(" ± ")
    ours = escape(mean) + (f'<span class="sd"> ± {escape(spread)}</span>' if spread else "")
    return f"<td>{ours}{_published(cell) if layout.is_compared else ''}</td>"


def _published(cell: Comparison) -> str:
    if cell.paper is None:
        return '<span class="visually-hidden">not in the paper</span>'
    kind = "difference notable" if cell.is_notable else "difference"
    difference = escape(cell.mark + cell.format.write(cell.difference, signed=True))
    return (
        f'<span class="paper"><span class="visually-hidden">paper </span>{escape(cell.format.write(cell.paper))}'
        f'<span class="visually-hidden">, difference </span><span class="{kind}">{difference}</span></span>'
    )


def _figure(figure: Figure) -> str:
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>"
    return f'<figure>\n<div class="drawing">\n{figure.svg}\n</div>\n{caption}\n</figure>'


def _anchor(text: str) -> str:
    """Turn a heading or a name into an id: letters, digits and hyphens."""
    return "-".join("".join(character if character.isalnum() else " " for character in text.lower()).split()) or "part"
