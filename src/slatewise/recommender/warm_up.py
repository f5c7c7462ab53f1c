"""Rehearsing a visit, so that the first visitors do not wait while kernels are compiled or read from the disk."""

from collections import deque
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace

from slatewise.recommender.feedback import FeedbackEvent, record_feedback
from slatewise.recommender.learning import SlateChange
from slatewise.recommender.profile import ProfileCache
from slatewise.recommender.recommend import Serving, SlateRequest, draft_and_record
from slatewise.recommender.types import NothingToShowError
from slatewise.store import open_store

VISITOR = "rehearsal"
N_SLATES = 3
"""The first has nothing to learn, the second learns the first click, the third from a user with a belief."""


def rehearse(serving: Serving, policies: Iterable[str]) -> None:
    """Choose slates by each policy, with a click on each, in a store of their own that nobody keeps."""
    for policy in policies:
        with closing(open_store("memory://")) as store:
            own = replace(serving, store=store, profiles=ProfileCache(1))
            try:
                for _ in range(N_SLATES):
                    _visit(own, SlateRequest(VISITOR, policy=policy))
            except NothingToShowError:
                continue


def _visit(serving: Serving, request: SlateRequest) -> None:
    slate = serving.store.write(lambda transaction: draft_and_record(serving, transaction, request, deque())).result()
    event, changes = FeedbackEvent(slate.slate_id, [slate.items[0].id]), deque[SlateChange](maxlen=1)
    serving.store.write(lambda transaction: record_feedback(serving, transaction, event, changes)).result()
