"""Policies = belief × slate rule, behind one interface and in one dict."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from slatewise.catalog import Catalog
from slatewise.policies.baselines import DppMap, EpsilonGreedy, LogRank, Mmr, Popular, Random
from slatewise.policies.c2ucb import C2Ucb
from slatewise.policies.calibrated import Calibrated
from slatewise.policies.dc2b import Dc2b
from slatewise.policies.ease import Ease
from slatewise.policies.ec_bandit import EcBandit
from slatewise.policies.protocol import Policy, Slates, State
from slatewise.slates import Available

__all__ = ["POLICIES", "Available", "Policy", "Slates", "State", "make_policy", "policy_options"]

POLICIES: dict[str, Callable[..., Policy]] = {
    "logrank": LogRank,
    "mmr": Mmr,
    "epsilon-greedy": EpsilonGreedy,
    "dpp-map": DppMap,
    "c2ucb": C2Ucb,
    "ec-bandit": EcBandit,
    "dc2b": Dc2b,
    "dc2b-calibrated": Calibrated,
    "ease": Ease,
    "popular": Popular,
    "random": Random,
}


def make_policy(name: str, catalog: Catalog, **options: Any) -> Policy:
    """Make a policy by name; an unknown name or option is an error that lists the known ones."""
    unknown = set(options) - set(policy_options(name))
    if unknown:
        known = ", ".join(policy_options(name)) or "none"
        raise ValueError(f"{name} has no option {', '.join(sorted(unknown))}; its options are: {known}")
    return POLICIES[name](catalog, **options)


def policy_options(name: str) -> dict[str, Any]:
    """Return the options of a policy and their defaults."""
    if name not in POLICIES:
        raise ValueError(f"there is no policy {name!r}; choose one of {', '.join(POLICIES)}")
    return {field.name: field.default for field in fields(POLICIES[name]) if field.name != "catalog"}  # type: ignore[arg-type]
