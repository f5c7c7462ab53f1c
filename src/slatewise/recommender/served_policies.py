"""Policies as they are served: made from a name or an object, with a share of the users and a key for beliefs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from numbers import Real
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog, CatalogError
from slatewise.catalog.identifiers import PackedText
from slatewise.plugins import PluginError
from slatewise.policies import POLICIES, Policy, make_policy
from slatewise.policies.protocol import explainable
from slatewise.recommender.rules import LearningRules
from slatewise.recommender.types import PolicyShare, RequestError
from slatewise.recommender.wishes import LIKES


def make(entry: PolicyShare, catalog: Catalog) -> Policy:
    """Return the policy of an entry on a catalog."""
    if not isinstance(entry.policy, str):
        return on_catalog(_check_policy(entry.policy), catalog)
    if entry.policy not in POLICIES:
        raise RequestError(f"there is no policy of that name; choose one of {', '.join(POLICIES)}")
    try:
        return make_policy(entry.policy, catalog, **entry.options)
    except CatalogError as error:
        raise RequestError(str(error)) from error


def _check_policy(policy: Any) -> Policy:
    """Return a policy object; refuse what is none, such as its class."""
    if isinstance(policy, type) or not hasattr(policy, "select"):
        raise ValueError(
            f"policy is {policy!r}; give a name such as 'dc2b', make_policy(name, catalog), or shares by name"
        )
    return cast(Policy, policy)


def with_skip_weight(policy: Policy, skip_weight: float) -> Policy:
    """Return a policy whose probabilities make up for what a skip weighs, if it can."""
    changeable: Any = policy
    return replace(changeable, skip_weight=skip_weight) if hasattr(policy, "skip_weight") else policy


def can_make(entry: PolicyShare, catalog: Catalog, rules: LearningRules) -> bool:
    """Return whether the policy of an entry can be served from a catalog, under the rules for learning."""
    try:
        rules.check("", make(entry, catalog))
    except (RequestError, PluginError):
        return False
    return True


def policy_key(entry: PolicyShare, policy: Policy, digest: str, rules: LearningRules) -> str:
    """Return what identifies beliefs: of a policy with its options, on a catalog, under the rules for learning."""
    kind = entry.policy if isinstance(entry.policy, str) else policy_name(policy)
    rule = [rules.described(), str(dict(rules.kinds)), LIKES]
    if hasattr(type(policy), "reported_likes"):
        rule.append("reported likes say which items, not how many")
    ignored = getattr(policy, "choosing_options", ())
    options = {name: value for name, value in policy_options(policy).items() if name not in ignored}
    described = json.dumps([kind, options, digest, rule], sort_keys=True, default=str)
    return hashlib.sha256(described.encode()).hexdigest()[:32]


def policy_shares(policy: str | Policy | Mapping[str, float | PolicyShare]) -> dict[str, PolicyShare]:
    """Return the policies to serve by name; shares must be positive and sum to 1."""
    if isinstance(policy, str):
        return {policy: PolicyShare(policy)}
    if not isinstance(policy, Mapping):
        return {policy_name(policy): PolicyShare(policy)}
    shares = {name: _share(name, given) for name, given in policy.items()}
    if not shares:
        raise ValueError("there is no policy to serve; name one")
    for name, entry in shares.items():
        if not (isinstance(entry.share, Real) and 0.0 < entry.share <= 1.0):
            raise ValueError(f"the share of {name} is {entry.share!r}; give each policy one above 0 and up to 1")
    total = sum(entry.share for entry in shares.values())
    if abs(total - 1.0) > 1e-6:
        raise ValueError(f"the shares of the policies sum to {total:g}; make them sum to 1")
    return shares


def _share(name: str, given: float | PolicyShare) -> PolicyShare:
    return given if isinstance(given, PolicyShare) else PolicyShare(name, given)


def policy_name(policy: Policy) -> str:
    """Return the name of a policy object: the one it is registered under, else that of its class."""
    kind = type(policy)
    return next((name for name in POLICIES.built_in if POLICIES[name] is kind), kind.__name__)


def on_catalog(policy: Policy, catalog: Catalog) -> Policy:
    """Return a policy object with the same options on another catalog."""
    if policy.catalog is catalog:
        return policy
    if not is_dataclass(policy) or isinstance(policy, type):
        raise RequestError(f"{policy_name(policy)} is no dataclass, so it cannot be moved to another catalog")
    return replace(policy, catalog=catalog)


def policy_options(policy: Policy) -> dict[str, Any]:
    """Return the options of a policy object by name; all attributes if it is no dataclass."""
    names = [field.name for field in fields(policy)] if is_dataclass(policy) else [*vars(policy)]
    return {name: getattr(policy, name) for name in names if name != "catalog"}


def learned_categories(policy: Policy) -> str:
    """Return a short hash of the categories that a policy learns by, as they were trained; empty if there are none."""
    catalog = policy.catalog.trained
    if explainable(policy) is None or not catalog.n_categories:
        return ""
    categories = catalog.categories[: catalog.item_ids.n_sorted]
    return hashlib.sha256(str(categories.shape).encode() + np.packbits(categories).tobytes()).hexdigest()[:32]


def catalog_digest(catalog: Catalog) -> str:
    """Return a short hash of everything in a catalog that beliefs depend on, but for items added later."""
    digest = hashlib.sha256()
    ids, n_trained = catalog.item_ids.values, catalog.item_ids.n_sorted
    parts = [ids[:n_trained]] if isinstance(ids, np.ndarray) else [*_trained_text(ids, n_trained)]
    tables = (catalog.vectors[:n_trained], catalog.taste_vectors[:n_trained], catalog.log_odds[:n_trained])
    for array in (*parts, *tables, catalog.population_mean):
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]


def _trained_text(ids: PackedText, n_trained: int) -> tuple[NDArray[Any], NDArray[Any]]:
    ends = ids.ends[:n_trained]
    return ids.buffer[: ends[-1]], ends
