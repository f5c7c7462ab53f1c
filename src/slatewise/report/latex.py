"""A table as LaTeX, with the rules of the package booktabs."""

from slatewise.report.document import Cell, Comparison, Table, plain

ESCAPES = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "α": r"$\alpha$",
    "ε": r"$\varepsilon$",
    "β": r"$\beta$",
    "²": r"\textsuperscript{2}",
    "–": "--",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
    "\u00a0": "~",
}


def latex_table(table: Table) -> str:
    """Format a table for a paper that loads booktabs; a comparison reads `ours ± sd (paper)`."""
    header = " & ".join(rf"\textbf{{{escaped(name)}}}" for name in table.columns)
    rows = [" & ".join(_cell(cell) for cell in row) + r" \\" for row in table.rows]
    lines = [
        "% \\usepackage{booktabs}",
        r"\begin{table}",
        rf"\caption{{{escaped(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        r"\toprule",
        rf"{header} \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\footnotesize {escaped(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    r"""Return text in which LaTeX sees no commands.

    >>> print(escaped("50 % of a_b"))
    50 \% of a\_b
    """
    return "".join(ESCAPES.get(character, character) for character in text)


def _cell(cell: Cell) -> str:
    if not isinstance(cell, Comparison):
        return escaped(plain(cell))
    paper = "" if cell.paper is None else f" ({cell.format.write(cell.paper)})"
    return escaped(cell.ours_text + paper)
