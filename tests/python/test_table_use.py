"""What a job finds in a profile's table, and what is said where that is next to nothing."""

import pytest

from prismcore.cost import KernelShape
from prismcore.graph import GraphBuilder, Provenance
from prismcore.profiles.device import load_device
from prismcore.profiles.timing_table import TimingRow, write_table
from prismcore.report.accuracy import uncompared
from prismcore.report.expected_error import expected_error
from prismcore.report.table_use import TableUse, table_use, table_warnings


def graph(names, **metadata):
    builder = GraphBuilder(world_size=1)
    for name in names:
        builder.rank(0).kernel(name, duration_ns=1000, provenance=Provenance.MODEL)
    return builder.finish(metadata)


def profile(folder, names, base="a100", more=""):
    shape = KernelShape()  # a builder's default too
    write_table(
        folder / "own.csv",
        [TimingRow(name=n, shape=shape, duration_ns=7_000 + i) for i, n in enumerate(names)],
    )
    (folder / "own.toml").write_text(f'base = "{base}"\ntable = "own.csv"\n{more}')
    return load_device(folder / "own.toml")


FOUND = [f"mine_{i}" for i in range(20)]
OTHERS = [f"other_{i}" for i in range(20)]


@pytest.mark.parametrize(
    ("kernels", "rows", "use", "words"),
    [
        (OTHERS, FOUND, (20, 0, 20, 0), "0 of 20 rows of own.csv used, by none of the job's 20 kernels"),
        (
            [*OTHERS, FOUND[3]],
            FOUND,
            (20, 1, 21, 1),
            "1 of 20 rows of own.csv used, by 1 of the job's 21 kernels",
        ),
        (FOUND[:1], FOUND, (20, 1, 1, 1), None),  # a large table of many jobs
        ([*OTHERS, FOUND[3]], FOUND[3:4], (1, 1, 21, 1), None),  # a small one, for one kernel
        (FOUND, FOUND, (20, 20, 20, 20), None),
    ],
)
def test_rows_that_a_job_uses(tmp_path, kernels, rows, use, words):
    device = profile(tmp_path, rows)
    job = graph(kernels)
    assert table_use(job, device) == TableUse(rows=use[0], used=use[1], kernels=use[2], found=use[3])
    assert [row.duration_ns for row in device.rows] == [7_000 + i for i in range(len(rows))]
    # of a replay by that profile, and of a collection on it
    for found in (
        table_warnings(job, device),
        table_warnings(graph(kernels, device=str(tmp_path / "own.toml"))),
        expected_error(job, device=device).warnings,
    ):
        assert [text.startswith(words) for text in found] == [True] if words else not found


def test_nothing_is_said_without_a_table(tmp_path):
    assert table_warnings(graph(OTHERS), load_device("a100")) == []
    assert table_warnings(graph(OTHERS, device="gone.toml")) == []
    assert table_warnings(graph(OTHERS)) == []
    assert table_warnings(graph([]), profile(tmp_path, FOUND)) == []


def test_kernels_beside_a_fitted_table_are_as_well_known_as_the_bases(tmp_path):
    h100 = profile(tmp_path, FOUND, "h100", 'fitted_to = "traces"\n')
    assert uncompared(graph(FOUND), device=h100) == []
    assert uncompared(graph([*FOUND, "other"]), device=h100) == [
        f"kernels of {h100.name} without a row in its table"
    ]
    a100 = profile(tmp_path, FOUND, "a100", 'fitted_to = "traces"\n')
    assert uncompared(graph(OTHERS), device=a100) == []
