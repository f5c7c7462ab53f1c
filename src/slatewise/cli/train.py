"""`slatewise train`: from interactions, and from the log of a service, to a catalog."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slatewise.cli.catalog import comparable_items, show_catalog
from slatewise.cli.console import print_json, stdout, steps, tell, warn_of_password
from slatewise.cli.dataset_options import Columns, Data, Interactions, Items, Json, OwnTables, Positive, load_dataset
from slatewise.cli.importing import import_likes
from slatewise.cli.store import Config
from slatewise.cli.train_without_bpr import Placement, readable_in_parts, train_from_files, train_tastes

if TYPE_CHECKING:
    from slatewise.catalog import Catalog
    from slatewise.catalog.embeddings import BprSettings
    from slatewise.data.dataset import Dataset

EXAMPLE = "Example: slatewise train --interactions likes.csv --items items.csv --positive '>= 4' --out shop"

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="SLATEWISE_TRAIN_STORE",
        help="Learn from the log of a service as well, also while it runs: sqlite:///FILE or postgresql://…",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Threads for --without-bpr; one per core by default.", show_default=False)
]
Cluster = Annotated[
    str | None,
    typer.Option(help="Address of a Dask scheduler for --without-bpr; all its workers must see the directory."),
]
HalfLife = Annotated[
    float | None,
    typer.Option("--half-life", help="Days after which what people did counts half.", show_default=False),
]

Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        help="Also keep what this policy needs, such as co-likes for ease; may be repeated.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Source:
    """What to learn from: a data set, the user's own tables, or neither; and which parts of it the catalog keeps."""

    data: str | None
    tables: OwnTables
    half_life: float | None = None
    kept: frozenset[str] = frozenset()

    @property
    def is_given(self) -> bool:
        """Whether there is anything but a store to learn from."""
        return self.data is not None or bool(self.tables.interactions)


def train(
    out: Annotated[Path, typer.Option(help="Directory for the catalog.", show_default=False)],
    data: Data = None,
    interactions: Interactions = None,
    items: Items = None,
    positive: Positive = None,
    columns: Columns = None,
    rated_items_only: Annotated[bool, typer.Option("--rated-items-only", help="Drop items that nobody liked.")] = False,
    only_listed_items: Annotated[
        bool, typer.Option("--only-listed-items", help="Leave out items that are not in the table of items.")
    ] = False,
    dim: Annotated[int, typer.Option(min=1, max=1024, help="Dimensions of the item vectors.")] = 10,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the interactions.")] = 50,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="The same seed gives the same catalog, bit by bit.")] = 0,
    train_share: Annotated[float, typer.Option(help="Share of the users to train on, drawn by the seed.")] = 1.0,
    store: Store = None,
    half_life: HalfLife = None,
    gate: Annotated[
        bool, typer.Option("--gate", help="Put the catalog in use only if it predicts the latest slates as well.")
    ] = False,
    config: Config = None,
    record_in: Annotated[
        str | None, typer.Option(help="Record what these users liked in the store of a service as well.")
    ] = None,
    without_bpr: Annotated[
        bool,
        typer.Option(
            "--without-bpr",
            help="Taste vectors only, which is all that dc2b-calibrated needs; Parquet tables need not fit in memory.",
        ),
    ] = False,
    workers: Workers = None,
    cluster: Cluster = None,
    policy: Policies = None,
    json: Json = False,
) -> None:
    """Learn item vectors from who liked what (BPR-MF) and write a catalog.

    Use --data, or --interactions and optionally --items. With --store, learn from the log of a service too, or only
    from it, starting from the catalog in the directory.
    """
    placement = _placement(without_bpr, workers, cluster)
    if not 0 < train_share <= 1:
        raise typer.BadParameter(f"{train_share} is not between 0 and 1", param_hint="--train-share")
    if half_life is not None and not half_life > 0:
        raise typer.BadParameter(f"{half_life} is not a positive number of days", param_hint="--half-life")
    if without_bpr and store is not None:
        raise typer.BadParameter("--without-bpr trains from tables; do that first, then --store starts from the result")
    if gate and store is None:
        raise typer.BadParameter("--gate replays the latest slates of a service; give --store as well")
    tables = OwnTables(interactions, items, positive, columns, not rated_items_only, only_listed_items)
    source = Source(data, tables, half_life, _needed(policy or ()))
    settings = {"dim": dim, "epochs": epochs, "seed": seed}
    if store is not None:
        _train_from_store(out, source, settings, Loop(warn_of_password(store), half_life, gate, config), json)
        return
    is_plain = data is None and train_share == 1 and half_life is None and record_in is None and not source.kept
    if without_bpr and is_plain:
        files = readable_in_parts(tables)
        if files is not None:
            _show(train_from_files(files, tables, out, (dim, seed, placement)), out, json)
            return
    dataset = load_source(source, seed)
    if train_share < 1:
        dataset, _ = dataset.split(1 - train_share, seed)
    if cluster is not None:
        raise typer.BadParameter(
            "a cluster reads Parquet files of --interactions in parts; nothing else can be divided"
        )
    trained = train_tastes(dataset, dim, seed, placement) if without_bpr else _train(dataset, settings)
    _show(keeping(trained, dataset, source), out, json)
    if record_in is not None:
        _record_likes(record_in, dataset)


@dataclass(frozen=True)
class Loop:
    """How to learn from a store."""

    store: str
    half_life: float | None
    gate: bool
    config: Path | None


def load_source(source: Source, seed: int) -> "Dataset":
    """Load the data set or the tables; with a half-life, older rows are left out more often."""
    tables = source.tables
    if source.data is not None or source.half_life is None:
        return load_dataset(source.data, tables)
    from slatewise.data.aging import read_aged_interactions
    from slatewise.data.column_names import parse_columns
    from slatewise.data.dataset import Dataset
    from slatewise.data.item_table import listed_only
    from slatewise.data.table_files import label_of, table_files
    from slatewise.data.tables import read_table, same_identifiers

    files = table_files(tables.interactions or ())
    columns = None if tables.columns is None else parse_columns(tables.columns)
    frame = read_aged_interactions(files, source.half_life, seed, columns)
    items = None if tables.items is None else read_table(tables.items, columns)
    if items is not None:
        frame, items = same_identifiers(frame, items)
    name = label_of(Path(file.name) for file in files)
    if tables.only_listed:
        frame = listed_only(frame, items, (name, str(tables.items)))
    dataset = Dataset.from_frames(frame, items, positive=tables.positive, keep_unrated=tables.keep_unrated, name=name)
    for note in dataset.notes:
        tell(f"note: {note}")
    return dataset


def _needed(policies: Sequence[str]) -> frozenset[str]:
    """Return the parts of the data that policies need; refuse a name that is no policy."""
    if not policies:
        return frozenset()
    from slatewise.lab.tuning import needed_by
    from slatewise.policies import policy_options

    for name in policies:
        policy_options(name)
    return frozenset(needed_by(policies))


def keeping(catalog: "Catalog", dataset: "Dataset", source: Source) -> "Catalog":
    """Return a catalog with what the policies that were named need of the data."""
    if not source.kept:
        return catalog
    from slatewise.lab.tuning import with_needed

    return with_needed(catalog, dataset, set(source.kept))


def _train_from_store(out: Path, source: Source, settings: dict[str, Any], loop: Loop, json: bool) -> None:
    from slatewise.cli.train_from_store import train_from_store

    result = train_from_store(out, source, settings, loop)
    if json:
        print_json(result)
    else:
        for line in result["words"]:
            stdout.print(line, markup=False, soft_wrap=True)
    if not result["promoted"]:
        sys.exit(1)


def _record_likes(url: str, dataset: "Dataset") -> None:
    """Make the users of the data known to a service."""
    from slatewise.store import open_store

    with closing(open_store(url)) as store:
        tell(str(import_likes(store, dataset)))


def _placement(without_bpr: bool, workers: int | None, cluster: str | None) -> Placement:
    """Check the options that say where taste vectors are computed."""
    if (workers is not None or cluster is not None) and not without_bpr:
        raise typer.BadParameter("--workers and --cluster compute taste vectors only; give --without-bpr as well")
    if workers is not None and cluster is not None:
        raise typer.BadParameter("use either --workers or --cluster, not both")
    return Placement(workers, cluster)


def _train(dataset: "Dataset", settings: dict[str, Any]) -> "Catalog":
    from slatewise.catalog.embeddings import BprSettings

    return train_catalog(dataset, BprSettings(**settings))


def _show(catalog: "Catalog", out: Path, json: bool) -> None:
    """Save and print the result."""
    sha256 = catalog.save(out)
    if json:
        print_json(
            {
                "directory": str(out),
                "sha256": sha256,
                "items": catalog.n_items,
                **comparable_items(catalog),
                **catalog.about,
            }
        )
        return
    show_catalog(catalog)
    stdout.print(f"written to {out} (sha256 {sha256})", markup=False, soft_wrap=True)


def train_catalog(dataset: "Dataset", settings: "BprSettings") -> "Catalog":
    """Train with a progress bar."""
    from slatewise.catalog import Catalog

    tell(f"training on {dataset}")
    with steps("training", settings.epochs) as count_epoch:
        return Catalog.train(dataset, settings, count_epoch)
