"""Events as Prometheus metrics: each event moves what it should, and the page shows it."""

import subprocess
import sys
import threading
import urllib.request

import pytest
from cli_runs import ENVIRONMENT
from hypothesis import given, settings
from hypothesis import strategies as st

from prismcore.errors import SpareError
from prismcore.spare.runtime.events import FIELDS, Event, EventLog
from prismcore.spare.runtime.metrics import Metrics

SECOND = 1_000_000_000


def told(*events, group=2, position=1):
    """Metrics after (seconds, name, step, fields)."""
    metrics = Metrics()
    for at_s, name, step, fields in events:
        metrics(Event(round(at_s * SECOND), group, position, step, name, fields))
    return metrics


def value(metrics, name, group=2, position=1, **labels):
    labels = {"group": str(group), "position": str(position), **labels}
    return metrics.registry.get_sample_value(f"prismcore_spare_{name}", labels)


def test_a_failure_is_counted_and_timed_until_its_commit():
    metrics = told(
        (0, "start", -1, {"groups": 8}),
        (1, "commit", 0, {"loss": 2.5, "step_ms": 300.0, "compute_ms": 250.0, "reduce_ms": 40.0, "epoch": 1}),
        (2.0, "failure", 1, {"lost": [3, 4], "how": "heartbeat", "noticed_ms": 400.0}),
        (2.1, "failure", 1, {"lost": [5], "how": "collective", "noticed_ms": 5.0}),
        (2.2, "membership", 1, {"members": [0, 1, 2, 6, 7], "epoch": 2, "cost_ms": 80.0}),
        (2.3, "plan", 1, {"outcome": "patched", "depth": 2, "cost_ms": 2.0}),
        (2.5, "patch", 1, {"parts": 3, "cost_ms": 200.0}),
        (2.75, "commit", 1, {"loss": 2.25, "step_ms": 900.0, "epoch": 2}),
        (3.0, "commit", 2, {"loss": "nan", "step_ms": 310.0, "epoch": 2}),
    )
    assert value(metrics, "commits_total") == 3
    assert value(metrics, "lost_groups_total", how="heartbeat") == 2
    assert value(metrics, "lost_groups_total", how="collective") == 1
    assert value(metrics, "plans_total", outcome="patched") == 1
    assert value(metrics, "patched_parts_total") == 3
    assert [value(metrics, n) for n in ("groups", "members", "epoch", "depth")] == [8, 5, 2, 2]
    assert [value(metrics, n) for n in ("step", "last_committed_step")] == [2, 2]
    assert value(metrics, "last_commit_timestamp_seconds") == 3.0
    assert str(value(metrics, "loss")) == "nan"
    assert value(metrics, "step_seconds_count") == 3
    assert value(metrics, "step_seconds_sum") == pytest.approx(1.51)
    assert value(metrics, "recovery_seconds_count") == 1
    assert value(metrics, "recovery_seconds_sum") == pytest.approx(0.75 + 0.4)


def test_rejoins_checkpoints_and_the_lighthouse():
    metrics = told(
        (0, "rejoin", 5, {"joined": [3], "bytes": 1000, "cost_ms": 500.0, "depth": 1}),
        (1, "checkpoint", 6, {"path": "c", "blocked_ms": 20.0, "cost_ms": 1500.0}),
        (2, "lighthouse", 6, {"state": "lost", "cost_ms": 100.0}),
        (3, "wipe_out", 7, {"lost_types": [1], "last_committed": 6}),
    )
    totals = ("rejoined_groups", "rejoin_bytes", "checkpoints", "lighthouse_losses", "wipe_outs")
    assert [value(metrics, f"{name}_total") for name in totals] == [1, 1000, 1, 1, 1]
    assert [value(metrics, name) for name in ("depth", "last_checkpoint_step", "lighthouse_up")] == [1, 6, 0]
    assert value(metrics, "checkpoint_blocked_seconds_sum") == pytest.approx(0.02)
    metrics(Event(4 * SECOND, 2, 1, 6, "lighthouse", {"state": "found"}))
    assert value(metrics, "lighthouse_up") == 1
    assert value(metrics, "lighthouse_losses_total") == 1


names = st.sampled_from([*FIELDS, "other"])
keys = st.sampled_from(sorted({field for fields in FIELDS.values() for field in fields}))
scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=5)


@given(st.lists(st.tuples(names, st.integers(-1, 9), st.dictionaries(keys, scalars | st.lists(scalars)))))
@settings(max_examples=50)
def test_no_field_makes_it_fail_or_a_counter_fall(events):
    metrics = told(*((i, name, step, fields) for i, (name, step, fields) in enumerate(events)))
    for family in metrics.registry.collect():
        if family.type == "counter":
            assert all(sample.value >= 0 for sample in family.samples)


def test_the_page_of_an_event_log():
    metrics = Metrics()
    with EventLog(None, group=4, listeners=[metrics]) as log, metrics.serve(0) as page:
        log.emit("commit", step=7, loss=1.5, step_ms=20.0)
        with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert 'prismcore_spare_last_committed_step{group="4",position="0"} 7.0' in text
        with pytest.raises(SpareError, match=f"127.0.0.1:{page.port}: .*expected a free port"):
            metrics.serve(page.port)
        port = page.port
    page.close()
    assert not [t for t in threading.enumerate() if "serve_forever" in t.name]
    with metrics.serve(port) as again:  # the port is free again
        assert again.port == port


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_cannot_be(port):
    with pytest.raises(SpareError, match="expected a free port"):
        Metrics().serve(port)


def test_without_the_extra_it_is_named_and_events_do_without():
    program = (
        "import sys\n"
        "sys.modules['prometheus_client'] = None\n"  # as if it were not installed
        "from prismcore.errors import SpareError\n"
        "from prismcore.spare.runtime import events, metrics\n"
        "events.EventLog(None, group=0).emit('commit', step=0)\n"
        "try:\n    metrics.Metrics()\n"
        "except SpareError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().endswith("pip install 'prismcore[metrics]'")
