"""The warm parent: imports once what every rank imports, then forks a process for each rank.

Run as ``python -m prismcore.launch.parent FD`` by :class:`prismcore.launch.launcher.Launcher`, which
holds the other end of the socket FD. Ranks are forked, so nothing here may start the device: torch
would refuse it in the children.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from prismcore import _core
from prismcore.errors import CollectError, PrismError
from prismcore.launch.addresses import allow_addresses
from prismcore.launch.environment import rank_environment
from prismcore.launch.modules import Program, find_program, top_level_imports
from prismcore.launch.processes import (
    adopt_orphans,
    children,
    die_with_parent,
    end_processes,
    fork,
    kill_group,
    stop,
)
from prismcore.launch.protocol import Channel, Values, read_record
from prismcore.launch.scout import import_for_all_ranks
from prismcore.profiles.device import load_device
from prismcore.units import plural

if TYPE_CHECKING:
    from prismcore.launch.rank import RankJob
    from prismcore.rules import Rule


class SetupError(Exception):
    """Told to the collector in one line."""


def _tell(channel: Channel, doing: str) -> None:
    """For the collector, which ends what takes too long."""
    channel.send({"preparing": doing})


def _import_torch(gpus_per_node: int, device: _core.DeviceProfile) -> None:
    from prismcore.launch import standins

    standins.load()
    _core.vgpu_describe(gpus_per_node, device)
    try:
        import torch
    except ImportError as error:
        raise SetupError(f"torch cannot be imported ({error}); install prismcore[torch]") from error
    # Asking the runtime would mark this process, and torch refuses the device in children of a
    # process so marked. Modules ask while they are imported.
    torch._C._cuda_getDeviceCount = lambda: gpus_per_node
    if torch.distributed.is_available():
        from prismcore.launch import late, objects

        objects.install()
        late.install()


def _import_dynamo(program: Program) -> None:
    """The first optimizer of a program imports it (torch 2.14): 900 modules, a second of processor time in
    every rank. It reads what the compiler is set to: ranks whose script sets that import it themselves."""
    source = program.source()
    settings = ("TORCHDYNAMO", "TORCHINDUCTOR", "TORCH_COMPILE", "TRITON")
    if "optim" in source and not any(setting in source for setting in settings):
        importlib.import_module("torch._dynamo")


def _import_modules(program: Program, preload: list[str], channel: Channel) -> list[str]:
    """Gives modules of the program's that took too long, and are left to the ranks."""
    import torch

    for name in preload:
        _tell(channel, f"importing {name} (--preload)")
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # a module may do anything while it is imported
            told = str(error).partition("\n")[0] or type(error).__name__
            if not isinstance(error, ImportError):
                told = f"importing it ended with {type(error).__name__}: {told}"
            raise SetupError(f"--preload {name}: {told}") from error
    names = top_level_imports(program.source())
    slow = import_for_all_ranks(names, channel.fileno(), lambda name: _tell(channel, f"importing {name}"))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # else every rank would write it again
    if torch.cuda.is_initialized():
        raise SetupError(
            "a module that the script imports at its top level starts the device, so that ranks cannot be "
            "forked; expected the device to be started by the script itself"
        )
    return slow


def _prepare(setup: dict[str, Any], channel: Channel) -> tuple[RankJob, list[str]]:
    """The job, and the modules that ranks have to import since it took too long here."""
    allow_addresses()
    folder = Path(setup["folder"])
    os.chdir(folder)
    try:
        program = find_program(setup["command"], folder)
    except FileNotFoundError as error:
        raise SetupError(str(error)) from error
    device = load_device(setup["device"]).to_core()
    _import_torch(setup["gpus_per_node"], device)
    _import_dynamo(program)
    from prismcore.launch.rank import RankJob
    from prismcore.profiles.cluster import parse_cluster
    from prismcore.routing import parse_rule
    from prismcore.rules import load_rules

    rules: tuple[Rule, ...] = ()
    if setup["rules"] is not None:
        _tell(channel, f"running the rules {setup['rules']}")
        rules = tuple(load_rules(Path(setup["rules"])))
    job = RankJob(
        program=program,
        folder=str(folder),
        world_size=setup["world_size"],
        gpus_per_node=setup["gpus_per_node"],
        device=device,
        cluster=parse_cluster(setup["cluster_text"], "cluster profile").to_core(),
        measure_host=setup["measure_host"],
        iterations=setup["iterations"],
        routing=parse_rule(setup["routing"]),
        rules=rules,
    )
    # As in a rank from here on: modules there hide installed ones.
    sys.path.insert(0, program.search_folder(str(folder)))
    return job, _import_modules(program, setup["preload"], channel)


class Parent:
    """Forks a rank a request, and tells how each ended."""

    def __init__(self, channel: Channel, job: RankJob) -> None:
        self._channel = channel
        self._job = job
        self._ranks: dict[int, int] = {}  # process -> rank
        self._own = children()  # that imports started
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def serve(self) -> None:
        """Until the collector hangs up."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._channel:
                        if not self._serve_request():
                            return
                    else:
                        self._drain_wakeups()
                self._reap()

    def end_all(self) -> None:
        for pid in self._ranks:
            kill_group(pid, leader_lives=True)
        end_processes(children)

    def _drain_wakeups(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass

    def _serve_request(self) -> bool:
        received = self._channel.receive()
        if received is None:
            return False
        request, fds = received
        if "run" in request:
            self._fork(request, fds)
        elif "kill" in request:
            for pid, rank in self._ranks.items():
                if rank == request["kill"]:
                    kill_group(pid, leader_lives=True)
        elif "stop" in request:
            for pid in self._ranks:
                stop(pid)
        return True

    def _fork(self, request: dict[str, Any], fds: list[int]) -> None:
        parent_pid = os.getpid()
        try:
            pid = fork(f"rank {request['run']} (beside {plural(len(self._ranks), 'other')})")
        except CollectError as error:
            pid = -1
            self._channel.send({"failed": str(error)})
        if pid == 0:
            try:
                self._become(request, fds, parent_pid)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(71)
        for fd in fds:
            os.close(fd)
        if pid > 0:
            self._ranks[pid] = request["run"]
            self._channel.send({"forked": request["run"], "process": pid})

    def _become(self, request: dict[str, Any], fds: list[int], parent_pid: int) -> NoReturn:
        os.setsid()
        die_with_parent(parent_pid)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        record_fd, output_fd, *others = fds
        for standard in (1, 2):
            os.dup2(output_fd, standard)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        for fd in (null, output_fd, self._wake_read, self._wake_write):
            os.close(fd)
        self._channel.close()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a module may have put its own there
                stream.reconfigure(line_buffering=True)
        job, rank, port = self._job, request["run"], request.get("port")
        os.environ.update(rank_environment(rank, job.world_size, job.gpus_per_node))
        from prismcore.launch.rank import RankRun

        known: Values = {}
        if request["has_values"]:
            values_fd = others.pop()
            record = read_record(values_fd)
            os.close(values_fd)
            known = record[2] if record else known
        RankRun(
            job,
            rank,
            record_fd=record_fd,
            want_groups=request["want_groups"],
            port=None if port is None else (others[0], others[1], port),
            known=known,
        ).run()

    def _reap(self) -> None:
        while self._ranks:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            rank = self._ranks.pop(pid, None)
            if rank is None:
                continue
            kill_group(pid, leader_lives=False)  # what the rank started and left behind
            if not self._ranks:  # daemons: nobody tells whose they are
                end_processes(lambda: children() - self._own)
            self._channel.send(
                {
                    "ended": rank,
                    "status": os.waitstatus_to_exitcode(status),
                    "cpu_s": usage.ru_utime + usage.ru_stime,
                    "max_rss_bytes": usage.ru_maxrss * 1024,
                }
            )


def main() -> None:
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    sys.path.pop(0)  # the working folder, because of -m: not what torchrun gives a script
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the collector's to handle
    received = channel.receive()
    if received is None:
        return
    setup = received[0]
    die_with_parent(setup["collector_pid"])
    adopt_orphans()
    started = time.perf_counter()
    try:
        job, slow = _prepare(setup, channel)
    except (SetupError, PrismError) as error:
        channel.send({"failed": str(error)})
        return
    gc.collect()
    gc.freeze()  # children neither scan nor, by scanning, copy what is here
    channel.send({"ready": time.perf_counter() - started, "slow": slow})
    parent = Parent(channel, job)
    try:
        parent.serve()
    except (BrokenPipeError, ConnectionError):
        pass
    finally:
        parent.end_all()


if __name__ == "__main__":
    main()
