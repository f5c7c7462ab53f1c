"""`slatewise train`: from interactions to a catalogue."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slatewise.cli.catalog import show_catalog
from slatewise.cli.console import print_json, stdout, steps, tell, transfer

if TYPE_CHECKING:
    from slatewise.dataset import Dataset

EXAMPLE = "Example: slatewise train --interactions likes.csv --items items.csv --positive '>= 4' --out shop"

Data = Annotated[str | None, typer.Option("--data", help="A named data set (see `slatewise data list`).")]
Interactions = Annotated[
    Path | None, typer.Option(help="Your own table: user_id, item_id, optionally rating, timestamp. CSV or Parquet.")
]
Items = Annotated[
    Path | None, typer.Option(help="Your own items: item_id, optionally title, categories (separated by |).")
]
Positive = Annotated[str | None, typer.Option(help="Which ratings count as liked: '> 3', '>= 0.5' or 'all'.")]
RatedOnly = Annotated[bool, typer.Option("--rated-items-only", help="Leave out items that nobody liked.")]


def train(
    out: Annotated[Path, typer.Option(help="Directory for the catalogue.", show_default=False)],
    data: Data = None,
    interactions: Interactions = None,
    items: Items = None,
    positive: Positive = None,
    rated_items_only: RatedOnly = False,
    dim: Annotated[int, typer.Option(min=1, max=1024, help="Dimensions of the item vectors.")] = 10,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the interactions.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same catalogue, bit by bit.")] = 0,
    train_share: Annotated[float, typer.Option(help="Share of the users to train on, drawn by the seed.")] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Learn item vectors from who liked what (BPR-MF) and write a catalogue.

    Give either --data, or --interactions and perhaps --items.
    """
    dataset = _load(data, interactions, items, (positive, not rated_items_only))
    for note in dataset.notes:
        tell(f"note: {note}")
    if not 0 < train_share <= 1:
        raise typer.BadParameter(f"{train_share} is not a share between 0 and 1", param_hint="--train-share")
    if train_share < 1:
        dataset, _ = dataset.split(1 - train_share, seed)
    train_and_show(dataset, out, {"dim": dim, "epochs": epochs, "seed": seed}, json)


def _load(
    data: str | None, interactions: Path | None, items: Path | None, options: tuple[str | None, bool]
) -> "Dataset":
    if (data is None) == (interactions is None):
        raise typer.BadParameter("give either --data NAME or --interactions FILE")
    if data is not None:
        if items is not None or options[0] is not None:
            raise typer.BadParameter("--items and --positive go with --interactions; a named data set has its own")
        from slatewise.sources import load

        with transfer(data) as progress:
            return load(data, report=tell, progress=progress)
    from slatewise.dataset import Dataset

    return Dataset.from_files(str(interactions), items, positive=options[0], keep_unrated=options[1])


def train_and_show(dataset: "Dataset", out: Path, settings: dict[str, Any], json: bool) -> None:
    """Train with a progress bar, save, and print what came out."""
    from slatewise.catalog import Catalog
    from slatewise.embeddings import BprSettings

    chosen = BprSettings(**settings)
    tell(f"training on {dataset}")
    with steps("training", chosen.epochs) as one_epoch:
        catalog = Catalog.train(dataset, chosen, one_epoch)
    sha256 = catalog.save(out)
    if json:
        print_json({"directory": str(out), "sha256": sha256, "items": catalog.n_items, **catalog.about})
        return
    show_catalog(catalog)
    stdout.print(f"written to {out} (sha256 {sha256})", markup=False, soft_wrap=True)
