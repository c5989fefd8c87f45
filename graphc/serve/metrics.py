"""What a server counts, for Prometheus: /metrics."""

from __future__ import annotations

import functools
from collections.abc import Sized

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MODEL = ("model", "version")


class Metrics:
    """The numbers of one server. The labels are few: no text of a request is one."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        # labels looked up once, by endpoint and status
        self._answered: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.requests = Counter(
            "graphc_http_requests", "Requests answered", ("endpoint", "status"), registry=registry
        )
        self.request_seconds = Histogram(
            "graphc_http_request_seconds", "From a request's headers to its answer", ("endpoint",),
            buckets=_SECONDS, registry=registry,
        )
        self.in_flight = Gauge(
            "graphc_http_requests_in_flight", "Requests that are there now", registry=registry
        )
        self.body_bytes = Gauge(
            "graphc_body_bytes", "Memory that the bodies of requests take", registry=registry
        )
        self.ready = Gauge("graphc_ready", "1 while the server takes requests", registry=registry)
        self._batch_seconds = Histogram(
            "graphc_compute_seconds", "A call of the compiled program", _MODEL, buckets=_SECONDS,
            registry=registry,
        )
        self._batch_rows = Histogram(
            "graphc_batch_rows", "Rows of a call", _MODEL, buckets=_ROWS, registry=registry
        )
        self._waiting = Gauge(
            "graphc_queue_requests", "Requests that wait for a model", _MODEL, registry=registry
        )
        self._full = Counter(
            "graphc_queue_full", "Requests refused because the queue was full", _MODEL,
            registry=registry,
        )
        self._failed = Counter(
            "graphc_failed_batches", "Batches that failed and were computed one by one", _MODEL,
            registry=registry,
        )

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        """Note one request."""
        found = self._answered.get((endpoint, status))
        if found is None:
            found = self._answered[endpoint, status] = (
                self.requests.labels(endpoint, str(status)), self.request_seconds.labels(endpoint)
            )
        counter, histogram = found
        counter.inc()
        histogram.observe(seconds)

    def of(self, model: str, version: str) -> ModelMetrics:
        """The numbers of one model."""
        return ModelMetrics(self, model, version)

    def text(self) -> bytes:
        """All of them, as Prometheus reads it."""
        return generate_latest(self.registry)


class ModelMetrics:
    """The numbers of one version of a model: labels looked up once."""

    def __init__(self, metrics: Metrics, model: str, version: str) -> None:
        labels = (model, version)
        self._seconds = metrics._batch_seconds.labels(*labels)
        self._rows = metrics._batch_rows.labels(*labels)
        self._waiting = metrics._waiting.labels(*labels)
        self.full = metrics._full.labels(*labels)
        self.failed_batches = metrics._failed.labels(*labels)

    def waits(self, queue: Sized) -> None:
        """What is counted as waiting, when somebody asks."""
        self._waiting.set_function(functools.partial(len, queue))

    def computed(self, rows: int, seconds: float) -> None:
        """Note one call."""
        self._rows.observe(rows)
        self._seconds.observe(seconds)
