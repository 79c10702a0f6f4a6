"""Signals that are held until the work can stop."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from prismcore import interrupts


@pytest.fixture(autouse=True)
def handlers():
    """A run in the background may have been started with SIGINT ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupt(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


def test_an_interrupt_waits_for_the_next_check():
    reached = []

    def work():
        with interrupts.held():
            interrupts.check()
            interrupt()
            reached.append("after the signal")
            with interrupts.held():  # of an inner part: no other rules
                interrupt()
            reached.append("after the inner part")
            interrupts.check()
            reached.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["after the signal", "after the inner part"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_no_check_saw_comes_at_the_end():
    done = []

    def work():
        with interrupts.held():
            interrupt()
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [1]
    interrupts.check()


def test_a_failure_goes_before_an_interrupt():
    def work():
        with interrupts.held():
            interrupt()
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        work()
    interrupts.check()


def test_the_caller_s_own_handler_is_called():
    seen = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    with interrupts.held():
        interrupt(signal.SIGTERM)
        assert seen == []
        interrupts.check()
        assert seen == [signal.SIGTERM]
        interrupts.check()
    assert seen == [signal.SIGTERM]


def test_a_signal_without_a_handler_is_left_alone():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with interrupts.held():
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_other_threads_hold_nothing():
    def work():
        with interrupts.held():
            seen.append(signal.getsignal(signal.SIGINT))

    seen: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
