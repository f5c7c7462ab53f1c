"""Choose logged slates again: from the log as it was at that time, with what each slate row says about its choice."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from slatewise.belief.rates import Rates
from slatewise.evidence import Attention
from slatewise.randomness import Streams
from slatewise.recommender.event_kinds import RETRACT
from slatewise.recommender.learning import Learned
from slatewise.recommender.loading import LogTail
from slatewise.recommender.profile import UserProfile, learn_closed
from slatewise.recommender.rate_publications import PublishedRates, RatesHistory
from slatewise.recommender.recommend import SlateRequest, choose_items
from slatewise.recommender.served_catalog import ServedCatalog, ServedPolicy
from slatewise.recommender.types import ReplayedSlate, RequestError
from slatewise.store.protocol import Transaction
from slatewise.store.records import CLOSED, WITHDRAWN, Choice, SlateRecord

RATES_GONE = "the rates of items that it was chosen by are no longer kept"
APPROXIMATE = "it was chosen approximately, and the blocks of items may have changed since"


def replay_user(transaction: Transaction, served: ServedCatalog, user: str) -> Iterator[ReplayedSlate]:
    """Yield every slate of a user and what is chosen in its place now, or why it cannot be chosen again."""
    log, choices = LogTail.read(transaction, user), transaction.choices_of(user)
    known: UserProfile | None = None
    history = RatesHistory(transaction, served.digest)
    for slate in log.slates:
        choice = choices.get(slate.number)
        policy = None if choice is None else logged_policy(served, choice)
        reason = obstacle(served, slate, choice, policy)
        rates = None if reason is not None or choice is None else rates_for(history, served, choice)
        if choice is None or policy is None or rates is None:
            yield ReplayedSlate(user, slate.number, slate.slate_id, slate.items, (), reason or RATES_GONE)
            continue
        known = profile_before(served, policy, log, slate, known)
        known = replace(known, random_key=np.array([choice["random_key"]], dtype=np.uint64))
        profile = replace(known, policy=as_logged(policy, choice, rates))
        again = _chosen(served, profile, user, choice)
        is_rough = again != slate.items and profile.policy.exact is not None
        yield ReplayedSlate(user, slate.number, slate.slate_id, slate.items, again, APPROXIMATE if is_rough else None)


def as_logged(policy: ServedPolicy, choice: Choice, rates: tuple[Rates, int]) -> ServedPolicy:
    """Return the policy choosing by the options that were in force for a slate, and by rates of items."""
    return policy.exploring(choice["exploration"] or {}).with_rates(*rates)


def rates_for(history: RatesHistory, served: ServedCatalog, choice: Choice) -> tuple[Rates, int] | None:
    """Return the rates of items that were in force for a slate, and their version; None if they are not kept."""
    version = (choice["exploration"] or {"rates": 0})["rates"]
    published = history.at(version) if version else PublishedRates()
    return None if published is None else (published.on(served) or Rates.of(served.catalog), version)


def obstacle(
    served: ServedCatalog, slate: SlateRecord, choice: Choice | None, policy: ServedPolicy | None
) -> str | None:
    """Return why a slate cannot be chosen again, None if it can."""
    if choice is None:
        return "it was logged by a version that did not keep how slates were chosen"
    if slate.catalog != served.digest:
        return "it was chosen from another catalog"
    if (choice["item_table"] or 0) != served.items.version:
        return "the item table has changed since"
    if choice["step"] != slate.number:
        return "it was shown to a user who was merged into this one"
    return "its policy is not served with the same options" if policy is None else None


def logged_policy(served: ServedCatalog, choice: Choice) -> ServedPolicy | None:
    """Return the policy that chose a slate, with the attention of that time."""
    given = choice["rules"]["attention"]
    attention = Attention(given["rule"], given["skip_weight"], tuple(given["curve"]))
    return served.with_attention(attention).policy_of(choice["key"])


def profile_before(
    served: ServedCatalog, policy: ServedPolicy, log: LogTail, slate: SlateRecord, known: UserProfile | None
) -> UserProfile:
    """Return the profile that a slate was chosen from; one of an earlier slate is continued if nothing came late."""
    now = slate.created_at
    feedback = [event for event in log.feedback if event.received_at < now]
    events = [event for event in log.events if event.received_at < now and event.position <= slate.number]
    past = LogTail(log.slates[: slate.number], feedback, events)
    if known is None or known.policy.key != policy.key or _is_late(past, known):
        learned = Learned.nothing(served, policy)
    else:
        learned = known.learned
    later = past.slates[learned.covers :]
    closed = [replace(record, status=status_at(record, now), closed_at=now) for record in later]
    pending = LogTail(closed, feedback, ()).logged_slates(served)
    waiting = past.logged_events(served, learned.covers)
    key = np.zeros(1, dtype=np.uint64)
    return learn_closed(UserProfile(str(now), key, policy, slate.number, learned, pending, waiting))


def status_at(slate: SlateRecord, now: float) -> str:
    """Return the status of an earlier slate when another one was shown; one that is closed later had been withdrawn."""
    is_withdrawn = slate.status == WITHDRAWN or (slate.closed_at is not None and slate.closed_at > now)
    return WITHDRAWN if is_withdrawn else CLOSED


def _is_late(past: LogTail, known: UserProfile) -> bool:
    """Return whether anything arrived since a profile was made about slates that it has learned."""
    since = float(known.version)
    arrived = [event for event in past.events if event.received_at >= since]
    if any(event.position < known.covers or event.kind == RETRACT for event in arrived):
        return True
    on = {event.slate_id for event in past.feedback if event.received_at >= since}
    return bool(on) and any(slate.slate_id in on for slate in past.slates[: known.covers])


def logged_request(user: str, choice: Choice) -> SlateRequest:
    """Return what was requested, with what the user owned at that time."""
    return replace(SlateRequest.of(user, choice["request"]), owned=tuple(choice.get("owned", ())))


def _chosen(served: ServedCatalog, profile: UserProfile, user: str, choice: Choice) -> tuple[int | str, ...]:
    request = logged_request(user, choice)
    random = Streams(choice["seed"], profile.random_key, choice["step"])
    try:
        return tuple(item.id for item in choose_items(served, profile, request, random, choice["at"])[1])
    except RequestError:
        return ()
