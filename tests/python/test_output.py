"""What ranks write is passed on in whole lines, in bounded memory, and its end is kept."""

from __future__ import annotations

import os
import re
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismcore.launch.output import LONGEST_LINE, OutputPassing, RankOutput


@given(
    st.lists(st.lists(st.text("abc 0", max_size=30), max_size=20)),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_lines_come_whole_however_they_are_written(lines: list[list[str]], sizes: list[int]) -> None:
    text = "".join(line + "\n" for several in lines for line in several)
    reading, writing = os.pipe()
    output = RankOutput(reading, rank=7, passed=True)
    told, at, k = [], 0, 0
    while at < len(text):
        size = sizes[k % len(sizes)]
        os.write(writing, text[at : at + size].encode())
        at, k = at + size, k + 1
        assert output.read()
        part = output.take_lines()
        assert part == "" or part.endswith("\n")
        told += part.splitlines()
    os.close(writing)
    assert output.drain() == text
    assert output.take_lines(ended=True) == ""
    output.close()
    assert told == [f"[rank 7] {line}" for several in lines for line in several]


def lines_of(text: str) -> list[str]:
    """Each line feed ends a line; returns alone end one that has begun."""
    lines = [""]
    for run, words in re.findall(r"([\r\n]*)([^\r\n]*)", text):
        ends = run.count("\n") or (1 if run and lines[-1] else 0)
        lines += [""] * ends
        lines[-1] += words
    return lines if lines[-1] else lines[:-1]


@given(
    st.lists(st.sampled_from(["a", "bc", "10%", "\r", "\n", "\r\n", "\n\r", "\r10%", "20%\r"]), max_size=30),
    st.lists(st.integers(1, 5), min_size=1),
)
def test_bars_and_ends_of_lines_do_not_depend_on_how_writes_fall(parts: list[str], sizes: list[int]) -> None:
    text = "".join(parts)
    reading, writing = os.pipe()
    output = RankOutput(reading, rank=7, passed=True)
    told, at, k = "", 0, 0
    while at < len(text):
        size = sizes[k % len(sizes)]
        os.write(writing, text[at : at + size].encode())
        at, k = at + size, k + 1
        output.read()
        told += output.take_lines()
    os.close(writing)
    told += output.take_lines(ended=True)
    output.close()
    assert told == "".join(f"[rank 7] {line}\n" for line in lines_of(text))


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (b"half a line", "[rank 0] half a line\n"),
        (b"\xff\xfe\n", "[rank 0] \ufffd\ufffd\n"),
        (b"10%\r20%\r\nnext\n\r1%\r2%\n", "10%|20%|next|1%|2%"),
        (b"a\n\nb\n", "a||b"),
    ],
)
def test_lines_that_are_odd(written: bytes, told: str) -> None:
    reading, writing = os.pipe()
    output = RankOutput(reading, rank=0, passed=True)
    os.write(writing, written)
    os.close(writing)
    output.drain()
    if "|" in told:
        told = "".join(f"[rank 0] {line}\n" for line in told.split("|"))
    assert output.take_lines(ended=True) == told
    output.close()


def test_a_line_without_end_is_passed_on_in_pieces() -> None:
    reading, writing = os.pipe()
    output = RankOutput(reading, rank=0, passed=True)
    told = ""
    for _ in range(LONGEST_LINE // 1024 * 5 // 2):
        os.write(writing, b"x" * 1024)
        output.read()
        told += output.take_lines()
    os.close(writing)
    output.drain()
    told += output.take_lines(ended=True)
    output.close()
    lengths = [len(line) - len("[rank 0] ") for line in told.splitlines()]
    assert lengths == [LONGEST_LINE, LONGEST_LINE, LONGEST_LINE // 2]


def test_a_reader_that_takes_its_time_holds_the_writer_and_loses_nothing() -> None:
    may_read = threading.Event()
    told: list[str] = []

    def tell(lines: str) -> None:
        may_read.wait(60)
        told.append(lines)

    passing = OutputPassing(tell)
    reading, writing = os.pipe()
    output = RankOutput(reading, rank=3, passed=True)
    passing.add(output)
    os.set_blocking(writing, False)
    line = b"y" * 99 + b"\n"
    written = 0
    stuck = 0
    while stuck < 20:  # a full pipe, for a second
        try:
            written += os.write(writing, line)
            stuck = 0
        except BlockingIOError:
            stuck += 1
            time.sleep(0.05)
    assert written < 2 << 20  # what lies in pipes and in one look
    may_read.set()
    os.close(writing)
    while output.read():
        time.sleep(0.01)
    kept = output.drain()
    passing.end(output)
    output.close()
    passing.close()
    assert kept.endswith("y" * 99 + "\n")
    whole = "".join(told)
    assert whole == ("[rank 3] " + "y" * 99 + "\n") * (written // 100)


def test_a_reader_that_fails_holds_nobody() -> None:
    def tell(lines: str) -> None:
        raise RuntimeError("no more")

    passing = OutputPassing(tell)
    reading, writing = os.pipe()
    output = RankOutput(reading, rank=3, passed=True)
    passing.add(output)
    for _ in range(100):
        os.write(writing, b"z" * 65536)  # blocks where nobody reads
    os.close(writing)
    output.drain()
    passing.end(output)
    output.close()
    passing.close()


def test_what_is_kept_is_bounded() -> None:
    reading, writing = os.pipe()
    output = RankOutput(reading)
    for number in range(300):
        os.write(writing, f"{number:1023}\n".encode())
        output.read()
    os.close(writing)
    assert [int(line) for line in output.drain().splitlines()] == list(range(300 - 64, 300))
    output.close()


def test_nothing_of_it_stays_open_once_it_is_closed() -> None:
    may_read = threading.Event()
    before = len(os.listdir("/proc/self/fd"))
    for patient in (True, False):
        may_read.clear()
        passing = OutputPassing(lambda lines: may_read.wait(60) and None)
        reading, writing = os.pipe()
        output = RankOutput(reading, rank=3, passed=True)
        passing.add(output)
        os.write(writing, b"told\n")
        os.close(writing)
        if patient:
            may_read.set()
        output.drain()
        passing.end(output)
        output.close()
        passing.close(limit_s=None if patient else 0.1)
        may_read.set()
        passing._thread.join()
        passing.end(output)  # too late, and no matter
    assert len(os.listdir("/proc/self/fd")) == before
