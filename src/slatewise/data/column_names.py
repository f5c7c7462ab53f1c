"""Columns under other names: a mapping from our names to those of a table, and guesses where a name is near."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from slatewise.data.errors import DataError

COLUMNS = ("user_id", "item_id", "rating", "timestamp", "title", "categories", "available")
OTHER_NAMES = {
    "user_id": "user userid uid customer customerid client clientid visitor visitorid member memberid account "
    "accountid reviewerid buyer buyerid person session sessionid",
    "item_id": "item itemid iid id product productid sku article articleid movie movieid film filmid book bookid track "
    "trackid song songid asin isbn anime animeid business businessid content contentid",
}
"""How else people call the columns that must be there, in lower case without separators."""

Columns = Mapping[str, str]


def parse_columns(text: str) -> dict[str, str]:
    """Read `user_id=customer,item_id=sku`: our names and those of the table."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    columns = {ours.strip(): theirs.strip() for ours, _, theirs in pairs}
    if not columns or len(columns) < len(pairs) or not all(columns.values()):
        raise DataError(f"cannot read the columns {text!r}; write for example user_id=customer,item_id=sku")
    return check_columns(columns)


def check_columns(columns: Columns) -> dict[str, str]:
    """Refuse a mapping of columns that no table has."""
    for name in columns:
        if name not in COLUMNS:
            raise DataError(f"there is no column {name!r} to map; choose from: {', '.join(COLUMNS)}")
    if len(set(columns.values())) < len(columns):
        raise DataError("two columns are mapped from the same one; name each column of the table once")
    return dict(columns)


def suggestion(absent: Sequence[str], present: Sequence[str]) -> str:
    """Say how absent columns may be called in a table, as an option to copy; empty if nothing is near."""
    nearest = {name: near for name in absent if (near := _near(name, present))}
    if not nearest:
        return ""
    return "--columns " + ",".join(f"{ours}={theirs}" for ours, theirs in nearest.items())


def _near(name: str, present: Sequence[str]) -> str | None:
    """Return the column that is called like this one: by another common name, or misspelled."""
    plain = {re.sub(r"[^a-z]", "", column.lower()): column for column in present}
    for other in OTHER_NAMES.get(name, "").split():
        if other in plain:
            return plain[other]
    close = get_close_matches(name.replace("_", ""), plain, n=1, cutoff=0.8)
    return plain[close[0]] if close else None
