"""Who gets which policy: by stable hashes of users, the same on every machine and after every restart.

A named experiment splits the users afresh, keeps some of them out of it, and has counts of its own.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from slatewise.randomness import user_keys
from slatewise.store.records import FitRecord, PolicyTotals, SlateRecord

SALT = "policy of "
HOLDOUT_SALT = "holdout of "
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
EXPERIMENTS = "experiments"
"""The name under which a store keeps when experiments ran."""


def position(salt: str, user: str) -> float:
    """Return a number in [0, 1) for a user."""
    return int(user_keys([salt + user])[0]) / 2**64


def at_position(shares: Mapping[str, float], where: float) -> str:
    """Return the policy at a position when shares are laid end to end."""
    below = 0.0
    for name, share in shares.items():
        below += share
        if where < below:
            return name
    return list(shares)[-1]


@dataclass(frozen=True)
class Experiment:
    """A named comparison of the policies that share the users.

    control: what the others are compared with, by default the policy with the largest share; holdout: the share of
    users that stay out of it and get the control, the same users in every experiment; effect: the difference of click
    rates that matters; running: after it was set to False, everybody gets the control and nothing is counted any more
    (`Recommender.switch_experiment` stops and goes on without a restart). The store keeps when it was started and
    stopped.

    Examples
    --------
    >>> Experiment("autumn", control="popular", holdout=0.1).running
    True
    """

    name: str
    control: str | None = None
    holdout: float = 0.0
    effect: float = 0.01
    running: bool = True
    started_at: float | None = None
    stopped_at: float | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"an experiment is called {self.name!r}; use a-z, 0-9 and -, up to 64 characters")
        if not 0.0 <= self.holdout < 1.0:
            raise ValueError(f"holdout is {self.holdout}; give a share of users from 0 to 1 (1 excluded)")
        if not 0.0 < self.effect <= 1.0:
            raise ValueError(f"effect is {self.effect}; give a difference of click rates above 0 and up to 1")

    def among(self, shares: Mapping[str, float]) -> "Experiment":
        """Return the experiment with its control; refuse one that is not among the policies that share the users."""
        control = self.control or max(shares, key=lambda name: shares[name])
        if control not in shares:
            raise ValueError(f"the control is {control!r}; choose one of {', '.join(shares)}")
        if any("@" in name for name in shares):
            raise ValueError("the name of a policy in an experiment must not contain @")
        return replace(self, control=control)

    def includes(self, user: str) -> bool:
        """Return whether a user takes part."""
        return self.running and (not self.holdout or position(HOLDOUT_SALT, user) >= self.holdout)

    def policy_of(self, user: str, shares: Mapping[str, float]) -> str:
        """Return the policy of a user."""
        if not self.includes(user):
            return str(self.control)
        return at_position(shares, position(f"experiment {self.name}: ", user))

    def label(self, slate: SlateRecord) -> str | None:
        """Return what a slate is counted under, None if it is not part of the experiment."""
        is_before = self.started_at is None or slate.created_at < self.started_at
        return None if is_before or not self.includes(slate.user) else f"{slate.policy}@{self.name}"

    def totals(self, everything: list[PolicyTotals]) -> list[PolicyTotals]:
        """Return the totals of this experiment by policy."""
        ending = f"@{self.name}"
        own = [counted for counted in everything if counted.policy.endswith(ending)]
        return [replace(counted, policy=counted.policy.removesuffix(ending)) for counted in own]

    def in_history(
        self, kept: FitRecord | None, now: float, halted: bool | None = None
    ) -> tuple["Experiment", dict[str, Any]]:
        """Return the experiment with its times, and what the store shall keep about all experiments.

        halted: stop it whatever the settings say, or no longer; None leaves that as the store has it.
        """
        known: dict[str, Any] = {} if kept is None else dict(kept.content)
        before = known.get(self.name, {})
        is_halted = bool(before.get("halted", False)) if halted is None else halted
        running = self.running and not is_halted
        started, stopped = before.get("started_at") or now, None if running else before.get("stopped_at") or now
        dated = replace(self, running=running, started_at=started, stopped_at=stopped)
        return dated, {**known, self.name: {**asdict(dated), "halted": is_halted}}
