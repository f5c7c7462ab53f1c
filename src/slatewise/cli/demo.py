"""`slatewise demo`: from nothing to a trained catalogue and slates that learn, in one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from slatewise.cli.console import stdout, tell, transfer
from slatewise.cli.train import train_and_show

if TYPE_CHECKING:
    from slatewise.catalog import Catalog
    from slatewise.data.dataset import Dataset

EXAMPLE = "Example: slatewise demo --likes Comedy"
SLATES, PLACES = 4, 5


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the catalogue.")] = Path("demo"),
    likes: Annotated[str, typer.Option(help="The category a made-up newcomer likes.")] = "Sci-Fi",
) -> None:
    """Get ML-100K (or, where it cannot be had, a synthetic world), train, and let a newcomer answer four slates."""
    catalog = train_and_show(_data(), out, {"seed": 0}, json=False)
    _show_learning(catalog, likes if likes in catalog.category_names else catalog.category_names[0])


def _data() -> "Dataset":
    from slatewise.data.sources import load
    from slatewise.data.synthetic import make_world
    from slatewise.data.tables import DataError

    try:
        with transfer("ml-100k") as progress:
            return load("ml-100k", report=tell, progress=progress)
    except DataError:
        tell("ML-100K cannot be had here, so this demo uses a synthetic world: its titles and people are made up")
        return make_world().dataset


def _show_learning(catalog: "Catalog", category: str) -> None:
    """Print the slates of someone never seen before, who clicks whatever belongs to one category."""
    import numpy as np

    from slatewise.policies import make_policy
    from slatewise.randomness import Streams, user_keys

    policy = make_policy("dc2b-calibrated", catalog)
    liked = catalog.categories[:, catalog.category_names.index(category)]
    state, available = policy.start(1), np.ones((1, catalog.n_items), dtype=bool)
    title = Text(f"a newcomer who clicks only {category}")
    table = Table(*(f"slate {number + 1}" for number in range(SLATES)), title=title)
    columns = []
    for step in range(SLATES):
        slates = policy.select(state, available, PLACES, Streams(0, user_keys(["newcomer"]), step))
        items = slates.items[0]
        state = policy.update(state, slates, liked[slates.items])
        available[0, items] = False
        columns.append([f"{'✓' if liked[item] else '·'} {catalog.titles[item]}" for item in items])
    for row in zip(*columns, strict=True):
        table.add_row(*map(Text, row))
    stdout.print(table)
