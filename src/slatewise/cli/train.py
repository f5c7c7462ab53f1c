"""`slatewise train`: from interactions to a catalog."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slatewise.cli.catalog import show_catalog
from slatewise.cli.console import print_json, stdout, steps, tell
from slatewise.cli.dataset_options import Data, Interactions, Items, Json, OwnTables, Positive, load_dataset
from slatewise.cli.importing import import_likes

if TYPE_CHECKING:
    from slatewise.catalog import Catalog
    from slatewise.catalog.embeddings import BprSettings
    from slatewise.data.dataset import Dataset

EXAMPLE = "Example: slatewise train --interactions likes.csv --items items.csv --positive '>= 4' --out shop"


def train(
    out: Annotated[Path, typer.Option(help="Directory for the catalog.", show_default=False)],
    data: Data = None,
    interactions: Interactions = None,
    items: Items = None,
    positive: Positive = None,
    rated_items_only: Annotated[bool, typer.Option("--rated-items-only", help="Drop items that nobody liked.")] = False,
    dim: Annotated[int, typer.Option(min=1, max=1024, help="Dimensions of the item vectors.")] = 10,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the interactions.")] = 50,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="The same seed gives the same catalog, bit by bit.")] = 0,
    train_share: Annotated[float, typer.Option(help="Share of the users to train on, drawn by the seed.")] = 1.0,
    store: Annotated[
        str | None, typer.Option(help="Record what these users liked in a service's store as well.")
    ] = None,
    json: Json = False,
) -> None:
    """Learn item vectors from who liked what (BPR-MF) and write a catalog.

    Use either --data, or --interactions and optionally --items.
    """
    if not 0 < train_share <= 1:
        raise typer.BadParameter(f"{train_share} is not between 0 and 1", param_hint="--train-share")
    dataset = load_dataset(data, OwnTables(interactions, items, positive, not rated_items_only))
    if train_share < 1:
        dataset, _ = dataset.split(1 - train_share, seed)
    _train_and_show(dataset, out, {"dim": dim, "epochs": epochs, "seed": seed}, json)
    if store is not None:
        _record_likes(store, dataset)


def _record_likes(url: str, dataset: "Dataset") -> None:
    """Make the users of the data known to a service."""
    from slatewise.store import open_store

    with closing(open_store(url)) as store:
        tell(str(import_likes(store, dataset)))


def _train_and_show(dataset: "Dataset", out: Path, settings: dict[str, Any], json: bool) -> None:
    """Train, save and print the result."""
    from slatewise.catalog.embeddings import BprSettings

    catalog = train_catalog(dataset, BprSettings(**settings))
    sha256 = catalog.save(out)
    if json:
        print_json({"directory": str(out), "sha256": sha256, "items": catalog.n_items, **catalog.about})
        return
    show_catalog(catalog)
    stdout.print(f"written to {out} (sha256 {sha256})", markup=False, soft_wrap=True)


def train_catalog(dataset: "Dataset", settings: "BprSettings") -> "Catalog":
    """Train with a progress bar."""
    from slatewise.catalog import Catalog

    tell(f"training on {dataset}")
    with steps("training", settings.epochs) as count_epoch:
        return Catalog.train(dataset, settings, count_epoch)
