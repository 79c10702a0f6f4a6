"""Asynchronous checkpoints that are complete or not there (torch.distributed.checkpoint writes the bytes)."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from prismcore.errors import CheckpointError
from prismcore.spare.numbers import number, whole
from prismcore.spare.runtime import snapshot as snapshots
from prismcore.spare.runtime.checkpoint_files import SummingWriter, read
from prismcore.spare.runtime.checkpoint_folder import CheckpointFolder, Draft, FileSum, Record

if TYPE_CHECKING:
    from prismcore.spare.planner import FleetPlan

__all__ = ["Checkpoints", "Saved"]

STRUCTURE = "prism-structure"
"""Key of what is no tensor."""
MOST_STEP = 10**15
_T = TypeVar("_T")

# Said by every save and load of one process; that is what is wanted.
warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")


@dataclass(kw_only=True, slots=True, frozen=True)
class Saved:
    """A checkpoint that is complete, and what it cost."""

    step: int
    path: Path
    bytes: int
    """Of all ranks."""
    blocked_ms: float
    """That training stood still: waiting for the save before, and copying to host memory."""
    cost_ms: float
    """From the call to completion."""


class Checkpoints:
    """Saves the state of a training while it goes on, and loads it.

    ``step`` everywhere is the number of committed steps: the one that a loaded run computes next. ``state``
    maps names to modules, optimizers, schedulers,
    :class:`~prismcore.spare.runtime.random_states.RandomStates` (all that have ``state_dict`` and
    ``load_state_dict``), tensors, and plain values that pickle takes. What is loaded is what was saved, bit
    by bit, also into an optimizer that has made no step yet.

    Of all data-parallel groups one writes; a checkpoint says nothing of their number. Where a group has
    several ranks (tensor or pipeline parallel), each gives ``group`` and its part: distributed tensors
    (``DTensor``) are written once, anything else is each rank's own, and as many ranks must load it. All
    ranks of the group call ``save`` and ``load`` for the same steps, on a file system that all see. The
    group is used in another thread, so it must be made for this alone, with a CPU backend (gloo).

    A copy of the state stays in host memory for the next save. Loading unpickles: read only checkpoints of
    your own.

    Args:
        folder: Made by the first save. Each checkpoint is a folder ``step-000000100`` in it, in the format of
            torch.distributed.checkpoint, with the CRC-32 of every file.
        every_steps: When :meth:`due` says so; None: not by steps.
        every_s: Seconds; None: not by time.
        keep: Complete checkpoints that stay; older ones are removed when a newer one is complete.
        group: Ranks of this data-parallel group; None: one. No default process group is needed then.

    Raises:
        SpareError: values that cannot be.
        CheckpointError: ``group`` is not one of torch.distributed's, or has no CPU backend.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        every_steps: int | None = None,
        every_s: float | None = None,
        keep: int = 2,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self._every_steps = (
            None if every_steps is None else whole("steps between checkpoints", every_steps, least=1)
        )
        self._every_s = math.inf if every_s is None else number("seconds between checkpoints", every_s)
        if not self._every_s > 0:
            raise CheckpointError(f"{self._every_s} s between checkpoints found, expected more than 0")
        self._keep = whole("checkpoints to keep", keep, least=1)
        self._folder = CheckpointFolder(Path(folder))
        self._group = group
        self._ranks = _ranks(group)
        self._rank = 0 if group is None else dist.get_rank(group)
        self._structure_key = STRUCTURE if len(self._ranks) == 1 else f"rank-{self._rank}/{STRUCTURE}"
        self._stager: DefaultStager | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prism-checkpoint")
        self._saving: Future[Saved] | None = None
        self._saved: Saved | None = None
        self._asked: tuple[int, bool] | None = None
        self._since_s: float | None = None

    @classmethod
    def from_plan(
        cls, folder: Path | str, plan: FleetPlan, *, keep: int = 2, group: dist.ProcessGroup | None = None
    ) -> Checkpoints:
        """At the interval that the planner chose (``prism spare plan``), in steps; a plan that chose to go
        without checkpoints is never due."""
        steps = plan.chosen.checkpoint_steps
        return cls(folder, every_steps=steps or None, keep=keep, group=group)

    def due(self, step: int, now_s: float) -> bool:
        """Whether to save at ``step``: a multiple of ``every_steps``, or ``every_s`` after it was last due.

        By steps it is the same for all who ask, whatever they did before. By time it is a clock of this
        object, which starts with the first question; the ranks of a group must give the same ``now_s``.
        Asking again at a step gives the same answer.
        """
        if self._asked is not None and self._asked[0] == step:
            return self._asked[1]
        if self._since_s is None:
            self._since_s = now_s
        by_steps = self._every_steps is not None and step > 0 and step % self._every_steps == 0
        is_due = by_steps or now_s - self._since_s >= self._every_s
        if is_due:
            self._since_s = now_s
        self._asked = step, is_due
        return is_due

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Begins a save; returns when the state has been copied to host memory and may change again.

        Waits for the save before, if it still writes. An error of this save is raised by the next call.

        Raises:
            CheckpointError: a value cannot be saved (nothing is written then); or the save before failed:
                this one has begun nevertheless.
        """
        start = time.monotonic()
        step = whole("step", step, least=0, most=MOST_STEP)
        before = self._join()
        failed: CheckpointError | None = None
        staged: dict[str, Any] = {}
        try:
            taken = snapshots.take(state, self._rank, self._ranks)
            staged = self._stage(taken.tensors)
            staged[self._structure_key] = taken.structure.to_plain()
        except Exception as error:
            failed = _failure(f"checkpoint of step {step} not written", error)
        if failed is None or self._group is not None:  # other ranks of the group must hear of it
            blocked_ms = (time.monotonic() - start) * 1e3
            try:
                self._saving = self._thread.submit(self._write, step, staged, failed, start, blocked_ms)
            except RuntimeError as error:
                raise CheckpointError(f"checkpoint of step {step} not begun: {error}") from error
        if failed is not None:
            self._join()
            raise failed
        if before is not None:
            raise before

    def poll(self) -> Saved | None:
        """The checkpoint that has been completed since the last call, if any; does not wait.

        Raises:
            CheckpointError: it failed.
        """
        return self.wait() if self._saving is None or self._saving.done() else None

    def wait(self) -> Saved | None:
        """As :meth:`poll`, but waits for the save that still writes."""
        error = self._join()
        if error is not None:
            raise error
        saved, self._saved = self._saved, None
        return saved

    def latest(self) -> int | None:
        """The newest complete checkpoint; None if there is none. One whose files are not all there in full
        size is warned of and passed over.

        Raises:
            CheckpointError: the folder cannot be read.
        """
        return self._folder.latest()

    def load(self, state: Mapping[str, Any], step: int | None = None) -> int:
        """Loads all entries of ``state`` in place; others in the checkpoint are left. Returns the step.

        Every file is read and its checksum compared, and names, shapes and types of all tensors are, before
        anything in ``state`` is changed. Plain values are replaced in ``state``, dicts in place.

        Raises:
            CheckpointError: there is none, it is damaged, or it is of another state: ``state`` is untouched,
                unless the message says otherwise.
        """
        error = self._join()
        if error is not None:
            warnings.warn(f"{error}", stacklevel=2)
        wanted = None if step is None else whole("step", step, least=0, most=MOST_STEP)
        found = self._share(self._together(lambda: self._folder.latest() if wanted is None else wanted))
        if found is None:
            raise CheckpointError(f"{self._folder.path}: no complete checkpoint found")
        path = self._folder.path_of(found)

        def check() -> snapshots.Placed:
            record = self._folder.record(found)
            if record.ranks != len(self._ranks):
                raise CheckpointError(
                    f"{path}: written by a group of {record.ranks} ranks, loaded by one of "
                    f"{len(self._ranks)}: load it with as many"
                )
            self._folder.verify(record, sorted(record.files)[self._rank :: len(self._ranks)])
            plain = read(path, {self._structure_key: None})[self._structure_key]
            return snapshots.place(state, snapshots.Structure.from_plain(plain), f"{path}")

        def change() -> None:
            try:
                read(path, placed.tensors)
                snapshots.put(state, placed)
            except (Exception, CheckpointException) as error:
                raise _failure(f"{path}: loaded in part only, load again", error) from error

        placed = self._together(check)
        self._together(change)
        self._asked, self._since_s = None, None
        return found

    def discard_after(self, step: int) -> None:
        """Removes checkpoints newer than ``step``, as after going back to it: a save is refused while there
        is one of its step or a newer one. To be called by one rank.

        Raises:
            CheckpointError: they cannot be removed.
        """
        if self._saving is not None:
            raise CheckpointError("a save still writes: wait() for it first")
        try:
            self._folder.remove(s for s in self._folder.steps() if s > step)
        except OSError as error:
            raise CheckpointError(f"{error.filename}: {error.strerror}: not removed") from error

    def close(self) -> None:
        """Waits for the save that still writes, and frees the host memory. An error of it is raised."""
        error = self._join()
        self._thread.shutdown()
        if self._stager is not None:
            self._stager.close()
            self._stager = None
        if error is not None:
            raise error

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _join(self) -> CheckpointError | None:
        """Waits for the save that still writes; what became of it."""
        if self._saving is None:
            return None
        saving, self._saving = self._saving, None
        try:
            self._saved = saving.result()
        except CheckpointError as error:
            return error
        return None

    def _stage(self, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
        """Copies in host memory, which the next save uses again: there is one save at a time."""
        if self._stager is None:
            cuda = torch.cuda.is_available()
            self._stager = DefaultStager(
                StagingOptions(
                    use_pinned_memory=cuda,
                    use_shared_memory=False,
                    use_async_staging=False,
                    use_non_blocking_copy=cuda,
                )
            )
        try:
            staged: dict[str, Any] = self._stager.stage(tensors)
        except BaseException:  # what it has copied so far is of no use to the next save
            self._stager.close()
            self._stager = None
            raise
        return staged

    # Not async_save: it asks for a CPU backend of the default group though it is not used, and the folder
    # must be agreed on before, and completed after, in the same thread.
    def _write(
        self,
        step: int,
        staged: dict[str, Any],
        failed: CheckpointError | None,
        start: float,
        blocked_ms: float,
    ) -> Saved:
        draft: Draft | None = None
        record: Record | None = None

        def begin() -> None:
            nonlocal draft
            if failed is not None:
                raise failed
            if self._rank == 0:
                draft = self._folder.begin(step)

        def complete(files: dict[str, FileSum]) -> None:
            nonlocal record
            assert draft is not None
            record = Record(step=step, ranks=len(self._ranks), files=files)
            draft.complete(record)

        try:
            self._together(begin)
            path = Path(self._share(f"{draft.path}" if draft is not None else ""))
            dcp.save(
                staged,
                storage_writer=SummingWriter(self._folder.path / path.name, complete),
                planner=DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
                process_group=self._group,
                no_dist=self._group is None,
            )
            if record is not None:
                self._remove_older(step)
            return Saved(
                step=step,
                path=self._folder.path_of(step),
                bytes=self._share(0 if record is None else record.bytes),
                blocked_ms=blocked_ms,
                cost_ms=(time.monotonic() - start) * 1e3,
            )
        except (Exception, CheckpointException) as error:
            raise _failure(f"checkpoint of step {step} not written", error) from error
        finally:
            if draft is not None:
                draft.close()

    def _remove_older(self, step: int) -> None:
        try:
            self._folder.remove([s for s in self._folder.steps() if s <= step][: -self._keep])
        except (OSError, CheckpointError) as error:  # the new one is there all the same
            warnings.warn(f"{self._folder.path}: an old checkpoint is not removed: {error}", stacklevel=2)

    def _together(self, work: Callable[[], _T]) -> _T:
        """``work``, which every rank does; an error of one is raised by all."""
        error: CheckpointError | None = None
        try:
            done = work()
        except (Exception, CheckpointException) as raised:
            error = _failure("", raised)
        for rank, text in enumerate(self._gather(None if error is None else f"{error}")):
            if text is not None and error is None:
                error = CheckpointError(f"rank {rank} of the group: {text}")
        if error is not None:
            raise error
        return done

    def _share(self, value: _T) -> _T:
        """The first rank's."""
        return self._gather(value)[0]

    def _gather(self, value: _T) -> list[_T]:
        if self._group is None:
            return [value]
        values: list[_T] = [value] * len(self._ranks)
        try:
            dist.all_gather_object(values, value, group=self._group)
        except Exception as error:
            raise CheckpointError(
                f"ranks {list(self._ranks)} of the group do not all answer: {_first_line(error)}"
            ) from error
        return values


def _ranks(group: dist.ProcessGroup | None) -> tuple[int, ...]:
    if group is None:
        return (0,)
    try:
        ranks = tuple(dist.get_process_group_ranks(group))
        backends = dist.get_backend_config(group)
    except Exception as error:
        raise CheckpointError(
            f"group {group!r} found, expected one of torch.distributed.new_group: {_first_line(error)}"
        ) from error
    if "cpu" not in backends:
        raise CheckpointError(
            f"group with backends {backends} found, expected one for the CPU too: new_group(backend='gloo')"
        )
    return ranks


def _failure(what: str, error: BaseException) -> CheckpointError:
    """The first cause, in a line."""
    if isinstance(error, CheckpointException) and error.failures:
        rank, (cause, _) = min(error.failures.items(), key=lambda item: item[0])
        error = cause
        what += f" (rank {rank} of the group)" if rank else ""
    if isinstance(error, CheckpointError) and not what:
        return error
    words = f"{error}" if isinstance(error, (CheckpointError, OSError)) else _first_line(error)
    return CheckpointError(f"{what}: {words}" if what else words)


def _first_line(error: BaseException) -> str:
    lines = f"{error}".splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
