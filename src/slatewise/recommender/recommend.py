"""One slate: a draft is chosen from what is known about the user, then recorded in one transaction.

Drafting reads and computes and may take its time in any thread. Recording is short. It finds out whether anything was
written about the user in the meantime; then nothing is recorded, and the slate is drafted again.
"""

import math
import os
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import count
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from slatewise.policies import Available, Policy, Slates, State
from slatewise.randomness import Streams
from slatewise.recommender.constrained import FORBIDDEN, NOT_ON_SALE, UNKNOWN, Question, select_by_rules
from slatewise.recommender.event_kinds import standing
from slatewise.recommender.learning import Learned, LoggedSlate, Shown, SlateChange, faded_wishes, likes_at, state_at
from slatewise.recommender.loading import load_profile
from slatewise.recommender.profile import (
    SAVE_EVERY,
    ProfileCache,
    UserProfile,
    close_open,
    learn_closed,
    learn_everything,
    learn_late,
)
from slatewise.recommender.reasons import Choosing, as_clicks, describe
from slatewise.recommender.served_catalog import Integers, ServedCatalog, ServedPolicy
from slatewise.recommender.shadow import choose_as_shadow
from slatewise.recommender.slate_rules import NO_RULES, SlateRules
from slatewise.recommender.types import (
    ASKED,
    ConflictError,
    NothingToShowError,
    RequestError,
    RuleError,
    Slate,
    SlateItem,
    UnmetRule,
)
from slatewise.slates.available import NO_KEY, NO_WORDS
from slatewise.store.protocol import Store, Transaction
from slatewise.store.records import OPEN, WITHDRAWN, Choice, ItemId, PolicyCounts, SlateRecord, UserRecord

MAX_ITEMS = 500
MAX_ID_LENGTH = 256
PROCESS = secrets.token_hex(8)
version_numbers = count()
"""What tells the versions that this process gives apart."""
OWNING = ("purchase", "owned")
"""The kinds of events after which an item is owned."""
CLOCK_STEP = 1e-6
"""Seconds between two writes about a user, at least."""

Chosen = tuple[
    Integers,
    tuple[SlateItem, ...],
    float | None,
    tuple[UnmetRule, ...],
    tuple[float, ...] | None,
    list[float] | None,
]
"""What `choose_items` returns."""


@dataclass(frozen=True)
class SlateRequest:
    """A request for a slate; see `Recommender.recommend` for the fields. It is checked when it is created.

    The rules include those of the scenario, `scenario_rules`. `owned` is looked up when a slate is drafted, if a rule
    asks for it.
    """

    user: str
    k: int = 10
    diversity: float | None = None
    candidates: tuple[ItemId, ...] | None = None
    exclude: tuple[ItemId, ...] | None = None
    categories: tuple[str, ...] | None = None
    policy: str | None = None
    replaces: str | None = None
    request_id: str | None = None
    rules: SlateRules = NO_RULES
    scenario: str | None = None
    owned: tuple[ItemId, ...] = ()
    scenario_rules: SlateRules = NO_RULES

    def __post_init__(self) -> None:
        check_id("user", self.user)
        if self.request_id is not None:
            check_id("request_id", self.request_id)
        if isinstance(self.k, bool) or not isinstance(self.k, int) or not 1 <= self.k <= MAX_ITEMS:
            raise RequestError(f"k must be a whole number from 1 to {MAX_ITEMS}")
        if self.diversity is not None and not (isinstance(self.diversity, Real) and 0.0 <= self.diversity <= 1.0):
            raise RequestError("diversity must be between 0 (most relevant) and 1 (most varied)")

    def described(self) -> dict[str, Any]:
        """Return what was requested, ready for JSON; what was left to the recommender is left out."""
        lists = {name: getattr(self, name) for name in ("candidates", "exclude", "categories")}
        given = {name: [*map(plain_id, items)] for name, items in lists.items() if items is not None}
        others = {name: getattr(self, name) for name in ("diversity", "policy", "replaces", "scenario")}
        rules = {} if self.rules is NO_RULES else {"rules": self.rules.described()}
        return {"k": self.k, **given, **{name: value for name, value in others.items() if value is not None}, **rules}

    @classmethod
    def of(cls, user: str, described: Mapping[str, Any]) -> Self:
        """Return the request that was described."""
        lists = {name: tuple(value) for name, value in described.items() if isinstance(value, list)}
        rules = {"rules": SlateRules.of(described["rules"])} if "rules" in described else {}
        return cls(user, **{**described, **lists, **rules})


def plain_id(item: object) -> ItemId:
    """Return an item id as slates hold it: integers of numpy as integers, everything else but integers as text."""
    if isinstance(item, np.integer):
        return int(item)
    return item if isinstance(item, int | str) else str(item)


def listed(name: str, items: Iterable[Any]) -> tuple[Any, ...]:
    """Return several ids or names as a tuple; refuse a single one, also as text, which is a sequence of letters."""
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise RequestError(f"{name} must be a list, not one {type(items).__name__}; put it in brackets")
    return tuple(items)


def new_version() -> str:
    """Return a version that no user has had before, on any machine."""
    return f"{PROCESS}-{os.getpid():x}-{next(version_numbers):x}"


def check_id(name: str, value: str) -> None:
    """Refuse an id that is empty, too long, or contains what some store cannot keep."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_ID_LENGTH:
        raise RequestError(f"{name} must be text of 1 to {MAX_ID_LENGTH} characters")
    if "\0" in value or (not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value)):
        raise RequestError(f"{name} must not contain NUL or half of a surrogate pair")


@dataclass(frozen=True)
class Serving:
    """What recommending needs; replaced as a whole when the catalog changes."""

    served: ServedCatalog
    store: Store
    profiles: ProfileCache
    seed: int
    clock: Callable[[], float]

    def policy_for(self, request: SlateRequest) -> ServedPolicy:
        """Return the policy that a request is served by."""
        return self.served.policy(request.policy or self.served.assigned_policy(request.user))

    def next_time(self, user: UserRecord) -> float:
        """Return the time of a write: now, but later than everything else that was written about the user."""
        return max(self.clock(), user.updated_at + CLOCK_STEP)

    def current_profile(self, user: UserRecord) -> UserProfile | None:
        """Return the cached profile of a locked user, unless something was written about them since."""
        profile = self.profiles.get(user.user)
        return profile if profile is not None and profile.version == user.version else None

    def save(self, transaction: Transaction, user: str, profile: UserProfile, now: float) -> None:
        """Write a user under a new version, with the belief if that is due, and cache the profile."""
        version = new_version()
        if profile.is_save_due:
            transaction.save_belief(profile.to_record(user, now))
            profile = replace(profile, saved=profile.covers, is_corrected=False)
        transaction.save_user(UserRecord(user, version, profile.n_slates, now))
        self.profiles.put(user, replace(profile, version=version))

    def count(self, transaction: Transaction, slate: SlateRecord, more: PolicyCounts) -> None:
        """Add to the counts of a policy; only where it was assigned, so that policies can be compared."""
        if slate.policy == self.served.assigned_policy(slate.user):
            transaction.count(slate.user, slate.policy, more)
            label = None if self.served.experiment is None else self.served.experiment.label(slate)
            if label is not None:
                transaction.count(slate.user, label, more)

    def close(self, transaction: Transaction, slate: SlateRecord, n_liked: int) -> None:
        """Record that a slate was closed, and count it."""
        transaction.update_slate(slate)
        variety = (slate.variety or 0.0, int(slate.variety is not None))
        self.count(transaction, slate, PolicyCounts(1, len(slate.items), n_liked, *variety))


@dataclass(frozen=True, eq=False)
class Draft:
    """A slate that was chosen at a time but not recorded yet, and what else recording it changes.

    closed: the user's slates that it closes, with what was said about them; withdrawn: the slate it replaces;
    propensities: of its items, given those before each, if they were drawn; explained: what taste adds to the rates of
    its items, None if the policy knows no rates. The version of the profile is the oldest that any of this was read
    from.
    """

    request: SlateRequest
    served: ServedCatalog
    profile: UserProfile
    closed: tuple[LoggedSlate, ...]
    withdrawn: SlateChange | None
    numbers: Integers
    items: tuple[SlateItem, ...]
    variety: float | None
    unmet: tuple[UnmetRule, ...]
    propensities: tuple[float, ...] | None
    explained: list[float] | None
    at: float
    shadow: Choice | None = None

    def choice(self, seed: int) -> Choice:
        """Return how the slate was chosen: what is needed to choose it again, and to return it again."""
        profile = self.profile
        return {
            "request": self.request.described(),
            "key": profile.policy.key,
            "seed": seed,
            "random_key": int(profile.random_key[0]),
            "step": profile.n_slates,
            "at": self.at,
            "rules": profile.policy.described_rules,
            "item_table": self.served.items.version,
            "exploration": self._exploration(),
            "items": [
                [i.probability, i.deviation, i.diversity_gain, i.reason, i.because, i.distance] for i in self.items
            ],
            **({"unmet": [*map(asdict, self.unmet)]} if self.unmet else {}),
            **({"owned": [*self.request.owned]} if self.request.owned else {}),
            **({"propensities": [*self.propensities]} if self.propensities is not None else {}),
            **({"shadow": self.shadow} if self.shadow is not None else {}),
        }

    def _exploration(self) -> Choice | None:
        """Return the rates of items that the slate was chosen by, and what taste adds to those of its items."""
        policy = self.profile.policy
        if self.explained is None:
            return None
        return {"rates": policy.version, **policy.choosing_options, "explained": self.explained}


def draft_slate(serving: Serving, request: SlateRequest, transaction: Transaction | None = None) -> Draft:
    """Choose a slate for a user as known now, read within a transaction if one is given."""
    served, policy, now = serving.served, serving.policy_for(request), serving.clock()
    if request.rules.exclude_owned:
        request = replace(request, owned=_owned(serving, transaction, request.user))
    known = _cached(serving, request.user, policy)
    if known is None:
        known = _load(serving, transaction, request.user, policy)
        serving.profiles.put(request.user, known)
    withdrawn = _withdrawn(known, request, now)
    closing, closed = close_open(known if withdrawn is None else known.without(withdrawn.after.record), now)
    profile = learn_closed(closing)
    random = Streams(serving.seed, profile.random_key, profile.n_slates)
    chosen = choose_items(served, profile, request, random, now)
    shadow = None if served.shadow_entry is None else _shadow(served, profile, request, random, now)
    return Draft(request, served, profile, closed, withdrawn, *chosen, now, shadow)


def _shadow(
    served: ServedCatalog, profile: UserProfile, request: SlateRequest, random: Streams, now: float
) -> Choice | None:
    """Return what the shadow policy would show, ready for JSON; nothing for slates with rules."""
    shadow = served.shadow
    if shadow is None or request.rules is not NO_RULES:
        return None
    _, state, available, _ = situation(served, profile.policy, learn_everything(profile), request, now)
    numbers = choose_as_shadow(shadow, state, (available, request.k, random))
    items = None if numbers is None else [served.label(number)[0] for number in numbers.tolist()]
    return {"policy": shadow.name, "items": items}


def choose_items(
    served: ServedCatalog, profile: UserProfile, request: SlateRequest, random: Streams, now: float
) -> Chosen:
    """Choose a slate for a user without open slates.

    Return the numbers of its items, the items, its variety, the rules that it does not meet, propensities, and what
    taste adds to the rates of its items. Slates are chosen by probabilities of likes and say those of clicks.
    """
    served_policy, learned = profile.policy, learn_everything(profile)
    unmet: tuple[UnmetRule, ...] = ()
    policy, state, available, never = situation(served, served_policy, learned, request, now)
    if request.rules is NO_RULES:
        chosen = policy.select(state, available, request.k, random)
    else:
        pinned = pinned_items(served, never, request)
        question = Question(available, request.k, request.rules, pinned, served_policy.rates)
        chosen, unmet = select_by_rules(policy, (state, random), question, served.attributes)
    numbers = chosen.items[0][chosen.items[0] >= 0]
    if not len(numbers):
        raise NothingToShowError(f"nothing is left to show; {_way_out(request)}")
    wishes = faded_wishes(served_policy, learned.wishes, now)
    directions = served_policy.directions if len(wishes) else None
    taught = (likes_at(served_policy, learned, now), wishes, directions)
    choosing = Choosing(policy, state, random, *taught, *_by_rules(served, request, numbers, policy))
    items, variety = describe(served, as_clicks(chosen, served_policy.rates), choosing)
    explained = served_policy.explained(numbers, chosen.probability[0, : len(numbers)])
    return numbers, items, variety, unmet, _propensities(chosen, request.rules), explained


def situation(
    served: ServedCatalog, policy: ServedPolicy, learned: Learned, request: SlateRequest, now: float
) -> tuple[Policy, State, Available, Integers]:
    """Return what a slate is chosen by and from: policy, state, what is available, and what must not be shown."""
    if request.rules is not NO_RULES:
        _check_rules(served, request)
    items, never = served.items, learned.never
    hidden = items.withdrawn if now >= items.last_published else items.hidden(now)
    if len(hidden):
        never = _united(hidden, never)
    available = available_items(served, learned.shown, never, request, now)
    return policy.with_diversity(request.diversity), state_at(policy, learned, now), available, never


def _check_rules(served: ServedCatalog, request: SlateRequest) -> None:
    """Refuse rules that cannot be used; one of the scenario is not in the request, which only names the scenario."""
    try:
        served.attributes.check(request.scenario_rules)
    except RuleError as error:
        raise RuleError(
            "scenario", f"a rule of scenario {request.scenario} cannot be used, {error}; correct it in the settings"
        ) from error
    served.attributes.check(request.rules, request.scenario_rules)


def _way_out(request: SlateRequest) -> str:
    """Name what keeps items from a slate, and what to do about it."""
    lists = [name for name in ("candidates", "categories", "exclude") if getattr(request, name) is not None]
    used = request.rules.described()
    given = [*lists, *(name for name in ("filter", "exclude_owned", "min_probability") if name in used)]
    if not given:
        return "every item is withdrawn, not yet published, or not for this user; offer more items"
    which = f" (those of scenario {request.scenario} count, too)" if request.scenario is not None else ""
    return f"no item passes {' and '.join(given)}; relax {'it' if len(given) == 1 else 'one of them'}{which}"


def _propensities(chosen: Slates, rules: SlateRules) -> tuple[float, ...] | None:
    """Return the propensities of a slate that was drawn.

    None under rules about several items, by which it may have been drawn again: what was allowed at a place is unknown.
    """
    if chosen.propensity is None or rules.at_most or rules.at_least:
        return None
    known: list[float] = chosen.propensity[0][chosen.items[0] >= 0].tolist()
    return None if any(math.isnan(propensity) for propensity in known) else tuple(known)


def _by_rules(
    served: ServedCatalog, request: SlateRequest, numbers: Integers, policy: Policy
) -> tuple[frozenset[int], frozenset[int]]:
    """Return which of the chosen items were pinned, and which of them boosted, if the policy can do it."""
    rules = request.rules
    pinned = frozenset(served.numbers(pin.item for pin in rules.pin).tolist()) if rules.pin else frozenset[int]()
    if not rules.boost or not hasattr(policy, "with_boost"):
        return pinned, frozenset()
    is_boosted = served.attributes.factors(rules.boost)[numbers] > 1.0
    return pinned, frozenset(numbers[is_boosted].tolist())


def record_slate(serving: Serving, transaction: Transaction, draft: Draft) -> Slate | None:
    """Record a draft, unless the catalog or anything about the user changed since it was chosen: then return None.

    The same request may have been recorded just before the draft was begun; then return None as well.
    """
    user, request_id = draft.request.user, draft.request.request_id
    record = transaction.lock(user)
    if draft.served is not serving.served or record.version != draft.profile.version:
        serving.profiles.keep_only(user, record.version)
        return None
    if request_id is not None and transaction.slate_of_request(user, request_id) is not None:
        return None
    return _write(serving, transaction, draft, serving.next_time(record))


def _write(serving: Serving, transaction: Transaction, draft: Draft, now: float) -> Slate:
    """Write a draft, and what it withdraws and closes, for a user who is locked and as the draft knows them."""
    user, profile = draft.request.user, draft.profile
    if draft.withdrawn is not None:
        transaction.update_slate(replace(draft.withdrawn.after.record, closed_at=now))
    for closed in draft.closed:
        n_liked = len(closed.tally.liked(closed.record.items))
        serving.close(transaction, replace(closed.record, closed_at=now), n_liked)
    slate = SlateRecord(
        slate_id=_new_id(now),
        user=user,
        number=profile.n_slates,
        created_at=now,
        catalog=draft.served.digest,
        policy=profile.policy.name,
        items=tuple(item.id for item in draft.items),
        variety=draft.variety,
        request_id=draft.request.request_id,
    )
    transaction.add_slate(slate, draft.choice(serving.seed))
    serving.save(transaction, user, profile.with_slate(slate, draft.numbers, draft.explained or ()), now)
    return Slate(slate.slate_id, slate.user, slate.number, slate.policy, slate.variety, draft.items, draft.unmet)


def draft_and_record(serving: Serving, transaction: Transaction, request: SlateRequest, drafts: deque[Draft]) -> Slate:
    """Choose a slate and record it while no other writer can change the user; `drafts` then holds it, if it is new."""
    drafts.clear()
    record = transaction.lock(request.user)
    earlier = recorded_slate(serving.served, transaction, request)
    if earlier is not None:
        return earlier
    serving.profiles.keep_only(request.user, record.version)
    drafts.append(draft_slate(serving, request, transaction))
    return _write(serving, transaction, drafts[0], serving.next_time(record))


def recorded_slate(served: ServedCatalog, transaction: Transaction, request: SlateRequest) -> Slate | None:
    """Return the slate that was recorded for the same request before; another request with its id is an error."""
    if request.request_id is None:
        return None
    slate = transaction.slate_of_request(request.user, request.request_id)
    if slate is None:
        return None
    choice = transaction.choices_of(slate.user, slate.number, 1)[slate.number]
    if choice["request"] != request.described():
        raise ConflictError("this request_id was used before for another request; send a new one")
    items = zip(slate.items, choice["items"], strict=True)
    described = tuple(_item(served, item, *chosen) for item, chosen in items)
    unmet = tuple(UnmetRule(**rule) for rule in choice.get("unmet", ()))
    return Slate(slate.slate_id, slate.user, slate.number, slate.policy, slate.variety, described, unmet)


def _item(served: ServedCatalog, item: ItemId, *chosen: Any) -> SlateItem:
    """Return an item as it was on a slate; titles and categories are those of the catalog that is served now."""
    probability, deviation, gain, reason, because, *distance = chosen
    title, categories = served.title_and_categories(item)
    is_item = because is not None and reason != ASKED
    source = served.title_and_categories(because)[0] if is_item else because
    return SlateItem(item, title, categories, probability, deviation, gain, reason, because, source, *distance)


def _cached(serving: Serving, user: str, policy: ServedPolicy) -> UserProfile | None:
    """Return the cached profile of a user under a policy, late feedback learned; None if it has to be loaded."""
    known = serving.profiles.get(user)
    if known is None or known.policy.key != policy.key or known.policy.untrained is not policy.untrained:
        return None
    return learn_late(known if known.policy is policy else replace(known, policy=policy))


def _load(serving: Serving, transaction: Transaction | None, user: str, policy: ServedPolicy) -> UserProfile:
    def job(transaction: Transaction) -> UserProfile:
        transaction.expect_profile(user)
        record = transaction.lock(user)
        if record == UserRecord(user):
            return UserProfile.of_new_user(user, serving.served, policy)
        return load_profile(transaction, record, serving.served, policy)

    profile = serving.store.read(job) if transaction is None else job(transaction)
    if profile.saved == 0 and profile.covers > SAVE_EVERY:
        serving.profiles.count_rebuilt()
    return profile


def _owned(serving: Serving, transaction: Transaction | None, user: str) -> tuple[ItemId, ...]:
    """Return what a user owns or has bought, by the events from elsewhere."""

    def job(transaction: Transaction) -> tuple[ItemId, ...]:
        return tuple(event.item for event in standing(transaction.events_of(user)) if event.kind in OWNING)

    return tuple(dict.fromkeys(serving.store.read(job) if transaction is None else job(transaction)))


def _withdrawn(profile: UserProfile, request: SlateRequest, now: float) -> SlateChange | None:
    """Return the slate to replace, before and after it is withdrawn, if it is still open and nobody reacted to it."""
    slate = None if request.replaces is None else profile.pending_slate(request.replaces)
    if slate is None or slate.record.status != OPEN or slate.has_reactions():
        return None
    return SlateChange(slate, slate.with_feedback(slate.record.with_status(WITHDRAWN, now), slate.tally))


def _new_id(now: float) -> str:
    """Return an id that cannot be guessed but begins with the time, so that new ones are at the end of an index."""
    return f"{int(1000.0 * now) % 2**48:012x}{secrets.token_urlsafe(12)}"


def available_items(
    served: ServedCatalog, shown: Shown, never: Integers, request: SlateRequest, now: float
) -> Available:
    """Return what may be shown: what was asked for, less what was shown before and what must not be shown any more.

    When too little is left, the items shown longest ago return.
    """
    candidates, excluded = _candidates(served, request), _excluded(served, never, request)
    closed, key = NO_WORDS, NO_KEY
    is_hidden, n_open = shown.until > now, served.n_items
    seen, at = shown.numbers[is_hidden], shown.at[is_hidden]
    if request.rules is not NO_RULES and request.rules.filters:
        selected = served.attributes.select(*request.rules.filters)
        if candidates is not None:
            candidates = candidates[selected.is_met[candidates]]
        else:
            candidates, closed, key, n_open = selected.numbers, selected.closed, selected.key, selected.n_items
            excluded, is_open = excluded[selected.is_met[excluded]], selected.is_met[seen]
            seen, at = seen[is_open], at[is_open]
    for others in (excluded, candidates):
        if others is not None and len(seen):
            is_kept = _is_in(seen, others) == (others is candidates)
            seen, at = seen[is_kept], at[is_kept]
    if candidates is not None and not key:  # what is excluded of those that meet a filter is known already
        excluded = excluded[_is_in(excluded, candidates)]
    n_candidates = (n_open if candidates is None else len(candidates)) - len(excluded)
    returning = max(0, min(request.k, n_candidates) - (n_candidates - len(seen)))
    hidden = seen[np.lexsort((seen, at))][returning:] if returning else seen
    every = np.sort(np.concatenate([excluded, hidden]), kind="stable")  # which merges what is in order already
    return Available(served.n_items, every, candidates, closed, key)


def _excluded(served: ServedCatalog, never: Integers, request: SlateRequest) -> Integers:
    """Return what must not be shown, whatever else is left, ascending."""
    unwanted = (*(request.exclude or ()), *request.owned)
    if not unwanted:
        return never
    numbers = np.unique(served.numbers(unwanted))
    return _united(never, numbers[numbers >= 0])


def pinned_items(served: ServedCatalog, never: Integers, request: SlateRequest) -> tuple[int, ...]:
    """Return the numbers of pinned items, or why they may not be shown; shown before is no obstacle."""
    numbers = served.numbers(pin.item for pin in request.rules.pin)
    candidates = _candidates(served, request)
    is_allowed = ~_is_in(numbers, _excluded(served, never, request)) & (numbers >= 0)
    if candidates is not None:
        is_allowed &= _is_in(numbers, candidates)
    if request.rules.filters:
        is_allowed &= served.attributes.select(*request.rules.filters).is_met[numbers]
    reasons = np.where(numbers < 0, UNKNOWN, np.where(served.items.available[numbers], FORBIDDEN, NOT_ON_SALE))
    return tuple(np.where(is_allowed, numbers, reasons).tolist())


def _candidates(served: ServedCatalog, request: SlateRequest) -> Integers | None:
    """Return the candidates that also have one of the categories, ascending; None means everything."""
    wanted = None if request.candidates is None else np.unique(served.require_numbers(request.candidates, "candidates"))
    if request.categories is None:
        return wanted
    groups = [served.members(name) for name in dict.fromkeys(request.categories)]
    members = groups[0] if len(groups) == 1 else np.unique(np.concatenate([*groups, np.empty(0, dtype=np.int64)]))
    return members if wanted is None else wanted[_is_in(wanted, members)]


def _united(ascending: Integers, more: Integers) -> Integers:
    """Return the numbers in either of two ascending arrays, the second of which is short."""
    new = more[~_is_in(more, ascending)]
    return np.insert(ascending, np.searchsorted(ascending, new), new)


def _is_in(numbers: Integers, ascending: Integers) -> NDArray[np.bool_]:
    """Return whether each number is in an ascending array, by bisection."""
    if not len(ascending):
        return np.zeros(len(numbers), dtype=np.bool_)
    positions = np.minimum(np.searchsorted(ascending, numbers), len(ascending) - 1)
    return np.asarray(ascending[positions] == numbers)
