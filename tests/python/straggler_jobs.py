"""Pipeline jobs that exist only on paper, their times by a plain max-plus evaluation, as parquet.

The oracle of tests/python/test_traces_straggler.py: Python loops over ops, no code of the package.
"""

import random
from dataclasses import dataclass, field

COLUMNS = (
    "dp_rank",
    "stage",
    "rank",
    "step",
    "optype",
    "start_ts",
    "duration",
    "seq_id",
    "mc",
    "mb_id",
    "gmc",
)
TRAIN = "forward-compute", "backward-compute"
UNRECORDED = "loss"
# Where messages block, those of opposite directions are one launch, as in Megatron: else they would deadlock.
FUSED = {("forward-send", "backward-recv"), ("backward-send", "forward-recv")}


@dataclass(eq=False, repr=False)
class Op:
    """One op of a rank: begins ``gap`` ns after all of ``after`` ended, ends ``length`` ns after the last of
    its ``group`` is ready."""

    rank: int
    type: str
    chunk: int = -1
    model_chunk: int = -1
    micro_batch: int = -1
    gap: int = 0
    length: int = 0
    key: tuple | None = None
    after: list = field(default_factory=list)
    joined: list = field(default_factory=list)  # ops of the same launch
    ready: int = 0
    end: int = 0


@dataclass
class Job:
    dp: int
    pp: int
    vpp: int
    micro_batches: list[int]  # by dp rank
    blocking: bool
    ops: list  # by step: list of Op in the order of each rank
    tp: int = 1
    loss: bool = False  # the last stage meets after its last backward, which no row tells

    def rank(self, dp, stage):
        return (stage * self.dp + dp) * self.tp


def order_1f1b(stage, pp, count):
    """Megatron's order without interleaving: pairs (is forward, micro-batch)."""
    warm = min(pp - stage - 1, count)
    order = [(True, i) for i in range(warm)]
    for i in range(count - warm):
        order += [(True, warm + i), (False, i)]
    return order + [(False, i) for i in range(count - warm, count)]


def order_interleaved(stage, pp, vpp, count):
    """Megatron's interleaved order: triples (is forward, chunk, micro-batch); pp divides ``count``."""
    total = count * vpp

    def unit(k, forward):
        group, inside = divmod(k, pp * vpp)
        chunk = inside // pp
        return forward, chunk if forward else vpp - 1 - chunk, group * pp + inside % pp

    warm = min(total, (pp - stage - 1) * 2 + (vpp - 1) * pp)
    order = [unit(k, True) for k in range(warm)]
    for i in range(total - warm):
        order += [unit(warm + i, True), unit(i, False)]
    return order + [unit(k, False) for k in range(total - warm, total)]


def rank_program(job, dp, stage, draw):
    """Ops of a rank in one step. ``draw(type, rank)`` gives (gap, length)."""
    last_chunk = job.pp * job.vpp - 1
    rank = job.rank(dp, stage)
    ops, by_type, latest = [], {}, {}

    def add(type, key=None, *, chunk=-1, model_chunk=-1, micro_batch=-1, needs=(), lane=None):
        gap, length = draw(type, rank)
        op = Op(rank, type, chunk, model_chunk, micro_batch, gap, length, key)
        op.after = [n for n in needs if n is not None]
        before = ops[-1] if ops else None
        if job.blocking and before and (before.type, type) in FUSED:
            op.after, op.gap = before.after, before.gap
            op.joined, before.joined = [before], [op]
        elif job.blocking and ops:
            op.after += [ops[-1], *ops[-1].joined]
        elif not job.blocking and lane in latest:
            op.after.append(latest[lane])
        latest[lane] = op
        ops.append(op)
        by_type.setdefault(type, []).append(op)
        return op

    gathered = {c: add("params-all-gather", ("ag", stage, c), chunk=c, lane="dp") for c in range(job.vpp)}
    count = job.micro_batches[dp]
    units = (
        [(f, 0, i) for f, i in order_1f1b(stage, job.pp, count)]
        if job.vpp == 1
        else order_interleaved(stage, job.pp, job.vpp, count)
    )
    backwards = {}
    for forward, chunk, micro_batch in units:
        model_chunk = chunk * job.pp + stage
        name = "forward" if forward else "backward"
        step = 1 if forward else -1
        before, after = model_chunk - step, model_chunk + step
        received = None
        if 0 <= before <= last_chunk:
            received = add(f"{name}-recv", (name, dp, before, micro_batch), lane=f"{name}-recv")
        compute = add(
            f"{name}-compute",
            chunk=chunk,
            model_chunk=model_chunk,
            micro_batch=micro_batch,
            needs=(received, gathered[chunk] if forward else None),
            lane="compute",
        )
        if not forward:
            backwards[chunk] = compute
        if 0 <= after <= last_chunk:
            add(f"{name}-send", (name, dp, model_chunk, micro_batch), needs=(compute,), lane=f"{name}-send")
    add("gc", needs=(latest["compute"],), lane="gc").length = 0
    flushed = [latest[k] for k in latest if k != "gc"]
    if job.loss and stage == job.pp - 1:
        met = add(UNRECORDED, ("loss",), needs=flushed, lane="compute")
        met.gap = met.length = 0
        flushed.append(met)
    add("layernorm-grads-all-reduce", needs=flushed, lane="compute")
    if stage in (0, job.pp - 1) and job.pp > 1:
        add("embedding-grads-all-reduce", ("embedding", dp), lane="compute")
    scattered = [
        add(
            "grads-reduce-scatter",
            ("rs", stage, c),
            chunk=c,
            needs=(backwards[c], latest["compute"]),
            lane="dp",
        )
        for c in range(job.vpp)
    ]
    add("optimizer-clip-main-grad", ("clip",), needs=scattered, lane="compute")
    add("optimizer", lane="compute")
    return ops


def make_job(
    seed, *, dp=2, pp=2, vpp=1, micro_batches=(4, 4), blocking=True, steps=2, spread=0.3, tp=1, loss=False
):
    """A job of random lengths; each type has its own scale, each worker its own speed."""
    rng = random.Random(seed)
    job = Job(
        dp=dp, pp=pp, vpp=vpp, micro_batches=list(micro_batches), blocking=blocking, ops=[], tp=tp, loss=loss
    )
    speed = {job.rank(d, s): rng.uniform(1, 1 + spread) for d in range(dp) for s in range(pp)}
    scale = {"forward-compute": 20_000_000, "backward-compute": 40_000_000}

    def draw(type, rank):
        gap = rng.randrange(0, 300_000) if rng.random() < 0.7 else 0
        if type in TRAIN:
            return gap, int(scale[type] * speed[rank] * rng.uniform(0.95, 1.05))
        return gap, rng.randrange(500_000, 3_000_000)

    for _ in range(steps):
        programs = [rank_program(job, d, s, draw) for d in range(dp) for s in range(pp)]
        groups = {}
        for op in (op for program in programs for op in program):
            groups.setdefault(op.key or id(op), []).append(op)
        for members in groups.values():
            for op in members:
                op.length = members[0].length  # one transfer
        for op in (op for program in programs for op in program):
            for other in op.joined:  # a trace shows one end of a launch, so no more than one length
                for member in groups[other.key]:
                    member.length = op.length
        job.ops.append(programs)
    evaluate(job)
    return job


def evaluate(job):
    """Sets ``ready`` and ``end`` of each op; returns the length of each step, from its first begin."""
    lengths = []
    for programs in job.ops:
        ops = [op for program in programs for op in program]
        groups = {}
        for op in ops:
            groups.setdefault(op.key or id(op), []).append(op)
        arrived, done, left = {}, set(), ops
        while left:
            for key, members in groups.items():
                if key not in arrived and all(id(a) in done for m in members for a in m.after):
                    for m in members:
                        m.ready = max((a.end for a in m.after), default=0) + m.gap
                    arrived[key] = max(m.ready for m in members) + members[0].length
            for op in left:
                launch = [op, *op.joined]
                if all((o.key or id(o)) in arrived for o in launch):
                    op.end = max(arrived[o.key or id(o)] for o in launch)
                    done.add(id(op))
            before, left = len(left), [op for op in left if id(op) not in done]
            assert len(left) < before, "the job of the test deadlocks"
        first = min(op.ready for op in ops)
        lengths.append(max(op.end for op in ops) - first)
    return lengths


def rows(job, *, absent=(), ids=None):
    """Columns as the data set has them; float64, so that whole ns survive."""
    out = {column: [] for column in COLUMNS}
    for step, programs in enumerate(job.ops):
        first = min(op.ready for program in programs for op in program)
        for place, program in enumerate(programs):
            dp, stage = divmod(place, job.pp)
            if job.rank(dp, stage) in absent:
                continue
            seen = {}
            for op in (op for op in program if op.type != UNRECORDED):
                number = seen[op.type] = seen.get(op.type, -1) + 1
                values = (
                    dp,
                    stage,
                    op.rank,
                    ids[step] if ids else step,
                    op.type,
                    (op.ready - first) / 1e9,
                    (op.end - op.ready) / 1e9,
                    number,
                    op.chunk,
                    op.micro_batch,
                    op.model_chunk,
                )
                for column, value in zip(out.values(), values, strict=True):
                    column.append(value)
    return out


def write(path, columns):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), path)
    return path
