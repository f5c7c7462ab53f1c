"""`slatewise store fit` and `slatewise store replay`: what the log says, and whether it chooses the same again."""

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slatewise.cli.console import print_json, stdout
from slatewise.cli.store import DEFAULT_STORE, CatalogDirectory, Config, StoreUrl, opened

if TYPE_CHECKING:
    from slatewise.attention_fit import Estimate

FIT_EXAMPLE = "Example: slatewise store fit --catalog demo --store sqlite:///slates.db"
REPLAY_EXAMPLE = "Example: slatewise store replay --catalog demo --store sqlite:///slates.db"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def fit(
    catalog: CatalogDirectory,
    store: StoreUrl = DEFAULT_STORE,
    config: Config = None,
    save: Annotated[bool, typer.Option(help="Save the fit in the store, for services to follow.")] = True,
    json: Json = False,
) -> None:
    """Fit from the log how far people look down a slate and how much a skip weighs.

    Services with attention = curve follow what is saved. Stop a SQLite service first, or use --no-save.
    """
    with opened(store, catalog, config, read_only=not save) as recommender:
        fitted = recommender.fit_attention(save=save)
    if json:
        print_json(asdict(fitted))
        return
    lines = [f"{fitted.n_slates:,} slates of {fitted.n_users:,} users; 95 % intervals in brackets"]
    lines += [
        f"place {place}: looked at with probability {_shown(estimate)}"
        for place, estimate in enumerate(fitted.curve, 1)
    ]
    for line in [*lines, f"weight of a skip: {_shown(fitted.skip_weight)}"]:
        stdout.print(line, markup=False, soft_wrap=True)


def _shown(estimate: "Estimate") -> str:
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def replay(
    catalog: CatalogDirectory, store: StoreUrl = DEFAULT_STORE, config: Config = None, json: Json = False
) -> None:
    """Choose every slate of the log again and compare item by item; fail if one differs. Also while a service runs."""
    counts, different = Counter[str](), list[dict[str, Any]]()
    with opened(store, catalog, config, read_only=True) as recommender:
        for replayed in recommender.replay():
            is_different = replayed.obstacle is None and not replayed.is_same
            counts[replayed.obstacle or ("different items" if is_different else "the same items")] += 1
            if is_different:
                different.append(
                    {
                        "user": replayed.user,
                        "number": replayed.number,
                        "logged": replayed.items,
                        "chosen": replayed.again,
                    }
                )
    if json:
        print_json({"slates": dict(counts), "different": different})
    else:
        for row in different:
            stdout.print(
                "user {user!r}, slate {number}: {logged}, now {chosen}".format(**row), markup=False, soft_wrap=True
            )
        for outcome, number in counts.items():
            stdout.print(f"{number:,} slates: {outcome}", markup=False)
    if different:
        raise typer.Exit(1)
