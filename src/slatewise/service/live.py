"""The figures of the page /live that are kept, or looked up now and then, and never computed per request."""

import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, TypeVar

from slatewise.recommender import Recommender
from slatewise.recommender.types import RatedItem
from slatewise.service.live_history import RecentSlates, Traffic
from slatewise.service.metrics import TrafficBuffer
from slatewise.service.retraining import ACCEPTED, REFUSED, TrainingRecord, read_history
from slatewise.service.schemas import CalibrationBin, RateView, TrainingView

MAX_AGE = 2.0
"""Seconds for which figures are kept before they are looked up again."""
MAX_RATES, MAX_TRAININGS = 20, 20

Entry = TypeVar("Entry")
Figures = tuple[list[RateView], list[CalibrationBin], list[TrainingView]]


class LiveFigures:
    """Empties the buffer of a service once per step; runs in threads for operators."""

    def __init__(self, recommender: Recommender, buffer: TrafficBuffer, directory: Path) -> None:
        self.traffic, self.slates = Traffic(), RecentSlates()
        self._recommender, self._buffer, self._directory = recommender, buffer, directory
        self._lock = threading.Lock()
        self._figures: Figures = ([], [], [])
        self._looked_up = float("-inf")

    def tick(self) -> None:
        """Add a point to the history."""
        seconds, slates, feedback = (
            _emptied(self._buffer.seconds),
            _emptied(self._buffer.slates),
            _emptied(self._buffer.feedback),
        )
        click_rate = self.slates.learn(slates, feedback, self._recommender.attention)
        self.traffic.add(seconds, len(slates), len(feedback), click_rate)

    def figures(self) -> Figures:
        """Return rates of items, calibration and trainings, at most two seconds old."""
        with self._lock:
            if time.monotonic() - self._looked_up > MAX_AGE:
                rates = [_rate(item) for item in self._recommender.uncertain_items(MAX_RATES)]
                trainings = [_training(record) for record in read_history(self._directory)[:MAX_TRAININGS]]
                self._figures = (rates, self.slates.calibration(), trainings)
                self._looked_up = time.monotonic()
            return self._figures


def _emptied(buffer: deque[Entry]) -> list[Entry]:
    return [buffer.popleft() for _ in range(len(buffer))]


def _rate(item: RatedItem) -> RateView:
    low, high = round(item.rate.low, 4), round(item.rate.high, 4)
    return RateView(item.id, item.title, round(item.rate.value, 4), low, high, round(item.rate.seen, 1), item.is_new)


def _training(record: TrainingRecord) -> TrainingView:
    """Show a training; what a failed one wrote is for those who may see the log."""
    words = record.words if record.outcome in (ACCEPTED, REFUSED) else ()
    head = (record.started_at, record.finished_at, record.outcome, record.version, words)
    if record.gate is None:
        return TrainingView(*head, None, None, None, None)
    gate: dict[str, Any] = record.gate
    log_loss, calibration_error = (
        (gate["serving"][name], gate["candidate"][name]) for name in ("log_loss", "calibration_error")
    )
    difference = gate["difference"]
    interval = (difference["value"], difference["low"], difference["high"])
    return TrainingView(*head, gate["people"], log_loss, calibration_error, interval)
