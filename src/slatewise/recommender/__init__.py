"""The online recommender: slates for users, feedback back, and nothing acknowledged is ever lost."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from slatewise.catalog import Catalog
from slatewise.policies import Policy
from slatewise.recommender import state_codec
from slatewise.recommender.experiments import compare_policies
from slatewise.recommender.expiry import PORTION, ExpiredSlates, Portion
from slatewise.recommender.explain import user_view
from slatewise.recommender.feedback import FeedbackEvent, record_feedback
from slatewise.recommender.profile import ProfileCache, fold, load_profile, tally_by_slate
from slatewise.recommender.recommend import (
    Draft,
    Serving,
    SlateRequest,
    check_id,
    draft_and_record,
    draft_slate,
    record_slate,
)
from slatewise.recommender.served_catalog import ServedCatalog, policy_shares
from slatewise.recommender.types import (
    ConflictError,
    PolicyResult,
    PolicyShare,
    Preview,
    Receipt,
    RequestError,
    Slate,
    SlateItem,
    UnknownSlateError,
    UserView,
)
from slatewise.store import Store, StoreDamagedError, open_store
from slatewise.store.export import WrongPageError, export_user
from slatewise.store.protocol import CLOSED, ItemId, Transaction, UserRecord

__all__ = [
    "ConflictError",
    "PolicyShare",
    "Preview",
    "Receipt",
    "Recommender",
    "RequestError",
    "Slate",
    "SlateItem",
    "UnknownSlateError",
]

LARGEST_DIFFERENCE = 1e-9
CACHED_USERS = 2_000


class Recommender:
    """Recommends slates and learns from feedback; safe to use from several threads.

    Parameters
    ----------
    catalog : Catalog
        The items to choose from.
    policy : str, Policy or mapping
        A name from POLICIES, a policy object, or shares of users by name, such as
        {"dc2b-calibrated": 0.9, "popular": 0.1}; a `PolicyShare` adds options.
    store : str or Store
        A URL (memory://, sqlite:///FILE, postgresql://…) or an open store.
    seed : int
        Of everything random.
    reward_wait : float
        Seconds after which a slate without feedback is closed by the next `close_expired`.
    clock : callable
        Returns the time in seconds since 1970.

    Examples
    --------
    >>> from slatewise import Catalog, Recommender
    >>> catalog = Catalog.from_vectors(["a", "b", "c"], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> recommender = Recommender(catalog)
    >>> slate = recommender.recommend("ann", k=2)
    >>> recommender.feedback(slate.slate_id, clicked=[slate.items[0].id]).duplicate
    False
    >>> len(recommender.recommend("ann").items)  # only one item has not been shown yet, so the others return
    3
    """

    max_drafts = 5
    """How many drafts of a slate may go stale before it is chosen while other writers of the user wait."""

    def __init__(
        self,
        catalog: Catalog,
        policy: str | Policy | Mapping[str, float | PolicyShare] = "dc2b-calibrated",
        store: str | Store = "memory://",
        *,
        seed: int = 0,
        reward_wait: float = 1800.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._policies = policy_shares(policy)
        self.reward_wait = reward_wait
        served = self._prepare(catalog)
        opened = open_store(store) if isinstance(store, str) else store
        self._serving = Serving(served, opened, ProfileCache(CACHED_USERS), seed, clock)

    @property
    def catalog(self) -> Catalog:
        """The catalog that slates are chosen from."""
        return self._serving.served.catalog

    @property
    def store(self) -> Store:
        """The store that slates and feedback are recorded in."""
        return self._serving.store

    @property
    def shares(self) -> dict[str, float]:
        """The share of users of each policy, by name."""
        return {name: entry.share for name, entry in self._policies.items()}

    @property
    def policy_names(self) -> tuple[str, ...]:
        """The policies that can be asked for by name."""
        return self._serving.served.policy_names

    @property
    def rebuilt(self) -> int:
        """How many beliefs were learned again from the log since the start."""
        return self._serving.profiles.rebuilt

    def recommend(
        self,
        user: str,
        k: int = 10,
        *,
        diversity: float | None = None,
        candidates: Iterable[ItemId] | None = None,
        exclude: Iterable[ItemId] | None = None,
        categories: Iterable[str] | None = None,
        policy: str | None = None,
        replaces: str | None = None,
    ) -> Slate:
        """Choose k items that this user has not been shown, and record the slate.

        The user's open slates are closed. Shown items return, oldest first, when nothing else is left.

        Parameters
        ----------
        user : str
            Any text of 1 to 256 characters.
        k : int
            The number of items.
        diversity : float, optional
            0 (most relevant) to 1 (most varied), for policies that have this option.
        candidates, exclude : iterable of item ids, optional
            Choose only among the candidates; never choose what is excluded.
        categories : iterable of str, optional
            Choose only items with one of these categories.
        policy : str, optional
            The name of another policy than the user's own.
        replaces : str, optional
            The id of a slate to withdraw if it is still open and has no click; its items count as never shown.

        Returns
        -------
        Slate
            The recorded slate, once it is durable.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> catalog = Catalog.from_vectors([1, 2, 3], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], categories="ABA")
        >>> slate = Recommender(catalog).recommend("ann", 2, categories=["A"], exclude=[3])
        >>> [item.id for item in slate.items]
        [1]
        """
        request = _request(user, k, diversity, candidates, exclude, categories, policy, replaces)
        for _ in range(self.max_drafts):
            slate = self.record(self.draft(request)).result()
            if slate is not None:
                return slate
        return self.draft_and_record(request).result()

    def preview(
        self,
        user: str,
        k: int = 10,
        *,
        diversity: float | None = None,
        candidates: Iterable[ItemId] | None = None,
        exclude: Iterable[ItemId] | None = None,
        categories: Iterable[str] | None = None,
        policy: str | None = None,
        replaces: str | None = None,
    ) -> Preview:
        """Return what `recommend` would choose now; nothing is recorded.

        Parameters
        ----------
        user, k, diversity, candidates, exclude, categories, policy, replaces
            As for `recommend`.

        Returns
        -------
        Preview
            The slate that would be chosen; it has no id and takes no feedback.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.preview("ann", 1).items == recommender.recommend("ann", 1).items
        True
        """
        return self.preview_of(_request(user, k, diversity, candidates, exclude, categories, policy, replaces))

    def preview_of(self, request: SlateRequest) -> Preview:
        """Return what would be chosen now for a request; nothing is recorded.

        Parameters
        ----------
        request : SlateRequest
            What `recommend` takes, as one object.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> len(recommender.preview_of(SlateRequest("ann")).items)
        2
        """
        version = self.store.read(lambda transaction: transaction.lock(request.user).version)
        self._serving.profiles.keep_only(request.user, version)
        draft = self.draft(request)
        return Preview(request.user, draft.profile.n_slates, draft.profile.policy.name, draft.variety, draft.items)

    def draft(self, request: SlateRequest) -> Draft:
        """Choose a slate without recording it; reads the store and computes, so keep it off an event loop.

        Parameters
        ----------
        request : SlateRequest
            What `recommend` takes, as one object.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> draft = recommender.draft(SlateRequest("ann"))
        >>> recommender.record(draft).result().number
        0
        """
        return draft_slate(self._serving, request)

    def record(self, draft: Draft) -> Future[Slate | None]:
        """Queue a draft to be recorded; the future is set once the slate is durable.

        Its result is None if the catalog or anything about the user changed since it was chosen: then draft again.

        Parameters
        ----------
        draft : Draft
            The result of `draft`.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> drafts = [recommender.draft(SlateRequest("ann", k=1)) for _ in range(2)]
        >>> [recommender.record(draft).result() is None for draft in drafts]
        [False, True]
        """
        return self.store.write(lambda transaction: record_slate(self._serving, transaction, draft))

    def draft_and_record(self, request: SlateRequest) -> Future[Slate]:
        """Queue a slate to be chosen and recorded in one transaction, for a user whose drafts keep going stale.

        Other writers may have to wait while it is chosen, so try `draft` and `record` a few times first.

        Parameters
        ----------
        request : SlateRequest
            What `recommend` takes, as one object.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.draft_and_record(SlateRequest("ann")).result().number
        0
        """
        return self.store.write(lambda transaction: draft_and_record(self._serving, transaction, request))

    def feedback(
        self,
        slate_id: str,
        clicked: Iterable[ItemId] = (),
        *,
        retracted: Iterable[ItemId] = (),
        event_id: str | None = None,
        final: bool = True,
    ) -> Receipt:
        """Record what was clicked on a slate, all at once or click by click; it counts once however often it is sent.

        Parameters
        ----------
        slate_id : str
            The id that came with the slate.
        clicked, retracted : iterable of item ids
            The clicked items, and those whose click is taken back.
        event_id : str, optional
            Any text; the same id with the same content is a duplicate, with other content an error. Without one, an
            id is made from the content.
        final : bool
            Close the slate: what was not clicked counts as not engaged with. Later clicks still count.

        Returns
        -------
        Receipt
            What became of the event, once it is durable.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> slate = recommender.recommend("ann")
        >>> first = recommender.feedback(slate.slate_id, [1], event_id="click-1")
        >>> again = recommender.feedback(slate.slate_id, [1], event_id="click-1")
        >>> first.duplicate, again.duplicate
        (False, True)
        """
        return self.feedback_later(slate_id, clicked, retracted=retracted, event_id=event_id, final=final).result()

    def feedback_later(
        self,
        slate_id: str,
        clicked: Iterable[ItemId] = (),
        *,
        retracted: Iterable[ItemId] = (),
        event_id: str | None = None,
        final: bool = True,
    ) -> Future[Receipt]:
        """Queue feedback to be recorded; the future is set once it is durable.

        Parameters
        ----------
        slate_id, clicked, retracted, event_id, final
            As for `feedback`.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.feedback_later(recommender.recommend("ann").slate_id, [1]).result().duplicate
        False
        """
        event, serving = FeedbackEvent.of(slate_id, clicked, retracted, event_id, final), self._serving
        return serving.store.write(lambda transaction: record_feedback(serving, transaction, event))

    def explain(self, user: str) -> UserView:
        """Return what is believed about a user; a user never seen is believed to be average.

        Parameters
        ----------
        user : str
            Any text of 1 to 256 characters.

        Returns
        -------
        UserView
            Taste by category, the rounds so far, and what was liked.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]])).explain("ann").slates
        0
        """
        check_id("user", user)
        served = self._serving.served
        policy = served.policy(served.assigned_policy(user))
        history, events = self.store.read(lambda t: (t.slates_of(user), t.feedback_of(user)))
        return user_view(served, policy, user, history, tally_by_slate(events))

    def export(self, user: str, *, after: str | None = None, limit: int | None = None) -> dict[str, Any]:
        """Return everything that is kept about a user, ready for JSON, whole or page by page.

        Parameters
        ----------
        user : str
            The id of the user.
        after : str, optional
            The `next` of the page before.
        limit : int, optional
            How many rows a page has at most; all of them without a limit.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> slate = recommender.recommend("ann")
        >>> [entry["number"] for entry in recommender.export("ann")["slates"]]
        [0]
        """
        check_id("user", user)
        try:
            content = export_user(self.store, user, after, limit)
        except WrongPageError as error:
            raise RequestError(str(error)) from None
        if content is None:
            raise RequestError("nothing is kept about this user")
        return content

    def forget(self, user: str) -> bool:
        """Delete everything about a user; return whether there was anything.

        Parameters
        ----------
        user : str
            The id of the user.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> slate = recommender.recommend("ann")
        >>> recommender.forget("ann"), recommender.forget("ann")
        (True, False)
        """
        check_id("user", user)
        existed = self.store.write(lambda transaction: transaction.forget(user)).result()
        self._serving.profiles.drop(user)
        return existed

    def experiments(self) -> list[PolicyResult]:
        """Compare the policies by what users did with their slates.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> [result.policy for result in recommender.experiments()]
        ['dc2b-calibrated']
        """
        return compare_policies(self.store.read(lambda transaction: transaction.totals()), self.shares)

    def close_expired(self, limit: int = 1_000) -> int:
        """Close slates that waited for feedback longer than `reward_wait`; return how many.

        They are closed a few at a time, so that others can write in between. One that cannot be closed, because its
        row or its user's log is damaged, does not hold up the others; its error is raised at the end.

        Parameters
        ----------
        limit : int
            Close at most so many.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.close_expired()
        0
        """
        expired, portions = self.expired_slates(), list[Portion]()
        while limit > 0:
            portions.append(expired.close_portion(min(limit, PORTION)))
            limit = limit - PORTION if portions[-1].found == PORTION else 0
        for error in (error for portion in portions for error in portion.errors):
            raise error
        return sum(portion.closed for portion in portions)

    def expired_slates(self) -> ExpiredSlates:
        """Return what `close_expired` closes, for a service that does so in small portions.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]), reward_wait=-1.0)
        >>> slate = recommender.recommend("ann")
        >>> recommender.expired_slates().close_portion().closed
        1
        """
        return ExpiredSlates(lambda: self._serving, self.reward_wait)

    def use_catalog(self, catalog: Catalog) -> None:
        """Serve from another catalog from now on; beliefs are rebuilt from the log when their users come back.

        Parameters
        ----------
        catalog : Catalog
            The new items to choose from.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.use_catalog(Catalog.from_vectors([2, 3], [[1.0, 0.0], [0.0, 1.0]]))
        >>> sorted(item.id for item in recommender.recommend("ann").items)
        [2, 3]
        """
        self._serving = replace(
            self._serving, served=self._prepare(catalog), profiles=ProfileCache(CACHED_USERS, self.rebuilt)
        )

    def verify(self) -> Iterator[tuple[str, str | None]]:
        """Yield every user and what is wrong with what is cached about them, or None.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> slate = recommender.recommend("ann")
        >>> list(recommender.verify())
        [('ann', None)]
        """
        for user in self.store.users():
            yield user, self._problem(user)

    def rebuild(self, user: str) -> None:
        """Learn the belief about a user again from the log; nothing is written about a user never seen.

        Parameters
        ----------
        user : str
            The id of the user.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> slate = recommender.recommend("ann")
        >>> recommender.rebuild("ann")
        """
        serving = self._serving
        policy = serving.served.policy(serving.served.assigned_policy(user))

        def job(transaction: Transaction) -> None:
            record = transaction.lock(user)
            if record == UserRecord(user):
                return
            profile = load_profile(transaction, record, serving.served, policy, use_saved=False)
            transaction.save_belief(profile.to_record(user))
            now = serving.next_time(record)
            serving.save(transaction, user, replace(profile, saved=profile.covers), now)

        self.store.write(job).result()

    def close(self) -> None:
        """Finish what is queued and close the store.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.close()
        """
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self, catalog: Catalog) -> ServedCatalog:
        served = ServedCatalog(catalog, self._policies)
        for name in self._policies:
            served.policy(name)
        return served

    def _problem(self, user: str) -> str | None:
        served = self._serving.served
        try:
            record, belief, history, events = self.store.read(
                lambda t: (t.lock(user), t.belief(user), t.slates_of(user), t.feedback_of(user))
            )
        except StoreDamagedError as error:
            return str(error)
        if record.damaged or belief.damaged:
            what = "row of the user" if record.damaged else "cached belief"
            return f"the {what} does not match its checksum; it will be rebuilt"
        policy = None if belief.content is None else served.policy_of(belief.key)
        if policy is None or belief.content is None:
            return None
        learned = [slate for slate in history if slate.status == CLOSED and slate.number < belief.covers]
        try:
            folded = fold(policy, served, learned, tally_by_slate(events))
            distance = state_codec.difference(state_codec.from_bytes(belief.content), folded)
        except ValueError as error:
            return f"{error}; it will be rebuilt"
        return None if distance <= LARGEST_DIFFERENCE else f"the cached belief is {distance:.2g} away from the log"


def _request(
    user: str,
    k: int,
    diversity: float | None,
    candidates: Iterable[ItemId] | None,
    exclude: Iterable[ItemId] | None,
    categories: Iterable[str] | None,
    policy: str | None,
    replaces: str | None,
) -> SlateRequest:
    return SlateRequest(
        user,
        k,
        diversity,
        None if candidates is None else tuple(candidates),
        None if exclude is None else tuple(exclude),
        None if categories is None else tuple(categories),
        policy,
        replaces,
    )
