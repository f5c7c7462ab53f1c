"""`slatewise tune`: choose hyperparameters on validation users."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from slatewise.cli.console import print_json, stdout, steps, tell
from slatewise.cli.dataset_options import Columns, Data, Interactions, Items, Json, OwnTables, Positive, load_dataset

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset
    from slatewise.lab.tuning import Candidate

EXAMPLE = "Example: slatewise tune mmr --data ml-100k"


def tune(
    policy: Annotated[str, typer.Argument(help="Name of a policy.", show_default=False)],
    data: Data = None,
    interactions: Interactions = None,
    items: Items = None,
    positive: Positive = None,
    columns: Columns = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Seed of the split and of the training.")] = 0,
    json: Json = False,
) -> None:
    """Evaluate every combination in a policy's grid on validation users and list them, best F first.

    The validation users are a fifth of the training users; the test users of this seed are never used.
    """
    from slatewise.lab.tuning import candidates
    from slatewise.policies import POLICIES

    if policy not in POLICIES:
        raise typer.BadParameter(f"there is no policy {policy!r}; choose one of {', '.join(POLICIES)}")
    dataset = load_dataset(data, OwnTables(interactions, items, positive, columns))
    results = _evaluate(policy, dataset, seed, len(list(candidates(policy))))
    if json:
        print_json([{**vars(candidate)} for candidate in results])
        return
    table = Table("options", "P@50", "diversity", "F")
    for candidate in results:
        options = ", ".join(f"{name}={value}" for name, value in candidate.options.items()) or "(none)"
        table.add_row(options, f"{candidate.precision:.4f}", f"{candidate.diversity:.4f}", f"{candidate.f:.4f}")
    stdout.print(table)


def _evaluate(policy: str, dataset: "Dataset", seed: int, n_candidates: int) -> "list[Candidate]":
    from slatewise.catalog.embeddings import BprSettings
    from slatewise.lab.experiment import TEST_SHARE
    from slatewise.lab.simulate import Session
    from slatewise.lab.tuning import VALIDATION_SHARE, candidates, evaluate, train_catalog

    training, _ = dataset.split(TEST_SHARE, seed)
    fitting, validation = training.split(VALIDATION_SHARE, seed)
    settings = BprSettings(seed=seed)
    tell(f"training on {fitting.n_users:,} users, validating on {validation.n_users:,}")
    with steps("training", settings.epochs) as count_epoch:
        catalog = train_catalog(fitting, settings, [policy], count_epoch)
    with steps(policy, n_candidates) as count_candidate:
        tried = _counted(candidates(policy), count_candidate)
        return evaluate(policy, tried, catalog, validation, Session(seed=seed))


def _counted(tried: Iterator[dict[str, Any]], count: Callable[[], None]) -> Iterator[dict[str, Any]]:
    """Count each combination once it has been tried."""
    for options in tried:
        yield options
        count()
