"""What kinds of values a condition compares: polars takes a time for a number and true for 1 without a word."""

import json
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

COMPARED: tuple[tuple[Callable[[pl.DataType], bool], tuple[str, str]], ...] = (
    (lambda dtype: dtype.is_nested(), ("a list", "array_contains({}, 'Tea')")),
    (lambda dtype: dtype.is_temporal(), ("a time", "{} < TIMESTAMP '2026-01-31 12:00:00'")),
    (lambda dtype: dtype.is_numeric(), ("a number", "{} < 20")),
    (lambda dtype: dtype == pl.Boolean, ("true or false", "{} = TRUE")),
    (lambda _dtype: True, ("text", "{} = 'Tea'")),
)
"""What an attribute of a type is called, and a condition on one."""
COMPARISONS = {"Eq", "NotEq", "EqValidity", "NotEqValidity", "Lt", "LtEq", "Gt", "GtEq"}


def kind_and_example(dtype: pl.DataType) -> tuple[str, str]:
    """Return what an attribute of a type is called, and a condition on one."""
    return next(words for is_one, words in COMPARED if is_one(dtype))


def expression_tree(expression: pl.Expr) -> Any:
    """Return an expression as nested objects; polars warns that they may differ between its versions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(expression.meta.serialize(format="json"))


def mixes_kinds(frame: pl.DataFrame, expression: pl.Expr) -> bool:
    """Return whether an expression that can be evaluated compares values of different kinds anywhere.

    >>> frame = pl.DataFrame({"new": [True], "price": [3.5]})
    >>> mixes_kinds(frame, pl.sql_expr("new = 1")), mixes_kinds(frame, pl.sql_expr("new = TRUE AND price > 1"))
    (True, False)
    """
    empty, stack = frame.head(0), [expression]
    while stack:
        part = stack.pop()
        inputs = part.meta.pop()[::-1]
        compare = _comparison(expression_tree(part)) if inputs else None
        if compare is not None and not compare([_dtype(empty, operand) for operand in inputs]):
            return True
        stack += inputs
    return False


def _comparison(tree: Any) -> Callable[[Sequence[pl.DataType]], bool] | None:
    """Return how to tell whether a part compares values of one kind, if it compares any."""
    kind, content = next(iter(tree.items()))
    if kind == "BinaryExpr":
        return _is_one_kind if content["op"] in COMPARISONS else None
    if kind == "Cast":  # which polars does where something is negated
        return _is_true_or_false
    function = content["function"] if kind == "Function" else None
    group, name = next(iter(function.items())) if isinstance(function, dict) else ("", function)
    if group == "StringExpr":
        return _is_text
    name, option = next(iter(name.items())) if isinstance(name, dict) else (name, None)
    if name == "IsIn":
        return _is_member
    return _is_one_kind if isinstance(option, str) and option in COMPARISONS else None


def _is_one_kind(dtypes: Sequence[pl.DataType]) -> bool:
    return len({kind_and_example(dtype)[0] for dtype in dtypes if dtype != pl.Null}) < 2


def _is_member(dtypes: Sequence[pl.DataType]) -> bool:
    value, values = dtypes
    return _is_one_kind((value, values.inner if isinstance(values, pl.List) else values))  # type: ignore[arg-type]


def _is_true_or_false(dtypes: Sequence[pl.DataType]) -> bool:
    return all(dtype in (pl.Boolean, pl.Null) for dtype in dtypes)


def _is_text(dtypes: Sequence[pl.DataType]) -> bool:
    return all(dtype in (pl.String, pl.Null) for dtype in dtypes)


def _dtype(empty: pl.DataFrame, expression: pl.Expr) -> pl.DataType:
    return empty.lazy().select(expression).collect_schema().dtypes()[0]
