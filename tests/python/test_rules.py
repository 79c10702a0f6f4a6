"""A user's rules in place of what ghosts send: which calls they fit, and what ranks then receive."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from prismcore.collect import CollectOptions, collect
from prismcore.emulate import EmulateOptions, emulate
from prismcore.errors import CollectError, DivergenceError, PrismError, RankFailedError, RuleError
from prismcore.graph import Graph
from prismcore.replay import replay
from prismcore.rules import Call, Rule, load_rules, rule

CALL = Call(
    rank=3,
    group="DATA_PARALLEL_GROUP:7",
    size=8,
    position=1,
    kind="all_reduce",
    dtype="float32",
    elements=1,
    peer=-1,
    iteration=0,
    call_site="train.py:12 step",
    number=0,
)


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({}, True),
        ({"group": "DATA*"}, True),
        ({"group": "data*"}, False),
        ({"group": "DATA_PARALLEL_GROUP"}, False),
        ({"kind": "all_*", "dtype": "float*"}, True),
        ({"kind": "all_gather"}, False),
        ({"elements": 1}, True),
        ({"elements": 2}, False),
        ({"call_site": "train.py:*"}, True),
        ({"call_site": "train.py:12"}, False),
        ({"ranks": (1, 3)}, True),
        ({"ranks": ()}, False),
    ],
)
def test_a_rule_fits_where_all_that_it_says_does(given, fits):
    assert Rule(fill=lambda call, received: None, **given).fits(CALL) is fits


RULE = "from prismcore.rules import rule\n@rule({})\ndef r({}): ...\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read: No such file"),
        ("", "holds no rule"),
        ("x = 1 / 0", "ended with ZeroDivisionError: division by zero"),
        ("def f(:", "ended with SyntaxError"),
        ("import sys; sys.exit(3)", "ended with SystemExit: 3"),
        ("from prismcore.rules import rule\nrule(group=3, sort='x')", "ended with TypeError"),
        (RULE.format("group=3", "call, received"), "rule r: group 3 found, expected a text"),
        (
            RULE.format("kind='nope'", "call, received"),
            "rule r: kind 'nope' fits none; expected one of all_reduce",
        ),
        (RULE.format("dtype='floaty'", "call, received"), "dtype 'floaty' fits none; expected one of int8, "),
        (RULE.format("elements=-5", "call, received"), "elements -5 found, expected a whole number"),
        (RULE.format("ranks=3", "call, received"), "ranks 3 found, expected several"),
        (RULE.format("ranks=[0, -1]", "call, received"), "rank -1 found"),
        (RULE.format("", "call"), "rule r: expected a function of a call and a tensor"),
    ],
)
def test_files_that_are_no_rules(tmp_path, text, words):
    path = tmp_path / "rules.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RuleError, match=words):
        load_rules(path)


def test_rules_come_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "rules.py"
    path.write_text(
        "from prismcore.rules import rule\n"
        "@rule(kind='send')\ndef b(call, received): ...\n"
        "@rule()\n@rule(ranks=[2])\ndef a(call, received): ...\n"
    )
    assert [(r.name, r.kind, r.ranks) for r in load_rules(path)] == [
        ("b", "send", None),
        ("a", "*", {2}),
        ("a", "*", None),
    ]
    with pytest.raises(RuleError, match="found outside a file"):
        rule()(lambda call, received: None)


PROGRAM = """
import json, os, sys
import torch, torch.distributed as dist

dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank % 8)
told = {}

def tell(name, tensor):
    told[name] = tensor.cpu().float().tolist()

def on_device(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).cuda()

def gather_counts():
    counts = on_device(*[0] * size, dtype=torch.int64)
    dist.all_gather_into_tensor(counts, on_device(5, dtype=torch.int64))
    tell("counts", counts)
    torch.empty(int(counts[1]) << 20, dtype=torch.uint8, device="cuda")

for step in range(3):
    gather_counts()
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16), ("half", torch.float16)):
        x = on_device(1.5, 2.5, dtype=dtype)
        dist.all_reduce(x)
        tell(name, x)
    x = on_device(7.0)
    dist.broadcast(x, src=1)
    tell("broadcast", x)
    if rank == 0:
        dist.recv(x, src=1)
        tell("recv", x)
    else:
        dist.send(x, dst=0)
    torch.optim.SGD([torch.nn.Parameter(torch.ones(4, device="cuda"))], lr=0.1).step()
    with open(f"told{rank}.{step}", "w") as file:
        json.dump(told, file)
"""

RULES = """
import torch
from prismcore.replay import replay
from prismcore.rules import Call, rule

@rule(kind="all_gather", dtype="int64", call_site="*gather_counts*")
def counts(call, received):
    assert received.tolist() == [5] * 3 and received.dtype == torch.int64
    received[1:] = 40 + call.number
    received[call.position] = 5

@rule(group="default_pg*", kind="all_reduce", dtype="bfloat16", elements=2)
def half_as_much(call, received):
    return received / 2

@rule(dtype="float16")
def nothing_changes(call, received):
    return None

@rule(kind="broadcast")
def root(call, received):
    return [1.25 if call.peer == 1 and call.size == 3 else 0]

@rule(kind="recv", ranks=[0])
def message(call, received):
    return 100 * call.iteration + call.peer

@rule(kind="gather")
def never(call, received):
    raise AssertionError
"""


def run(folder: Path, rules: str | None, program: str = PROGRAM) -> Graph:
    (folder / "train.py").write_text(program)
    if rules is not None:
        (folder / "rules.py").write_text(rules)
    options = CollectOptions(
        command=["train.py"],
        world_size=3,
        ranks="all",
        working_directory=folder,
        rules=None if rules is None else Path("rules.py"),
    )
    return collect(options).graph


def told(folder: Path, rank: int, step: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = json.loads((folder / f"told{rank}.{step}").read_text())
    return found


@pytest.mark.torch
def test_ranks_receive_what_the_rules_say(tmp_path):
    graph = run(tmp_path, RULES)
    for step in range(2):
        assert told(tmp_path, 2, step) == {
            "counts": [5, 40 + step, 5],
            "float32": [4.5, 7.5],  # the contract: three times the own
            "bfloat16": [2.25, 3.75],
            "half": [4.5, 7.5],
            "broadcast": [1.25],
        }
    assert told(tmp_path, 0, 1)["recv"] == [101]
    assert told(tmp_path, 1, 1)["broadcast"] == [7]  # the root keeps what it has
    assert graph.rank(0).peaks.requested_bytes > 41 << 20
    assert graph.rank(1).peaks.requested_bytes < 41 << 20
    uses = graph.metadata["rules"]
    assert list(uses) == [
        f"{i} {name}"
        for i, name in enumerate(
            ("counts", "half_as_much", "nothing_changes", "root", "message", "never"), start=1
        )
    ]
    assert uses["1 counts"] == 9
    assert uses["6 never"] == 0
    assert any("rule never (number 6 of its file) fitted no call" in note for note in graph.metadata["notes"])


@pytest.mark.torch
def test_ghosts_of_an_emulation_send_what_the_rules_say(tmp_path):
    graph = run(tmp_path, RULES)
    options = EmulateOptions(
        command=["train.py"], sandbox=[0, 1], rules=Path("rules.py"), working_directory=tmp_path
    )
    result = emulate(graph, options)
    np.testing.assert_array_equal(result.job.iteration_end_ns, replay(graph).iteration_end_ns)
    unused = "rule never (number 6 of its file) fitted no call of the sandbox ranks here"
    assert [text for text in result.warnings if text.startswith("rule ")] == [unused]
    found = told(tmp_path, 0, 1)
    assert found["counts"] == [5, 41, 41]
    assert found["bfloat16"] == [2.25, 3.75]
    # Rank 1 runs: what it sends is its own.
    assert found["broadcast"] == found["recv"] == told(tmp_path, 1, 1)["broadcast"] == [7]
    with pytest.raises(DivergenceError, match="recorded reserve of 41943040 bytes") as caught:
        emulate(graph, replace(options, rules=None))
    assert "; the graph was collected with --rules rules.py (counts, half_as_much, " in str(caught.value)


@pytest.mark.torch
def test_a_rule_that_fails_in_an_emulation_ends_its_rank(tmp_path):
    """There it runs in a thread beside the program's."""
    graph = run(tmp_path, None)
    (tmp_path / "rules.py").write_text(
        "from prismcore.rules import rule\n@rule()\ndef odd(call, received):\n    return 1 / 0\n"
    )
    options = EmulateOptions(
        command=["train.py"], sandbox=[0, 1], rules=Path("rules.py"), working_directory=tmp_path
    )
    with pytest.raises(RankFailedError, match="ZeroDivisionError: division by zero"):
        emulate(graph, options)


@pytest.mark.torch
def test_rules_that_change_nothing_leave_the_record_as_it_is(tmp_path):
    without = run(tmp_path, None)
    kept = "from prismcore.rules import rule\n@rule()\ndef keep(call, received): ...\n"
    assert run(tmp_path, kept).digest() == without.digest()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("return [1, 2, 3, 4, 5]", CollectError, r"rule odd gave a tensor of shape \[5\] for all_gather on "),
        ("return 1 / 0", RankFailedError, "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(5)", RankFailedError, "SystemExit: 5"),
        (
            "return 'text'",
            CollectError,
            r"rule odd gave str \(.*\) for all_gather .*, expected a tensor, an array",
        ),
        ("return 1j", CollectError, r"rule odd gave complex numbers .* for .* at .*, expected int64"),
        ("return received.to_sparse()", CollectError, "rule odd gave a sparse tensor .* to_dense"),
        (
            "return received.cuda()",
            CollectError,
            "rule odd gave a tensor on cuda:0 .*, expected one on the CPU",
        ),
        (
            "import torch.distributed as d; d.barrier()",
            CollectError,
            "rule odd communicates itself .*barrier",
        ),
    ],
)
def test_a_rule_that_fails_ends_its_rank(tmp_path, body, error, words):
    rules = f"from prismcore.rules import rule\n@rule()\ndef odd(call, received):\n    {body}\n"
    with pytest.raises(error, match=words) as caught:
        run(tmp_path, rules)
    named = "rank 0 ended with exit code 1, after rules gave it what it received: odd (1 call)"
    assert (named in str(caught.value)) == (error is RankFailedError)


@pytest.mark.torch
def test_a_file_that_cannot_be_used_is_told_before_a_rank_starts(tmp_path):
    with pytest.raises(PrismError, match="holds no rule"):
        run(tmp_path, "x = 1")


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.torch
def test_the_experts_of_the_guide():
    """docs/guide-experts.md: every rank is told what the others really send."""
    rules = EXAMPLES / "own_experts_rules.py"
    guide = (EXAMPLES.parent / "docs" / "guide-experts.md").read_text()
    assert rules.read_text().partition("annotations\n\n")[2] in guide
    command = [str(EXAMPLES / "own_experts.py"), "--planned", "--hidden", "64"]
    collected = collect(CollectOptions(command=command, world_size=4, ranks="all", rules=rules))
    graph = collected.graph
    expected = replay(graph)
    result = emulate(graph, EmulateOptions(command=command, sandbox=[1, 2], rules=rules))
    np.testing.assert_array_equal(result.job.iteration_end_ns, expected.iteration_end_ns)
    received = {rank: graph.rank(rank).peaks.requested_bytes for rank in range(4)}
    assert max(received, key=received.__getitem__) == 0  # the expert that is wanted most
    assert not [note for note in collected.metadata["notes"] if "rule" in note]
