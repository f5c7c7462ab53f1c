"""What a service has learnt about its users, against the log."""

from collections.abc import Iterable

from slatewise.catalog import Catalog
from slatewise.recommender import Recommender, people, states
from slatewise.store import Store, open_store
from slatewise.store.protocol import CLOSED, Transaction
from tests.durability.served import Caller

LARGEST_DIFFERENCE = 1e-9
LARGEST_DIFFERENCE_SERVED = 1e-6


def wrong_beliefs(caller: Caller, url: str, catalog: Catalog, users: Iterable[str]) -> list[str]:
    """Return for whom the stored belief, a person read anew, or what the service has at hand is not what the log says.

    Looks into the store beside the running service.
    """
    with Recommender(catalog, store=open_store(url, read_only=True)) as beside:
        problems = {
            user: beside._problem(user) or misread(beside, user) or misserved(caller, beside, user) for user in users
        }
    return [f"{user}: {problem}" for user, problem in problems.items() if problem]


def misread(recommender: Recommender, user: str) -> str | None:
    """Compare a person read from the stored belief and the slates after it with the fold of all closed slates."""
    spaces = recommender.desk.spaces
    space = spaces.space(next(iter(recommender.shares)))

    def both(t: Transaction) -> tuple[people.Person, list[people.Showing]]:
        person = people.load(t, t.lock(user), spaces, space)
        return person, people.showings(spaces, t.slates_of(user), t.feedback_of(user))

    person, history = recommender.store.read(both)
    whole = people.fold(space, [one for one in history if one.slate.status == CLOSED])
    distance = states.difference(person.state, whole)
    return None if distance <= LARGEST_DIFFERENCE else f"a person read anew is {distance:.2g} away from the log"


def misserved(caller: Caller, beside: Recommender, user: str) -> str | None:
    """Compare the slate that the service would choose next with the one that somebody with the log only would."""
    answer = caller.ask("POST", "/v1/slates", {"user": user, "k": 5, "preview": True})
    served = {item["id"]: item["probability"] for item in answer.body["items"]}
    expected = {item.id: item.probability for item in beside.preview(user, 5).items}
    if list(served) != list(expected):
        return "the service would show other items than the log says"
    distance = max(abs(served[item] - (expected[item] or 0.0)) for item in served)
    return None if distance <= LARGEST_DIFFERENCE_SERVED else f"the service is {distance:.2g} away from the log"


def n_stored(store: Store) -> int:
    """Return of how many users a belief is stored."""
    return sum(store.read(lambda t, user=user: t.belief(user)).content is not None for user in store.users())  # type: ignore[misc]
