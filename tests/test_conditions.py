"""Conditions on items: what they mean, and that they can do nothing else, whoever wrote them."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slatewise.recommender.conditions import matching
from slatewise.recommender.item_attributes import select
from slatewise.recommender.types import RequestError
from slatewise.slates import Available

ITEMS = pl.DataFrame(
    {
        "price": [5.0, 20.0, None, 12.5],
        "stock": [3, 0, 7, 1],
        "brand": ["Acme", "Bolt", None, "acme's"],
        "new": [True, False, None, True],
        "tags": [["red", "xl"], ["blue"], [], None],
        "day": pl.Series([0, 1_700_000_000_000, None, 1_800_000_000_000]).cast(pl.Datetime("ms")),
        "two words": [1, 2, 3, 4],
    }
)

MEANINGS = {
    "price < 15": [0, 3],
    "price < 12.6 AND brand <> 'Acme'": [3],
    "brand = 'acme''s' OR stock >= 7": [2, 3],
    "NOT new": [1],
    "brand IS NULL": [2],
    "brand IS DISTINCT FROM 'Acme'": [1, 2, 3],
    "brand IN ('Acme', 'Bolt') AND stock NOT IN (0, 9)": [0],
    "brand LIKE 'A%' OR brand ILIKE 'ACME_S'": [0, 3],
    "lower(brand) = 'bolt' OR length(brand) > 5": [1, 3],
    "array_contains(tags, 'red') OR 'blue' = ANY(tags)": [0, 1],
    "array_length(tags) = 0": [2],
    "price BETWEEN 5 AND 13 AND stock * 2 + 1 > 3": [0],
    "price - 2 * stock < 0 OR stock / 2 > 3.4 OR stock % 2 = 0": [0, 1, 2],
    "day > TIMESTAMP '2024-01-01 00:00:00'": [3],
    "day < DATE '2024-01-01'": [0, 1],
    '"two words" = 4': [3],
    "1 = 1": [0, 1, 2, 3],
}


@pytest.mark.parametrize("text", MEANINGS)
def test_what_conditions_mean(text: str) -> None:
    assert np.flatnonzero(matching(ITEMS, text)).tolist() == MEANINGS[text]


HOSTILE = {
    "subquery": "stock IN (SELECT 1)",
    "file": "stock = (SELECT 1 FROM read_csv('FILE'))",
    "file, without SELECT": "stock IN (FROM read_csv('FILE'))",
    "file, behind DISTINCT": "stock IS DISTINCT FROM (FROM read_csv('FILE'))",
    "file, as text": "read_text('FILE') = 'x'",
    "statement": "stock = 1; DROP TABLE items",
    "comment that hides a quote": "stock = 1 /* ' */ OR stock IN (SELECT 1) --'",
    "backslash that hides a quote": "brand = '\\'' OR stock IN (SELECT 1) OR brand = '",
    "dollar quotes": "brand = $$'$$ OR stock IN (SELECT 1) OR brand = '",
    "regular expression": "brand ~ '((a{100}){100}){100}'",
    "regular expression, as function": "regexp_like(brand, '(a+)+$')",
    "nested": "(" * 300 + "stock" + ")" * 300 + " = 1",
    "many conditions": " AND ".join(["new"] * 200),
    "a long sum": "stock" + "+1" * 990 + " > 3",
    "many NOTs": "NOT " * 400 + "new",
    "digits of another script": "stock < ٣",
    "wrong day": "day > TIMESTAMP '2026-99-99'",
    "alias": "stock stock",
    "many functions": "lower(" * 60 + "brand" + ")" * 60 + " = 'x'",
    "long": "stock = " + "1" * 3_000,
    "huge number": "stock < " + "9" * 1_000,
    "aggregate": "stock > avg(stock)",
    "window": "row_number() over () > 1",
    "pattern of columns": '"^.*$" = 1',
    "wildcard": "* = 1",
    "time of day": "day < now()",
    "cast": "CAST(brand AS INT) = 1",
    "unknown attribute": "prize < 3",
    "placeholder": "stock = ?",
    "no condition": "stock",
    "text compared with a number": "brand > 3",
    "time compared with a number": "day BETWEEN 1 AND 4",
    "boolean compared with a number": "stock = new",
    "text that begins with a number": "starts_with(brand, 3)",
    "list compared with a number": "tags > 3",
    "nothing": "",
    "space": "  ",
    "unclosed": "brand = 'Acme",
    "half": "stock =",
    "NUL": "brand = \0",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_conditions_that_are_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a\n1\n")
    for path in (file, tmp_path / "missing.csv"):
        with pytest.raises(RequestError) as refused:
            matching(ITEMS, HOSTILE[name].replace("FILE", str(path)))
        assert not {"secret", "missing.csv"} & set(str(refused.value).split("/"))
        assert str(refused.value).startswith(("at character ", "a condition must be text of "))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("price < 3 AND prize > 1", 15),
        ("brand ~ 'x'", 7),
        ("stock = 1 AND brand = 'x", 23),
        ("stock = 1 AND AND new", 15),
        ("stock = 1 AND (new OR price <) ", 30),
        ("stock = 1 AND (new", 15),
        ("stock = 1)", 10),
        ("stock IN ()", 11),
        ("new AND stock", 1),
        ("new AND NOT stock", 13),
        ("NOT (stock + 1)", 6),
        ("stock < 3 AND price > 2 AND stock > 'x'", 29),
        ("new AND (lower(brand) = 'x' OR lower(stock) = 'x')", 38),
        ("new OR starts_with(brand)", 8),
        ("brand LIKE brand", 7),
        ("(" * 31 + "new" + ")" * 31, 31),
    ],
)
def test_the_error_points_at_the_place(text: str, place: int) -> None:
    with pytest.raises(RequestError, match=f"at character {place}:"):
        matching(ITEMS, text)


@pytest.mark.parametrize(
    ("text", "what", "example"),
    [
        ("tags = 'x'", "tags is a list", "array_contains(tags, 'Tea')"),
        ("day < '2026-01-01'", "day is a time", "day < TIMESTAMP '2026-01-31 12:00:00'"),
        ("price = 'x'", "price is a number", "price < 20"),
        ("brand < 3", "brand is text", "brand = 'Tea'"),
        ("day < 5", "day is a time", "day < TIMESTAMP '2026-01-31 12:00:00'"),
        ("new = 1", "new is true or false", "new = TRUE"),
    ],
)
def test_the_error_shows_how_an_attribute_is_compared(text: str, what: str, example: str) -> None:
    with pytest.raises(RequestError) as refused:
        matching(ITEMS, text)
    assert str(refused.value) == f"at character 1: {what} and cannot be compared like this; write for example {example}"
    matching(ITEMS, example)


CONSTANTS = {
    "price": "4.5",
    "stock": "-3",
    "brand": "'Acme'",
    "new": "TRUE",
    "day": "TIMESTAMP '2026-01-31 12:00:00'",
}
ALIKE = {"price", "stock"}


@pytest.mark.parametrize(
    "shape", ["{} = {}", "{} <> {}", "{} < {}", "{} IS DISTINCT FROM {}", "{} IN ({})", "NOT {} >= {}"]
)
@pytest.mark.parametrize("attribute", CONSTANTS)
def test_attributes_are_compared_with_constants_of_their_kind(attribute: str, shape: str) -> None:
    for kind, constant in CONSTANTS.items():
        text = shape.format(attribute, constant)
        if kind == attribute or {kind, attribute} <= ALIKE:
            matching(ITEMS, text)
        else:
            with pytest.raises(RequestError, match=f"{attribute} is .* and cannot be compared like this"):
                matching(ITEMS, text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("brand NOT IN ('Acme', 3)", 23),
        ("stock IN (1, -2, 2.5) AND brand IN ('a', 'b', 0)", 47),
        ("new IN (TRUE, 1)", 15),
    ],
)
def test_a_list_has_constants_of_one_kind(text: str, place: int) -> None:
    with pytest.raises(RequestError, match=f"at character ({place}|1): "):
        matching(ITEMS, text)


WORDS = [
    "stock",
    "brand",
    "tags",
    "new",
    "price",
    "=",
    "<",
    "(",
    ")",
    "AND",
    "OR",
    "NOT",
    "IN",
    "1",
    "'x'",
    ",",
    "FROM",
]
WORDS += ["SELECT", "read_csv", "ANY", "lower", "LIKE", "BETWEEN", "IS", "NULL", "-", "*", "DISTINCT", '"brand"', "''"]


@given(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join) | st.text(max_size=40))
@settings(deadline=None)
def test_any_text_is_answered_or_refused(text: str) -> None:
    with suppress(RequestError):
        assert matching(ITEMS, text).shape == (4,)


@pytest.mark.parametrize(("limit", "is_listed"), [(0, True), (1_000, True), (1_001, False), (10_000, False)])
def test_items_that_meet_a_condition_are_listed_if_they_are_few(limit: int, is_listed: bool) -> None:
    found = select(pl.DataFrame({"number": np.random.default_rng(0).permutation(10_000)}), f"number < {limit}")
    available = Available(10_000, np.empty(0, dtype=np.int64), found.numbers, found.closed)
    assert (found.numbers is not None, found.n_items) == (is_listed, limit)
    assert np.array_equal(available.table()[0], found.is_met)
