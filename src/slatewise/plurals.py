"""Counts in words."""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    Parameters
    ----------
    count : int
        How many.
    noun : str
        In the singular; its plural is regular.

    Returns
    -------
    str

    Examples
    --------
    >>> counted(1, "row"), counted(2_000, "row"), counted(3, "category")
    ('1 row', '2,000 rows', '3 categories')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("ry") else f"{count:,} {noun}s"
