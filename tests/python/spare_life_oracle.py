"""A second life-time simulator: plain lists, one group after the other, no jitter, traced failures.

Written from the rules in docs/spare.md, not from the core. The solver alone is shared: which survivor
computes what has its own oracle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from prismcore.spare.life_options import LifeOptions
from prismcore.spare.reorderer import Reorderer


class PlainJob:
    """Replication in blocks of r; plain data parallelism with r = 1."""

    def __init__(self, groups: int, redundancy: int) -> None:
        self.groups, self.redundancy, self.parts = groups, redundancy, 1
        self.restart()

    def restart(self) -> None:
        self.load = dict.fromkeys(range(self.groups), self.redundancy)
        self.patch = dict.fromkeys(range(self.groups), 0)

    def fail(self, groups: list[int], _one_layer: bool) -> str:
        for group in groups:
            del self.load[group]
        self.patch = dict.fromkeys(self.load, 0)
        blocks = {group // self.redundancy for group in range(self.groups)}
        return "covered" if blocks == {group // self.redundancy for group in self.load} else "wipe_out"

    def rejoin(self, groups: list[int]) -> None:
        self.load.update(dict.fromkeys(groups, self.redundancy))

    def commit(self) -> None:
        pass


class SpareJob:
    def __init__(self, options: LifeOptions) -> None:
        placement = options.chosen_placement()
        assert placement is not None
        self.solver = Reorderer(placement, micro_batches=options.micro_batches)
        self.groups, self.parts = options.groups, options.micro_batches
        self.restart()

    def restart(self) -> None:
        self.solver.restart()
        self.load = dict.fromkeys(range(self.groups), self.parts)

    def fail(self, groups: list[int], one_layer: bool) -> str:
        plan = self.solver.fail(groups)
        if plan.wipe_out:
            return "wipe_out"
        for group in groups:
            del self.load[group]
        for group in self.load:
            self.load[group] = len(plan.work(group))
        self.patch = dict.fromkeys(self.load, 0)
        if plan.outcome == "kept":
            return "covered"
        if one_layer and self.parts == 1 and plan.outcome == "deepened":
            self.patch = dict.fromkeys(self.load, 1)
            return "patch"
        for group, _type, _part in plan.patches.tolist():
            self.patch[group] += 1
        if one_layer:
            self.patch = {group: min(load, self.parts) for group, load in self.patch.items()}
        return "patch"

    def rejoin(self, groups: list[int]) -> None:
        plan = self.solver.rejoin(groups)
        self.load.update(dict.fromkeys(groups, 0))
        for group in self.load:
            self.load[group] = len(plan.work(group))

    def commit(self) -> None:
        self.solver.commit()


@dataclass
class OracleLife:
    events: list[tuple[int, str, int]] = field(default_factory=list)
    total_ns: int = 0
    finished: bool = False
    failures: int = 0
    restart_failures: int = 0
    restart_ns: int = 0
    checkpoint_ns: int = 0


def oracle_life(options: LifeOptions) -> OracleLife:
    assert options.trace is not None
    assert options.jitter == 0
    quirks = options.chosen_quirks()
    ns = {
        name: round(getattr(options, name) * 1e9)
        for name in (
            "layer_s",
            "restart_s",
            "load_s",
            "checkpoint_s",
            "reorder_s",
            "shrink_s",
            "rejoin_s",
            "swap_s",
        )
    }
    allreduce = round(options.chosen_allreduce_s() * 1e9)
    repair = None if options.repair_s is None else round(options.repair_s * 1e9)
    limit = options.limit_ratio * options.steps * (ns["layer_s"] + allreduce)
    every = options.chosen_checkpoint_steps()
    job: PlainJob | SpareJob = (
        SpareJob(options)
        if options.policy == "spare"
        else PlainJob(options.groups, options.chosen_redundancy())
    )
    everyone = range(options.groups)
    times = {group: sorted({t for g, t in options.trace.failures if g == group}) for group in everyone}
    pending = {group: times[group][:] for group in everyone}  # failures still to come
    life = OracleLife()
    now = step = saved = 0
    down: list[tuple[int, int]] = []  # group and when it failed, oldest first
    repairs: list[int] = []
    spares = options.spares

    def upcoming(group: int) -> float:
        return pending[group][0] if pending[group] else float("inf")

    def note(kind: str, value: int) -> None:
        life.events.append((now, kind, value))

    def compute(load: dict[int, int]) -> list[int]:
        """Failed groups; moves the clock to the all-reduce, and through it."""
        nonlocal now
        meets = {group: now + ns["layer_s"] * parts // job.parts for group, parts in load.items()}
        failed = {group for group in load if upcoming(group) <= meets[group]}
        left = [meets[group] for group in load if group not in failed]
        now = max(left) if left else max([now] + [int(upcoming(group)) for group in failed])
        if not quirks["allreduce_cannot_fail"]:
            failed |= {group for group in load if upcoming(group) <= now + allreduce}
        if not failed:
            now += allreduce
        elif len(failed) < len(load):
            now += allreduce // 2 if quirks["half_price_failed_allreduce"] else allreduce
        scans = quirks["replication_one_failure_per_step"] and len(failed) < len(load)  # by a survivor
        if options.policy == "replication" and scans:
            failed = set(sorted(failed)[:1])
        return sorted(failed, key=lambda group: (upcoming(group), group))

    def run_step() -> bool:
        nonlocal now
        failed = compute(job.load)
        while failed:
            for group in failed:
                note("failure", group)
                down.append((group, pending[group][0]))
                if repair is not None:
                    repairs.append(pending[group][0] + repair)
                pending[group].pop(0)
            life.failures += len(failed)
            outcome = job.fail(failed, quirks["one_layer_per_patch"])
            if outcome == "wipe_out":
                return False
            if quirks["one_charge_per_failure"]:
                now += ns["shrink_s"] if outcome == "covered" else ns["reorder_s"]
            else:
                now += ns["shrink_s"] + ns["reorder_s"]
            if outcome == "covered" and quirks["free_commit_when_covered"]:
                return True
            failed = compute(job.patch)
        return True

    while step < options.steps and now <= limit:
        if options.spares or repair is not None:
            done = [t for t in repairs if t <= now]
            repairs = [t for t in repairs if t > now]
            spares += len(done)
            joining = []
            while down and spares and down[0][1] + ns["swap_s"] <= now:
                joining.append(down.pop(0)[0])
                spares -= 1
            if joining:
                for group in sorted(joining):
                    pending[group] = [t for t in pending[group] if t >= now]
                    note("rejoin", group)
                job.rejoin(sorted(joining))
                now += ns["rejoin_s"]
        if run_step():
            job.commit()
            note("step", step)
            step += 1
            if every and step % every == 0:
                leader = min(job.load)
                dies = upcoming(leader)
                skip = quirks["skip_checkpoint_when_leader_due"]
                if skip and dies <= now:
                    continue
                now += ns["checkpoint_s"]
                life.checkpoint_ns += ns["checkpoint_s"]
                if not skip and dies <= now:
                    continue
                saved = step - 1 if quirks["restart_redoes_a_step"] else step
                note("checkpoint", saved)
            continue
        note("wipe_out", step)
        begin = now
        window = ns["restart_s"] + ns["load_s"]
        for group, _ in down:
            pending[group] = [t for t in pending[group] if t >= begin]
        # A failure inside a group's window begins the window anew; the last group sets the end. What a
        # group's failures are worth does not depend on other groups, but which of them fall before the
        # end does: a failure while a group waits for others stays for the first step.
        ready = dict.fromkeys(everyone, begin + window)
        for group in everyone:
            while upcoming(group) < ready[group]:
                ready[group] = max(begin, int(upcoming(group))) + window
                pending[group].pop(0)
                life.restart_failures += 1
        now = max(ready.values())
        life.restart_ns += now - begin
        step, down, repairs, spares = saved, [], [], options.spares
        job.restart()
        note("restart", step)
    life.total_ns = now
    life.finished = step >= options.steps
    return life
