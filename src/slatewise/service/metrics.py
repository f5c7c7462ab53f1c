"""Figures for Prometheus: counters and histograms of this process (or of all workers), and the store's own figures."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from slatewise.recommender.views import PolicyResult, Receipt, Slate
from slatewise.service.exchange import Exchange

SHARED_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""Where workers share their counters; prometheus-client reads it when it is imported."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Everything that is counted; labels are route templates, methods, statuses, policies and reasons, never users."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        made: Any = {"registry": self.registry, "namespace": "slatewise"}
        self.requests = Counter("requests", "Requests answered.", ["route", "method", "status"], **made)
        self.seconds = Histogram("request_seconds", "Answering time.", ["route"], buckets=SECONDS, **made)
        self.rejected = Counter("rejected", "Requests and events refused.", ["reason"], **made)
        self.slates = Counter("slates", "Slates recorded.", ["policy"], **made)
        self.items_shown = Counter("items_shown", "Items on recorded slates.", ["policy"], **made)
        self.previews = Counter("previews", "Slates only previewed.", ["policy"], **made)
        self.feedback = Counter("feedback", "Feedback events recorded.", **made)
        self.duplicates = Counter("feedback_duplicates", "Feedback events that had come before.", **made)
        self.late = Counter("feedback_late", "Feedback events on slates already counted.", **made)
        self.expired = Counter("slates_expired", "Slates closed because nobody answered in time.", **made)
        self.reloads = Counter("catalog_reloads", "Catalogues loaded or refused while serving.", ["outcome"], **made)
        self._children: dict[tuple[str, str, int], Counter] = {}
        self._timers: dict[str, Histogram] = {}
        self._shown: dict[str, tuple[Counter, Counter]] = {}

    def request(self, exchange: Exchange, method: str, route: str, seconds: float) -> None:
        """Count one answered request."""
        which = (route, method, exchange.status)
        child = self._children.get(which)
        if child is None:
            child = self._children[which] = self.requests.labels(*map(str, which))
            self._timers[route] = self.seconds.labels(route)
        child.inc()
        self._timers[route].observe(seconds)
        if exchange.refusal is not None:
            self.rejected.labels(exchange.refusal).inc()

    def slate(self, slate: Slate) -> None:
        """Count one recorded slate."""
        counters = self._shown.get(slate.policy)
        if counters is None:
            counters = self.slates.labels(slate.policy), self.items_shown.labels(slate.policy)
            self._shown[slate.policy] = counters
        counters[0].inc()
        counters[1].inc(len(slate.items))

    def receipt(self, receipt: Receipt) -> None:
        """Count one feedback event."""
        if receipt.duplicate:
            self.duplicates.inc()
            return
        self.feedback.inc()
        if receipt.late:
            self.late.inc()

    def text(self, extra: "Figures") -> bytes:
        """Return everything as Prometheus reads it."""
        registry = self.registry
        if SHARED_DIRECTORY in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        own = CollectorRegistry()
        own.register(extra)
        return generate_latest(registry) + generate_latest(own)


class Figures:
    """What is read from the store and the recommender when Prometheus asks."""

    def __init__(
        self,
        store: Mapping[str, float | str],
        policies: Iterable[PolicyResult],
        counters: Mapping[str, tuple[str, int]],
        catalog: Mapping[str, float],
    ) -> None:
        self.store, self.policies, self.counters, self.catalog = store, policies, counters, catalog

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        yield GaugeMetricFamily("slatewise_store_up", "Whether the store answers.", value=float(bool(self.store)))
        for name, value in self.store.items():
            if isinstance(value, int | float):
                yield GaugeMetricFamily(f"slatewise_store_{name}", f"The store's figure {name}.", value=value)
        for name, value in self.catalog.items():
            yield GaugeMetricFamily(f"slatewise_catalog_{name}", f"The catalogue's {name}.", value=value)
        for name, (words, value) in self.counters.items():
            yield CounterMetricFamily(f"slatewise_{name}", words, value=value)
        for name in ("users", "slates", "clicks"):
            family = GaugeMetricFamily(
                f"slatewise_policy_{name}", f"Counted {name} of each policy, in the store.", labels=["policy"]
            )
            for result in self.policies:
                family.add_metric([result.policy], getattr(result, name))
            yield family
