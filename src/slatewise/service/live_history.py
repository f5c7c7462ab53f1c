"""What the page /live shows of the past: traffic in steps of ten seconds, and what was said about recent slates.

All of it is of this process, in memory and bounded. Requests only append to a buffer, which is added up once per step.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from slatewise.evidence import Attention, Reactions
from slatewise.recommender.feedback import FeedbackEvent
from slatewise.recommender.learning import Tally
from slatewise.recommender.types import Slate
from slatewise.service.metrics import percentile
from slatewise.service.schemas import CalibrationBin, HistoryPoint
from slatewise.store.records import FeedbackRecord, ItemId

STEP = 10.0
"""Seconds between two points of the history."""
POINTS = 360
MAX_WAITING, MAX_REACTED = 10_000, 2_000
"""How many slates are remembered that wait for feedback, and how many that have some."""
PORTION, PAUSE = 50, 0.02
"""So many slates or events are taken in at a time, with a pause in seconds before the next, in which requests go on."""
BINS = 10
NORMAL_95 = 1.96

Floats = NDArray[np.float64]
Entry = TypeVar("Entry")


class Traffic:
    """One point per step about requests, slates and feedback."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.points = deque[HistoryPoint](maxlen=POINTS)
        self._clock, self._since = clock, clock()

    def add(self, seconds: Sequence[float], n_slates: int, n_feedback: int, click_rate: float | None) -> None:
        """Add a point about the time since the last one: how long requests took, and what else happened."""
        now = self._clock()
        lasted, self._since = max(now - self._since, 1e-3), now
        requests, slates, feedback = (round(number / lasted, 3) for number in (len(seconds), n_slates, n_feedback))
        p50, p99 = (round(1000 * percentile(sorted(seconds), share), 3) if seconds else None for share in (0.50, 0.99))
        rate = None if click_rate is None else round(click_rate, 4)
        self.points.append(HistoryPoint(round(now, 3), requests, slates, feedback, p50, p99, rate))


@dataclass(eq=False, slots=True)
class RecentSlate:
    """The items of a slate with their probabilities, NaN where there is none, and what was said about them."""

    items: tuple[ItemId, ...]
    probabilities: tuple[float, ...]
    tally: Tally = field(default_factory=Tally)
    evidence: Floats | None = None

    @classmethod
    def of(cls, slate: Slate) -> "RecentSlate":
        """Return a slate that nobody has said anything about."""
        probabilities = (np.nan if item.probability is None else item.probability for item in slate.items)
        return cls(tuple(item.id for item in slate.items), tuple(probabilities))

    def after(self, event: FeedbackEvent) -> Tally:
        """Return what was said about the slate after one more event."""
        lists = {name: tuple(getattr(event, name)) for name in ("clicked", "retracted", "values", "disliked")}
        seen = self.items[: event.seen] if isinstance(event.seen, int) else event.seen
        record = FeedbackRecord("", event.slate_id, "", final=event.final, received_at=0.0, seen=seen, **lists)  # type: ignore[arg-type]
        return self.tally.after(record)


class RecentSlates:
    """The latest slates of this process: which probabilities they were shown with, and what was clicked."""

    def __init__(self) -> None:
        self._waiting, self._reacted = OrderedDict[str, RecentSlate](), OrderedDict[str, RecentSlate]()
        self._lock = threading.Lock()

    def learn(self, slates: Sequence[Slate], events: Sequence[FeedbackEvent], attention: Attention) -> float | None:
        """Take in what happened; return the share of clicked items on slates that got feedback, None without any."""
        for shown in _portions(slates):
            with self._lock:
                for slate in shown:
                    _keep(self._waiting, slate.slate_id, RecentSlate.of(slate), MAX_WAITING)
        distinct: dict[int, RecentSlate] = {}
        for reactions in _portions(events):
            with self._lock:
                reacted = {id(slate): slate for slate in map(self._take, reactions) if slate is not None}
                _weigh([*reacted.values()], replace(attention, skip_weight=1.0))
            distinct |= reacted
        n_items = sum(len(slate.items) for slate in distinct.values())
        return sum(len(slate.tally.liked(slate.items)) for slate in distinct.values()) / n_items if n_items else None

    def calibration(self) -> list[CalibrationBin]:
        """Compare probabilities with clicks on recent slates, in bins of a tenth; bins without items are left out."""
        with self._lock:
            rows = [slate.evidence for slate in self._reacted.values() if slate.evidence is not None]
        return calibration_bins(np.concatenate(rows)) if rows else []

    def _take(self, event: FeedbackEvent) -> RecentSlate | None:
        """Note an event on its slate; None if the slate was shown by another process, or long ago."""
        slate = self._waiting.pop(event.slate_id, None) or self._reacted.get(event.slate_id)
        if slate is not None:
            slate.tally = slate.after(event)
            _keep(self._reacted, event.slate_id, slate, MAX_REACTED)
        return slate


def _portions(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Yield entries a few at a time, and pause before all but the first."""
    for start in range(0, len(entries), PORTION):
        if start:
            time.sleep(PAUSE)
        yield entries[start : start + PORTION]


def _keep(slates: OrderedDict[str, RecentSlate], slate_id: str, slate: RecentSlate, most: int) -> None:
    """Keep a slate, and forget the oldest ones beyond so many."""
    slates[slate_id] = slate
    while len(slates) > most:
        slates.popitem(last=False)


def _weigh(slates: Sequence[RecentSlate], attention: Attention) -> None:
    """Work out what slates say: per item that may have been seen its probability, how surely seen, and its value.

    Slates are padded to one length, to be weighed together.
    """
    if not slates:
        return
    length = max(len(slate.items) for slate in slates)
    items, value = np.full((len(slates), length), -1), np.full((len(slates), length), np.nan)
    probabilities, seen = np.full(items.shape, np.nan), np.zeros(items.shape, dtype=np.bool_)
    for row, slate in enumerate(slates):
        size = len(slate.items)
        items[row, :size], probabilities[row, :size] = range(size), slate.probabilities
        value[row, :size] = [slate.tally.value(item) for item in slate.items]
        seen[row, :size] = [slate.tally.is_seen(item) for item in slate.items]
    told = np.array([slate.tally.seen is not None for slate in slates])
    evidence = attention.evidence(Reactions(items, value, seen, told))
    for row, slate in enumerate(slates):
        is_used = (evidence.items[row] >= 0) & ~np.isnan(probabilities[row])
        slate.evidence = np.column_stack([probabilities[row], evidence.examined[row], evidence.value[row]])[is_used]


def calibration_bins(rows: Floats) -> list[CalibrationBin]:
    """Put items (n, 3), each with its probability, how surely it was seen and how much it was liked, into bins.

    A click needs a look: what is expected of an item is its probability times how surely it was seen.
    """
    bin_of = np.minimum((rows[:, 0] * BINS).astype(np.int64), BINS - 1)
    weight = np.bincount(bin_of, rows[:, 1], BINS)
    expected, clicked = (np.bincount(bin_of, values, BINS) for values in (rows[:, 0] * rows[:, 1], rows[:, 2]))
    return [
        CalibrationBin(round(expected[at] / weight[at], 4), *_share(clicked[at], weight[at]), round(weight[at], 1))
        for at in np.flatnonzero(weight).tolist()
    ]


def _share(clicked: float, seen: float) -> tuple[float, float, float]:
    """Return a share with its 95 % interval, Wilson's, which stays within 0 to 1."""
    share, squared = min(clicked / seen, 1.0), NORMAL_95**2 / seen
    center, half = share + squared / 2, NORMAL_95 * np.sqrt(share * (1.0 - share) / seen + squared / (4 * seen))
    low, high = (center - half) / (1.0 + squared), (center + half) / (1.0 + squared)
    return round(share, 4), round(max(float(low), 0.0), 4), round(min(float(high), 1.0), 4)
