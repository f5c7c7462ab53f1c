"""History for a store: `slatewise store import`, and the users that a catalog was trained on."""

import gc
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slatewise.cli.console import amounts, print_json, tell
from slatewise.cli.store import DEFAULT_STORE, StoreUrl, reporting_errors
from slatewise.plurals import counted

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset
    from slatewise.recommender.events import Event
    from slatewise.store import Store

EXAMPLE = "Example: slatewise store import likes.csv --store sqlite:///slates.db"


@dataclass(frozen=True)
class Imported:
    """How many events there were, how many of them were new, and how long it took."""

    events: int
    new: int
    seconds: float

    def __str__(self) -> str:
        rate = self.events / max(self.seconds, 1e-9)
        before = self.events - self.new
        were = "was" if before == 1 else "were"
        return f"{counted(self.new, 'event')} imported, {before:,} {were} there before ({rate:,.0f} per second)"


def import_table(
    file: Annotated[
        Path, typer.Argument(help="CSV or Parquet: user_id, item_id, optionally kind, value, at, event_id.")
    ],
    store: StoreUrl = DEFAULT_STORE,
    kind: Annotated[
        str | None, typer.Option(help="What the events are if the table does not say, such as purchase.")
    ] = None,
    ratings: Annotated[str | None, typer.Option(help="Lowest and highest rating in the table, such as 1:5.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Record what people did before: likes, purchases, ratings. Stop a SQLite service first.

    Nothing is recorded twice, so an import that was interrupted is resumed by running it again.
    """
    from slatewise.cli.event_table import Meaning, events_in, read_events
    from slatewise.store import open_store

    events = read_events(file, Meaning(kind, None if ratings is None else _range(ratings)))
    with reporting_errors(), closing(open_store(store)) as opened:
        done = import_events(opened, events_in(events), len(events))
    if json:
        print_json({"events": done.events, "new": done.new, "seconds": round(done.seconds, 3)})
    else:
        tell(str(done))


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Keep Python from looking for reference cycles, which rows do not have: a fifth of the time of an import."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def import_events(store: "Store", events: Iterable["Event"], total: int) -> Imported:
    """Write events to a store, with a progress bar."""
    from slatewise.recommender.history import add_history

    started, n_events, n_new = time.perf_counter(), 0, 0
    with without_garbage_collection(), amounts("importing", total) as count:
        for looked_at, new in add_history(store, events):
            n_events, n_new = n_events + looked_at, n_new + new
            count(looked_at)
    return Imported(n_events, n_new, time.perf_counter() - started)


def import_likes(store: "Store", dataset: "Dataset") -> Imported:
    """Write the likes of a data set's users to a store; there, users are known by their ids as text."""
    return import_events(store, _likes(dataset), len(dataset.users))


def _likes(dataset: "Dataset") -> Iterator["Event"]:
    from slatewise.recommender.events import Event

    users = [str(user) for user in dataset.user_ids.tolist()]
    items = [item if isinstance(item, int) else str(item) for item in dataset.item_ids.tolist()]
    for user, item in zip(dataset.users.tolist(), dataset.items.tolist(), strict=True):
        yield Event(users[user], items[item], "like")


def _range(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = 0.0, 0.0
    if not bounds[0] < bounds[1]:
        raise typer.BadParameter(f"{text!r} is not a range such as 1:5", param_hint="--ratings")
    return bounds
