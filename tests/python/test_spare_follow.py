"""Following event logs: every whole line once, whatever happens to the files meanwhile."""

import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismcore.spare.runtime import follow
from prismcore.spare.runtime.events import Event, EventLog
from prismcore.spare.runtime.follow import Follower


def line(step, group=0, **fields):
    return Event(1_000 + step, group, 0, step, "commit", fields).line()


def steps(follower):
    return [event.step for event in follower.poll()]


def test_events_of_all_files_by_time(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(line(0) + line(3) + line(4))
    (tmp_path / "b.jsonl").write_bytes(line(1) + line(2) + line(5))
    (tmp_path / "other.txt").write_bytes(line(9))
    follower = Follower([str(tmp_path)])
    assert steps(follower) == [0, 1, 2, 3, 4, 5]
    assert steps(follower) == []
    assert (follower.files, follower.damaged, follower.behind) == (2, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 400)), max_size=12), st.integers(1, 97))
def test_no_event_is_lost_or_seen_twice_wherever_a_look_falls(tmp_path_factory, sizes, chunk):
    """Written in odd pieces, read by odd chunks, one look a piece."""
    path = tmp_path_factory.mktemp("log") / "e.jsonl"
    whole = b"".join(line(step, detail="x" * long) for step, (_, long) in enumerate(sizes))
    cuts = sorted({0, len(whole), *(min(len(whole), cut * 17) for cut, _ in sizes)})
    follower, found = Follower([str(path)]), []
    with pytest.MonkeyPatch.context() as patch, open(path, "ab", buffering=0) as file:
        patch.setattr(follow, "_CHUNK", chunk)
        for first, last in itertools.pairwise(cuts):
            file.write(whole[first:last])
            found += steps(follower)
    assert found == list(range(len(sizes)))
    assert follower.damaged == 0


@pytest.mark.parametrize("place", ["", "e-{group}.jsonl", "e-*.jsonl", "e-3.jsonl"])
def test_a_file_that_appears_is_followed(tmp_path, place):
    follower = Follower([str(tmp_path / "run" / place)])
    assert steps(follower) == []
    with EventLog(tmp_path / "run" / "e-{group}.jsonl", group=3) as log:
        log.emit("commit", step=7)
        assert steps(follower) == [7]
        log.emit("commit", step=8)
        assert steps(follower) == [8]


def test_odd_characters_in_names_are_themselves(tmp_path):
    folder = tmp_path / "run[1]*"
    for name in ("e.jsonl", "e-4.jsonl"):
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(line(len(name)))
    assert steps(Follower([str(folder)])) == [7, 9]
    assert steps(Follower([str(folder / "e.jsonl")])) == [7]
    assert steps(Follower([str(folder / "e-{group}.jsonl")])) == [9]


def test_a_file_is_read_once_by_whatever_names(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_bytes(line(1))
    (tmp_path / "link.jsonl").symlink_to(path)
    (tmp_path / "same.jsonl").hardlink_to(path)
    follower = Follower([str(tmp_path), str(path), str(tmp_path / "*.jsonl")])
    assert steps(follower) == [1]
    assert follower.files == 1


def test_a_rotated_log_is_read_to_its_end_and_its_successor_too(tmp_path):
    path = tmp_path / "e.jsonl"
    follower = Follower([str(path)])
    with EventLog(path, group=0) as log:
        log.emit("commit", step=0)
        assert steps(follower) == [0]
        log.emit("commit", step=1)
        path.rename(tmp_path / "e.jsonl.1")
        log.emit("commit", step=2)  # in a new file
        with open(tmp_path / "e.jsonl.1", "ab") as old:
            old.write(line(3))  # of a writer that has not looked
        assert sorted(steps(follower)) == [1, 2, 3]
        log.emit("commit", step=4)
        assert steps(follower) == [4]
    assert (tmp_path / "e.jsonl").read_bytes().count(b"\n") == 2
    (tmp_path / "e.jsonl.1").unlink()
    assert steps(follower) == []
    assert (follower.files, follower.damaged) == (1, 0)


@pytest.mark.parametrize("longer", [False, True])
def test_a_truncated_log_is_read_from_its_start(tmp_path, longer):
    path = tmp_path / "e.jsonl"
    path.write_bytes(line(0) + line(1))
    follower = Follower([str(path)])
    assert steps(follower) == [0, 1]
    with open(path, "r+b") as file:
        file.truncate(0)
        new = [5, 6, 7, 8] if longer else [5]
        file.write(b"".join(map(line, new)))
    assert steps(follower) == new
    assert follower.damaged == 0


def test_a_log_that_is_written_anew_is_another(tmp_path):
    path = tmp_path / "e.jsonl"
    follower = Follower([str(path)])
    for step in range(5):
        path.write_bytes(line(step))
        assert steps(follower) == [step]
        path.unlink()
        assert steps(follower) == []


def test_damaged_lines_are_counted_and_skipped(tmp_path):
    path = tmp_path / "e.jsonl"
    bad = [b"{", b"\x00" * 50, b"not an event", b"[1]", line(9)[:-9], b"\xff" * 9]
    path.write_bytes(b"".join(line(step) + text + b"\n\n" for step, text in enumerate(bad)) + line(6))
    follower = Follower([str(path)])
    assert steps(follower) == [0, 1, 2, 3, 4, 5, 6]
    assert follower.damaged == len(bad)


def test_a_line_without_end_takes_no_memory(tmp_path):
    path = tmp_path / "e.jsonl"
    follower = Follower([str(path)])
    with open(path, "ab", buffering=0) as file:
        file.write(line(0) + b"x" * (5 << 20))
        assert steps(follower) == [0]
        assert sum(len(f.rest) for f in follower._files.values()) <= follow._LONGEST_LINE
        file.write(b"x\n" + line(1))
    assert steps(follower) == [1]
    assert follower.damaged == 1


def test_what_is_no_file_is_named_and_does_not_stop_the_others(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "e.jsonl").write_bytes(line(2))
    follower = Follower([str(tmp_path)])
    assert steps(follower) == [2]
    assert follower.problems == {str(tmp_path / "pipe.jsonl"): "is no file"}


def test_any_number_of_logs_without_holding_them_open(tmp_path):
    for group in range(200):
        (tmp_path / f"{group}.jsonl").write_bytes(line(group, group))
    follower = Follower([str(tmp_path)])
    before = len(os.listdir("/proc/self/fd"))
    events = follower.poll()
    assert next(events).step == 0
    assert len(os.listdir("/proc/self/fd")) == before
    assert [event.step for event in events] == list(range(1, 200))
