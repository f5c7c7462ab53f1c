"""Where a condition is wrong: the character at which whoever wrote it should look."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from slatewise.recommender.condition_kinds import mixes_kinds

UNARY = {"not", "-", "+", "distinct", "from"}
BINARY = {"and", "or", "in", "is", "like", "ilike", "between", "=", "<", ">", "<=", ">=", "<>", "!="}
BINARY |= {"+", "-", "*", "/", "%"}
NAMED = {"array_contains", "array_length", "ends_with", "length", "lower", "starts_with", "upper"}
NAMED |= {"any", "date", "timestamp"}
FASTIDIOUS = NAMED | {"like", "ilike"}
"""Words that take only certain things after them."""


class Token(NamedTuple):
    """A word or sign of a condition: where it begins, itself in lower case, and the attribute that it names."""

    position: int
    text: str
    name: str | None = None


def syntax_position(tokens: Sequence[Token], end: int) -> int:
    """Return where a condition stops being one: operands and operators alternate, and parentheses match."""
    opened, before = list[int](), ""
    needs_operand = True
    for token in tokens:
        if token.text == ")":
            if not opened or needs_operand:
                return token.position
            opened.pop()
        elif needs_operand:
            if token.text in BINARY - UNARY or token.text == ",":
                return token.position
            opened += [token.position] if token.text == "(" else []
            needs_operand = token.text in UNARY or token.text == "("
        elif token.text == "(" and before in NAMED:
            opened.append(token.position)
            needs_operand = True
        elif token.text in BINARY or token.text == "not" or (token.text == "," and opened):
            needs_operand = True
        elif before not in NAMED:
            return token.position
        before = token.text
    if needs_operand or not opened:
        return end if needs_operand else next((token.position for token in tokens if token.text in FASTIDIOUS), 0)
    return opened[-1]


def failing_part(frame: pl.DataFrame, expression: pl.Expr, tokens: Sequence[Token]) -> tuple[int, str | None]:
    """Return the first attribute of the smallest part that cannot be evaluated: its position and its name, if any."""
    passed = list[str]()
    while True:
        parts = expression.meta.pop()[::-1]
        wrong = next((number for number, part in enumerate(parts) if _fails(frame, part)), None)
        if wrong is None:
            break
        passed += [name for part in parts[:wrong] for name in part.meta.root_names()]
        expression = parts[wrong]
    name = next(iter(expression.meta.root_names()), None)
    positions = [token.position for token in tokens if token.name == name]
    if name is None or not positions:
        return 0, None
    return positions[min(passed.count(name), len(positions) - 1)], name


def _fails(frame: pl.DataFrame, expression: pl.Expr) -> bool:
    try:
        frame.select(expression)
        return mixes_kinds(frame, expression)
    except pl.exceptions.PolarsError:
        return True


def mixed_list(tokens: Sequence[Token]) -> int | None:
    """Return where the list after an IN has a constant of another kind than its first; polars makes both text."""
    is_list, first = False, None
    for number, token in enumerate(tokens):
        if token.text in ("(", ")"):
            is_list, first = token.text == "(" and number > 0 and tokens[number - 1].text == "in", None
        elif first is None or not is_list:
            first = token
        elif tokens[number - 1].text == "," and _looks(token) != _looks(first):
            return token.position
    return None


def _looks(token: Token) -> str:
    """Return what tells the kind of a constant: a digit, a quotation mark, or the word before it."""
    sign = token.text[0]
    return "0" if sign.isdigit() or sign in "+-" else sign if sign == "'" else token.text
