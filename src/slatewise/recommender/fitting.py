"""Attention fitted from a store's own log: how far people look down a slate, and how much a skip weighs.

As in learning, a slate that nobody said anything about tells nothing.
"""

import random
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from slatewise.attention_fit import MOST_SLATES, AttentionFit, SlateLog, fit_attention
from slatewise.evidence import Attention, Reactions
from slatewise.policies.calibrated import Calibrated
from slatewise.recommender.learning import LoggedSlate
from slatewise.recommender.loading import LogTail
from slatewise.recommender.rules import ATTENTION_FIT
from slatewise.recommender.served_catalog import ServedCatalog
from slatewise.recommender.types import RequestError
from slatewise.store.protocol import Store
from slatewise.store.records import CLOSED, FitRecord


def fit_log(store: Store, served: ServedCatalog) -> AttentionFit:
    """Fit the curve of attention and the weight of a skip to the log of a store; it takes seconds to a minute."""
    model = Calibrated(served.catalog).model
    return fit_attention(slate_log(store, served), model, Attention("curve", curve=(1.0,)))


def slate_log(store: Store, served: ServedCatalog, most_slates: int = MOST_SLATES, seed: int = 0) -> SlateLog:
    """Read the slates of users drawn at random that somebody reacted to, until there are enough."""
    users = list(store.users())
    random.Random(seed).shuffle(users)  # noqa: S311
    slates: list[LoggedSlate] = []
    owners: list[int] = []
    for number, user in enumerate(users):
        if len(slates) >= most_slates:
            break
        log = store.read(lambda transaction, user=user: LogTail.read(transaction, user))  # type: ignore[misc]
        told = [slate for slate in log.logged_slates(served) if slate.record.status == CLOSED and slate.tally.n_events]
        slates += told
        owners += [number] * len(told)
    if not slates:
        raise RequestError("nobody has reacted to a slate yet, so there is nothing to fit")
    return SlateLog(reactions_of(slates), np.array(owners, dtype=np.int64))


def reactions_of(slates: Sequence[LoggedSlate]) -> Reactions:
    """Lay out slates of any length as rows, padded with places that hold no item."""
    shape = (len(slates), max(len(slate.numbers) for slate in slates))
    items, value = np.full(shape, -1, dtype=np.int64), np.full(shape, np.nan)
    seen = np.zeros(shape, dtype=np.bool_)
    for row, slate in enumerate(slates):
        size, shown = len(slate.numbers), slate.record.items
        items[row, :size] = slate.numbers
        value[row, :size] = [slate.tally.value(item) for item in shown]
        seen[row, :size] = [slate.tally.is_seen(item) for item in shown]
    return Reactions(items, value, seen, np.array([slate.tally.seen is not None for slate in slates]))


def fit_record(fit: AttentionFit, fitted_at: float) -> FitRecord:
    """Return a fit as services follow it, with how certain it is."""
    return FitRecord(ATTENTION_FIT, fitted_at, {**asdict(fit.attention), "fit": asdict(fit)})
