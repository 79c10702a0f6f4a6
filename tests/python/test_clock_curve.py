"""Clock curves from CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismcore.errors import ProfileError
from prismcore.graph import GraphBuilder
from prismcore.replay import Perturbation, SlowRank, read_clock_curve, replay


def curve(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "hot.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_each_row_holds_until_the_next(tmp_path: Path) -> None:
    path = curve(tmp_path, "time_us,factor\n0,1\n0.25,1.5\n\n1,2\n")
    assert read_clock_curve(path, 3) == [
        SlowRank(rank=3, factor=1.0, from_ns=0, to_ns=250),
        SlowRank(rank=3, factor=1.5, from_ns=250, to_ns=1000),
        SlowRank(rank=3, factor=2.0, from_ns=1000, to_ns=None),
    ]


def test_clocks_are_taken_against_the_highest(tmp_path: Path) -> None:
    path = curve(tmp_path, "\ufeffgpu, Clock_MHz ,time_s\r\n0,1500,0\r\n0,1980,0.5\r\n0,990,2\r\n")
    found = read_clock_curve(path, 0)
    assert [s.factor for s in found] == [1980 / 1500, 1.0, 2.0]
    assert [s.from_ns for s in found] == [0, 500_000_000, 2_000_000_000]


def test_kernels_take_what_holds_when_they_start(tmp_path: Path) -> None:
    builder = GraphBuilder(1)
    for _ in range(4):
        builder.rank(0).kernel("k", duration_ns=100)
    graph = builder.finish()
    path = curve(tmp_path, "time_ns,factor\n0,1\n100,2\n301,1.25\n")
    slow = Perturbation(slow_ranks=read_clock_curve(path, 0))
    # Starts at 0, 100, 300 and 500.
    assert replay(graph, perturbation=slow).iteration_time_ns[0] == 100 + 200 + 200 + 125


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: columns nothing found, expected one of time_ns"),
        ("time,factor\n0,1\n", "line 1: columns time, factor found, expected one of time_ns"),
        ("time_s,time_ms,factor\n0,0,1\n", "expected one of time_ns"),
        ("time_s,speed\n0,1\n", "line 1: columns time_s, speed found, expected one of factor, clock_mhz"),
        ("time_s,factor,clock_mhz\n0,1,1\n", "expected one of factor, clock_mhz"),
        ("time_s,factor\n", "no row found"),
        ("time_s,factor\n0,1\n1\n", "line 3: 1 columns found, expected 2"),
        ("time_s,factor\n1,1\n", "line 2, column time_s: '1' found, expected 0"),
        ("time_s,factor\n0,1\n2,1\n2,1\n", "line 4, column time_s: '2' found, expected a time after"),
        ("time_s,factor\n0,1\nsoon,1\n", "line 3, column time_s: 'soon' found"),
        ("time_s,factor\n0,1\n-1,1\n", "line 3, column time_s: '-1' found"),
        ("time_s,factor\n0,1\nNaN,1\n", "line 3, column time_s: 'NaN' found"),
        ("time_s,factor\n0,1\nsNaN,1\n", "line 3, column time_s: 'sNaN' found"),
        ("time_s,factor\n0,1\n1e999999999,1\n", "line 3, column time_s"),
        (
            "time_ns,factor\n0,1\n0.5,1\n",
            "line 3, column time_ns: '0.5' found, expected .* whole number of ns",
        ),
        ("time_s,factor\n0,fast\n", "line 2, column factor: 'fast' found"),
        ("time_s,factor\n0,0\n", "line 2, column factor: '0' found"),
        ("time_s,factor\n0,nan\n", "line 2, column factor: 'nan' found"),
        ("time_s,factor\n0,1e7\n", "line 2, column factor: '1e7' found"),
        ("time_s,clock_mhz\n0,1e6\n1,1e-6\n", "line 3, column clock_mhz: 1e-06 found"),
        ('time_s,factor\n0,"1\n', "line 2: is not CSV"),
        (b"time_s,factor\n0,\xff\n", "is not UTF-8"),
    ],
)
def test_files_that_cannot_be_name_line_and_column(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ProfileError, match=words) as failure:
        read_clock_curve(curve(tmp_path, text), 0)
    assert "hot.csv" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"absent.csv: cannot be read: No such file"):
        read_clock_curve(tmp_path / "absent.csv", 0)
    with pytest.raises(ProfileError, match="cannot be read"):
        read_clock_curve(tmp_path, 0)
