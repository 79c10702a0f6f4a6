"""A training that loses groups and does not stop."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from torch import Tensor

from prismcore.errors import SpareError, WipeOutError
from prismcore.spare.reorderer import Part
from prismcore.spare.runtime.agreement import Agreement
from prismcore.spare.runtime.ballot import vote
from prismcore.spare.runtime.checkpoints import Checkpoints, Saved
from prismcore.spare.runtime.events import EventLog
from prismcore.spare.runtime.gradients import Buffers
from prismcore.spare.runtime.guard import MembersLostError
from prismcore.spare.runtime.inject import Injector
from prismcore.spare.runtime.keeper import Keeper
from prismcore.spare.runtime.options import SessionOptions
from prismcore.spare.runtime.reduction import sum_in_order, sum_shares
from prismcore.spare.runtime.running import RunningStep
from prismcore.spare.runtime.seeds import seed_for, seed_torch
from prismcore.spare.runtime.words import ms_since
from prismcore.spare.runtime.work import Work

__all__ = ["Expecting", "Session", "Stateful"]


class Stateful(Protocol):
    """What a group that joins is given: models, optimizers, schedulers."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class Expecting(Protocol):
    """What likes to know ahead which work will be asked for, as ShardLoader."""

    def expect(self, works: Sequence[Work]) -> None: ...


class Session:
    """One rank's part of the training. A group is one rank, or several that compute each micro-batch
    together (tensor or pipeline parallel): then each has a session, with its own parameters and state, and
    all are handed out the same work.

    ::

        state = {"model": model, "optimizer": optimizer}
        with Session(options, params=model.parameters(), state=state) as session:
            while session.step_number < steps:
                for work in session.step():
                    loss = loss_of(model, data.micro_batch(work))
                    loss.backward()
                    session.accumulate(work, loss)
                optimizer.step()

    After ``step()`` the parameters' ``grad`` is the mean over all N x m micro-batches of the step, each
    counted once, whoever died meanwhile: the mean of the micro-batches' own gradients. All groups that are
    alive have then committed the step, or none has. ``grad`` belongs to the session: ``zero_grad`` is
    not needed, and does no harm (with ``set_to_none=False`` inside a step it would clear micro-batches that
    are computed).

    Args:
        params: whose gradients are summed over the groups; or a trainer's own gradient buffers, as
            :class:`prismcore.adapters.megatron_gradients.MegatronGradients`.
        state: by name, what a group that joins takes from one that is in.
        data: is told which work comes next.
        checkpoints: are written by the first group that is in, at its step boundaries; a training begins
            from the newest one, where the first group finds it.
        events: a file to which events are appended (``{group}`` and ``{position}`` are filled in), or a log.
    """

    def __init__(
        self,
        options: SessionOptions,
        *,
        params: Iterable[Tensor] | Buffers,
        state: Mapping[str, Stateful],
        data: Expecting | None = None,
        checkpoints: Checkpoints | None = None,
        events: Path | EventLog | None = None,
    ) -> None:
        self._options = options
        self._data = data
        self._state = dict(state)
        self._keeper = Keeper(checkpoints, self._state, self._emit_saved)
        self._running = RunningStep(
            params, groups=options.placement.groups, micro_batches=options.micro_batches
        )
        self._injector = Injector(options.inject, position=options.position)
        self._closes_events = not isinstance(events, EventLog)
        group = -1 if options.group is None else options.group
        self._events = (
            events
            if isinstance(events, EventLog)
            else EventLog(events, group=group, position=options.position)
        )
        try:
            self._agreement = Agreement(
                options,
                events=self._events,
                at=self._at,
                get_state=self._get_state,
                set_state=self._set_state,
            )
        except BaseException:
            if self._closes_events:
                self._events.close()
            raise
        self._handed_out: list[Work] = []  # and not accumulated yet
        self._iterating = False
        self._begun = -1  # the step of which something may be computed
        self._held = self._passed = False  # the sum of the step that runs; the barrier that commits it
        self._owed = False  # the step is committed, and the loop does not have its mean yet
        self._step_loss: float | None = None  # of the sum that is held, where this rank knows it
        self._wanted = False  # by some group, a boundary to join at
        self._compared = 0  # the last epoch in which layouts were compared behind a sum
        self._has_loss = True
        self._loss = float("nan")
        self._boundary_wanted = False
        self._closed = False

    @property
    def step_number(self) -> int:
        """The step that comes next, or runs. Jumps where this group was away and has caught up."""
        return self._agreement.step - self._owed

    @property
    def group(self) -> int | None:
        """None: a spare that has no place yet."""
        return None if self._agreement.group < 0 else self._agreement.group

    @property
    def loss(self) -> float:
        """The mean loss of the step committed last, over all its micro-batches."""
        return self._loss

    @property
    def groups_alive(self) -> int:
        return len(self._agreement.layout.survivors)

    def resume_at(self, step: int) -> None:
        """The weights are those before ``step``, from a checkpoint. Before the first step only.

        Raises:
            SpareError: later, or below 0.
        """
        if self._agreement.has_begun:
            raise SpareError(f"resume_at({step}) after the first step, expected it before")
        if step < 0:
            raise SpareError(f"resume_at({step}) found, expected 0 or more")
        self._agreement.step = step

    def step(self) -> Iterator[Work]:
        """The work of this group in the step: what is planned, and, where groups are lost before the step
        is committed, the patches that fall to it. Ends once the step is committed.

        A group that is not in (it is new, or was away for so long that the others went on) waits here for
        the next step boundary and takes the state of the training.

        Where an error or a signal breaks it off and the program goes on, the next call goes on with the same
        step: with what is missing of it, or, where it is committed, with nothing but its mean. (A group of
        several ranks ends, unless it was broken off between two micro-batches.)

        Raises:
            WipeOutError: a shard has no host left; the last committed step is named.
            MembershipError: no agreement with the others within the time given; or another rank of this
                group is lost: the group ends.
            SpareError: a micro-batch was not accumulated, or step() is used within itself.
        """
        for works in self._lots(1):
            yield works[0]

    def lots(self) -> Iterator[list[Work]]:
        """As :meth:`step`, for loops that compute several micro-batches in one go, as pipelines do: all
        work that may be added up is handed out as one list. Where each micro-batch's gradients are kept
        apart (deterministic mode; with ``micro_batches=1``, after a failure), lists of one.

        Torch's random numbers are not seeded; ``seed_for(seed, work)`` gives a seed for each.
        """
        yield from self._lots(None)

    def accumulate(self, work: Work, loss: Tensor | float | None) -> None:
        """The gradients of ``work`` are in the parameters' ``grad``; ``loss`` is its loss. None: another
        rank of the group has it, as the last stage of a pipeline.

        Raises:
            SpareError: it is not handed out, or loss is not one number.
        """
        if work not in self._handed_out:
            raise SpareError(
                f"accumulate({work}) found, expected the work handed out last: {self._handed_out}"
            )
        self._has_loss = self._has_loss and loss is not None
        self._running.close(Part(work.shard, work.micro_batch), 0.0 if loss is None else loss)
        self._handed_out.remove(work)

    def close(self) -> None:
        """Leaves the training, once all are through with the last step. Idempotent."""
        self._leave(wait=True)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(wait=error is None)

    def _lots(self, most: int | None) -> Iterator[list[Work]]:
        if self._closed or self._iterating:
            raise SpareError(f"step() {'after close()' if self._closed else 'within step()'}")
        self._iterating = True
        try:
            yield from self._step(most)
        finally:
            self._iterating = False
            if self._handed_out:  # some of its gradients may be added already: the step is computed anew
                self._handed_out.clear()
                self._begun = -1

    def _step(self, most: int | None) -> Iterator[list[Work]]:
        agreement = self._agreement
        began = at = time.perf_counter()
        computing = 0.0
        patching = False
        if not self._owed:
            self._start()
        while not self._owed:
            at = time.perf_counter()
            parts = self._missing()
            for lot, seed in self._in_lots(parts, most):
                yield from self._hand_out(lot, patching, seed)
            computing += time.perf_counter() - at
            if patching and parts:
                self._emit("patch", parts=len(parts), cost_ms=ms_since(at))
            at = time.perf_counter()
            try:
                self._sum_and_commit()
            except BaseException:
                self._break_off()
                raise
            if not self._owed:
                self._raise_wipe_out()
                self._begin()
                self._expect(self._missing())
                patching = True
        reducing = time.perf_counter() - at
        self._running.show_mean()
        self._loss = float("nan") if self._step_loss is None else self._step_loss
        self._emit(
            "commit",
            at=agreement.step - 1,
            loss=self._loss,
            parts=self._running.num_done,
            step_ms=ms_since(began),
            compute_ms=round(computing * 1e3, 3),
            reduce_ms=round(reducing * 1e3, 3),
            epoch=agreement.epoch,
        )
        self._injector.at("committed", group=agreement.group, step=agreement.step - 1)
        self._owed = False

    def _start(self) -> None:
        """Into a step, a new one or one that was left halfway. An agreement on that may commit it."""
        agreement = self._agreement
        self._raise_wipe_out()
        self._checkpoint()
        self._at("boundary")
        if agreement.communicator is None or self._boundary_wanted:
            self._boundary_wanted = False
            self._agree()
            if self._owed:
                return
            self._raise_wipe_out()
        self._begin()

    def _sum_and_commit(self) -> None:
        """Where others are lost, agrees with those that are left; the step may be committed by that."""
        agreement = self._agreement
        self._held = self._passed = False
        trouble: MembersLostError | None = None
        try:
            losses = agreement.together(self._reduce, "the sum of gradients")
            self._at("commit")
            self._boundary_wanted = agreement.together(self._commit, "the commit of the step")[0]
        except MembersLostError as lost:
            trouble = lost
            if not self._held and lost.how != "collective":
                self._running.abandon_sum()
            agreement.lost(lost)
        if self._passed:
            self._note_commit()
        if trouble is not None:  # an error from here on is not told as one within that
            self._agree()
            if not self._owed:
                return
            losses = agreement.together(lambda: self._step_loss, "the loss of the step")
        self._step_loss = next((loss for loss in losses if loss is not None), None)

    def _agree(self) -> None:
        agreement = self._agreement
        step, is_begun = agreement.step, self._begun == agreement.step
        try:
            agreement.agree(fresh=not (is_begun or self._owed), held=is_begun and self._held)
        finally:  # broken off, too
            if self._begun == step and agreement.step == step + 1:
                self._owed = True
        self._held = False  # else it is summed again

    def _note_commit(self) -> None:
        """The barrier behind the sum is over. May be called again."""
        if self._agreement.step == self._begun:
            self._agreement.committed()
        self._owed = True

    def _break_off(self) -> None:
        """A signal, or an error that the program may survive, while the step was summed or committed: what is
        here stays true, and the others hear of it."""
        if self._passed and self._begun >= 0:
            self._note_commit()
        if not self._held and self._agreement.communicator is not None:
            self._running.abandon_sum()  # what is under way may still write there
        self._agreement.break_off()

    def _checkpoint(self) -> None:
        """Loads the newest before the first step; later, saves where one is due."""
        keeper, agreement = self._keeper, self._agreement
        if not keeper.exists:
            return
        if not agreement.has_begun:
            if agreement.share(agreement.step == 0 and keeper.has_any()):
                agreement.step = keeper.load()
            return
        keeper.tell(agreement.step)
        if agreement.communicator is None or agreement.communicator.rank != 0:
            return
        is_first = self._options.position == 0  # the ranks of the group save together, or not at all
        if agreement.share(is_first and keeper.is_due(agreement.step)):
            keeper.save(agreement.step)

    def _emit_saved(self, saved: Saved) -> None:
        self._emit(
            "checkpoint",
            at=saved.step,
            path=str(saved.path),
            blocked_ms=saved.blocked_ms,
            cost_ms=saved.cost_ms,
        )

    def _raise_wipe_out(self) -> None:
        text = self._agreement.wipe_out
        if text is not None:
            latest = self._keeper.newest(self._agreement.step)
            where = "from their checkpoint" if latest is None else f"from the checkpoint of step {latest}"
            raise WipeOutError(f"{text}: start all groups again {where}")

    def _begin(self) -> None:
        step = self._agreement.step
        if self._begun == step:
            return  # the program left step() halfway: what is computed stays
        self._begun = -1
        self._held = self._passed = False
        self._has_loss = True
        apart = self._options.deterministic or self._agreement.computes_twice
        self._running.begin(step, apart=apart)
        self._begun = step
        self._expect(self._agreement.planned)

    def _expect(self, parts: Sequence[Part]) -> None:
        """These, and then, as far as it is known, the next step's."""
        if self._data is not None:
            step, planned = self._agreement.step, self._agreement.planned
            self._data.expect([Work(step, *p) for p in parts] + [Work(step + 1, *p) for p in planned])

    def _missing(self) -> list[Part]:
        """What is planned, and what counts here since others are gone."""
        planned = self._agreement.planned
        wanted = dict.fromkeys((*planned, *self._agreement.counts()))
        return [part for part in wanted if not self._running.is_done(part)]

    def _in_lots(self, parts: list[Part], most: int | None) -> list[tuple[list[Work], int | None]]:
        """Each with the seed of torch's random numbers. All at once, while Python's own code is in the
        processor's caches: between micro-batches the same takes several times as long."""
        works = [Work(self._agreement.step, *part) for part in parts]
        if most is None and not self._running.is_apart:
            return [(works, None)] if works else []
        seed = self._options.seed if most == 1 else None
        return [([work], None if seed is None else seed_for(seed, work)) for work in works]

    def _hand_out(self, works: list[Work], patching: bool, seed: int | None) -> Iterator[list[Work]]:
        for _ in works:
            self._at("patch" if patching else "compute")
        self._running.open(Part(works[0].shard, works[0].micro_batch))
        if seed is not None:
            seed_torch(seed)
        self._handed_out = list(works)
        yield works
        if self._handed_out:
            raise SpareError(
                f"{self._handed_out[0]} was handed out and not accumulated; expected accumulate(work, loss)"
            )

    def _reduce(self) -> float | None:
        """Returns the mean loss; None: another rank of the group knows it."""
        self._step_loss = None
        self._at("reduce")
        agreement, running = self._agreement, self._running
        assert agreement.communicator is not None
        counts = agreement.counts()
        if self._options.deterministic:
            sum_in_order(agreement.communicator, running.by_part(counts), agreement.holders(), running.out)
        else:
            running.give(counts, boundary_wanted=agreement.somebody_waits())
            sum_shares(agreement.communicator, running.out)
        loss, self._wanted = running.read()
        if self._options.deterministic:
            running.divide_sum()
        self._step_loss = loss if self._has_loss else None
        self._held = True
        self._at("summed")
        return self._step_loss

    def _commit(self) -> bool:
        """The barrier across groups. Returns whether somebody waits for a boundary to join at.

        Layouts change with the membership alone, so once in each they are compared. In deterministic mode
        a sum has no place for what a group wants, as a group may hold no part."""
        agreement = self._agreement
        assert agreement.communicator is not None
        what = "the commit of the step"
        if self._compared == agreement.epoch and not self._options.deterministic:
            agreement.communicator.barrier(what)
        else:
            waits = self._options.deterministic and agreement.somebody_waits()
            if vote(agreement.communicator, agreement.layout, what, boundary_wanted=waits):
                self._wanted = True
            self._compared = agreement.epoch
        self._passed = True
        self._at("passed")
        return self._wanted

    def _at(self, point: str) -> None:
        self._injector.at(point, group=self._agreement.group, step=self._agreement.step)

    def _get_state(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._state.items()}

    def _set_state(self, state: dict[str, Any]) -> None:
        if set(state) != set(self._state):
            raise SpareError(
                f"state of {', '.join(sorted(state))} came from another group, expected that of "
                f"{', '.join(sorted(self._state))}"
            )
        self._begun = -1  # nothing of it is computed
        self._owed = self._held = self._passed = False
        for name, part in self._state.items():
            part.load_state_dict(state[name])

    def _emit(self, event: str, *, at: int | None = None, **fields: Any) -> None:
        self._events.emit(event, step=self._agreement.step if at is None else at, **fields)

    def _leave(self, *, wait: bool) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._agreement.leave(wait=wait)
            if wait:
                self._keeper.finish(self._agreement.step)
        finally:
            self._emit("stop", reason="closed" if wait else "failed")
            if self._closes_events:
                self._events.close()
