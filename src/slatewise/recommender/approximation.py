"""How often the approximate choice of very large catalogs finds the slate that the exact one would have found."""

from dataclasses import replace

import numpy as np

from slatewise.randomness import Streams
from slatewise.recommender.profile import learn_everything
from slatewise.recommender.recommend import Draft, choose_items, situation


def is_exact(draft: Draft, seed: int) -> bool | None:
    """Return whether a draft has the items of the exact choice, by choosing again; None if it was exact anyway.

    Few candidates, and scores that are boosted, are always looked at one by one.
    """
    served, profile, request = draft.served, draft.profile, draft.request
    exact = profile.policy.exact
    if exact is None or request.rules.boost:
        return None
    _, _, available, _ = situation(served, exact, learn_everything(profile), request, draft.at)
    if available.candidates is not None:
        return None
    random = Streams(seed, profile.random_key, profile.n_slates)
    again, *_ = choose_items(served, replace(profile, policy=exact), request, random, draft.at)
    return np.array_equal(again, draft.numbers)
