"""`slatewise evaluate`: what another policy would have got, from the log of a service."""

import gc
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slatewise.cli.console import print_json, stdout, steps, tell
from slatewise.cli.store import DEFAULT_STORE, CatalogDirectory, Config, StoreUrl, opened

if TYPE_CHECKING:
    from slatewise.evaluation.verdict import Evaluation

EXAMPLE = "Example: slatewise evaluate --catalog demo --store sqlite:///slates.db --policy ease"


def evaluate(
    catalog: CatalogDirectory,
    policy: Annotated[str, typer.Option(help="The policy to judge.", show_default=False)],
    store: StoreUrl = DEFAULT_STORE,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="An option of the policy, as key=value; may be repeated.", show_default=False),
    ] = None,
    config: Config = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Estimate from the log what another policy would have got, also while a service runs.

    Needs slates that were drawn: serve dc2b-calibrated with the option explore_slates, or random, to some users. Some
    policies need a catalog that was trained for them: `slatewise train --policy ease`.
    """
    with opened(store, catalog, config, read_only=True) as recommender:
        options = dict(map(_option, option or ()))
        gc.freeze()  # what is loaded by now stays until the end; looking through it again takes longer than some users
        with steps("users", sum(1 for _ in recommender.store.users())) as count:
            evaluation = recommender.evaluate(policy, options, on_user=count)
    if json:
        print_json(evaluation.as_json())
        return
    _print(evaluation)


def _option(given: str) -> tuple[str, Any]:
    """Read an option: numbers as numbers, true and false, everything else as text."""
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise ValueError(f"--option {given} is not key=value")
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def _print(evaluation: "Evaluation") -> None:
    from rich.table import Table

    table = Table("estimator", "clicks/slate", "95 % interval", "eff. slates")
    for name, estimate in evaluation.rows():
        mark = "" if estimate.warning is None else " (!)"
        table.add_row(
            name + mark,
            f"{estimate.value:.3f}",
            f"{estimate.low:.3f} to {estimate.high:.3f}",
            f"{estimate.effective_slates:,.0f}",
        )
    stdout.print(f"{evaluation.policy} on {evaluation.slates:,} slates of {evaluation.users:,} users", markup=False)
    stdout.print(table)
    warnings = {estimate.warning for estimate in evaluation.estimates.values() if estimate.warning is not None}
    for line in (f"(!) {warning}" for warning in sorted(warnings)):
        stdout.print(line, markup=False, soft_wrap=True)
    for reason, number in evaluation.skipped.items():
        tell(f"{number:,} slates left out: {reason}")
    stdout.print(evaluation.in_words(), markup=False, soft_wrap=True)
