"""What runs in the process of one rank, from the fork to the record."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

import torch

from prismcore import _core
from prismcore.adapters.megatron_experts import ExpertRouting
from prismcore.launch import call_sites, late, objects
from prismcore.launch.cudnn import switch_off_cudnn
from prismcore.launch.given import RuleDoor
from prismcore.launch.groups import GroupTable
from prismcore.launch.host_group import HOST_GROUP_MARK, HostGroups
from prismcore.launch.iteration import IterationEnds
from prismcore.launch.modules import Program, mentions
from prismcore.launch.need import ObjectNeed
from prismcore.launch.objects import ObjectExchange
from prismcore.launch.processes import STOP_SIGNAL
from prismcore.launch.protocol import (
    ENDED_BY_ERROR,
    ENDED_BY_ITERATIONS,
    ENDED_BY_PROGRAM,
    ENDED_BY_STOP,
    ENDED_IN_NEED,
    ENDED_OUT_OF_MEMORY,
    Values,
)
from prismcore.launch.record import Record, RecordClosedError
from prismcore.launch.splits import announce_splits
from prismcore.launch.standins import library_paths
from prismcore.launch.store import GhostStore, pair_of_key
from prismcore.routing import Rule as RoutingRule
from prismcore.rules import Rule

__all__ = ["RankJob", "RankRun"]


@dataclass(kw_only=True, slots=True, frozen=True)
class RankJob:
    """What all ranks of a job share."""

    program: Program
    folder: str
    world_size: int
    gpus_per_node: int
    device: _core.DeviceProfile
    cluster: _core.ClusterProfile
    measure_host: bool
    iterations: int
    routing: RoutingRule
    rules: Sequence[Rule] = ()


class _Device:
    """Where mock routing puts its bytes."""

    write = staticmethod(_core.vgpu_supply)
    answer_reads = staticmethod(_core.vgpu_answer_reads)


class RankRun:
    """Runs the program as one rank, and leaves the record in ``record_fd``. Never returns.

    ``port``: descriptors of the emulation's ports and exchange, and the number of this rank in both;
    None: a collection.
    ``known``: objects that other ranks gave.
    """

    def __init__(
        self,
        job: RankJob,
        rank: int,
        *,
        record_fd: int,
        want_groups: bool,
        port: tuple[int, int, int] | None = None,
        known: Values | None = None,
    ) -> None:
        self.job = job
        self.rank = rank
        self._record = Record(record_fd)
        self._want_groups = want_groups
        self._port = port
        self._started = time.perf_counter()
        self._pid = os.getpid()
        self._last_word = threading.Lock()
        self._variables: dict[str, Any] = {}
        self._store = GhostStore(job.world_size, lambda: call_sites.here(job.folder))
        self._groups = GroupTable()
        self._host_groups = HostGroups(job.world_size, lambda: call_sites.here(job.folder))
        self._objects = ObjectExchange(
            known=known or {}, site=lambda: call_sites.here(job.folder), missing=self._need
        )
        self._folded_peaks: dict[str, int] = {}
        self._routing = ExpertRouting(job.routing, _Device(), _core.vgpu_num_iterations)
        self._given = RuleDoor(
            job.rules,
            rank=rank,
            iteration=_core.vgpu_num_iterations,
            site=lambda: call_sites.here(job.folder),
            failed=self._rule_failed,
        )
        self._ends = IterationEnds(
            self._iteration_ended, program_marks=mentions(job.program.source(), "mark_iteration")
        )

    def run(self) -> NoReturn:
        try:
            self._prepare()
            self._run_program()
        except SystemExit as exit_:
            if exit_.code not in (None, 0):
                if not isinstance(exit_.code, int):
                    print(exit_.code, file=sys.stderr)
                self._leave(ENDED_BY_ERROR, status=_exit_status(exit_.code))
            self._leave(ENDED_BY_PROGRAM)
        except torch.OutOfMemoryError as error:
            traceback.print_exc()
            self._leave(ENDED_OUT_OF_MEMORY, status=1, error=self._describe_out_of_memory(error))
        except BaseException as error:
            _print_from_program(error)
            self._leave(ENDED_BY_ERROR, status=1, error=_told(error))
        self._leave(ENDED_BY_PROGRAM)

    def _prepare(self) -> None:
        job = self.job
        self._store_in_front()
        self._groups.install()
        self._host_groups.install()
        objects.use(self._objects)
        announce_splits(_door())
        self._given.install(_door())
        self._ends.install()
        self._routing.install()
        self._keep_peaks()
        switch_off_cudnn()
        if self._port is not None:
            ports, exchange, number = self._port
            _core.vgpu_attach(ports, number)
            _core.vgpu_attach_exchange(exchange, number)
        _core.vgpu_start(
            self.rank, job.world_size, job.gpus_per_node, job.device, job.cluster, job.measure_host
        )
        _core.vgpu_set_member_source(self._members)
        # Python runs it between two instructions of the main thread: no call of the device is under way.
        signal.signal(STOP_SIGNAL, lambda *_: self._leave(ENDED_BY_STOP))

    def _run_program(self) -> None:
        program = self.job.program
        sys.argv[:] = [str(program.path), *program.arguments]  # modules may have taken it by value
        # Its variables are kept: whether Python frees them now or at the end of the process is no op of its.
        if program.module is not None:
            self._variables = runpy.run_module(program.module, run_name="__main__", alter_sys=True)
        else:
            self._variables = runpy.run_path(str(program.path), run_name="__main__")

    def _store_in_front(self) -> None:
        """Every way to a store of torch's ends at the ghost store: env://, tcp://, TCPStore(...)."""
        rendezvous = sys.modules["torch.distributed.rendezvous"]
        rendezvous._create_c10d_store = lambda *args, **kwargs: self._store  # type: ignore[attr-defined]
        late.use_store(self._store)

    def _keep_peaks(self) -> None:
        """A program may reset torch's peaks: fold in what they were."""
        reset = torch._C._cuda_resetPeakMemoryStats

        def fold_and_reset(device: int) -> None:
            for kind, peak in self._peaks_now().items():
                self._folded_peaks[kind] = max(self._folded_peaks.get(kind, 0), peak)
            reset(device)

        torch._C._cuda_resetPeakMemoryStats = fold_and_reset

    @staticmethod
    def _peaks_now() -> dict[str, int]:
        stats = torch.cuda.memory_stats() if torch.cuda.is_initialized() else {}
        kinds = ("requested", "allocated", "reserved")
        return {kind: stats.get(f"{kind}_bytes.all.peak", 0) for kind in kinds}

    def _peaks(self) -> dict[str, int]:
        return {kind: max(peak, self._folded_peaks.get(kind, 0)) for kind, peak in self._peaks_now().items()}

    def _members(self, communicator: tuple[int, str, int, int, bytes]) -> list[int]:
        """Who is in a communicator: the group it is named after, or two of its ranks."""
        _, name, size, _, unique_id = communicator
        name = name.removeprefix(HOST_GROUP_MARK)
        uid = name.rpartition(":")[2]
        ranks = list(range(self.job.world_size)) if name.startswith("default_pg:") else None
        ranks = ranks or self._groups.members(uid) or []
        if len(ranks) == size:
            return ranks
        pair = pair_of_key(self._store.key_of(unique_id) or "")
        if size == 2 and pair is not None and max(pair) < len(ranks):
            return [ranks[pair[0]], ranks[pair[1]]]
        return []

    def _rule_failed(self, error: BaseException) -> NoReturn:
        traceback.print_exception(error)
        self._leave(ENDED_BY_ERROR, status=1, error=_told(error))

    def _iteration_ended(self) -> None:
        _core.vgpu_mark("iteration")
        if _core.vgpu_num_iterations() >= self.job.iterations:
            self._leave(ENDED_BY_ITERATIONS)

    def _need(self, need: ObjectNeed) -> NoReturn:
        self._leave(ENDED_IN_NEED, need=need.to_json())

    def _describe_out_of_memory(self, error: BaseException) -> dict[str, Any]:
        where, module, layer = _innermost_user_frame(error.__traceback__)
        stats = torch.cuda.memory_stats()
        return {
            "type": type(error).__name__,
            "text": str(error).splitlines()[0],
            "where": where,
            "module": module,
            "layer": layer,
            "allocated_bytes": stats.get("allocated_bytes.all.current", 0),
            "reserved_bytes": stats.get("reserved_bytes.all.current", 0),
            "capacity_bytes": torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory,
        }

    def _call_sites(self) -> list[str]:
        known: dict[tuple[tuple[str, int], ...], str] = {}
        sites = []
        for entry in call_sites.launches(call_sites.flight_records()):
            frames = entry.get("frames", [])
            key = tuple((frame["filename"], frame["line"]) for frame in frames)
            if key not in known:
                known[key] = call_sites.call_site(frames, self.job.folder)
            sites.append(known[key])
        for number, site in self._host_groups.call_sites:  # these are not torch's to record
            sites.insert(number, site)
        return sites

    def _leave(
        self,
        end: str,
        *,
        status: int = 0,
        error: dict[str, Any] | None = None,
        need: dict[str, Any] | None = None,
    ) -> NoReturn:
        """Writes the record and ends the process, without the ways out of Python or torch."""
        if os.getpid() != self._pid:
            os._exit(status)  # a process that the program forked: the record is not its own to write
        left_s = time.monotonic()
        self._record.say_leaving()
        if threading.current_thread() is threading.main_thread():
            signal.signal(STOP_SIGNAL, signal.SIG_IGN)
        failed = end in (ENDED_BY_ERROR, ENDED_OUT_OF_MEMORY, ENDED_IN_NEED)
        if failed:
            self._last_word.acquire()  # and kept: if other threads fail now, it is because of this
            _core.vgpu_detach()  # so that the engine of an emulation waits for the reason
        summary: dict[str, Any] = {"end": end, "error": error, "need": need, "rank": self.rank}
        summary["left_s"] = left_s
        graph = b""
        try:
            summary |= {
                "has_process_group": bool(self._groups.rows) or self._groups.had_default,
                "iterations": _core.vgpu_num_iterations(),
                "iteration_source": self._ends.source,
                "routing": self._routing.report(),
                "rules": self._given.uses,
                "groups_checksum": self._groups.checksum(),
                "program_s": time.perf_counter() - self._started,
            }
            if self._want_groups or end in (ENDED_BY_ERROR, ENDED_OUT_OF_MEMORY):
                summary["groups"] = self._groups.rows
            # The program's thread may stand still in torch's allocator.
            beside = failed and threading.current_thread() is not threading.main_thread()
            peaks = {"requested": 0, "allocated": 0, "reserved": 0} if beside else self._peaks()
            _core.vgpu_stop()  # the flight recorder asks for events: not the program's doing
            if not failed:
                self._last_word.acquire()  # a rule may have failed until the last move was made
            with contextlib.suppress(RuntimeError, KeyError):  # no flight recorder: no call sites
                _core.vgpu_set_call_sites(self._call_sites())
            report = json.loads(_core.vgpu_report())
            summary["report"] = report
            summary["unresolved"] = [
                name
                for _, name, size, position, unique_id in _core.vgpu_communicators()
                if not self._members((0, name, size, position, unique_id))
            ]
            graph = _core.vgpu_finish(
                peaks["requested"], peaks["allocated"], peaks["reserved"], "{}"
            ).to_bytes()
            self._record.write(summary, graph, self._objects.published)
        except RecordClosedError as closed:
            print(closed, file=sys.stderr)
            status = status or 70
        except BaseException:
            traceback.print_exc()
            status = status or 70
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(status)


def _told(error: BaseException) -> dict[str, Any]:
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be had)"
    return {"type": type(error).__name__, "text": text}


def _door() -> ctypes.CDLL:
    """The NCCL door, which the warm parent loaded."""
    path = next(path for path in library_paths() if path.name == "libprism_nccl.so")
    return ctypes.CDLL(str(path))


def _exit_status(code: object) -> int:
    """What ``sys.exit(code)`` gives where code is not 0; one that a process cannot have is 255."""
    if not isinstance(code, int):
        return 1
    return code if 0 < code < 256 else code % 256 or 255


def _print_from_program(error: BaseException) -> None:
    """The traceback as the program's user knows it: without the frames that started it."""
    trace = error.__traceback__
    own = (os.path.dirname(__file__), "<frozen runpy>")
    while trace is not None and trace.tb_next and trace.tb_frame.f_code.co_filename.startswith(own):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _innermost_user_frame(trace: TracebackType | None) -> tuple[str, str, int | None]:
    """``file:line function`` of the innermost frame outside torch, the class of the module there, and
    the number of the layer around it where a module has one."""
    layer = None
    torch_folder = os.path.dirname(torch.__file__)
    where = module = ""
    for frame, line in traceback.walk_tb(trace):
        name = frame.f_code.co_filename
        if isinstance(frame.f_locals.get("self"), torch.nn.Module):
            module = type(frame.f_locals["self"]).__name__
            number = getattr(frame.f_locals["self"], "layer_number", None)
            layer = number if isinstance(number, int) else layer
        if not name.startswith((torch_folder, "<frozen")):
            short = name.rpartition("site-packages" + os.sep)[2]
            where = f"{os.path.relpath(short) if short == name else short}:{line} {frame.f_code.co_name}"
    return where, module, layer
