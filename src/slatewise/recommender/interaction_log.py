"""The log of a store as training data: person by person, in short snapshots, also next to a running service.

What counts is what learning counts: slates that were closed and that somebody said something about, with the items that
count as seen, and events from elsewhere of known kinds.
"""

from collections.abc import Callable

from slatewise.recommender.event_kinds import ITEM, standing
from slatewise.recommender.fitting import reactions_of
from slatewise.recommender.learning import LoggedSlate
from slatewise.recommender.loading import LogTail
from slatewise.recommender.rules import LearningRules
from slatewise.retraining.log import InteractionLog, LogBuilder
from slatewise.store.protocol import Store
from slatewise.store.records import CLOSED, EventRecord


def read_interaction_log(
    store: Store, rules: LearningRules, on_user: Callable[[], None] | None = None
) -> InteractionLog:
    """Read what everybody's log teaches by the rules of a service."""
    builder = LogBuilder()
    for user in store.users():
        log = store.read(lambda transaction, user=user: LogTail.read(transaction, user))  # type: ignore[misc]
        _add_person(builder, rules, log)
        if on_user is not None:
            on_user()
    return builder.log()


def _add_person(builder: LogBuilder, rules: LearningRules, log: LogTail) -> None:
    """Add the steps of a person in the order of learning: events with position n before slate n."""
    told = [one for one in log.numbered_slates(builder.number) if one.record.status == CLOSED and one.tally.n_events]
    about_items = [event for event in standing(log.events) if rules.about(event.kind) == ITEM]
    events = sorted(about_items, key=lambda event: (event.position, event.at, event.event_id))
    done = 0
    evidence = rules.attention.evidence(reactions_of(told)) if told else None
    for row, slate in enumerate(told):
        done = _add_events(builder, rules, events, done, slate)
        if evidence is not None:
            builder.add_slate(slate.record.created_at, evidence, row)
    _add_events(builder, rules, events, done, None)
    builder.end_person()


def _add_events(
    builder: LogBuilder, rules: LearningRules, events: list[EventRecord], done: int, before: LoggedSlate | None
) -> int:
    """Add the events before a slate, all that are left without one; return how many have been added by now."""
    while done < len(events) and (before is None or events[done].position <= before.record.number):
        event = events[done]
        kind = rules.kinds.get(event.kind)
        if kind is not None:
            value, weight = kind.meaning(event.value)
            builder.add_event(event.at, event.item, value, weight)
        done += 1
    return done
