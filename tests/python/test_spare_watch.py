"""``prism spare watch`` as a user meets it: a table, JSON, a terminal that is redrawn, errors."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from struct import pack

import pytest
from cli_contract import WATCH_GROUP_KEYS, WATCH_KEYS
from cli_runs import ENVIRONMENT, inside, prism

from prismcore.report.spare_words import age, milliseconds, said
from prismcore.spare.runtime.events import FIELDS, Event, EventLog

SECOND = 1_000_000_000


def write(path, group, events, start_ns=None):
    """Events of a group, one a second; the last happens now unless `start_ns` is given."""
    start_ns = time.time_ns() - len(events) * SECOND if start_ns is None else start_ns
    with open(path, "ab") as file:
        for i, (name, step, fields) in enumerate(events):
            file.write(Event(start_ns + i * SECOND + group, group, 0, step, name, fields).line())


def commit(step, loss=2.5, step_ms=310.0):
    costs = {"step_ms": step_ms, "compute_ms": 250.0, "reduce_ms": 41.0}
    return ("commit", step, {"loss": loss, "parts": 8, "epoch": 1, **costs})


def start(groups):
    return ("start", -1, {"groups": groups, "redundancy": 3, "micro_batches": 4, "replica": "r"})


@pytest.fixture
def logs(tmp_path):
    """Four groups: 3 was lost in step 2, of which 0 computes a patch."""
    lost = {"lost": [3], "how": "heartbeat", "detail": "", "noticed_ms": 412.0}
    plan = {"outcome": "patched", "depth": 2, "patches": 2, "moved": 1, "digest": "ab", "cost_ms": 1.9}
    last = {
        0: [("plan", 2, {**plan, "mine": 2}), ("patch", 2, {"parts": 2, "cost_ms": 212.0})],
        1: [("plan", 2, {**plan, "mine": 0})],
        2: [("plan", 2, {**plan, "mine": 0})],
    }
    begun = time.time_ns() - 8 * SECOND
    for group in range(4):
        events = [start(4), commit(0), commit(1, loss=2.25 + group)]
        if group != 3:
            events += [("failure", 2, lost), *last[group]]
        write(tmp_path / f"events-{group}.jsonl", group, events, begun)
    return tmp_path


def rows(text):
    """Cells of the table, without its head."""
    lines = [line.rstrip() for line in text.splitlines()]
    begin = next(i for i, line in enumerate(lines) if set(line) == {"─"}) + 1
    return [re.split(r"\s{2,}", line.strip()) for line in lines[begin:]]


def test_one_table(logs):
    done = prism("spare", "watch", logs, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith("step 2, 3 of 4 groups alive, depth 2, redundancy 3, 1 steps/s, last commit ")
    assert second == "2 committed, 1 failure, 2 patches, 0 re-joins"
    table = rows(done.stdout)
    assert [row[:6] for row in table] == [
        ["3", "lost", "1", "8", "5.25", "310 ms"],
        ["0", "patching", "2", "8", "2.25", "310 ms"],
        ["1", "training", "2", "8", "3.25", "310 ms"],
        ["2", "training", "2", "8", "4.25", "310 ms"],
    ]
    assert [row[7] for row in table] == [
        "lost in step 2: no heartbeat",
        "patched 2 parts in 212 ms",
        "plan: patched, depth 2, 2 patches, none here in 1.9 ms",
        "plan: patched, depth 2, 2 patches, none here in 1.9 ms",
    ]
    assert "\x1b" not in done.stdout
    assert inside("spare", "watch", logs).stdout.splitlines()[1:4] == done.stdout.splitlines()[1:4]


def test_json(logs):
    with open(logs / "events-1.jsonl", "ab") as file:
        file.write(b"{broken\n")
    done = prism("spare", "watch", logs / "events-{group}.jsonl", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert list(report) == WATCH_KEYS
    assert all(list(group) == WATCH_GROUP_KEYS for group in report["per_group"])
    whole = ("groups", "alive", "step", "committed", "last_committed", "steps_per_s")
    assert [report[name] for name in whole] == [4, 3, 2, 2, 1, 1.0]
    counts = ("failures", "patches", "rejoins", "wipe_outs", "events", "files", "damaged_lines")
    assert [report[name] for name in counts] == [1, 2, 0, 0, 4 * 3 + 3 + 4, 4, 1]
    assert (report["depth"], report["redundancy"], report["micro_batches"]) == (2, 3, 4)
    assert report["epoch"] is report["checkpoint"] is None
    assert (report["lighthouse_lost"], report["problems"]) == (False, [])
    assert report["states"] == {"lost": 1, "patching": 1, "training": 2}
    assert report["last_commit_s"] > 0
    assert [group["event"] for group in report["per_group"]] == ["patch", "plan", "plan", "failure"]
    assert report["per_group"][3]["said"] == "lost in step 2: no heartbeat"


def test_a_loss_that_is_no_number_comes_through(tmp_path):
    write(tmp_path / "e.jsonl", 0, [start(1), commit(0, loss=float("nan"))])
    with open(tmp_path / "e.jsonl", "ab") as file:  # by another writer, and not quite JSON
        file.write(
            b'{"time_ns":1,"group":1,"position":0,"step":0,"event":"commit","loss":NaN,"step_ms":1e999}\n'
        )
    report = json.loads(inside("spare", "watch", tmp_path, "--json").stdout)
    assert [group["loss"] for group in report["per_group"]] == ["nan", "nan"]
    assert report["per_group"][1]["step_ms"] == "inf"
    text = inside("spare", "watch", tmp_path, "--once")
    assert text.returncode == 0
    assert " nan " in text.stdout


def test_hundreds_of_groups_fold_with_the_odd_ones_first(tmp_path):
    path = tmp_path / "all.jsonl"
    for group in range(600):
        events = [start(600), commit(0, loss=2 + group / 1000, step_ms=300.0 + group % 40)]
        write(path, group, events, SECOND)
    write(path, 0, [("failure", 1, {"lost": [17, *range(300, 330)], "how": "left"})], 5 * SECOND)
    write(path, 5, [("patch", 1, {"parts": 1})], 6 * SECOND)
    table = rows(inside("spare", "watch", path, "--once", "--rows", "9").stdout)
    assert len(table) == 9
    assert [row[:2] for row in table[:6]] == [[n, "lost"] for n in ("17", "300", "301", "302", "303")] + [
        ["+26", "lost"]
    ]
    assert table[5][-1] == "groups 304-329"
    assert [row[:2] for row in table[6:]] == [["0", "agreeing"], ["5", "patching"], ["+567", "training"]]
    assert table[8][2:6] == ["0", "8", "2.001-2.599", "300-339 ms"]
    assert table[8][-1] == "groups 1-4,6-16,18-299,330-599"
    every = rows(inside("spare", "watch", path, "--once", "--rows", "600").stdout)
    assert len(every) == 600
    least = rows(inside("spare", "watch", path, "--once", "--rows", "1").stdout)
    assert [row[:2] for row in least] == [
        *(["+31", "lost"], ["0", "agreeing"], ["5", "patching"]),
        ["+567", "training"],
    ]
    assert len(rows(inside("spare", "watch", path, "--once").stdout)) == 40


def test_what_needs_a_look_is_said(tmp_path):
    write(tmp_path / "e.jsonl", 0, [start(2), commit(4)])
    wiped = {"lost_types": [1, 5], "last_committed": 4, "checkpoint": "ckpt/step-3"}
    write(tmp_path / "e.jsonl", 0, [("lighthouse", 5, {"state": "lost"}), ("wipe_out", 5, wiped)])
    os.mkfifo(tmp_path / "pipe.jsonl")
    with open(tmp_path / "e.jsonl", "a") as file:
        file.write("\x00\n")
    done = inside("spare", "watch", tmp_path, "--once")
    assert done.returncode == 0
    for words in (
        "wiped out: no host left for shard types 1,5, last committed step 4, restart from ckpt/step-3",
        "no lighthouse since ",
        f"{tmp_path}/pipe.jsonl: is no file",
        "1 damaged line skipped",
        "1 wipe-out",
    ):
        assert words in done.stdout, words


@pytest.mark.parametrize("flags", [["--once"], ["--json"], []])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent.jsonl", "no event log found at"),
        ("empty/", "no event log found at"),
        ("pipe", "is no file, expected an event log"),
        ("graph.prism", "found lines but no event among them"),
    ],
)
def test_nothing_to_show_is_one_line(tmp_path, name, words, flags):
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "graph.prism").write_bytes(b"PRISM\n\x00\x01\n" * 9)
    done = inside("spare", "watch", f"{tmp_path}/{name}", *flags)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("prism: error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_log_without_events_yet_is_no_error(tmp_path):
    (tmp_path / "e.jsonl").touch()
    done = inside("spare", "watch", tmp_path, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"no events yet at {tmp_path}" in done.stdout
    assert json.loads(inside("spare", "watch", tmp_path, "--json").stdout)["per_group"] == []


class Terminal:
    """The command on a terminal of its own; what it draws comes in frames."""

    def __init__(self, *args, lines=24, columns=80, **variables):
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, pack("4H", lines, columns, 0, 0))
        environment = {k: v for k, v in ENVIRONMENT.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        command = [
            sys.executable,
            "-m",
            "prismcore",
            "spare",
            "watch",
            *map(str, args),
            "--refresh-s",
            "0.05",
        ]
        self.child = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm-256color", **variables},
            start_new_session=True,
        )
        os.close(theirs)
        self._shown = b""

    def until(self, words, limit_s=240):
        """The first frame from here on that holds `words`, without colours."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if select.select([self._ours], [], [], 0.2)[0]:
                with contextlib.suppress(OSError):
                    self._shown += os.read(self._ours, 65536)
            *whole, self._shown = self._shown.split(b"\x1b[H")
            for frame in map(plain, whole):
                if words in frame:
                    return frame
        raise AssertionError(f"{words!r} is not shown: {plain(self._shown)}")

    def end(self, number=signal.SIGINT):
        """(exit code, what stays on the terminal)."""
        if self.child.poll() is None:
            self.child.send_signal(number)
        with contextlib.suppress(OSError):  # EIO: the child has gone
            while part := os.read(self._ours, 65536):
                self._shown += part
        return self.child.wait(240), plain(self._shown.rpartition(b"\x1b[?1049l")[2])

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            self.child.kill()
        self.child.wait()
        os.close(self._ours)


def plain(shown):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode("utf-8", "replace")).replace("\r", "")


@pytest.fixture
def terminal():
    with contextlib.ExitStack() as stack:

        def begin(*args, **kwargs):
            made = Terminal(*args, **kwargs)
            stack.callback(made.close)
            return made

        yield begin


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_terminal_shows_what_happens_as_it_happens(tmp_path, terminal, number):
    shown = terminal(tmp_path / "events-{group}.jsonl", columns=250)
    shown.until(f"no events yet at {tmp_path}")
    opened = [EventLog(tmp_path / "events-{group}.jsonl", group=group) for group in range(3)]
    for log in opened:
        log.emit("start", step=-1, groups=3)
    shown.until("starting")
    for log in opened:
        log.emit("commit", step=0, loss=1.5, parts=4, step_ms=300.0)
    shown.until("3 of 3 groups alive")
    for log in opened[:2]:
        log.emit("failure", step=1, lost=[2], how="timeout", noticed_ms=900.0)
    frame = shown.until("2 of 3 groups alive")
    assert rows(frame)[0][:2] == ["2", "lost"]
    for log in opened:
        log.close()
    code, left = shown.end(number)
    assert code == 0
    assert "2 of 3 groups alive" in left
    assert rows(left)[0][:2] == ["2", "lost"]


@pytest.mark.parametrize(("lines", "columns"), [(24, 80), (12, 50), (40, 160), (6, 20)])
def test_a_frame_fits_the_terminal(tmp_path, terminal, lines, columns):
    for group in range(300):
        write(tmp_path / f"{group}.jsonl", group, [start(300), commit(0), commit(1)])
    shown = terminal(tmp_path, lines=lines, columns=columns)
    frame = shown.until("300 of")
    assert max(map(len, frame.split("\n"))) <= columns
    assert len(frame.rstrip("\n").split("\n")) <= lines
    if columns >= 50:
        head = next(line for line in frame.split("\n") if line.startswith("group"))
        assert head.split()[:3] == ["group", "state", "step"]
        assert "…" not in head
        table = rows(frame)
        assert any(row[0].startswith("+2") for row in table)  # the rest, at the bottom and not cut off
    assert shown.end()[0] == 0


def test_a_dumb_terminal_gets_one_table(logs, terminal):
    shown = terminal(logs, TERM="dumb")
    assert shown.child.wait(240) == 0
    code, left = shown.end()
    assert code == 0
    assert "3 of 4 groups alive" in left
    assert "\x1b" not in left


def test_the_state_of_a_training_is_seen_without_torch_or_the_core(logs):
    program = (
        "import sys\nfrom prismcore.cli.main import main\n"
        f"code = main(['spare', 'watch', {str(logs)!r}, '--once'])\n"
        "heavy = {'torch', 'torchft', 'numpy', 'prometheus_client', 'prismcore._core'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr


def words(name, step=3, of=None, **fields):
    return said(Event(0, 0, 0, step, name, fields), of=of)


def test_words():
    assert words("start", replica="g0:7") == "started as g0:7"
    assert (
        words("membership", epoch=3, members=[0, 2], cost_ms=34.2) == "agreed on 2 members (epoch 3) in 34 ms"
    )
    told = {"lost": [4, 5, 7], "how": "collective", "detail": "reset by peer", "noticed_ms": 3.04}
    assert words("failure", **told) == "groups 4-5,7 lost: a collective failed (reset by peer)"
    assert words("failure", lost=[], how="timeout") == "no group lost: timeout"
    assert words("failure", lost=[4], how="left", of=4) == "lost in step 3: left"
    assert words("rejoin", joined=[4], source=1, bytes=1536, cost_ms=12_345, of=4) == (
        "re-joined with 1.50 KiB from 1 in 12.3 s"
    )
    assert words("rejoin", joined=list(range(0, 40, 2)), of=1).startswith("groups 0,2,4,")
    assert " and 10 more re-joined" in words("rejoin", joined=list(range(0, 40, 2)), of=1)
    assert words("checkpoint", cost_ms=1200, blocked_ms=20) == "checkpoint in 1,200 ms (blocked 20 ms)"
    assert words("lighthouse", state="found", cost_ms=2500) == "lighthouse found after 2,500 ms"
    assert words("stop", reason="done") == "stopped: done"
    assert words("later", x=1) == "later x=1"


@pytest.mark.parametrize("name", [*FIELDS, "other"])
@pytest.mark.parametrize("value", [None, "\x1b[31m\n", [], {}, -1, 1e300, True, ["x"], "x" * 10_000])
def test_words_of_odd_fields_are_one_harmless_line(name, value):
    text = words(name, **dict.fromkeys(FIELDS.get(name, ("x",)), value))
    assert text.isprintable()
    assert 0 < len(text) <= 200


def test_times():
    assert [milliseconds(ms) for ms in (0, 9.94, 10, 9999.4, 12_345)] == [
        *("0.0 ms", "9.9 ms", "10 ms", "9,999 ms", "12.3 s"),
    ]
    assert [age(s) for s in (-1, 0.26, 9.96, 119, 121, 7201, 200_000)] == [
        *("0.0 s", "0.3 s", "10 s", "119 s", "2 min", "2 h", "2 d"),
    ]


def test_what_is_drawn_while_logs_are_read_says_so(tmp_path, terminal):
    with open(tmp_path / "e.jsonl", "wb") as file:
        for step in range(100_000):
            file.write(Event(step, 0, 0, step, "commit", {"loss": 2.0}).line())
    shown = terminal(tmp_path)
    frame = shown.until("still to be read")
    assert "99,999" not in frame
    assert "still to be read" not in shown.until("100,000 committed")
