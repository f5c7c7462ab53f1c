"""Options that choose the data of a command: a named data set, or the user's own tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slatewise.cli.console import tell, transfer

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset

Data = Annotated[str | None, typer.Option("--data", help="A named data set (see `slatewise data list`).")]
Interactions = Annotated[
    list[Path] | None,
    typer.Option(
        help="Your own table: user_id, item_id, optionally rating, timestamp. CSV or Parquet: a file, a quoted "
        "pattern or a folder; may be repeated.",
        show_default=False,
    ),
]
Items = Annotated[
    Path | None, typer.Option(help="Your own items: item_id, optionally title, categories (separated by |), available.")
]
Positive = Annotated[str | None, typer.Option(help="Which ratings count as liked: '> 3', '>= 0.5' or 'all'.")]
Columns = Annotated[
    str | None,
    typer.Option(help="Columns under other names: user_id=customer,item_id=sku.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(frozen=True)
class OwnTables:
    """The user's own files and how to read them."""

    interactions: Sequence[Path] | None
    items: Path | None
    positive: str | None
    columns: str | None = None
    keep_unrated: bool = False
    only_listed: bool = False


def load_dataset(data: str | None, own: OwnTables) -> "Dataset":
    """Load what the options name, and report what had to be cleaned up."""
    if (data is None) == (not own.interactions):
        raise typer.BadParameter("use either --data NAME or --interactions FILE")
    if data is not None:
        if own.only_listed or any(given is not None for given in (own.items, own.positive, own.columns)):
            raise typer.BadParameter(
                "--items, --positive, --columns and --only-listed-items require --interactions; "
                "a named data set has its own"
            )
        from slatewise.data.sources import load

        with transfer(data) as progress:
            return load(data, report=tell, progress=progress)
    from slatewise.data.column_names import parse_columns
    from slatewise.data.dataset import Dataset

    dataset = Dataset.from_files(
        own.interactions or (),
        own.items,
        positive=own.positive,
        keep_unrated=own.keep_unrated,
        only_listed=own.only_listed,
        columns=None if own.columns is None else parse_columns(own.columns),
    )
    for note in dataset.notes:
        tell(f"note: {note}")
    return dataset
