"""What an emulation is told that is not as in the collection of its graph."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import jobs
import pytest

from prismcore.emulate import EmulateOptions, differences
from prismcore.emulate.setting import hints
from prismcore.errors import RuleError

COMMAND = ["examples/train.py", "--layers", "4", "--name", "two words"]


def told(tmp_path: Path, metadata: dict[str, Any], **options: Any) -> list[str]:
    given = {"command": COMMAND, "sandbox": [0], "working_directory": tmp_path} | options
    return differences(jobs.pipeline(metadata={"command": COMMAND, **metadata}), EmulateOptions(**given))


@pytest.mark.parametrize(
    "command", [COMMAND, ["train.py", *COMMAND[1:]], ["/somewhere/train.py", *COMMAND[1:]]]
)
def test_the_same_program_wherever_it_lies(tmp_path: Path, command: list[str]) -> None:
    assert told(tmp_path, {}, command=command) == []


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (COMMAND[:-1], "examples/train.py --layers 4 --name"),
        (["other.py", *COMMAND[1:]], "other.py --layers 4 --name 'two words'"),
        (["-m", "train"], "-m train"),
        (
            ["examples/train.py", "--name", "two words", "--layers", "4"],
            "examples/train.py --name 'two words'",
        ),
    ],
)
def test_another_program_is_shown_beside_the_recorded_one(
    tmp_path: Path, command: list[str], shown: str
) -> None:
    (difference,) = told(tmp_path, {}, command=command)
    recorded, _, given = difference.partition("; given: ")
    assert recorded == "the graph was collected with: examples/train.py --layers 4 --name 'two words'"
    assert given.startswith(shown)


def test_routing(tmp_path: Path) -> None:
    recorded = {"routing": "hot-rank:rank=0,heat=4,seed=0"}
    assert told(tmp_path, recorded) == told(tmp_path, recorded, routing="hot-rank") == []
    assert told(tmp_path, {"routing": None}, routing="hot-rank") == []
    (difference,) = told(tmp_path, recorded, routing="hot-rank:heat=7")
    assert difference == (
        "the graph was collected with --routing hot-rank:rank=0,heat=4,seed=0; given: "
        "hot-rank:rank=0,heat=7,seed=0"
    )


def test_rules(tmp_path: Path) -> None:
    text = b"# rules"
    (tmp_path / "mine.py").write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    recorded = {"rules": {"1 counts": 4, "2 norm": 1}, "rules_file": {"name": "rules.py", "sha256": digest}}
    same = Path("mine.py")
    assert told(tmp_path, recorded, rules=same) == told(tmp_path, {"rules": {}}) == []
    collected = "the graph was collected with --rules rules.py (counts, norm) for what ghosts send"
    assert told(tmp_path, recorded) == [f"{collected}, and none are given here"]
    (tmp_path / "mine.py").write_bytes(b"# other rules")
    assert told(tmp_path, recorded, rules=same) == [
        f"{collected}; given: --rules mine.py, which holds another text"
    ]
    assert told(tmp_path, {"rules": {}}, rules=same) == [
        "the graph was collected without rules for what ghosts send; given: --rules mine.py"
    ]
    with pytest.raises(RuleError, match=r"rules absent.py cannot be read: No such file"):
        told(tmp_path, recorded, rules=Path("absent.py"))


def test_what_stands_behind_a_divergence() -> None:
    graph = jobs.pipeline(metadata={"command": COMMAND})
    other = {"command": ["train.py"], "sandbox": [0]}
    differing = differences(graph, EmulateOptions(**other))
    stop = hints(differing, EmulateOptions(**other))
    assert stop.startswith("; the graph was collected with: examples/train.py --layers 4")
    assert stop.endswith("; --on-divergence follow goes on, where calls differ in their sizes alone")
    follow = hints(differing, EmulateOptions(**other, on_divergence="follow"))
    assert "given: train.py" in follow
    assert "--on-divergence" not in follow
