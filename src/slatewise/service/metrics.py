"""What is counted: for Prometheus over all workers, for the page /live over the last minutes of this process."""

import math
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from slatewise.recommender.feedback import FeedbackEvent
from slatewise.recommender.types import PolicyResult, Preview, Receipt, Slate
from slatewise.service.logs import RequestRecord
from slatewise.service.schemas import LatencyView

SHARED_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""Where workers share their counters; prometheus-client reads this variable when it is imported."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
RATE_WINDOW = 60
LATENCY_WINDOW = 300.0
MAX_LATENCIES = 4096
MAX_BUFFERED = 10_000


class Metrics:
    """All counters; labels are route templates, methods, statuses, policies and reasons, never users."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        options: Any = {"registry": self.registry, "namespace": "slatewise"}
        self.requests = Counter("requests", "Requests answered.", ["route", "method", "status"], **options)
        self.seconds = Histogram("request_seconds", "Response time.", ["route"], buckets=SECONDS, **options)
        self.rejected = Counter("rejected", "Requests and events rejected.", ["reason"], **options)
        self.slates = Counter("slates", "Slates recorded.", ["policy"], **options)
        self.items_shown = Counter("items_shown", "Items on recorded slates.", ["policy"], **options)
        self.checked = Counter("slates_checked", "Approximate slates chosen exactly too.", **options)
        self.exact = Counter("slates_checked_exact", "Those that had the same items.", **options)
        self.previews = Counter("previews", "Previews of slates.", ["policy"], **options)
        self.feedback = Counter("feedback", "Feedback events recorded.", **options)
        self.duplicates = Counter("feedback_duplicates", "Feedback events received again.", **options)
        self.late = Counter("feedback_late", "Feedback events on slates already closed.", **options)
        self.expired = Counter("slates_expired", "Slates closed for lack of feedback in time.", **options)
        self.log_lines_dropped = Counter("log_lines_dropped", "Lines of the log that could not be written.", **options)
        self.reloads = Counter("catalog_reloads", "Catalogs loaded or refused while serving.", ["outcome"], **options)
        self._requests_of, self._seconds_of = cache(self.requests.labels), cache(self.seconds.labels)
        self.slate_rate, self.feedback_rate = Rate(), Rate()
        self.latencies, self.buffer = Latencies(), TrafficBuffer()

    def count_request(self, record: RequestRecord, method: str, route: str, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests_of(route, method, str(record.status)).inc()
        self._seconds_of(route).observe(seconds)
        self.latencies.add(route, seconds)
        self.buffer.seconds.append(seconds)
        if record.rejection is not None:
            self.rejected.labels(record.rejection).inc()

    def count_slate(self, slate: Slate) -> None:
        """Count a slate that was recorded."""
        self.slates.labels(slate.policy).inc()
        self.items_shown.labels(slate.policy).inc(len(slate.items))
        self.slate_rate.add()
        self.buffer.slates.append(slate)

    def count_check(self, is_exact: bool) -> None:
        """Count an approximate slate that was compared with the exact choice, never fewer exact ones than there are."""
        self.exact.inc(is_exact)
        self.checked.inc()

    def count_preview(self, preview: Preview) -> None:
        """Count a preview."""
        self.previews.labels(preview.policy).inc()

    def count_feedback(self, event: FeedbackEvent, receipt: Receipt) -> None:
        """Count a feedback event that was received."""
        if receipt.duplicate:
            self.duplicates.inc()
            return
        self.feedback.inc()
        self.feedback_rate.add()
        self.buffer.feedback.append(event)
        if receipt.late:
            self.late.inc()

    def text(self, gauges: "Gauges") -> bytes:
        """Return everything in the format of Prometheus."""
        registry = self.registry
        if SHARED_DIRECTORY in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        own = CollectorRegistry()
        own.register(gauges)
        return generate_latest(registry) + generate_latest(own)


@dataclass(frozen=True, eq=False)
class Gauges:
    """What is read from the store and the recommender when Prometheus asks; an empty `store` means it is down."""

    store: Mapping[str, float | str]
    policies: Iterable[PolicyResult]
    catalog: Mapping[str, float]
    rebuilt: int
    expired: Mapping[str, float]

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        yield GaugeMetricFamily("slatewise_store_up", "Whether the store responds.", value=float(bool(self.store)))
        for name, value in self.store.items():
            if isinstance(value, int | float):
                yield GaugeMetricFamily(f"slatewise_store_{name}", f"The store's figure {name}.", value=value)
        for name, value in self.catalog.items():
            yield GaugeMetricFamily(f"slatewise_catalog_{name}", f"The catalog's number of {name}.", value=value)
        for name, value in self.expired.items():
            yield GaugeMetricFamily(f"slatewise_expired_{name}", f"Expired slates not closed yet: {name}.", value=value)
        yield CounterMetricFamily(
            "slatewise_beliefs_rebuilt", "Beliefs rebuilt from the log of events.", value=self.rebuilt
        )
        for name in ("users", "slates", "clicks"):
            family = GaugeMetricFamily(
                f"slatewise_policy_{name}", f"Total {name} of each policy, in the store.", labels=["policy"]
            )
            for result in self.policies:
                family.add_metric([result.policy], getattr(result, name))
            yield family


class TrafficBuffer:
    """What happened since it was last emptied by `LiveFigures`; the event loop only appends to it."""

    def __init__(self) -> None:
        self.seconds = deque[float](maxlen=MAX_BUFFERED)
        self.slates, self.feedback = deque[Slate](maxlen=MAX_BUFFERED), deque[FeedbackEvent](maxlen=MAX_BUFFERED)


class Rate:
    """Counts per second over the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.started = clock, clock()
        self.counts: deque[list[int]] = deque(maxlen=RATE_WINDOW + 1)

    def add(self, number: int = 1) -> None:
        """Count something that happened now."""
        second = int(self.clock())
        if self.counts and self.counts[-1][0] == second:
            self.counts[-1][1] += number
        else:
            self.counts.append([second, number])

    def per_second(self) -> float:
        """Return the mean over the last minute, or since the start if that is shorter."""
        now = self.clock()
        recent = sum(number for second, number in self.counts if second > now - RATE_WINDOW)
        return recent / min(max(now - self.started, 1.0), RATE_WINDOW)


class Latencies:
    """Response times by route; each route keeps its latest few thousand."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.routes: dict[str, deque[tuple[float, float]]] = defaultdict(partial(deque, maxlen=MAX_LATENCIES))

    def add(self, route: str, seconds: float) -> None:
        """Note how long a response took."""
        self.routes[route].append((self.clock(), seconds))

    def views(self) -> list[LatencyView]:
        """Return percentiles of every route that was requested in the last minutes, by route.

        May run in another thread than `add`: it sorts copies.
        """
        since = self.clock() - LATENCY_WINDOW
        copies = [(route, list(kept)) for route, kept in list(self.routes.items())]
        recent = {route: sorted(taken for at, taken in kept if at >= since) for route, kept in copies}
        return [_view(route, times) for route, times in sorted(recent.items()) if times]


def _view(route: str, times: Sequence[float]) -> LatencyView:
    p50, p95, p99 = (round(1000 * percentile(times, share), 3) for share in (0.50, 0.95, 0.99))
    return LatencyView(route, len(times), p50, p95, p99)


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that is at least as large as this share of the values."""
    return ascending[max(math.ceil(share * len(ascending)) - 1, 0)]
