"""Conditions on items in the language of SQL, `price < 20 AND brand <> 'Acme'`: what may be in them, who meets them.

polars parses and evaluates a condition. Before it sees one, every word of it must be an attribute, or on the lists
below: polars opens the files that a subquery names while it parses. The expression that it makes is walked as well. So
a condition can do nothing but compare the attributes of one item with constants, and its length and depth are bounded.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.recommender.condition_kinds import expression_tree, kind_and_example, mixes_kinds
from slatewise.recommender.condition_positions import Token, failing_part, mixed_list, syntax_position
from slatewise.recommender.types import MAX_CONDITION, RequestError

MAX_DEPTH = 30
TOO_DEEP = f"a condition must not be nested deeper than {MAX_DEPTH}"
MIXED = "this compares values of different kinds; compare numbers with numbers, and text with text"
LISTED = 30
"""So many attributes are listed in an error."""

RESERVED = {"select", "table", "values", "with"}
KEYWORDS = {"and", "or", "not", "in", "is", "null", "true", "false", "like", "ilike", "between", "any", "distinct"}
KEYWORDS |= {"from", "date", "timestamp"}
FUNCTIONS = {"array_contains", "array_length", "ends_with", "length", "lower", "starts_with", "upper"}

TOKEN = re.compile(
    r"\s+|'(?:[^'\\]|'')*'|\"(?P<quoted>[^\"\\]+)\"|(?P<word>[^\W\d]\w*)|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
    r"|<=|>=|<>|!=|[=<>(),+%]|-(?!-)|\*|/(?!\*)"
)
"""What a condition is made of: no backslashes and no comments, about which two readers could differ."""

OPERATORS = {"Eq", "NotEq", "EqValidity", "NotEqValidity", "Lt", "LtEq", "Gt", "GtEq", "And", "Or", "Plus", "Minus"}
OPERATORS |= {"Mul", "Div", "Multiply", "Divide", "Rem", "Modulus"}
PARTS = {
    "Boolean": {"IsNull", "IsNotNull", "Not", "IsIn"},
    "StringExpr": {"Lowercase", "Uppercase", "StartsWith", "EndsWith", "LenChars", "Contains"},
    "ListExpr": {"Contains", "Length"},
    "Sql": {"Binary", "IsIn"},
}
"""What polars makes of operators and functions, by its own names."""


def parse_condition(text: str, attributes: Collection[str]) -> pl.Expr:
    """Return a condition as an expression over a frame with these columns; refuse one that does anything else.

    >>> str(parse_condition("price < 20 AND brand <> 'Acme'", ["price", "brand"]))
    '[([(col("price")) < (dyn int: 20)]) & ([(col("brand")) == ("Acme")].not())]'
    >>> parse_condition("prize < 20", ["price"])
    Traceback (most recent call last):
    slatewise.recommender.types.RequestError: at character 1: there is no such attribute or function; ...
    """
    if not isinstance(text, str) or not 1 <= len(text) <= MAX_CONDITION:
        raise RequestError(f"a condition must be text of 1 to {MAX_CONDITION:,} characters")
    tokens = _tokens(text, attributes)
    try:
        expression = pl.sql_expr(text)
    except pl.exceptions.PolarsError as error:
        position = syntax_position(tokens, len(text.rstrip()))
        raise _refused(
            position, "it cannot be read as one condition in SQL; check operators and parentheses"
        ) from error
    for kind, content, depth in _parts(_tree(expression, tokens)):
        if depth > MAX_DEPTH:
            raise _too_deep(tokens)
        if not _is_allowed(kind, content, attributes):
            position = syntax_position(tokens, len(text.rstrip()))
            raise _refused(position, f"{kind} cannot be part of a condition; compare attributes with constants")
    return expression


def matching(frame: pl.DataFrame, text: str) -> NDArray[np.bool_]:
    """Return which rows of a frame meet a condition; where it is unknown, as an attribute is missing, they do not.

    >>> matching(pl.DataFrame({"price": [10, 30, None]}), "price < 20").tolist()
    [True, False, False]
    """
    expression, tokens = parse_condition(text, frame.columns), _tokens(text, frame.columns)
    try:
        is_met, problem = frame.select(met=expression)["met"], MIXED if mixes_kinds(frame, expression) else ""
    except pl.exceptions.PolarsError as error:
        is_met, problem = pl.Series(), _first_line(error)
    if problem:
        position, name = failing_part(frame, expression, tokens)
        raise _refused(position, problem if name is None else _advice(name, frame[name].dtype))
    wrong = mixed_list(tokens)
    if wrong is not None:
        raise _refused(wrong, MIXED)
    if is_met.dtype != pl.Boolean:
        raise _refused(
            0, f"a condition must be true or false, and this is {kind_and_example(is_met.dtype)[0]}; compare it"
        )
    values = is_met.fill_null(value=False).to_numpy()
    return np.broadcast_to(values, len(frame)) if len(values) == 1 else np.asarray(values)


def _advice(name: str, dtype: pl.DataType) -> str:
    """Say what an attribute is, and how one of its kind is compared."""
    kind, example = kind_and_example(dtype)
    return f"{name} is {kind} and cannot be compared like this; write for example {example.format(name)}"


def _tokens(text: str, attributes: Collection[str]) -> list[Token]:
    """Return the words and signs of a condition; refuse those that are on no list, and point at the first."""
    tokens, position, depth = list[Token](), 0, 0
    while position < len(text):
        token = TOKEN.match(text, position)
        if token is None:
            raise _refused(position, "this sign cannot be part of a condition, or is not closed")
        name = token["quoted"] or token["word"]
        if name is not None:
            _check_word(position, name, token["quoted"] is not None, attributes)
            if name.casefold() == "from" and token["word"] and (not tokens or tokens[-1].text != "distinct"):
                raise _refused(position, "a condition has no FROM; it is about the attributes of one item")
        if not token[0].isspace():
            tokens.append(Token(position, token[0].casefold(), name if name in attributes else None))
            depth += (token[0] == "(") - (token[0] == ")")
        if depth > MAX_DEPTH:
            raise _refused(position, TOO_DEEP)
        position = token.end()
    return tokens


def _check_word(position: int, name: str, is_quoted: bool, attributes: Collection[str]) -> None:
    word = "" if is_quoted else name.casefold()
    if word in RESERVED:
        raise _refused(
            position, "this word cannot be part of a condition; put the name of an attribute into double quotes"
        )
    if name not in attributes and word not in KEYWORDS | FUNCTIONS:
        known = ", ".join(sorted(attributes)[:LISTED]) or "none"
        functions = ", ".join(sorted(FUNCTIONS))
        raise _refused(
            position, f"there is no such attribute or function; items have {known}; functions are {functions}"
        )


def _tree(expression: pl.Expr, tokens: Sequence[Token]) -> Any:
    """Return an expression as nested objects, if it is not too deep."""
    try:
        return expression_tree(expression)
    except RecursionError:
        raise _too_deep(tokens) from None


CHILDREN: dict[str, Any] = {
    "BinaryExpr": lambda content: [content["left"], content["right"]],
    "Function": lambda content: content["input"],
    "Cast": lambda content: [content["expr"]],
}


def _parts(tree: Any) -> Iterator[tuple[str, Any, int]]:
    """Yield the kind, content and depth of every part of an expression."""
    stack = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        kind, content = next(iter(node.items())) if isinstance(node, dict) else (str(node), {})
        yield kind, content, depth
        stack += [(child, depth + 1) for child in CHILDREN.get(kind, lambda _: ())(content)]


def _is_allowed(kind: str, content: Any, attributes: Collection[str]) -> bool:
    """Return whether a part of an expression is on the lists."""
    if kind == "Function":
        function = content["function"]
        group, name = next(iter(function.items())) if isinstance(function, dict) else ("", function)
        name, options = next(iter(name.items())) if isinstance(name, dict) else (name, None)
        return name in PARTS.get(group, ()) and (name != "Binary" or options in OPERATORS)
    return (
        kind == "Literal"
        or (kind == "Column" and content in attributes)
        or (kind == "BinaryExpr" and content["op"] in OPERATORS)
        or (kind == "Cast" and content["dtype"] == {"Literal": "Boolean"})
    )


def _too_deep(tokens: Sequence[Token]) -> RequestError:
    """Point at the first word or sign beyond the depth; each level takes one at least."""
    position = tokens[min(MAX_DEPTH, len(tokens) - 1)].position
    return _refused(position, TOO_DEEP)


def _refused(position: int, reason: str) -> RequestError:
    return RequestError(f"at character {position + 1}: {reason}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
