"""Long calls of SPARe's core let signals through, and other threads run."""

import contextlib
import signal
import threading

import numpy as np
import pytest

from prismcore.spare import closed_form
from prismcore.spare import placement as places

RANDOM = places.random(4_000, 200)

# Each takes some tenths of a second or more.
LONG = {
    "golomb": lambda: places.golomb(100_000, 200),
    "spread": lambda: places.spread(1_000_000, 60),
    "cyclic": lambda: places.cyclic(100_000, 200),
    "replication": lambda: places.replication(100_000, 200),
    "random": lambda: places.random(50_000, 20),
    "domains": lambda: places.domains(60, np.arange(10_000) // 72),
    "max_shared": lambda: RANDOM.max_shared,
    "largest_redundancy": lambda: places.largest_redundancy(10_000),
    "mean_depth_finite": lambda: closed_form.mean_depth_finite(100_000, 60, 8),
    "endured_failures_finite": lambda: closed_form.endured_failures_finite(1_000_000, 500),
    "replication_endured": lambda: closed_form.replication_endured_failures_finite(1_000_000, 500),
}


class EnoughError(Exception):
    pass


@pytest.mark.parametrize("name", LONG)
def test_signals_end_it(name):
    heard = 0

    def hear(*_):
        # The first may have waited until the call was over, the third has not: signals that wait are one.
        nonlocal heard
        heard += 1
        if heard == 3:
            raise EnoughError

    before = signal.signal(signal.SIGALRM, hear)
    try:
        with contextlib.suppress(EnoughError):
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            LONG[name]()
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert heard >= 3


@pytest.mark.parametrize("name", LONG)
def test_other_threads_run_meanwhile(name):
    done = threading.Event()
    turns = 0

    def work():
        try:
            LONG[name]()
        finally:
            done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.wait(0.001):
        turns += 1
    thread.join()
    assert turns >= 10
