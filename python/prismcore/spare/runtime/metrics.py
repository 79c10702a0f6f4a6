"""Events as Prometheus metrics (extra ``prismcore[metrics]``): a listener of an event log, and a page.

Every rank has a page of its own; ``group`` and ``position`` are labels. A count of one rank is what that
rank saw: all survivors count the same failure, so aggregate by ``max``, not by ``sum``.
"""

from __future__ import annotations

import importlib.util
import math
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from prismcore.errors import SpareError
from prismcore.spare.runtime.events import Event
from prismcore.spare.runtime.progress import integers, number

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["Metrics"]

_PREFIX = "prismcore_spare_"
_LABELS = ("group", "position")
_BUCKETS = [scale * 10.0**power for power in range(-3, 3) for scale in (1, 2, 5)]  # 1 ms to 500 s

_COUNTERS = {
    "commits": "Steps committed",
    "lost_groups": "Groups lost, as this rank saw it; how: collective, heartbeat, timeout, inside, left",
    "plans": "Plans made after a failure; outcome: of the solver",
    "patched_parts": "Micro-batches computed in patches by this rank",
    "rejoined_groups": "Groups that came back or joined",
    "rejoin_bytes": "Bytes that moved to groups that joined",
    "wipe_outs": "Failures after which some shard type had no host",
    "checkpoints": "Checkpoints written",
    "lighthouse_losses": "Times that the lighthouse was lost",
}
_MORE_LABELS = {"lost_groups": "how", "plans": "outcome"}
_GAUGES = {
    "step": "The step that runs",
    "last_committed_step": "The last committed step",
    "last_commit_timestamp_seconds": "Unix time of the last commit",
    "last_checkpoint_step": "Step of the last checkpoint",
    "loss": "Loss of the last committed step",
    "groups": "Groups of the job, N",
    "members": "Groups that take part",
    "epoch": "Epoch of membership",
    "depth": "Depth of the stacks",
    "lighthouse_up": "1: the lighthouse answers",
}
_HISTOGRAMS = {
    "step_seconds": "Time of a committed step",
    "compute_seconds": "Forward and backward of a committed step",
    "reduce_seconds": "Sum of the gradients of a committed step",
    "agreement_seconds": "To agree on the members",
    "plan_seconds": "To plan after a failure",
    "patch_seconds": "To compute a patch",
    "recovery_seconds": "From the first failure of a step, as far back as its event tells, to the commit",
    "rejoin_seconds": "To bring a group up to date",
    "checkpoint_seconds": "To write a checkpoint",
    "checkpoint_blocked_seconds": "For which a checkpoint stopped training",
}
_COSTS = {
    ("commit", "step_ms"): "step_seconds",
    ("commit", "compute_ms"): "compute_seconds",
    ("commit", "reduce_ms"): "reduce_seconds",
    ("membership", "cost_ms"): "agreement_seconds",
    ("plan", "cost_ms"): "plan_seconds",
    ("patch", "cost_ms"): "patch_seconds",
    ("rejoin", "cost_ms"): "rejoin_seconds",
    ("checkpoint", "cost_ms"): "checkpoint_seconds",
    ("checkpoint", "blocked_ms"): "checkpoint_blocked_seconds",
}
_LEVELS = {
    ("start", "groups"): "groups",
    ("membership", "members"): "members",
    ("membership", "epoch"): "epoch",
    ("plan", "depth"): "depth",
    ("rejoin", "depth"): "depth",
    ("commit", "loss"): "loss",
    ("commit", "epoch"): "epoch",
}


class Metrics:
    """Counts, levels and costs of the events that it hears; give it to ``EventLog(listeners=[...])``.

    Raises SpareError where prometheus-client is not installed.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Into `registry`; None: one of its own, so that several may live in a process."""
        if importlib.util.find_spec("prometheus_client") is None:
            raise SpareError(
                "prometheus-client is not installed, and metrics need it: pip install 'prismcore[metrics]'"
            )
        import prometheus_client as prometheus

        self.registry = prometheus.CollectorRegistry() if registry is None else registry
        self._failed_ns: dict[tuple[int, int], int] = {}  # the first failure since the last commit
        self._metrics: dict[str, Any] = {}
        for name, text in _COUNTERS.items():
            labels = (*_LABELS, *filter(None, [_MORE_LABELS.get(name)]))
            self._metrics[name] = prometheus.Counter(_PREFIX + name, text, labels, registry=self.registry)
        for name, text in _GAUGES.items():
            self._metrics[name] = prometheus.Gauge(_PREFIX + name, text, _LABELS, registry=self.registry)
        for name, text in _HISTOGRAMS.items():
            self._metrics[name] = prometheus.Histogram(
                _PREFIX + name, text, _LABELS, registry=self.registry, buckets=_BUCKETS
            )

    def __call__(self, event: Event) -> None:
        """Take in one event; unknown ones and missing fields are passed over."""
        if event.step >= 0:
            self._set(event, "step", event.step)
        for (kind, field), name in _LEVELS.items():
            if kind == event.event:
                self._set(event, name, _size(event, field))
        for (kind, field), name in _COSTS.items():
            cost = number(event, field) if kind == event.event else None
            if cost is not None:
                self._of(event, name).observe(cost / 1000)
        self._count(event)

    def serve(self, port: int, address: str = "127.0.0.1") -> MetricsPage:
        """Show them at ``http://address:port/metrics`` from a thread, until the page is closed.

        Port 0 takes a free one. Raises SpareError where the address cannot be had.
        """
        return MetricsPage(self.registry, port, address)

    def _count(self, event: Event) -> None:
        who = (event.group, event.position)
        if event.event == "commit":
            self._of(event, "commits").inc()
            self._set(event, "last_committed_step", event.step)
            self._set(event, "last_commit_timestamp_seconds", event.time_ns / 1e9)
            failed_ns = self._failed_ns.pop(who, None)
            if failed_ns is not None:
                self._of(event, "recovery_seconds").observe((event.time_ns - failed_ns) / 1e9)
        elif event.event == "failure":
            before_ms = _amount(number(event, "noticed_ms"))
            self._failed_ns.setdefault(who, event.time_ns - round(1e6 * before_ms))
            self._of(event, "lost_groups", event.fields.get("how")).inc(len(integers(event, "lost")))
        elif event.event == "plan":
            self._of(event, "plans", event.fields.get("outcome")).inc()
        elif event.event == "patch":
            self._of(event, "patched_parts").inc(_amount(_size(event, "parts")))
        elif event.event == "rejoin":
            self._of(event, "rejoined_groups").inc(len(integers(event, "joined")))
            self._of(event, "rejoin_bytes").inc(_amount(number(event, "bytes")))
        elif event.event == "wipe_out":
            self._of(event, "wipe_outs").inc()
            self._failed_ns.pop(who, None)
        elif event.event == "checkpoint":
            self._of(event, "checkpoints").inc()
            self._set(event, "last_checkpoint_step", event.step)
        elif event.event == "lighthouse":
            lost = event.fields.get("state") == "lost"
            self._of(event, "lighthouse_losses").inc(lost)
            self._set(event, "lighthouse_up", not lost)

    def _of(self, event: Event, name: str, *more: object) -> Any:
        return self._metrics[name].labels(event.group, event.position, *more)

    def _set(self, event: Event, name: str, value: float | None) -> None:
        if value is not None:
            self._of(event, name).set(value)


class MetricsPage:
    """A page of metrics while it is open."""

    def __init__(self, registry: CollectorRegistry, port: int, address: str) -> None:
        import prometheus_client as prometheus

        try:
            self._server, self._thread = prometheus.start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:
            raise SpareError(
                f"metrics cannot be shown at {address}:{port}: {error}; expected a free port"
            ) from error
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Free the port; may be called twice."""
        self._server.shutdown()
        self._server.server_close()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> MetricsPage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _size(event: Event, name: str) -> float | None:
    """Field `name` as a number; of a list, how many there are."""
    value = event.fields.get(name)
    return len(value) if isinstance(value, (list, tuple)) else number(event, name)


def _amount(value: float | None) -> float:
    """What a counter can be raised by."""
    return value if value is not None and 0 <= value < math.inf else 0.0
