"""Two ids of one person become one user: what is known about a session moves to the account."""

import hashlib
from dataclasses import replace
from typing import TypeVar

from slatewise.recommender.event_kinds import RETRACT
from slatewise.recommender.recommend import Serving, check_id, new_version
from slatewise.recommender.types import MergeReceipt, RequestError
from slatewise.store.protocol import Transaction
from slatewise.store.records import EventRecord, FeedbackRecord, ItemId, UserRecord

Entry = TypeVar("Entry", FeedbackRecord, EventRecord)


def merge_users(serving: Serving, transaction: Transaction, user: str, session: str) -> MergeReceipt:
    """Move the log of a session to a user, after what the user has; both are locked in the order of their ids.

    Slates get the numbers that follow the user's, and events their positions among these; times stay. What was counted
    for the comparison of policies moves if both have the same policy. Once moved, nothing is left to move again.
    """
    locked = {owner: transaction.lock(owner) for owner in sorted((user, session))}
    account, moved = locked[user], locked[session]
    if moved == UserRecord(session):
        return MergeReceipt(user, session, 0, 0, 0)
    policy = serving.served.assigned_policy(user)
    counts = transaction.counts_of(session)
    receipt = _move(transaction, account, moved)
    for name, more in counts.items():
        if name.partition("@")[0] == policy:
            transaction.count(user, name, more)
    now = max(serving.next_time(account), serving.next_time(moved))
    n_slates = account.n_slates + receipt.slates
    transaction.discard_belief(user)
    transaction.save_user(UserRecord(user, new_version(), n_slates, now))
    for owner in locked:
        serving.profiles.drop(owner)
    return receipt


def check_merge(user: str, session: str) -> None:
    """Refuse ids that cannot be merged."""
    check_id("user", user)
    check_id("from", session)
    if user == session:
        raise RequestError("a user cannot be merged into themselves")


def _move(transaction: Transaction, account: UserRecord, moved: UserRecord) -> MergeReceipt:
    """Write the log of one user again under the other; the old rows are deleted afterwards."""
    session, user, base = moved.user, account.user, account.n_slates
    slates, choices = transaction.slates_of(session), transaction.choices_of(session)
    feedback, events = transaction.feedback_of(session), transaction.events_of(session)
    known = {event.event_id: event for event in transaction.feedback_of(user)} if feedback else {}
    known_events = {event.event_id: event for event in transaction.events_of(user)} if events else {}
    transaction.forget(session)
    for slate in slates:
        is_taken = slate.request_id is not None and transaction.slate_of_request(user, slate.request_id) is not None
        request_id = None if is_taken else slate.request_id
        renumbered = replace(slate, user=user, number=base + slate.number, request_id=request_id)
        transaction.add_slate(renumbered, choices.get(slate.number))
    for reactions in feedback:
        transaction.add_feedback(_with_new_id(replace(reactions, user=user), session, known))
    n_events, renamed = 0, dict[ItemId, str]()
    for event in events:
        subject = renamed.get(event.item, event.item) if event.kind == RETRACT else event.item
        placed = replace(event, user=user, item=subject, position=base + event.position)
        earlier = known_events.get(event.event_id)
        if earlier is None or not earlier.has_same_content(placed) or earlier.at != placed.at:
            added = _with_new_id(placed, session, known_events)
            transaction.add_event(added)
            renamed[event.event_id] = added.event_id
            n_events += 1
    return MergeReceipt(user, session, len(slates), len(feedback), n_events)


def _with_new_id(event: Entry, session: str, known: dict[str, Entry]) -> Entry:
    """Return an event under an id that the user has not used."""
    if event.event_id not in known:
        return event
    digest = hashlib.blake2b(f"{session}\0{event.event_id}".encode(), digest_size=16).hexdigest()
    return replace(event, event_id=f"merged-{digest}")
