"""Policies = belief × slate rule, behind one interface and in one registry."""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, signature
from typing import Any

from slatewise.catalog import Catalog
from slatewise.plugins import Registry
from slatewise.policies.baselines import DppMap, EpsilonGreedy, LogRank, Mmr, Popular, Random
from slatewise.policies.c2ucb import C2Ucb
from slatewise.policies.calibrated import Calibrated
from slatewise.policies.dc2b import Dc2b
from slatewise.policies.ease import Ease
from slatewise.policies.ec_bandit import EcBandit
from slatewise.policies.gaussian import Gaussian
from slatewise.policies.ials import Ials
from slatewise.policies.item_knn import ItemKnn
from slatewise.policies.logistic import Logistic
from slatewise.policies.protocol import Policy, Slates, State
from slatewise.policies.rp3beta import Rp3Beta
from slatewise.policies.slim import Slim
from slatewise.policies.submodular import CascadeLsb, Lsb
from slatewise.slates import Available

__all__ = ["POLICIES", "Available", "Policy", "Slates", "State", "make_policy", "policy_options"]

NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
POLICIES: Registry[Callable[..., Policy]] = Registry(
    "slatewise.policies",
    "policy",
    {
        "logrank": LogRank,
        "mmr": Mmr,
        "epsilon-greedy": EpsilonGreedy,
        "dpp-map": DppMap,
        "c2ucb": C2Ucb,
        "ec-bandit": EcBandit,
        "dc2b": Dc2b,
        "dc2b-calibrated": Calibrated,
        "ease": Ease,
        "gaussian": Gaussian,
        "ials": Ials,
        "item-knn": ItemKnn,
        "slim": Slim,
        "rp3beta": Rp3Beta,
        "logistic": Logistic,
        "lsb": Lsb,
        "cascade-lsb": CascadeLsb,
        "popular": Popular,
        "random": Random,
    },
)


def make_policy(name: str, catalog: Catalog, **options: Any) -> Policy:
    """Create a policy for a catalog.

    Parameters
    ----------
    name : str
        A key of `POLICIES`: a built-in policy, one that a plug-in provides, or one that you registered.
    catalog : Catalog
        The items to choose from.
    **options
        Options of that policy; `policy_options(name)` lists them with their defaults.

    Returns
    -------
    Policy
        The policy; it holds its options and the catalog, and no users.

    Raises
    ------
    ValueError
        If there is no such policy or option; the message lists the known ones.

    Examples
    --------
    >>> import numpy as np
    >>> from slatewise import Catalog, make_policy
    >>> catalog = Catalog.from_vectors(["tea", "coffee", "cocoa"], np.eye(3))
    >>> make_policy("dc2b-calibrated", catalog, diversity=0.2).diversity
    0.2
    >>> make_policy("popular", catalog, diversity=0.2)
    Traceback (most recent call last):
    ValueError: popular has no option diversity; its options are: none
    """
    known = policy_options(name)
    unknown = set(options) - set(known)
    if unknown:
        raise ValueError(
            f"{name} has no option {', '.join(sorted(unknown))}; its options are: {', '.join(known) or 'none'}"
        )
    return POLICIES[name](catalog, **options)


def policy_options(name: str) -> dict[str, Any]:
    """Return the options of a policy with their defaults.

    Parameters
    ----------
    name : str
        A key of `POLICIES`.

    Returns
    -------
    dict
        Defaults by option name, in the order of the policy's signature; `inspect.Parameter.empty` for an option that
        must be given.

    Raises
    ------
    ValueError
        If there is no such policy; the message lists the known ones.

    Examples
    --------
    >>> from slatewise import policy_options
    >>> policy_options("mmr")
    {'trade_off': 0.9}
    """
    if name not in POLICIES:
        raise ValueError(f"there is no policy {name!r}; choose one of {', '.join(POLICIES)}")
    policy = POLICIES[name]
    _, *options = signature(policy).parameters.values()
    named = (option for option in options if option.kind in NAMED)
    return {option.name: option.default for option in named} | _factory_defaults(policy)


def _factory_defaults(policy: Callable[..., Policy]) -> dict[str, Any]:
    """Return the defaults of dataclass fields that have a default_factory, which a signature does not show."""
    if not is_dataclass(policy):
        return {}
    created = (field for field in fields(policy) if field.init and field.default_factory is not MISSING)
    return {field.name: field.default_factory() for field in created}
