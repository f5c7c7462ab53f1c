"""What a log says about a policy that did not choose its slates: estimates, and one sentence."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from slatewise.evaluation.intervals import Estimate, estimate
from slatewise.evaluation.logged_slates import CASCADE, LoggedSlates

if TYPE_CHECKING:
    import polars as pl

SHOWN = "what was shown"
DETERMINISTIC = (
    "most slates of this log were not drawn at random, so it only tells about slates that both policies choose; serve "
    "dc2b-calibrated with the option explore_slates to some users first"
)


@dataclass(frozen=True)
class Evaluation:
    """What a policy would have got on the slates of a log, in clicks per slate.

    logged: what was got; difference: how much more the policy would have got, by the cascade doubly robust estimator;
    drawn: the share of slates that were logged with propensities; skipped: how many slates cannot be judged, by reason.
    """

    policy: str
    slates: int
    users: int
    drawn: float
    logged: Estimate
    estimates: Mapping[str, Estimate]
    difference: Estimate
    skipped: Mapping[str, int]

    @property
    def warnings(self) -> list[str]:
        """What speaks against the estimates."""
        warning = self.estimates[CASCADE].warning
        return [*([DETERMINISTIC] if self.drawn < 0.5 else []), *([warning] if warning is not None else [])]

    def in_words(self) -> str:
        """Return the verdict in one sentence."""
        gap, got = self.difference, self.logged.value
        figures = f"{gap.value:+.3f} clicks per slate [{gap.low:+.3f}, {gap.high:+.3f}] against {got:.3f} that were got"
        if self.warnings:
            return f"{self.policy} cannot be judged by this log: {self.warnings[0]}"
        if gap.low > 0.0:
            return f"{self.policy} would probably get more: {figures}"
        if gap.high < 0.0:
            return f"{self.policy} would probably get less: {figures}"
        return f"{self.policy} may get more or less, this log cannot tell: {figures}"

    def as_json(self) -> dict[str, Any]:
        """Return everything ready for JSON; what is not finite is None."""
        content = asdict(self) | {"warnings": self.warnings, "verdict": self.in_words()}
        return {name: _finite(value) for name, value in content.items()}

    def rows(self) -> list[tuple[str, Estimate]]:
        """Return what was got, and what each estimator says of the policy, by name."""
        return [(SHOWN, self.logged), *self.estimates.items()]

    def to_polars(self) -> "pl.DataFrame":
        """Return one row for what was shown and one per estimator: `estimator, value, low, high` and more."""
        import polars as pl

        return pl.DataFrame(
            [{"estimator": name, **asdict(estimate)} for name, estimate in self.rows()], infer_schema_length=None
        )

    def _repr_html_(self) -> str:
        """Show estimates, warnings and the verdict in a notebook."""
        rows = "".join(_html_row(name, estimate) for name, estimate in self.rows())
        heads = "".join(
            f"<th>{head}</th>" for head in ("", "clicks per slate", "95 % interval", "effective slates", "")
        )
        counts = f"{self.policy} on {self.slates:,} slates of {self.users:,} users"
        table = f"<table><caption>{escape(counts)}</caption><tr>{heads}</tr>{rows}</table>"
        return f"<div>{table}<p>{escape(self.in_words())}</p></div>"


def judge(policy: str, log: LoggedSlates, drawn: float, skipped: Mapping[str, int]) -> Evaluation:
    """Estimate what a policy would have got, and compare it with what was got."""
    fitted = log.with_fitted_model()
    got, n_users = estimate(log.rewards.sum(axis=1), log.users), len(set(log.users.tolist()))
    return Evaluation(
        policy, len(log.users), n_users, drawn, got, fitted.estimates(), fitted.difference(), dict(skipped)
    )


def _html_row(name: str, estimate: Estimate) -> str:
    interval = f"{estimate.low:.3f} to {estimate.high:.3f}"
    cells = (name, f"{estimate.value:.3f}", interval, f"{estimate.effective_slates:,.0f}", estimate.warning or "")
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return None if isinstance(value, float) and abs(value) == float("inf") else value
