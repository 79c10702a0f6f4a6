"""An emulation over several machines: here several processes that find each other as torchrun has them do."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import jobs
import pytest
from cli_runs import ENVIRONMENT, prism
from hypothesis import given
from hypothesis import strategies as st
from test_cli_emulate import PROGRAM, running_in

from prismcore.emulate import EmulateOptions, joined, machines_of_torchrun
from prismcore.emulate import machines as module
from prismcore.emulate.machines import share_of
from prismcore.errors import EmulateError

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "1",
    "RANK": "1",
    "WORLD_SIZE": "3",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=50), st.integers(1, 12))
def test_shares_are_all_ranks_once_and_even(ranks, count):
    shares = [share_of(ranks, machine, count) for machine in range(count)]
    assert [rank for share in shares for rank in share] == ranks
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_machines_share_no_wall_clock():
    options = EmulateOptions(command=["train.py"], sandbox=[0, 1], clock="wall")
    with (
        pytest.raises(EmulateError, match="the wall clock and 2 machines found"),
        joined(1, 2, jobs.pipeline(), options),
    ):
        pass


def test_machines_are_those_of_torchrun():
    assert machines_of_torchrun(TORCHRUN) == (1, 3)
    assert machines_of_torchrun({}) is None
    assert machines_of_torchrun({"RANK": "1", "WORLD_SIZE": "3"}) is None  # left over from something else
    assert machines_of_torchrun(TORCHRUN | {"WORLD_SIZE": "1"}) is None
    with pytest.raises(EmulateError, match="4 processes on a machine, expected one"):
        machines_of_torchrun(TORCHRUN | {"LOCAL_WORLD_SIZE": "4"})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"RANK": None}, "no RANK found in the environment, expected a number from 0 to 2"),
        ({"RANK": "3"}, "RANK='3' found in the environment, expected a number from 0 to 2"),
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE='abc' found in the environment, expected a number from 2"),
        ({"MASTER_PORT": "99999"}, "MASTER_PORT='99999' found"),
        ({"MASTER_ADDR": None}, "no MASTER_ADDR found, expected the address of machine 0"),
    ],
)
def test_an_environment_that_torchrun_did_not_set(wrong, told):
    environment = {key: value for key, value in (TORCHRUN | wrong).items() if value is not None}
    with pytest.raises(EmulateError) as caught:
        machines_of_torchrun(environment)
    assert str(caught.value).startswith(told)
    assert "start with torchrun" in str(caught.value)


@pytest.mark.parametrize("address", ["127.0.0.1", "no.such.host.invalid"])
def test_a_store_that_cannot_be_reached(monkeypatch, address):
    monkeypatch.setattr(module, "_JOIN_S", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for key, value in (TORCHRUN | {"MASTER_ADDR": address, "MASTER_PORT": str(port)}).items():
        monkeypatch.setenv(key, value)
    with pytest.raises(EmulateError, match=rf"torchrun's store at .*{address}, port {port}") as caught:
        module._store()
    assert "\n" not in str(caught.value)


class Store:
    def __init__(self):
        self.values = {}

    def set(self, key, value):
        self.values[key] = value.encode()

    def get(self, key):
        return self.values[key]

    def check(self, keys):
        return all(key in self.values for key in keys)


@pytest.fixture
def store(monkeypatch):
    store = Store()
    monkeypatch.setattr(module, "_store", lambda: store)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    return store


def join(number, count, found, **options):
    given = EmulateOptions(command=options.pop("command", ["train.py"]), sandbox=(0, 1, 2), **options)
    try:
        with joined(number, count, jobs.pipeline(), given) as machines:
            found[number] = len(machines.connections)
            if number == 0:
                found["texts"] = [connection.recv(99) for connection in machines.connections]
            else:
                machines.connections[0].sendall(b"from %d" % number)
    except EmulateError as error:
        found[number] = str(error)


def test_machines_connect_whoever_else_knocks(store):
    found = {}
    first = threading.Thread(target=join, args=(0, 3, found))
    first.start()
    while not store.values:
        time.sleep(0.01)
    place = json.loads(store.get("prism/emulate"))
    token = place["token"].encode()
    wrong = [b"GET / HTTP/1.0\r\n\r\n", b"0" * len(token) + b"[" * 65536]
    for data in [b"", *wrong, *(token + rest for rest in (b"\xff" * 4, b"\x02\0\0\0{}", b"\x02\0\0\0[]"))]:
        with socket.create_connection((place["address"], place["port"])) as stranger:
            stranger.sendall(data)
    others = [threading.Thread(target=join, args=(number, 3, found)) for number in (2, 1)]
    for thread in others:
        thread.start()
    for thread in [first, *others]:
        thread.join()
    assert found == {0: 2, 1: 1, 2: 1, "texts": [b"from 1", b"from 2"]}


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"command": ["train.py", "--more"]}, "program"),
        ({"routing": "balanced"}, "--routing"),
        ({"on_divergence": "follow", "preload": ["json"]}, "--on-divergence, --preload"),
    ],
)
def test_machines_that_emulate_something_else_are_told(store, other, named):
    found = {}
    threads = [
        threading.Thread(target=join, args=(0, 2, found)),
        threading.Thread(target=join, args=(1, 2, found), kwargs=other),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = f"machine 1 was started with another {named} than machine 0; expected the same on all"
    assert found[0] == told
    assert found[1] == f"{told} (said by machine 0; this is machine 1)"


def test_a_machine_that_is_started_twice_is_told(store):
    found = {}
    threads = [threading.Thread(target=join, args=(0, 3, found))]
    threads[0].start()
    while not store.values:
        time.sleep(0.01)
    threads.append(threading.Thread(target=join, args=(1, 3, found)))
    threads[1].start()
    time.sleep(1)
    again = {}
    join(1, 3, again)
    threads.append(threading.Thread(target=join, args=(2, 3, found)))
    threads[2].start()
    for thread in threads:
        thread.join()
    assert found == {0: 2, 1: 1, 2: 1, "texts": [b"from 1", b"from 2"]}
    assert again[1].startswith("machine 0 at 127.0.0.1 did not take this machine in (")
    assert again[1].endswith("and whether another was started with RANK=1")


def test_machines_that_do_not_come(store, monkeypatch):
    monkeypatch.setattr(module, "_JOIN_S", 0.3)
    found = {}
    join(0, 2, found)
    assert found[0].startswith("1 of 2 machines did not come within 0.3 s")
    store.values.clear()
    join(1, 2, found)
    assert found[1].startswith("machine 0 did not come within 0.3 s")
    join(0, 4, found)
    assert found[0] == "4 machines found for 3 sandbox ranks, expected at most one each"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    store.set("prism/emulate", json.dumps({"address": "127.0.0.1", "port": port, "token": ""}))
    join(1, 2, found)
    assert found[1].startswith(f"machine 0 at 127.0.0.1, port {port} cannot be reached: ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machines")
    program = PROGRAM.replace('rank == 0 or "late" not in how', "rank == 2")
    program = program.replace('if "large" in how else', 'if "large" in how and rank == 2 else')
    assert program.count("rank == 2") == 2
    (folder / "train.py").write_text(program)
    done = prism(
        "collect", "--world-size", 3, "--ranks", "all", "-o", "job.prism", "--", "train.py", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def port():
    """That nobody else is given meanwhile: bound here, so that the system hands it to no one, but not
    listened at, so that torch's store, which names it and shares addresses, can."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield str(holder.getsockname()[1])


@contextmanager
def started(folder, port, *programs):
    """A process a machine; none is left afterwards, whatever the test found."""
    processes = []
    try:
        for number, program in enumerate(programs):
            environment = ENVIRONMENT | TORCHRUN | {"RANK": str(number), "WORLD_SIZE": str(len(programs))}
            command = ["emulate", "job.prism", "--sandbox", "0-2", "--json", "--", "train.py", *program]
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "prismcore", *command],
                    cwd=folder,
                    env=environment | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
            )
        yield processes
    finally:
        none_left(folder, processes)


def none_left(folder, processes):
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    until = time.monotonic() + 240
    while running_in(folder) and time.monotonic() < until:
        time.sleep(0.05)
    assert not running_in(folder)


def ends(processes):
    found = []
    for process in processes:
        out, err = process.communicate(timeout=240)
        found.append((process.returncode, out, err))
    return found


@pytest.mark.torch
def test_two_machines_find_what_one_finds(folder, port):
    with started(folder, port, (), ()) as processes:
        (code, out, err), other = ends(processes)
    assert code == 0, err
    assert other[:2] == (0, "")
    here = prism("emulate", "job.prism", "--sandbox", "0-2", "--json", "--", "train.py", cwd=folder)
    timed = {"bootstrap_s", "wall_time_s", "posts"}
    two, one = json.loads(out), json.loads(here.stdout)
    assert {k: v for k, v in two.items() if k not in timed} == {
        k: v for k, v in one.items() if k not in timed
    }


@pytest.mark.torch
@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("large", 3, "leaves its recorded program at op "),
        ("kill", 1, "was killed by SIGKILL"),
    ],
)
def test_what_goes_wrong_on_another_machine_is_told_on_both(folder, port, how, code, words):
    with started(folder, port, (how,), (how,)) as processes:
        first, second = ends(processes)
    for found in (first, second):
        assert found[:2] == (code, "")
        assert words in found[2]
        assert "rank 2 " in found[2]
    says = (first[2], "(said by machine 1)") if how == "kill" else (second[2], "(said by machine 0)")
    assert says[1] in says[0]
    if how == "large":
        assert "; the rank itself communicates next at train.py:" in first[2]


@pytest.mark.torch
@pytest.mark.parametrize("gone", [0, 1])
def test_a_machine_that_is_gone_ends_the_others(folder, port, gone):
    with started(folder, port, ("sleep",), ("sleep",)) as processes:
        asleep = folder / "asleep2"
        while not asleep.exists() or not asleep.read_text():
            assert all(process.poll() is None for process in processes)
            time.sleep(0.05)
        processes[gone].send_signal(signal.SIGKILL)
        processes[gone].wait()
        code, out, err = ends([processes[1 - gone]])[0]
    asleep.unlink()
    assert (code, out) == (1, "")
    told = "machine 1, which runs ranks 1-2, is gone" if gone else "machine 0 is gone"
    assert told in err


@pytest.mark.torch
def test_torchrun_brings_the_machines_together(folder, port):
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number)),
                *("--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", port),
                *("-m", "prismcore", "emulate", "job.prism", "--sandbox", "0,2", "--", "train.py"),
            ],
            cwd=folder,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for number in range(2)
    ]
    try:
        (code, out, err), other = ends(processes)
    finally:
        none_left(folder, processes)
    assert (code, other[:2]) == (0, (0, "")), err + other[2]
    assert "2 ran, 1 ghost" in out
