"""A report as one HTML file: it makes no requests and works in light and dark mode, on phones and screen readers."""

from dataclasses import dataclass
from html import escape

from slatewise.report.document import Cell, Comparison, Report, Section, Table, plain
from slatewise.report.plotting import Figure

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --paper: light-dark(#f6f5f1, #131418); --card: light-dark(#ffffff, #1c1e24);
  --sunk: light-dark(#eceae4, #262931); --ink: light-dark(#1d1c1a, #ecebe7); --muted: light-dark(#5d5952, #aaa79f);
  --rule: light-dark(#dedbd3, #343841); --accent: light-dark(#3b4bc8, #a9b4ff);
  --alert: light-dark(#fdeed9, #3a2a14); --on-alert: light-dark(#6b3a06, #ffd9a3); --radius: 14px;
  --series-1: light-dark(#0072b2, #62b5f0); --series-2: light-dark(#c65a00, #ff9a4d);
  --series-3: light-dark(#00845f, #3fc99c); --series-4: light-dark(#a8508f, #e49acb);
  font: 16px/1.5 -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif; }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 88rem; padding: .8rem clamp(1rem, 3vw, 2.5rem) 3rem; color: var(--ink);
  background: var(--paper); overflow-wrap: break-word; }
header { display: flex; align-items: center; gap: .6rem; font-size: 1.2rem; font-weight: 700; letter-spacing: -.02em; }
header svg { width: 28px; height: 28px; }
h1 { font-size: 1.75rem; line-height: 1.15; letter-spacing: -.02em; margin: 1.6rem 0 .8rem; text-wrap: balance; }
h2 { font-size: 1.2rem; line-height: 1.3; letter-spacing: -.01em; margin: 0 0 .8rem; }
p, .notes { max-width: 46rem; } p { margin: 0 0 1rem; } .lead { font-size: 1.1rem; }
a { color: var(--accent); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; border-radius: 6px; }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem .5rem; margin: 0; padding: 0; list-style: none; }
nav a { display: inline-block; padding: .35rem .9rem; border: 1px solid var(--rule); border-radius: 99px;
  background: var(--card); color: var(--ink); font-size: .88rem; text-decoration: none; }
nav a:hover { border-color: var(--muted); }
section { margin-top: 1.2rem; padding: 1.2rem clamp(1rem, 2vw, 1.5rem) 1.4rem; border-radius: var(--radius);
  background: var(--card); box-shadow: 0 0 0 1px var(--rule); }
code { font: .9em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.origin { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem; margin: 0; }
.origin dt { color: var(--muted); } .origin dd { margin: 0; overflow-wrap: anywhere; }
.parts { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 1.5rem 3rem; }
.parts > * { max-width: 100%; min-width: 0; margin: 0; }
.table { position: relative; overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .6rem; }
caption span { position: sticky; left: 0; display: inline-block; max-width: min(46rem, 100vw - 4rem); }
th, td { padding: .4rem .8rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap;
  vertical-align: top; }
thead th { color: var(--muted); font-weight: 600; }
tbody th { font-weight: 550; }
th:first-child, .text { text-align: left; }
th:first-child { position: sticky; left: 0; background: var(--card); padding-left: 0; }
tbody tr:hover > * { background: var(--sunk); }
.sd, .paper { color: var(--muted); } .paper { display: block; font-size: .85rem; font-weight: 400; }
.difference { display: inline-block; margin-left: .5em; padding: 0 .3em; }
.notable { color: var(--on-alert); background: var(--alert); font-weight: 700; border-radius: 6px; }
.notes { margin: .6rem 0 0; padding: 0; list-style: none; color: var(--muted); font-size: .85rem; }
.drawing { overflow-x: auto; } .drawing svg { display: block; max-width: 100%; min-width: 21rem; height: auto; }
figcaption { max-width: 36rem; margin-top: .6rem; color: var(--muted); font-size: .85rem; }
.visually-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
@media (max-width: 40rem) { .origin { grid-template-columns: 1fr; gap: 0; } .origin dd { margin-bottom: .6rem; }
  th, td { padding: .4rem .55rem; } th:first-child { max-width: 9rem; white-space: normal; } }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print { :root { color-scheme: light; } body { max-width: none; padding: 0; background: none; }
  section { padding: 0; box-shadow: none; } .table { overflow: visible; }
  nav { display: none; } figure, tr { break-inside: avoid; } }
"""
"""Colors and type are those of the service's page (`service/page/style.css`)."""
BRAND = (
    '<header><svg viewBox="0 0 28 28" aria-hidden="true"><rect x="1" y="1" width="12" height="12" rx="3.5"'
    ' fill="#4656d6"/><circle cx="21" cy="7" r="6" fill="#f2a33a"/><path d="M7 15l6.5 12H.5z" fill="#1fa187"'
    '/><path d="M21 26.6c-4-2.9-5.6-4.9-5.6-7.2a3 3 0 0 1 5.6-1.5 3 3 0 0 1'
    ' 5.6 1.5c0 2.3-1.6 4.3-5.6 7.2z" fill="#d6456f"/></svg>slatewise</header>'
)


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
    body = [BRAND, "<main>", f"<h1>{escape(report.title)}</h1>", *lead, _contents(report)]
    body += [*(_section(section, report.finding) for section in report.sections), _origin(report), "</main>"]
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


def _section(section: Section, finding: str) -> str:
    """Return a section; what was found is said at the top of the report and not again."""
    parts = [_heading(section.heading), *(f"<p>{escape(line)}</p>" for line in section.prose if line != finding)]
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
