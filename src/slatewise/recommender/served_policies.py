"""Policies as they are served: made from a name or an object, with a share of the users and a key for beliefs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from slatewise.catalog import Catalog, CatalogError
from slatewise.plugins import PluginError
from slatewise.policies import POLICIES, Policy, make_policy
from slatewise.recommender.rules import LearningRules
from slatewise.recommender.types import PolicyShare, RequestError


def make(entry: PolicyShare, catalog: Catalog) -> Policy:
    """Return the policy of an entry on a catalog."""
    if not isinstance(entry.policy, str):
        return on_catalog(entry.policy, catalog)
    if entry.policy not in POLICIES:
        raise RequestError(f"there is no policy of that name; choose one of {', '.join(POLICIES)}")
    try:
        return make_policy(entry.policy, catalog, **entry.options)
    except CatalogError as error:
        raise RequestError(
            f"{entry.policy} needs co-likes, which this catalog does not have; "
            "train it with catalog.with_co_likes(dataset)"
        ) from error


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
    rule = [rules.described(), str(dict(rules.kinds))]
    described = json.dumps([kind, policy_options(policy), digest, rule], sort_keys=True, default=str)
    return hashlib.sha256(described.encode()).hexdigest()[:32]


def policy_shares(policy: str | Policy | Mapping[str, float | PolicyShare]) -> dict[str, PolicyShare]:
    """Return the policies to serve by name; shares must be positive and sum to 1."""
    if isinstance(policy, str):
        return {policy: PolicyShare(policy)}
    if not isinstance(policy, Mapping):
        return {policy_name(policy): PolicyShare(policy)}
    shares = {name: _share(name, given) for name, given in policy.items()}
    if not shares or not all(0.0 < entry.share <= 1.0 for entry in shares.values()):
        raise ValueError(f"policies are {dict(policy)}; give each a share above 0 and up to 1")
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


def catalog_digest(catalog: Catalog) -> str:
    """Return a short hash of everything in a catalog that beliefs depend on."""
    digest = hashlib.sha256()
    ids = catalog.item_ids.values
    parts = [ids.buffer, ids.ends] if not isinstance(ids, np.ndarray) else [ids]
    for array in (*parts, catalog.vectors, catalog.taste_vectors, catalog.log_odds, catalog.population_mean):
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]
