"""The online recommender: slates for users, feedback back, and nothing acknowledged is ever lost."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from slatewise.attention_fit import AttentionFit
from slatewise.catalog import Catalog
from slatewise.evaluation.verdict import Evaluation
from slatewise.evidence import SERVICE_DEFAULT, Attention
from slatewise.policies import Policy
from slatewise.recommender.approximation import is_exact
from slatewise.recommender.assignment import Experiment
from slatewise.recommender.event_kinds import event_kinds
from slatewise.recommender.events import Event, record_event
from slatewise.recommender.experiments import begin_experiment, compare_in_experiment, read_experiment
from slatewise.recommender.expiry import PORTION, ExpiredSlates, Portion
from slatewise.recommender.explain import MAX_ROUNDS, user_view
from slatewise.recommender.feedback import FeedbackEvent, Values, record_feedback
from slatewise.recommender.fitting import fit_log, fit_record
from slatewise.recommender.item_changes import (
    FIELDS,
    Item,
    as_items,
    check_items,
    item_details,
    patch_item,
    withdraw_items,
)
from slatewise.recommender.items import ItemSnapshot
from slatewise.recommender.learning import SlateChange
from slatewise.recommender.live_rates import LiveRates
from slatewise.recommender.loading import LogTail, load_profile
from slatewise.recommender.merge import check_merge, merge_users
from slatewise.recommender.off_policy import evaluate_policy
from slatewise.recommender.profile import ProfileCache, UserProfile
from slatewise.recommender.recommend import (
    Draft,
    Serving,
    SlateRequest,
    check_id,
    draft_and_record,
    draft_slate,
    listed,
    record_slate,
    recorded_slate,
)
from slatewise.recommender.replay import replay_user
from slatewise.recommender.rules import ATTENTION_FIT, FOLLOW_FIT, LearningRules, fitted_attention
from slatewise.recommender.served_catalog import ServedCatalog, uncertain_items
from slatewise.recommender.served_policies import policy_shares
from slatewise.recommender.shadow import check_shadow
from slatewise.recommender.slate_rules import NO_RULES, AtLeast, AtMost, Boost, Pin, SlateRules, as_rules
from slatewise.recommender.types import (
    ConflictError,
    EventReceipt,
    ItemDetails,
    MergeReceipt,
    PolicyResult,
    PolicyShare,
    Preview,
    Rate,
    RatedItem,
    Receipt,
    ReplayedSlate,
    RequestError,
    RuleError,
    Slate,
    SlateItem,
    UnknownItemError,
    UnknownSlateError,
    UnknownUserError,
    UserView,
)
from slatewise.recommender.verify import OTHER_ITEMS, belief_problem
from slatewise.recommender.warm_up import rehearse
from slatewise.store import Store, StoreDamagedError, StoreUnavailableError, open_store
from slatewise.store.export import WrongPageError, export_user
from slatewise.store.protocol import StoreUncertainError, Transaction
from slatewise.store.records import CLOSED, ItemId, UserRecord

__all__ = [
    "AtLeast",
    "AtMost",
    "Boost",
    "ConflictError",
    "Event",
    "EventReceipt",
    "Experiment",
    "Item",
    "ItemDetails",
    "Pin",
    "PolicyShare",
    "Preview",
    "Receipt",
    "Recommender",
    "RequestError",
    "Slate",
    "SlateItem",
    "SlateRules",
    "UnknownItemError",
    "UnknownSlateError",
]

CACHED_USERS = 2_000
LISTS = ("candidates", "exclude", "categories")


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
    attention : Attention or "curve"
        What an item without a reaction means, where clients do not say what was seen; by default what is safe for most
        audiences, `slatewise.evidence.SERVICE_DEFAULT`. "curve" follows what was last fitted from the log of the store.
    half_life : float
        Days after which evidence counts half; infinite by default. Only for policies whose state is a sum.
    repeat_after : float
        Seconds after which a shown item may be offered again; infinite by default.
    events : mapping
        Changes to the table of kinds of events, such as {"purchase": {"weight": 2.0, "repeat_after": 86400.0}}.
    scenarios : mapping
        Rules for slates by name, each a `SlateRules` or a dictionary of its fields; requests name them.
    experiment : Experiment
        Compare the policies in a named experiment, with counts of its own and perhaps a holdout.
    shadow : str or PolicyShare
        A policy that chooses along with the one that is shown; the log keeps what it chose, and nobody sees it.

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
        attention: Attention | str | None = None,
        half_life: float = math.inf,
        repeat_after: float = math.inf,
        events: Mapping[str, Mapping[str, float]] | None = None,
        scenarios: Mapping[str, SlateRules | Mapping[str, Any]] | None = None,
        experiment: Experiment | None = None,
        shadow: str | PolicyShare | None = None,
    ) -> None:
        if not isinstance(catalog, Catalog):
            raise ValueError(f"catalog is {catalog!r}; give a Catalog, such as Catalog.load(directory)")
        self._policies = policy_shares(policy)
        self._scenarios = {name: as_rules(given) for name, given in (scenarios or {}).items()}
        if isinstance(attention, str) and attention != FOLLOW_FIT:
            raise ValueError(
                f"attention is {attention!r}; give an Attention, or {FOLLOW_FIT!r} to follow the latest fit"
            )
        self._follows_fit = isinstance(attention, str)
        rule = attention if isinstance(attention, Attention) else SERVICE_DEFAULT
        self._rules = LearningRules(rule, half_life, repeat_after, event_kinds(events or {}))
        self.reward_wait = reward_wait
        opened = open_store(store) if isinstance(store, str) else store
        if self._follows_fit:
            self._rules = replace(self._rules, attention=_fitted(opened))
        self._plan = None if experiment is None else experiment.among(self.shares)
        self._experiment = None if self._plan is None else begin_experiment(opened, self._plan, clock())
        self._shadow = PolicyShare(shadow) if isinstance(shadow, str) else shadow
        self._rates = LiveRates(opened)
        served = self._prepare(ItemSnapshot.read(opened, catalog))
        self._items_lock = threading.RLock()
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
    def attention(self) -> Attention:
        """What an item without a reaction means now."""
        return self._rules.attention

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
        request_id: str | None = None,
        rules: SlateRules = NO_RULES,
        scenario: str | None = None,
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
            The id of a slate to withdraw if it is still open and nobody reacted to it; its items count as never shown.
        request_id : str, optional
            Any text; the same id with the same request returns the same slate, with another request it is an error.
        rules : SlateRules, optional
            What the slate must be like: filter, boost, pin, at_most, at_least, min_probability, exclude_owned.
        scenario : str, optional
            The name of rules that were given to the recommender; both these and `rules` count.

        Returns
        -------
        Slate
            The recorded slate, once it is durable; `unmet` are the rules that it does not meet.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> catalog = Catalog.from_vectors([1, 2, 3], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], categories="ABA")
        >>> slate = Recommender(catalog).recommend("ann", 2, categories=["A"], exclude=[3])
        >>> [item.id for item in slate.items]
        [1]
        """
        request = self.request(
            user,
            k,
            diversity=diversity,
            candidates=candidates,
            exclude=exclude,
            categories=categories,
            policy=policy,
            replaces=replaces,
            request_id=request_id,
            rules=rules,
            scenario=scenario,
        )
        for _ in range(self.max_drafts):
            slate = self.recorded(request) or self.record(self.draft(request)).result()
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
        rules: SlateRules = NO_RULES,
        scenario: str | None = None,
    ) -> Preview:
        """Return what `recommend` would choose now; nothing is recorded.

        Parameters
        ----------
        user, k, diversity, candidates, exclude, categories, policy, replaces, rules, scenario
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
        return self.preview_of(
            self.request(
                user,
                k,
                diversity=diversity,
                candidates=candidates,
                exclude=exclude,
                categories=categories,
                policy=policy,
                replaces=replaces,
                rules=rules,
                scenario=scenario,
            )
        )

    def request(
        self, user: str, k: int = 10, *, rules: SlateRules = NO_RULES, scenario: str | None = None, **others: Any
    ) -> SlateRequest:
        """Return what `recommend` takes, as one object, with the rules of the scenario.

        Parameters
        ----------
        user, k, rules, scenario
            As for `recommend`.
        others
            The other arguments of `recommend`.

        Returns
        -------
        SlateRequest

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> catalog = Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]])
        >>> recommender = Recommender(catalog, scenarios={"teas": {"filter": "title = 'tea'"}})
        >>> [item.id for item in recommender.preview_of(recommender.request("ann", scenario="teas")).items]
        ['tea']
        """
        scenario_rules = NO_RULES
        if scenario is not None:
            if scenario not in self._scenarios:
                known = ", ".join(self._scenarios)
                advice = f"choose from: {known}" if known else "the settings have no scenarios"
                raise RuleError("scenario", f"there is no scenario of this name; {advice}")
            scenario_rules = self._scenarios[scenario]
            rules = scenario_rules.and_also(rules)
        lists = {name: listed(name, others[name]) for name in LISTS if others.get(name) is not None}
        others.update(lists, scenario=scenario, scenario_rules=scenario_rules)
        return SlateRequest(user, k, rules=rules, **others)

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
        chosen = (draft.variety, draft.items, draft.unmet)
        return Preview(request.user, draft.profile.n_slates, draft.profile.policy.name, *chosen)

    def recorded(self, request: SlateRequest) -> Slate | None:
        """Return the slate that was recorded for the same request before, if it has a request_id.

        Parameters
        ----------
        request : SlateRequest
            What `recommend` takes, as one object.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> request = SlateRequest("ann", request_id="visit-1")
        >>> recommender.recorded(request) is None, recommender.record(recommender.draft(request)).result().number
        (True, 0)
        >>> recommender.recorded(request).number
        0
        """
        if request.request_id is None:
            return None
        served = self._serving.served
        return self.store.read(lambda transaction: recorded_slate(served, transaction, request))

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
        recorded = self.store.write(lambda transaction: record_slate(self._serving, transaction, draft))
        recorded.add_done_callback(lambda done: self._note_withdrawn(done, [draft]))
        return recorded

    def is_exact(self, draft: Draft) -> bool | None:
        """Choose a draft again, exactly, and return whether that gives the same items; None if it was exact anyway.

        Parameters
        ----------
        draft : Draft
            The result of `draft`; it may have been recorded.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> print(recommender.is_exact(recommender.draft(SlateRequest("ann"))))  # a small catalog
        None
        """
        return is_exact(draft, self._serving.seed)

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
        serving, drafts = self._serving, deque[Draft](maxlen=1)
        recorded = serving.store.write(lambda transaction: draft_and_record(serving, transaction, request, drafts))
        recorded.add_done_callback(lambda done: self._note_withdrawn(done, drafts))
        return recorded

    def feedback(
        self,
        slate_id: str,
        clicked: Iterable[ItemId] = (),
        *,
        retracted: Iterable[ItemId] = (),
        seen: Iterable[ItemId] | int | None = None,
        values: Values = (),
        disliked: Iterable[ItemId] = (),
        event_id: str | None = None,
        final: bool = True,
        user: str | None = None,
    ) -> Receipt:
        """Record how a user reacted to a slate, all at once or bit by bit; it counts once however often it is sent.

        Parameters
        ----------
        slate_id : str
            The id that came with the slate.
        clicked, retracted : iterable of item ids
            The clicked items, and those whose click, value or dislike is taken back.
        seen : iterable of item ids, or int, optional
            The items that were looked at, or how many from the top. What was not seen teaches nothing and may be
            offered again. Where nobody says, `attention` decides.
        values : mapping or pairs
            Graded items: 0 (refused) to 1 (liked).
        disliked : iterable of item ids
            Items that are refused for sure.
        event_id : str, optional
            Any text; the same id of a user with the same content is a duplicate, with other content an error. Without
            one, an event is a duplicate if it says what the latest event about any of its items has said.
        final : bool
            Close the slate: nothing more is expected. What comes later still counts.
        user : str, optional
            Whose slate it is, if that is known; saves looking for it.

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
        event = FeedbackEvent(slate_id, clicked, retracted, seen, values, disliked, event_id, final, user)
        return self.feedback_later(event).result()

    def feedback_later(self, event: FeedbackEvent) -> Future[Receipt]:
        """Queue feedback to be recorded; the future is set once it is durable.

        Parameters
        ----------
        event : FeedbackEvent
            What `feedback` takes, as one object.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> event = FeedbackEvent(recommender.recommend("ann").slate_id, [1])
        >>> recommender.feedback_later(event).result().duplicate
        False
        """
        serving, changes = self._serving, deque[SlateChange](maxlen=1)
        receipt = serving.store.write(lambda transaction: record_feedback(serving, transaction, event, changes))
        receipt.add_done_callback(lambda done: self._note(done, changes))
        return receipt

    def record_event(self, event: Event) -> EventReceipt:
        """Record something that a user did with an item anywhere; it counts once however often it is sent.

        Parameters
        ----------
        event : Event
            User, item, kind, and optionally value, time and id.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.record_event(Event("ann", "tea", "owned")).duplicate
        False
        >>> [item.id for item in recommender.recommend("ann").items]
        ['cocoa']
        """
        return self.event_later(event).result()

    def record_events(self, events: Iterable[Event]) -> list[EventReceipt]:
        """Record events, each on its own; return what became of them, once all are durable.

        Parameters
        ----------
        events : iterable of Event
            In any order. If some fail, the others are recorded all the same, and the first error is raised.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
        >>> events = [Event("ann", "tea", "like"), Event("ben", "cake", "like")]
        >>> [receipt.known for receipt in recommender.record_events(events)]
        [True, False]
        """
        waiting = [self.event_later(event) for event in events]
        wait(waiting)
        return [future.result() for future in waiting]

    def event_later(self, event: Event) -> Future[EventReceipt]:
        """Queue an event to be recorded; the future is set once it is durable.

        Parameters
        ----------
        event : Event
            As for `record_event`.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.event_later(Event("ann", "tea", "view", 0.8)).result().known
        True
        """
        serving = self._serving
        return serving.store.write(lambda transaction: record_event(serving, transaction, event))

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

        def job(transaction: Transaction) -> tuple[UserProfile, LogTail]:
            profile = load_profile(transaction, transaction.lock(user), served, policy)
            slates = transaction.slates_of(user, max(0, profile.covers - MAX_ROUNDS), MAX_ROUNDS)
            first = min((slate.created_at for slate in slates), default=0.0)
            return profile, LogTail(slates, transaction.feedback_of(user, (first, "")), ())

        profile, recent = self.store.read(job)
        counted = [slate for slate in recent.logged_slates(served) if slate.record.number < profile.covers]
        return user_view(served, profile, user, [slate for slate in counted if slate.record.status == CLOSED])

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
            raise UnknownUserError("nothing is kept about this user")
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

    def merge(self, user: str, session: str) -> MergeReceipt:
        """Move everything that is known about a session to a user, as if it had always been the user's.

        Parameters
        ----------
        user : str
            Who the person turned out to be.
        session : str
            The id that the person had before; nothing is left of it.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> receipt = recommender.feedback(recommender.recommend("session-1").slate_id, [2])
        >>> recommender.merge("ann", "session-1").slates, recommender.explain("ann").clicks
        (1, 1)
        """
        check_merge(user, session)
        serving = self._serving
        return self.store.write(lambda transaction: merge_users(serving, transaction, user, session)).result()

    def experiments(self) -> list[PolicyResult]:
        """Compare the policies by what users did with their slates; in a named experiment, since its start.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> [result.policy for result in recommender.experiments()]
        ['dc2b-calibrated']
        """
        totals, serving = self.store.read(lambda transaction: transaction.totals()), self._serving
        return compare_in_experiment(totals, self.shares, serving.served.experiment, serving.clock())

    def switch_experiment(self, name: str, running: bool) -> None:
        """Stop the named experiment, or go on with it, durably and without a restart; its counts stay.

        Parameters
        ----------
        name : str
            The name of the experiment that this recommender was given.
        running : bool
            Whether it shall run. One that its settings stop does not.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> from slatewise.recommender import Experiment
        >>> catalog = Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]])
        >>> shares = {"dc2b-calibrated": 0.5, "popular": 0.5}
        >>> recommender = Recommender(catalog, shares, experiment=Experiment("autumn", control="popular"))
        >>> recommender.switch_experiment("autumn", running=False)
        >>> {recommender.recommend(f"user {number}").policy for number in range(20)}
        {'popular'}
        """
        plan = self._plan
        if plan is None:
            raise RequestError("this service has no named experiment; its settings can give it one")
        if plan.name != name:
            raise RequestError(f"there is no experiment of that name; that of this service is {plan.name!r}")
        if running and not plan.running:
            raise RequestError(f"the settings say that {plan.name!r} does not run; change them")
        begin_experiment(self.store, plan, self._serving.clock(), halted=not running)
        self.follow_experiment()

    def follow_experiment(self) -> bool:
        """Take in that the experiment was stopped or goes on, by another process; return whether anything changed.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.follow_experiment()
        False
        """
        if self._plan is None:
            return False
        with self._items_lock:
            dated = read_experiment(self.store, self._plan, self._serving.clock())
            if dated == self._experiment:
                return False
            self._experiment = self._serving.served.experiment = dated
            return True

    def evaluate(
        self, policy: str, options: Mapping[str, Any] | None = None, *, on_user: Callable[[], None] | None = None
    ) -> Evaluation:
        """Estimate from the log what another policy would have got, in clicks per slate; nothing is changed.

        Parameters
        ----------
        policy : str
            The name of a policy that can be requested.
        options : mapping, optional
            Options that differ from those that it is served with.
        on_user : callable, optional
            Called after each user, to show progress.

        Returns
        -------
        Evaluation
            Estimates with intervals and warnings, and a verdict in words.

        Raises
        ------
        RequestError
            If there is no such policy, or no slate of the log can be judged.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2, 3], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), "random")
        >>> for user in range(50):
        ...     slate = recommender.recommend(f"user {user}", 1)
        ...     receipt = recommender.feedback(slate.slate_id, [item.id for item in slate.items if item.id == 3])
        >>> evaluation = recommender.evaluate("popular")
        >>> evaluation.slates, sorted(evaluation.estimates)[:2]
        (50, ['cascade doubly robust', 'direct method'])
        """
        served = self._serving.served
        try:
            target = served.with_options(policy, options or {})
        except ValueError as error:
            raise RequestError(str(error)) from error
        return evaluate_policy(self.store, served, target, on_user)

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
            limit = limit - PORTION if portions[-1].expired == PORTION else 0
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
        with self._items_lock:
            self._start_over(ItemSnapshot.read(self.store, catalog))

    def put_items(self, items: Iterable[Item | Mapping[str, Any]]) -> int:
        """Add items, or replace what was said about them before; in force from the next slate on.

        Other recommenders on the same store follow by `follow_items`, which a service does several times a second.

        Parameters
        ----------
        items : iterable of Item or dict
            Each item once, as a dict with the fields of `Item`; all of them are written or, if one is refused, none.

        Returns
        -------
        int
            The version of the item table; it grows with each change.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> from slatewise.recommender import Item
        >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.put_items([Item("cake", "Apple cake", ["Sweet"], {"price": 4.5})])
        1
        >>> recommender.put_items([{"id": "milk", "title": "Oat milk"}])
        2
        >>> sorted(item.title for item in recommender.recommend("ann").items)
        ['Apple cake', 'Oat milk', 'cocoa', 'tea']
        """
        given, snapshot = as_items(items), self._serving.served.items
        check_items(snapshot, given)
        now = self._serving.clock()
        return self._write_items(lambda transaction: transaction.put_items([item.record(now) for item in given]))

    def patch_item(self, item: ItemId, changes: Mapping[str, Any]) -> int:
        """Change some of what is said about an item; return the version of the item table.

        Parameters
        ----------
        item : int or str
            The id of an item of the catalog or of the item table.
        changes : mapping
            New values for fields of `Item`; of attributes only those named, and None removes one.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.patch_item("tea", {"title": "Green tea", "attributes": {"price": 3.5}})
        1
        >>> recommender.item("tea").title
        'Green tea'
        """
        now, unknown = self._serving.clock(), set(changes) - set(FIELDS)
        if unknown:
            raise RequestError(f"an item has no field {sorted(unknown)[0]!r}; its fields are {', '.join(FIELDS)}")
        snapshot = self._serving.served.items
        return self._write_items(lambda transaction: patch_item(snapshot, transaction, item, changes, now))

    def withdraw_items(self, items: Iterable[ItemId]) -> int:
        """Offer items no more; late feedback on them still counts. Return the version of the item table.

        `patch_item(item, {"available": True})` offers an item again.

        Parameters
        ----------
        items : iterable of item ids
            All of them are withdrawn or, if one is unknown, none.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
        >>> version = recommender.withdraw_items(["tea"])
        >>> [item.id for item in recommender.recommend("ann").items]
        ['cocoa']
        """
        given, snapshot, now = list(dict.fromkeys(items)), self._serving.served.items, self._serving.clock()
        return self._write_items(lambda transaction: withdraw_items(snapshot, transaction, given, now))

    def item(self, item: ItemId) -> ItemDetails:
        """Return what is known about an item; an UnknownItemError if there is none.

        Parameters
        ----------
        item : int or str
            The id of the item.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.item("cocoa").title
        'cocoa'
        """
        return self.items([item])[0]

    def items(self, items: Iterable[ItemId]) -> list[ItemDetails]:
        """Return what is known about items; an UnknownItemError if one is unknown.

        Parameters
        ----------
        items : iterable of item ids
            In any order.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
        >>> [item.available for item in recommender.items(["tea", "cocoa"])]
        [True, True]
        """
        served = self._serving.served
        details = self.store.read(lambda transaction: item_details(served.items, transaction, items))
        return [replace(item, rate=served.rate(item.id)) for item in details]

    @property
    def snapshot(self) -> ItemSnapshot:
        """The catalog and the item table that slates are chosen from now.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.snapshot.version, recommender.snapshot.frame.columns
        (0, ['id', 'title', 'categories', 'available', 'published_at'])
        """
        return self._serving.served.items

    def follow_items(self) -> bool:
        """Serve the items as the store has them, if others changed them; return whether they did.

        Beliefs stay valid; only users who have met an item before it was what it is now are learned again.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.follow_items()
        False
        """
        with self._items_lock:
            served = self._serving.served
            items = served.items.refreshed(self.store)
            if items is served.items:
                return False
            new = served.with_items(items)
            for name in self._policies:
                new.policy(name)
            self._rates.use(new)
            profiles = self._serving.profiles
            if new.prepared() is not served.prepared():
                profiles = profiles.moved_to(new.prepared())
            self._serving = replace(self._serving, served=new, profiles=profiles)
        return True

    def expect_new_items(self) -> None:
        """Learn from the trained items what content says about an item, which the first new one would wait for.

        It takes some seconds in the calling thread, once per catalog; a service has a thread of its own for it.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]])).expect_new_items()
        """
        trained = self.catalog.trained
        for name in ("content_model", "vector_model") if trained.takes_vectors else ("content_model",):
            getattr(trained, name)

    def follow_fit(self) -> bool:
        """Learn by what was last fitted from the log, if `attention` says so; return whether that has changed.

        Beliefs are then rebuilt from the log when their users come back.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]), attention="curve")
        >>> recommender.follow_fit()
        False
        """
        attention = _fitted(self.store) if self._follows_fit else self._rules.attention
        if attention == self._rules.attention:
            return False
        self._rules = replace(self._rules, attention=attention)
        with self._items_lock:
            self._start_over(self._serving.served.items)
        return True

    def fit_attention(self, *, save: bool = True) -> AttentionFit:
        """Fit from the log how far people look down a slate and how much a skip weighs.

        It takes seconds to a minute in the calling thread. Recommenders with `attention="curve"` follow what is saved.

        Parameters
        ----------
        save : bool
            Save the fit in the store.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.fit_attention()
        Traceback (most recent call last):
        slatewise.recommender.types.RequestError: nobody has reacted to a slate yet, so there is nothing to fit
        """
        fit, now = fit_log(self.store, self._serving.served), self._serving.clock()
        if save:
            self.store.write(lambda transaction: transaction.save_fit(fit_record(fit, now))).result()
        return fit

    def learn_rates(self) -> int:
        """Learn from the latest feedback of everyone which items are liked, and choose by it; return the version.

        A service does it once a second. It reads and writes the store in the calling thread. Other recommenders on the
        same store follow when they learn. Policies that know no rates, and what is known about users, do not change.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> receipt = recommender.feedback(recommender.recommend("ann").slate_id, [2])
        >>> before, version, after = recommender.rate(2), recommender.learn_rates(), recommender.rate(2)
        >>> after.seen > before.seen
        True
        """
        return self._rates.step(self._serving.served, self._serving.clock())

    def rebuild_rates(self) -> int:
        """Learn the rates of items again from the whole log of the catalog, and choose by them; return the version.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.rebuild_rates()
        0
        """
        return self._rates.rebuild(self._serving.served, self._serving.clock())

    def rate(self, item: ItemId) -> Rate:
        """Return what share of all people is believed to click an item that they see, with its interval.

        Parameters
        ----------
        item : int or str
            The id of the item.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
        >>> rate = recommender.rate("tea")
        >>> rate.value, rate.low < 0.2, rate.high > 0.8
        (0.5, True, True)
        """
        rate = self._serving.served.rate(item)
        if rate is None:
            raise UnknownItemError("the catalog does not have this item")
        return rate

    def uncertain_items(self, limit: int = 20) -> list[RatedItem]:
        """Return offered items that the least is known about: up to half new ones, the newest first, then by rate.

        Parameters
        ----------
        limit : int
            How many items to return at most.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> from slatewise.recommender import Item
        >>> recommender = Recommender(Catalog.from_vectors(["tea", "cocoa"], [[1.0, 0.0], [0.0, 1.0]]))
        >>> version = recommender.put_items([Item("mate")])
        >>> [(item.id, item.is_new) for item in recommender.uncertain_items()]
        [('mate', True), ('cocoa', False), ('tea', False)]
        """
        return uncertain_items(self._serving.served, limit, self._serving.clock())

    def verify(self) -> Iterator[tuple[str, str | None]]:
        """Yield every user and what is wrong with what is cached about them, or None.

        Items that others change meanwhile are followed.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> slate = recommender.recommend("ann")
        >>> list(recommender.verify())
        [('ann', None)]
        """
        for user in self.store.users():
            problem = self._problem(user)
            if problem == OTHER_ITEMS and self.follow_items():
                problem = self._problem(user)
            yield user, problem or None

    def replay(self, users: Iterable[str] | None = None) -> Iterator[ReplayedSlate]:
        """Choose logged slates again, from the log as it was at that time, and yield how they compare item by item.

        Parameters
        ----------
        users : iterable of str, optional
            Whose slates; everybody's by default.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2, 3], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        >>> for _ in range(2):
        ...     slate = recommender.recommend("ann", 1)
        >>> [(replayed.items == replayed.again, replayed.obstacle) for replayed in recommender.replay()]
        [(True, None), (True, None)]
        """
        served = self._serving.served
        for user in self.store.users() if users is None else users:
            yield from self.store.read(lambda transaction, user=user: [*replay_user(transaction, served, user)])  # type: ignore[misc]

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
            serving.save(transaction, user, replace(profile, is_corrected=True), serving.next_time(record))

        self.store.write(job).result()

    def warm_up(self) -> None:
        """Compile, or read from the disk, what slates and feedback need, so that the first visitors do not wait for it.

        Slates are chosen for nobody, and nothing is recorded. `slatewise serve` does this before it takes requests.

        Examples
        --------
        >>> from slatewise import Catalog, Recommender
        >>> recommender = Recommender(Catalog.from_vectors([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> recommender.warm_up()
        >>> recommender.recommend("ann").number
        0
        """
        rehearse(self._serving, self.shares)

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

    def _prepare(self, items: ItemSnapshot) -> ServedCatalog:
        served = ServedCatalog(items, self._policies, self._rules)
        served.experiment, served.shadow_entry = self._experiment, self._shadow
        for name in self._policies:
            shown = served.policy(name)
            if served.shadow is not None:
                check_shadow(served.shadow, shown)
        self._rates.use(served)
        return served

    def _note(self, receipt: Future[Receipt], changes: Iterable[SlateChange]) -> None:
        """Remember what an event changed once that is durable, for the next `learn_rates`."""
        if receipt.exception() is None:
            self._rates.noted.extend(changes)

    def _note_withdrawn(self, recorded: Future[Any], drafts: Iterable[Draft]) -> None:
        """Remember what was withdrawn: its user may have said that it was seen, though not more."""
        if recorded.exception() is None and recorded.result() is not None:
            changes = (draft.withdrawn for draft in drafts)
            self._rates.noted.extend(change for change in changes if change is not None and change.before.counts)

    def _start_over(self, items: ItemSnapshot) -> None:
        """Serve from other items, and load every profile again."""
        profiles = ProfileCache(CACHED_USERS, self.rebuilt)
        self._serving = replace(self._serving, served=self._prepare(items), profiles=profiles)

    def _write_items(self, job: Callable[[Transaction], int]) -> int:
        """Change the item table; the change is in force when this returns."""
        version = self.store.write(job).result()
        try:
            self.follow_items()
        except StoreUnavailableError as error:
            raise StoreUncertainError(f"the items were changed, but cannot be read: {error}") from error
        return version

    def _problem(self, user: str) -> str | None:
        served = self._serving.served
        try:
            return self.store.read(lambda transaction: belief_problem(transaction, served, user))
        except StoreDamagedError as error:
            return str(error)


def _fitted(store: Store) -> Attention:
    return fitted_attention(store.read(lambda transaction: transaction.fit(ATTENTION_FIT)))
