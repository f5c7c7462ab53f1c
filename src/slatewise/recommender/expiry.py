"""Close slates that waited too long for feedback: a few at a time, so that nobody's requests wait behind them."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from slatewise.recommender.feedback import close_expired_slate
from slatewise.recommender.recommend import Serving
from slatewise.store.protocol import SlateRecord, StoreDamagedError

PORTION = 10
"""How many slates are closed at a time: a request finds at most so many short writes ahead of it."""
MOST_COUNTED = 1_000
"""How many of those that wait are counted, so that counting costs nothing either."""


@dataclass(frozen=True)
class Portion:
    """What became of a portion of the expired slates; those that could not be closed are still open."""

    expired: int
    closed: int
    errors: tuple[Exception, ...]


class ExpiredSlates:
    """The open slates of a store that are older than `reward_wait` seconds, and how far closing them has come.

    A slate that cannot be closed does not hold up the others: it is passed over until `start_over`.
    """

    def __init__(self, serving: Callable[[], Serving], reward_wait: float) -> None:
        self.waiting = 0
        """How many there were when they were last looked at, counted up to MOST_COUNTED."""
        self._serving, self._reward_wait = serving, reward_wait
        self._oldest: float | None = None
        self._skip = 0

    def start_over(self) -> None:
        """Try again to close the slates that could not be closed."""
        self._skip = 0

    def count(self) -> None:
        """Count those that wait, without closing any."""
        serving = self._serving()
        before = serving.clock() - self._reward_wait
        self.waiting, self._oldest = serving.store.read(
            lambda transaction: transaction.count_expired(before, MOST_COUNTED)
        )

    def close_portion(self, limit: int = PORTION) -> Portion:
        """Close the oldest few; return once that is durable."""
        serving = self._serving()
        before = serving.clock() - self._reward_wait
        expired, (self.waiting, self._oldest) = serving.store.read(
            lambda transaction: (
                transaction.expired(before, limit, self._skip),
                transaction.count_expired(before, MOST_COUNTED),
            )
        )
        outcomes = [_outcome(future) for future in [_closing(serving, slate) for slate in expired]]
        errors = tuple(outcome for outcome in outcomes if isinstance(outcome, Exception))
        self._skip += len(errors)
        return Portion(len(expired), outcomes.count(True), errors)

    def oldest_seconds(self) -> float:
        """Return for how long the oldest one has been expired, as far as was known when they were last looked at."""
        return 0.0 if self._oldest is None else self._serving().clock() - self._oldest - self._reward_wait


def _closing(serving: Serving, slate: SlateRecord | None) -> Future[bool]:
    if slate is not None:
        return serving.store.write(lambda transaction: close_expired_slate(serving, transaction, slate))
    failed: Future[bool] = Future()
    failed.set_exception(StoreDamagedError("an expired slate does not match its checksum"))
    return failed


def _outcome(closing: Future[bool]) -> bool | Exception:
    try:
        return closing.result()
    except Exception as error:  # noqa: BLE001
        return error
