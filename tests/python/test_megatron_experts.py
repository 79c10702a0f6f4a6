"""Mock routing in Megatron's mixtures of experts: real jobs on the virtual GPU, checked rank by rank."""

import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from prismcore.adapters.forward_count import EVALUATION, ForwardCount
from prismcore.adapters.imports import when_imported
from prismcore.adapters.megatron_experts import _refuse_what_cannot_be_routed
from prismcore.collect import CollectOptions, collect
from prismcore.errors import CollectError, OutOfMemoryError, RoutingError
from prismcore.graph import OpKind
from prismcore.replay import replay
from prismcore.routing import PRESETS, RoutingShape, counts, parse_rule

MEGATRON = str(Path(__file__).parents[2] / "examples" / "megatron_gpt.py")
HIDDEN, SEQUENCE, LAYERS, MICRO_BATCHES = 256, 256, 2, 2
SMALL = (
    f"--layers {LAYERS} --hidden {HIDDEN} --heads 4 --kv-heads 4 --ffn 512 --seq {SEQUENCE} --vocab 1024 "
    f"--micro-batches {MICRO_BATCHES}"
).split()
STEPS = 2


def run(*flags, world_size, routing="balanced", ranks="all", **options):
    command = [MEGATRON, *SMALL, *flags]
    return collect(
        CollectOptions(
            command=command,
            world_size=world_size,
            routing=routing,
            ranks=ranks,
            **{"iterations": STEPS, **options},
        )
    ).graph


def exchanges(graph, rank):
    """Of each launch that sends to expert ranks: bytes to and from every member, by position."""
    view = graph.rank(rank)
    names = [graph.communicator(int(c)).name for c in view.bindings["communicator"]]
    (slot,) = [i for i, name in enumerate(names) if name.startswith("EXPERT_MODEL_PARALLEL_GROUP:")]
    size = graph.communicator(int(view.bindings["communicator"][slot])).size
    own = int(view.bindings["position"][slot])
    ops = graph.ops(rank)
    parts = ops[np.isin(ops["kind"], (OpKind.SEND, OpKind.RECV)) & (ops["ref"] == slot)]
    launches, fresh = [], True
    for part in parts:
        if fresh:
            launches.append(np.zeros((2, size), dtype=np.int64))
        kind = int(part["kind"] == OpKind.RECV)
        launches[-1][kind, (own + int(part["peer"])) % size] += int(part["bytes"])
        fresh = not part["flags"] & 4
    return own, launches


def expected(rule, shape, own, schedule, *, tensor=0):
    """What a rank sends and receives in each exchange: tokens out, probabilities out, tokens back, in
    every layer; and these the other way round in the backward pass. ``schedule``: step, way,
    micro-batch and layers of each pass; ``tensor``: the rank's position in expert tensor parallelism,
    whose ranks exchange apart."""
    out = []
    token, probability = 2 * HIDDEN, 2
    for step, way, micro_batch, layers in schedule:
        for layer in layers if way == "forward" else reversed(layers):
            table = counts(rule, shape, step=step, layer=layer, micro_batch=micro_batch)
            mine = table.reshape(shape.ranks, -1, shape.experts)[:, tensor]
            by_rank = mine.reshape(shape.ranks, shape.ranks, -1).sum(axis=2)
            there = np.stack([by_rank[own], by_rank[:, own]])
            back = there[::-1]
            if way == "forward":
                out += [there * token, there * probability, back * token]
            else:
                out += [there * token, back * probability, back * token]
    return out


def without_idle(exchanges):
    """A launch in which a rank neither sends nor receives is none."""
    return [e.tolist() for e in exchanges if e.any()]


PLAIN = [
    (step, way, micro_batch, [1, 2])
    for step in range(STEPS)
    for micro_batch in range(MICRO_BATCHES)
    for way in ("forward", "backward")
]


@pytest.mark.torch
@pytest.mark.parametrize("preset", PRESETS)
def test_every_rank_exchanges_what_the_rule_says(preset):
    rule = parse_rule(f"{preset}:seed=5" + (",period=2" if preset == "burst" else ""))
    graph = run("--experts", "8", "--ep", "4", world_size=4, routing=str(rule))
    shape = RoutingShape(tokens=SEQUENCE, topk=2, experts=8, ranks=4, sources=4)
    for rank in range(4):
        own, found = exchanges(graph, rank)
        assert own == rank
        assert without_idle(found) == without_idle(expected(rule, shape, own, PLAIN))
    assert replay(graph).events > 0  # all splits agree, or it says which do not
    assert graph.metadata["routing"] == str(rule)
    assert graph.metadata["unknown_kernels"] == {}


@pytest.mark.torch
def test_tensor_and_pipeline_parallel_ranks_agree_and_recompute_with_the_counts_of_the_first_time():
    """World 16: tensor 2, pipeline 2, expert 4, in one-forward-one-backward order."""
    rule = parse_rule("ragged-source:seed=1")
    flags = ["--experts", "4", "--topk", "1", "--ep", "4", "--tp", "2", "--pp", "2", "--recompute", "full"]
    graph = run(*flags, "--micro-batches", "3", world_size=16, routing=str(rule), ranks="0,1,6,8,15")
    shape = RoutingShape(tokens=SEQUENCE // 2, topk=1, experts=4, ranks=4, sources=8)
    orders = {  # of the two stages
        0: "f0 f1 r0 b0 f2 r1 b1 r2 b2",
        1: "f0 r0 b0 f1 r1 b1 f2 r2 b2",
    }
    ways = {"f": "forward", "r": "forward", "b": "backward"}
    for rank in graph.ranks.tolist():
        stage, tensor = rank // 8, rank % 2
        passes = [(ways[word[0]], int(word[1])) for word in orders[stage].split()]
        schedule = [(step, *passed, [stage + 1]) for step in range(STEPS) for passed in passes]
        own, found = exchanges(graph, rank)
        assert without_idle(found) == without_idle(expected(rule, shape, own, schedule, tensor=tensor))


@pytest.mark.torch
def test_interleaved_chunks_and_evaluation_are_counted_apart():
    """World 4: pipeline 2 of two chunks each, expert 2; layers 1 to 4 lie on stages 0, 1, 0, 1."""
    rule = parse_rule("ragged-source:seed=2")
    flags = "--pp 2 --chunks 2 --layers 4 --experts 4 --ep 2 --recompute full --evaluate 2"
    graph = run(*flags.split(), world_size=4, routing=str(rule))
    shape = RoutingShape(tokens=SEQUENCE, topk=2, experts=4, ranks=2, sources=2)
    orders = {  # of the two stages: chunk and micro-batch
        0: "f00 f01 f10 f11 r10 b10 r11 b11 r00 b00 r01 b01",
        1: "f00 f01 f10 r10 b10 f11 r11 b11 r00 b00 r01 b01",
    }
    for rank in range(4):
        stage = rank // 2
        schedule = []
        for step in range(STEPS):
            for word in orders[stage].split():
                way = "backward" if word[0] == "b" else "forward"
                schedule.append((step, way, int(word[2]), [1 + stage + 2 * int(word[1])]))
            if step < STEPS - 1:  # the record ends with the last step
                schedule += [
                    (step + 1, "forward", EVALUATION + m, [1 + stage + 2 * chunk])
                    for chunk in range(2)
                    for m in range(2)
                ]
        own, found = exchanges(graph, rank)
        assert without_idle(found) == without_idle(expected(rule, shape, own, schedule))
    assert replay(graph).events > 0


@pytest.mark.torch
@pytest.mark.parametrize(
    "flags", ["--tp 2 --pp 2 --ep 2", "--tp 4 --ep 2 --expert-tp 1 --dispatcher allgather"]
)
def test_uneven_gathers_of_tensor_parallel_experts_meet(flags):
    graph = run(*flags.split(), "--experts", "4", world_size=8, routing="ragged-source")
    assert replay(graph).events > 0


@pytest.mark.torch
def test_tokens_above_the_capacity_of_an_expert_are_dropped():
    """Half of all assignments are for expert 0, which takes 1.5 times its share: 192 of 256 tokens."""
    flags = ["--experts", "4", "--ep", "2", "--capacity", "1.5"]
    graph = run(*flags, world_size=2, routing="hot-experts:heat=7", iterations=1)
    _, found = exchanges(graph, 0)
    assert (found[0] // (2 * HIDDEN)).tolist() == [[192 + 86, 85 + 85], [192 + 86, 192 + 85]]
    assert replay(graph).events > 0


@pytest.mark.torch
def test_memory_follows_the_rule():
    peaks = {}
    for text in ("balanced", "hot-experts:heat=7", "empty-rank:rank=3"):
        graph = run("--experts", "8", "--ep", "4", "--ffn", "2048", world_size=4, routing=text)
        peaks[text[:3]] = [graph.rank(r).peaks.requested_bytes for r in range(4)]
    assert len(set(peaks["bal"])) == 1
    assert peaks["hot"][0] > peaks["bal"][0] > max(peaks["hot"][1:])
    assert peaks["emp"][3] < peaks["bal"][3] < min(peaks["emp"][:3])


@pytest.mark.torch
def test_a_dense_program_is_the_same_under_any_rule():
    graphs = [run(world_size=2, routing=text, ranks="0") for text in ("balanced", "hot-experts:experts=99")]
    assert graphs[0].digest() == graphs[1].digest()
    assert graphs[0].metadata["routing"] is None


@pytest.mark.torch
def test_ranks_are_inferred_from_ranks_of_their_expert_position_alone():
    flags = ["--experts", "4", "--ep", "2", "--no-dist-optimizer", "--layers", "1", "--micro-batches", "1"]
    rule = "hot-rank:rank=1,heat=3"
    graphs = [run(*flags, world_size=32, routing=rule, ranks=ranks) for ranks in ("auto", "all")]
    assert graphs[0].digest() == graphs[1].digest()
    assert graphs[0].metadata["ranks_run"] <= 10
    even = run(*flags, world_size=32, ranks="auto")
    assert even.metadata["ranks_run"] <= 8
    assert {even.rank(r).peaks.requested_bytes for r in range(1, 31)} == {even.rank(1).peaks.requested_bytes}


@pytest.mark.torch
def test_a_rule_that_does_not_fit_the_job_is_told_in_one_line():
    with pytest.raises(CollectError) as caught:
        run("--experts", "8", "--ep", "4", world_size=4, routing="hot-rank:rank=4", slots=1)
    assert str(caught.value).startswith("rank 0: routing hot-rank: rank 4, expected below the 4")
    assert "\n" not in str(caught.value)


SIZES = """
import runpy, sys
example = runpy.run_path(sys.argv[1])
for line in sys.stdin:
    sys.argv = ["x", *line.split()]
    try:
        example["check_sizes"](example["parse_args"](), 8)
        print("fits")
    except SystemExit as leaving:
        print(leaving.code)
"""


@pytest.mark.torch
def test_sizes_of_the_example_that_cannot_be_are_told_in_one_line():
    cases = {
        "--experts 8 --ep 4 --tp 2 --pp 1": "fits",
        "--experts 8 --ep 8 --tp 2 --expert-tp 1": "fits",
        "--experts 8 --ep 3": "expert-tp 1 x ep 3 x pp 1 and the world size: 3 does not divide 8",
        "--experts 8 --ep 8 --tp 2": "expert-tp 2 x ep 8 x pp 1 and the world size: 16 does not divide 8",
        "--experts 6 --ep 4": "ep and experts: 4 does not divide 6",
        "--experts 4 --topk 5": "topk 5: expected 1 to the 4 experts",
        "--pp 2 --chunks 2 --micro-batches 3": "pp and micro-batches (interleaved pipeline): 2 does not",
        "--chunks 2": "chunks 2: expected pp above 1",
        "--ep 2": "ep 2, expert-tp 1: nothing to part without --experts",
        "--experts 8 --tp 2 --no-sequence-parallel": "experts with tp above 1 need sequence parallelism",
    }
    done = subprocess.run(
        [sys.executable, "-c", SIZES, MEGATRON],
        input="\n".join(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    told = done.stdout.splitlines()
    assert len(told) == len(cases)
    for line, words in zip(told, cases.values(), strict=True):
        assert words in line


def test_an_unknown_rule_is_refused_before_anything_runs():
    with pytest.raises(RoutingError, match="expected one of balanced"):
        run(world_size=4, routing="hottest")


@pytest.mark.torch
def test_the_rank_that_does_not_fit_is_named_with_its_place_and_rule():
    """The example of docs/guide-experts.md, with another rank hot."""
    flags = "--preset 8b --vocab 32000 --seq 2048 --experts 8 --topk 2 --ep 8 --pp 4 --micro-batches 8"
    options = {"world_size": 32, "routing": "hot-rank:rank=3", "iterations": 1}
    with pytest.raises(OutOfMemoryError) as caught:
        collect(CollectOptions(command=[MEGATRON, *flags.split()], ranks="2-3", slots=1, **options))
    assert caught.value.exit_code == 4
    for words in (
        "rank 3 (pipeline stage 0 of 4, expert rank 3 of 8, data rank 3 of 8)",
        "under routing hot-rank:rank=3,heat=4,seed=0 at ",
        " of layer ",
    ):
        assert words in str(caught.value)


def test_forwards_are_counted_by_step_and_computed_again_in_order():
    count = ForwardCount()

    def forward(step, **how):
        return count.forward(step, **{"training": True, "gradients": True, **how})

    assert [forward(0) for _ in range(3)] == [0, 1, 2]
    assert [count.again(0) for _ in range(3)] == [0, 1, 2]
    assert [forward(1, gradients=False), forward(1), forward(1, gradients=False)] == [0, 1, 2]
    assert [count.again(1), count.again(1)] == [0, 2]  # those without gradients; the other is kept whole
    assert forward(1, training=False) == EVALUATION
    assert forward(1, training=False, gradients=False) == EVALUATION + 1
    assert forward(1) == 3
    assert forward(2) == 0
    assert count.again(2) == 0


def test_dispatchers_out_of_reach_are_refused_by_name():
    config = types.SimpleNamespace(
        moe_token_dispatcher_type="flex", moe_router_padding_for_quantization=False
    )
    layer = types.SimpleNamespace(config=config, layer_number=3)
    with pytest.raises(CollectError, match=r"layer 3: found the token dispatcher 'flex'.*expected alltoall"):
        _refuse_what_cannot_be_routed(layer)
    config.moe_token_dispatcher_type, config.moe_router_padding_for_quantization = "alltoall", True
    with pytest.raises(CollectError, match="moe_router_padding_for_quantization"):
        _refuse_what_cannot_be_routed(layer)


def test_modules_are_acted_on_when_they_are_imported(tmp_path, monkeypatch):
    (tmp_path / "late_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    when_imported("late_module", lambda module: seen.append(module.value))
    assert seen == []
    import late_module

    assert seen == [1]
    when_imported("late_module", seen.append)
    assert seen == [1, late_module]
