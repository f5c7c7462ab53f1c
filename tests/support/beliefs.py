"""What a service has learned about its users, against the log."""

import time
from collections.abc import Iterable

from slatewise.catalog import Catalog
from slatewise.recommender import PolicyShare, Recommender, state_codec
from slatewise.service.settings import Settings
from slatewise.store import Store, open_store
from tests.support.recommending import folded, loaded_profile
from tests.support.served import Caller

SERVED = {
    "dc2b-calibrated": PolicyShare("dc2b-calibrated", options={"explore": Settings.model_fields["explore"].default})
}
"""The policy as a service has it by default."""
RATES_SETTLE = 2.5
"""Seconds after which a service has published what it has learned about items."""
LARGEST_DIFFERENCE = 1e-9
LARGEST_DIFFERENCE_SERVED = 1e-6


def wrong_beliefs(caller: Caller, url: str, catalog: Catalog, users: Iterable[str]) -> list[str]:
    """Return for whom the stored belief, a loaded profile, or what the service has cached is not what the log says.

    Reads the store next to the running service.
    """
    with Recommender(catalog, SERVED, store=open_store(url, read_only=True)) as reader:
        stored = dict(reader.verify())
        problems = {user: stored.get(user) or misread(reader, user) for user in users}
        missed = {user: misserved(caller, reader, user) for user, problem in problems.items() if not problem}
        if any(missed.values()):  # perhaps the service has published rates since
            time.sleep(RATES_SETTLE)
            reader.learn_rates()
            missed = {user: problem and misserved(caller, reader, user) for user, problem in missed.items()}
    return [f"{user}: {problem}" for user, problem in (problems | missed).items() if problem]


def misread(recommender: Recommender, user: str) -> str | None:
    """Compare a profile loaded from the stored belief and the slates after it with the fold of all closed slates."""
    profile = loaded_profile(recommender, user)
    distance = state_codec.difference(profile.learned.state, folded(recommender, user, profile.policy))
    return None if distance <= LARGEST_DIFFERENCE else f"a loaded profile is {distance:.2g} away from the log"


def misserved(caller: Caller, reader: Recommender, user: str) -> str | None:
    """Compare the slate that the service would choose next with the one that the log alone gives."""
    answer = caller.ask("POST", "/v1/slates", {"user": user, "k": 5, "preview": True})
    served = {item["id"]: item["probability"] for item in answer.body["items"]}
    expected = {item.id: item.probability for item in reader.preview(user, 5).items}
    if list(served) != list(expected):
        return "the service would show other items than the log says"
    distance = max(abs(served[item] - (expected[item] or 0.0)) for item in served)
    return None if distance <= LARGEST_DIFFERENCE_SERVED else f"the service is {distance:.2g} away from the log"


def n_stored(store: Store) -> int:
    """Return of how many users a belief is stored."""
    return sum(store.read(lambda t, user=user: t.belief(user)).content is not None for user in store.users())  # type: ignore[misc]
