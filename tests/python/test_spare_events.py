"""The event log: what is emitted is read back, whoever writes beside it and whatever fails."""

import json
import logging
import math
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from cli_runs import ENVIRONMENT
from hypothesis import given
from hypothesis import strategies as st

from prismcore.errors import SpareError
from prismcore.spare.runtime import events
from prismcore.spare.runtime.events import FIELDS, Event, EventLog

KEYS = ("time_ns", "group", "position", "step", "event")
names = st.text(min_size=1).filter(lambda n: n not in KEYS)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text() | st.floats(allow_nan=False)
fields = st.dictionaries(names, scalars | st.lists(st.integers()) | st.lists(st.text()))


def lines(path):
    return [Event.from_line(line) for line in path.read_bytes().splitlines()]


@given(
    at=st.tuples(st.integers(0, 2**63), st.integers(-1, 10**4), st.integers(0, 64), st.integers(-1, 10**9)),
    name=st.text(),
    more=fields,
)
def test_a_line_holds_what_the_event_holds(at, name, more):
    line = Event(*at, name, more).line()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert line.isascii()
    back = Event.from_line(line)
    assert (back.time_ns, back.group, back.position, back.step, back.event) == (*at, name)
    infinite = {n: str(v) for n, v in more.items() if isinstance(v, float) and math.isinf(v)}
    assert back.fields == more | infinite


@given(fields)
def test_no_cut_line_is_taken_for_an_event(more):
    line = Event(1, 2, 3, 4, "commit", more).line().rstrip()
    for cut in {0, 1, len(line) // 2, len(line) - 1}:
        with pytest.raises(SpareError, match="expected an event"):
            Event.from_line(line[:cut])


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"3",
        b"null",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b"1" * 10_000,
        b'{"time_ns":1,"group":0,"position":0,"step":0}',
        b'{"time_ns":1,"group":true,"position":0,"step":0,"event":"x"}',
    ],
)
def test_what_is_no_event_is_a_typed_error(line):
    with pytest.raises(SpareError, match="expected an event"):
        Event.from_line(line)


def test_fields_become_plain_json(tmp_path):
    with EventLog(tmp_path / "e.jsonl", group=np.int64(3)) as log:
        log.emit(
            "commit",
            step=np.int32(7),
            loss=np.float32(0.5),
            parts=(1, np.int64(2)),
            odd=object,
            worst=math.nan,
            best=-math.inf,
        )
    whole = json.loads((tmp_path / "e.jsonl").read_text())
    assert (whole["group"], whole["step"], whole["parts"]) == (3, 7, [1, 2])
    assert (whole["loss"], whole["worst"], whole["best"]) == (0.5, "nan", "-inf")
    assert "object" in whole["odd"]
    assert log.dropped == 0


def test_the_path_is_filled_in_and_its_folder_made(tmp_path):
    before = time.time_ns()
    for group, position in ((0, 0), (12, 1)):
        with EventLog(tmp_path / "new" / "g{group}.{position}.jsonl", group=group, position=position) as log:
            log.emit("start", step=-1, groups=16)
        (event,) = lines(tmp_path / "new" / f"g{group}.{position}.jsonl")
        assert (event.group, event.position, event.step, event.event) == (group, position, -1, "start")
        assert before <= event.time_ns <= time.time_ns()
        assert event.fields == {"groups": 16}


@pytest.mark.parametrize("name", [".", "file/e.jsonl", "pipe"])
def test_a_path_that_cannot_be_written_is_said_at_once(tmp_path, name):
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")  # without a reader: an error, not a wait
    with pytest.raises(SpareError, match=r"events cannot be written to .*expected a file"):
        EventLog(tmp_path / name, group=0)


def test_a_full_disk_is_one_warning_and_a_count(caplog):
    heard = []
    with caplog.at_level(logging.WARNING), EventLog("/dev/full", group=0, listeners=[heard.append]) as log:
        for step in range(3):
            log.emit("commit", step=step)
    assert log.dropped == 3
    assert [e.step for e in heard] == [0, 1, 2]
    (record,) = caplog.records
    assert "'commit' is not in /dev/full: " in record.getMessage()


def test_a_write_that_is_cut_damages_one_line_only(tmp_path, monkeypatch, caplog):
    path = tmp_path / "e.jsonl"
    write = os.write
    with EventLog(path, group=0) as log:
        log.emit("commit", step=0)
        monkeypatch.setattr(events.os, "write", lambda d, line: write(d, line[:20]))
        log.emit("commit", step=1)
        monkeypatch.undo()
        log.emit("commit", step=2)
    first, cut, last = path.read_bytes().splitlines()
    assert [Event.from_line(line).step for line in (first, last)] == [0, 2]
    with pytest.raises(SpareError):
        Event.from_line(cut)
    assert log.dropped == 1
    assert "only 20 of" in caplog.text


def test_what_a_killed_writer_left_does_not_damage_the_next(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_bytes(b'{"time_ns":1,"gro')
    with EventLog(path, group=5) as log:
        log.emit("start", step=-1)
    with EventLog(path, group=6) as log:
        log.emit("start", step=-1)
    assert [Event.from_line(line).group for line in path.read_bytes().splitlines()[1:]] == [5, 6]


def test_a_log_that_is_taken_away_goes_on_in_a_new_one(tmp_path):
    path = tmp_path / "run" / "e.jsonl"
    descriptors = len(os.listdir("/proc/self/fd"))
    with EventLog(path, group=0) as log:
        log.emit("commit", step=0)
        path.rename(tmp_path / "old")
        log.emit("commit", step=1)
        path.unlink()
        path.parent.rmdir()
        log.emit("commit", step=2)
        path.unlink()
        path.mkdir()  # in the way: what comes now is dropped, and later events are not
        log.emit("commit", step=3)
        path.rmdir()
        log.emit("commit", step=4)
    assert [e.step for e in lines(tmp_path / "old")] == [0]
    assert [e.step for e in lines(path)] == [4]
    assert log.dropped == 1
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_field_may_not_take_the_name_of_a_key(tmp_path, caplog):
    with EventLog(tmp_path / "e.jsonl", group=0) as log:
        log.emit("rejoin", step=4, group=3, event="x")
        log.emit("rejoin", step=5)
    assert [e.step for e in lines(tmp_path / "e.jsonl")] == [5]
    assert log.dropped == 1
    assert "field 'group' is a key of every event" in caplog.text


def test_a_listener_that_fails_is_heard_no_more(tmp_path, caplog):
    heard = []

    def odd(event):
        heard.append(("odd", event.step))
        raise ValueError("odd")

    with EventLog(
        tmp_path / "e.jsonl", group=0, listeners=[odd, lambda e: heard.append(("good", e.step))]
    ) as log:
        log.emit("commit", step=0)
        log.emit("commit", step=1)
    assert heard == [("odd", 0), ("good", 0), ("good", 1)]
    assert [e.step for e in lines(tmp_path / "e.jsonl")] == [0, 1]
    assert "is heard no more" in caplog.text


def test_without_a_path_listeners_hear_all_the_same():
    heard = []
    with EventLog(None, group=2, listeners=[heard.append]) as log:
        log.emit("spare", step=-1, waiting=True)
    log.emit("stop", step=3, reason="done")
    assert [(e.event, e.group, dict(e.fields)) for e in heard] == [
        ("spare", 2, {"waiting": True}),
        ("stop", 2, {"reason": "done"}),
    ]
    assert log.dropped == 0


def test_after_close_nothing_is_written_elsewhere(tmp_path):
    log = EventLog(tmp_path / "e.jsonl", group=0)
    log.close()
    log.close()
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)  # takes the number of the closed one
    log.emit("commit", step=0)
    os.close(other)
    assert (tmp_path / "other").read_bytes() == b""
    assert log.dropped == 1


WRITER = """
import sys, threading
from pathlib import Path
from prismcore.spare.runtime.events import EventLog
assert not {"torch", "numpy", "rich"} & set(sys.modules)
group, count = int(sys.argv[2]), int(sys.argv[3])
with EventLog(Path(sys.argv[1]), group=group) as log:
    def emit(first):
        for step in range(first, count, 2):
            log.emit("failure", step=step, lost=[group], how="left", detail="x" * (step * 37 % 5000))
    threads = [threading.Thread(target=emit, args=(first,)) for first in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert log.dropped == 0
"""


def test_processes_and_threads_share_a_file(tmp_path):
    path, writers, count = tmp_path / "e.jsonl", 3, 300
    command = [sys.executable, "-c", WRITER, path]
    children = [
        subprocess.Popen([*map(str, [*command, group, count])], env=ENVIRONMENT) for group in range(writers)
    ]
    assert [child.wait(240) for child in children] == [0] * writers
    found = lines(path)
    assert sorted((e.group, e.step) for e in found) == [(g, s) for g in range(writers) for s in range(count)]
    assert all(len(e.fields["detail"]) == e.step * 37 % 5000 for e in found)


def test_listeners_hear_one_event_at_a_time():
    inside, most = 0, 0

    def listen(event):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.001)
        inside -= 1

    log = EventLog(None, group=0, listeners=[listen])
    threads = [
        threading.Thread(target=lambda: [log.emit("patch", step=0) for _ in range(10)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_no_field_takes_the_name_of_a_key():
    assert all(not set(KEYS) & set(names) for names in FIELDS.values())
