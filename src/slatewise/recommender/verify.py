"""Whether what is cached about a user in the store is what the log says."""

from dataclasses import replace

import numpy as np

from slatewise.policies import State
from slatewise.recommender import state_codec
from slatewise.recommender.learning import Learned
from slatewise.recommender.loading import load_profile
from slatewise.recommender.profile import SavedBelief
from slatewise.recommender.served_catalog import ServedCatalog
from slatewise.store.protocol import Transaction

LARGEST_DIFFERENCE = 1e-9
OTHER_ITEMS = ""
"""Instead of a problem: the belief was learned from other items than are served, so it was not compared."""


def belief_problem(transaction: Transaction, served: ServedCatalog, user: str) -> str | None:
    """Return what is wrong with what is cached about a user, None if nothing is; the whole log is read.

    OTHER_ITEMS if the log can be read, and the rest cannot be told.
    """
    record, belief = transaction.lock(user), transaction.belief(user)
    if record.damaged or belief.damaged:
        what = "row of the user" if record.damaged else "cached belief"
        return f"the {what} does not match its checksum; it will be rebuilt"
    policy = None if belief.content is None else served.policy_of(belief.key)
    if policy is None:
        read_log(transaction, user)
        return None
    if SavedBelief.read(belief, policy) is None:
        return "the cached belief cannot be read; it will be rebuilt"
    if SavedBelief.of(belief, policy) is None:
        read_log(transaction, user)
        return OTHER_ITEMS
    cached, folded = (load_profile(transaction, record, served, policy, use_saved=saved) for saved in (True, False))
    if served.catalog.origin is not None:
        cached, folded = (
            replace(profile, learned=_without_categories(profile.learned)) for profile in (cached, folded)
        )
    distance = difference(cached.learned, folded.learned)
    return None if distance <= LARGEST_DIFFERENCE else f"the cached belief is {distance:.2g} away from the log"


def difference(first: Learned, second: Learned) -> float:
    """Return the largest difference between what was learned twice, relative to 1 + its size."""
    if first.covers != second.covers:
        return float("inf")
    return state_codec.difference(_arrays(first), _arrays(second))


def _arrays(learned: Learned) -> State:
    shown, until = learned.shown, np.nan_to_num(learned.shown.until, posinf=0.0)
    kept = {
        "shown": shown.numbers,
        "until": until,
        "never": learned.never,
        "likes": learned.likes,
        "wishes": learned.wishes,
    }
    return {**learned.state, **kept, "counts": learned.counts}


def _without_categories(learned: Learned) -> Learned:
    """Leave out the counts by category: items may have had other categories when they were learned."""
    return replace(learned, counts=learned.counts[:, -1:])


def read_log(transaction: Transaction, user: str) -> None:
    """Read the whole log of a user, which fails if a row is damaged or lost."""
    transaction.slates_of(user)
    transaction.feedback_of(user)
    transaction.events_of(user)
