"""The published data sets that slatewise can fetch, and how to recognize a faithful copy of each."""

from dataclasses import dataclass

from slatewise.data.formats import LAYOUTS, Content, Layout

MOVIELENS_TERMS = (
    "GroupLens Research, University of Minnesota: research use, no redistribution without permission; "
    "cite Harper and Konstan (2015), The MovieLens Datasets, ACM TiiS 5(4):19"
)
ANIME_TERMS = "CooperUnion on Kaggle, collected from myanimelist.net; terms on the data set's page"


@dataclass(frozen=True)
class Source:
    """A published data set: what it is, how to recognize a copy, which ratings are positive, where to get it.

    A copy in SLATEWISE_DATA is an archive `<stem>.zip` or a folder `<stem>`. If `expected.digest` is None, only
    the counts are verified. `instructions` tell the user how to get a copy by hand.
    """

    name: str
    title: str
    stems: tuple[str, ...]
    layout: Layout
    positive: str
    expected: Content
    instructions: str
    terms: str
    home: str | None = None
    wheel: str | None = None


def _movielens(name: str, title: str, expected: Content, wheel: str | None = None) -> Source:
    home = f"https://files.grouplens.org/datasets/movielens/{name}.zip"
    return Source(
        name=name,
        title=title,
        stems=(name,),
        layout=LAYOUTS[name],
        positive="> 3",
        expected=expected,
        instructions=f"download {home} on a machine that can reach it, put {name}.zip into a directory",
        terms=MOVIELENS_TERMS,
        home=home,
        wheel=wheel,
    )


_ALL = (
    _movielens(
        "ml-100k",
        "MovieLens 100K: 100,000 ratings of 1,682 movies by 943 users",
        Content(100_000, 943, 1_682, "9dcd5feb8e298b63be6eb725f9016a84e9732227f10def8241306ceec6f45de6"),
        wheel="recbole==1.2.1",
    ),
    _movielens(
        "ml-1m",
        "MovieLens 1M: 1,000,209 ratings of 3,706 movies by 6,040 users",
        Content(1_000_209, 6_040, 3_706, "bee2f850f6ce180edad763576da950dce40f3927de661c340f7c8a58f8f88e16"),
    ),
    Source(
        name="anime",
        title="Anime Recommendations Database: 7,813,737 ratings of 11,200 anime titles by 73,515 users",
        stems=("anime", "anime-recommendations-database", "archive"),
        layout=LAYOUTS["anime"],
        positive="> 6",
        expected=Content(7_813_737, 73_515, 11_200, None),
        instructions="Kaggle has no anonymous download: sign in, press Download on "
        "https://www.kaggle.com/datasets/CooperUnion/anime-recommendations-database, "
        "put the archive.zip you get (rating.csv and anime.csv inside) into a directory as anime.zip",
        terms=ANIME_TERMS,
    ),
    Source(
        name="anime-5k",
        title="Sample of the Anime database: 419,943 ratings of 7,157 anime titles by 4,714 users",
        stems=("anime-5k",),
        layout=LAYOUTS["anime"],
        positive="> 6",
        expected=Content(419_943, 4_714, 7_157, "6a22b784e6ed2863d097cb5dd504f1edc1a17db6fd06d3ec20ea927d6ac80b04"),
        instructions="the sample is not published: put your copy of anime-5k.zip into a directory",
        terms=ANIME_TERMS,
    ),
)
SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
"""The published data sets that slatewise can fetch and verify."""
