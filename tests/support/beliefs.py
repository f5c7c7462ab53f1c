"""What a service has learned about its users, against the log."""

from collections.abc import Iterable

from slatewise.catalog import Catalog
from slatewise.recommender import Recommender, state_codec
from slatewise.store import Store, open_store
from tests.support.recommending import folded, loaded_profile
from tests.support.served import Caller

LARGEST_DIFFERENCE = 1e-9
LARGEST_DIFFERENCE_SERVED = 1e-6


def wrong_beliefs(caller: Caller, url: str, catalog: Catalog, users: Iterable[str]) -> list[str]:
    """Return for whom the stored belief, a loaded profile, or what the service has cached is not what the log says.

    Reads the store next to the running service.
    """
    with Recommender(catalog, store=open_store(url, read_only=True)) as reader:
        stored = dict(reader.verify())
        problems = {
            user: stored.get(user) or misread(reader, user) or misserved(caller, reader, user) for user in users
        }
    return [f"{user}: {problem}" for user, problem in problems.items() if problem]


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
