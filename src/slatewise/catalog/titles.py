"""Titles as people write them, wherever they are shown."""

import re

ARTICLES = "The|A|An|Le|La|Les|L'|Il|Lo|Der|Die|Das|El|Los|Las"
FILED = re.compile(rf"^(?P<rest>.+?), (?P<article>{ARTICLES})(?P<more>(?: \([^()]*\))*) (?P<year>\(\d{{4}}\))$")


def people_title(title: str) -> str:
    """Put an article in front that was filed behind a title with its year, as MovieLens does; others stay.

    >>> people_title("Godfather, The (1972)")
    'The Godfather (1972)'
    >>> people_title("Avventura, L' (1960)"), people_title("Tea, The")
    ("L'Avventura (1960)", 'Tea, The')
    """
    found = FILED.match(title) if ", " in title else None
    if found is None:
        return title
    article = found["article"] if found["article"].endswith("'") else found["article"] + " "
    return f"{article}{found['rest']}{found['more']} {found['year']}"
