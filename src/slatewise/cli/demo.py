"""`slatewise demo`: from nothing to a trained catalogue in one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slatewise.cli.console import tell, transfer
from slatewise.cli.train import train_and_show

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset

EXAMPLE = "Example: slatewise demo --out demo"


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the catalogue.")] = Path("demo"),
) -> None:
    """Get ML-100K (or, where it cannot be had, a synthetic world), train a catalogue and show it."""
    train_and_show(_data(), out, {"seed": 0}, json=False)


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
