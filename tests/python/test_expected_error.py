"""What a report says of the error of an iteration's time, and when it says that it is not known."""

import json

import pytest

from prismcore.graph import GraphBuilder, Provenance
from prismcore.profiles.cluster import cluster_text, load_cluster
from prismcore.profiles.device import load_device
from prismcore.report import expected_error as module
from prismcore.report.expected_error import expected_error

MAPPED = {"device": "virtual:a100", "cluster": cluster_text("a100-8x"), "host": "profile", "partial": False}
BANDS = [
    ("one", 30, 1.0, 4.0, {"prediction": "other steps", "source": "straggler", "least_steps": 10}),
    ("two", 10, 3.0, 5.0, {"prediction": "other steps", "source": "straggler", "least_steps": 20}),
    ("own", 8, 0.1, 0.2, {"prediction": "own steps", "source": "kineto"}),
    (
        "node",
        120,
        11.0,
        40.0,
        {
            "prediction": "mapped job",
            "source": "megatron",
            "device": "a100",
            "cluster": "a100-8x",
            "nodes": "one",
            "within_ms": [50, 1000],
        },
    ),
]


@pytest.fixture(autouse=True)
def _bands(tmp_path, monkeypatch):
    path = tmp_path / "bands.json"
    keys = ("data_set", "points", "mean", "worst", "covers")
    rows = [{"what": f"what {band[0]} is", **dict(zip(keys, band, strict=True))} for band in BANDS]
    path.write_text(json.dumps(rows))
    monkeypatch.setattr(module, "BANDS", path)


def graph(provenance, *, world=2, group="DATA_PARALLEL_GROUP:7", of=(Provenance.MODEL, 0), **metadata):
    """Two ranks that compute for 1 ms, ``of[1]`` ns of it with provenance ``of[0]``, and reduce."""
    builder = GraphBuilder(world_size=world)
    pair = builder.communicator(group, [0, world - 1])
    for r in (0, world - 1):
        rank = builder.rank(r)
        rank.kernel("gemm", duration_ns=1_000_000 - of[1], provenance=provenance)
        rank.kernel("other", duration_ns=of[1], provenance=of[0])
        rank.all_reduce(pair, bytes=4, duration_ns=1000, provenance=provenance)
    return builder.finish(metadata)


def measured(source="straggler", **metadata):
    return graph(Provenance.MEASURED, imported_from=source, **metadata)


def mapped(**changes):
    return graph(Provenance.MODEL, **{**MAPPED, **changes})


def test_points_of_all_comparisons_count():
    found = expected_error(measured(typical_of_steps=20))
    assert found.to_json() == {
        "covered": True,
        "basis": "what one is; what two is",
        "mean_percent": pytest.approx((30 * 1.0 + 10 * 3.0) / 40),
        "worst_percent": 5.0,
        "points": 40,
        "data_sets": ["one", "two"],
    }
    assert found.warnings == []
    assert found.words() == (
        "1.50 % in the mean, 5.00 % at worst (40 points of one, two): what one is; what two is"
    )


def test_measured_steps_as_they_were():
    found = expected_error(measured("kineto"))
    assert (found.data_sets, found.mean_percent) == (["own"], 0.1)
    assert "predicts no others" in found.words()
    assert expected_error(measured("kineto"), iteration_ns=5).points == 8
    for other in ("straggler", "chakra"):
        found = expected_error(measured(other))
        assert found.basis == f"no import of {other} (own steps) was compared with its run as a whole"
        assert found.to_json()["covered"] is False
        assert found.words().startswith("not known: ")


def test_measured_steps_of_which_ranks_are_missing():
    found = expected_error(graph(Provenance.MEASURED, world=3, imported_from="kineto"))
    assert (found.points, found.basis) == (
        0,
        "ranks are missing, and measured transfers may hold waiting for them",
    )


def test_a_mapped_job():
    assert expected_error(mapped()).data_sets == ["node"]
    assert expected_error(mapped(), iteration_ns=50_000_000).points == 120
    again = expected_error(mapped(), device=load_device("a100"), cluster=load_cluster("a100-8x"))
    assert again.points == 120


def edited():
    cluster = load_cluster("a100-8x")
    cluster.one_node.calibration = None
    return cluster


@pytest.mark.parametrize(
    ("make", "how", "basis"),
    [
        (lambda: measured(typical_of_steps=9), {}, "steps typical of 10 or more were compared"),
        (lambda: measured("kineto"), {"change": "a slow rank"}, "no run with a slow rank was measured"),
        (lambda: measured("kineto"), {"device": load_device("a100")}, "under another profile"),
        (lambda: measured("kineto", ), {"cluster": load_cluster("a100-8x")}, "under another profile"),
        (lambda: graph(Provenance.MEASURED, imported_from="kineto", of=(Provenance.UNKNOWN, 20_000)), {},
         "only 98.0 % of the device time"),
        (lambda: graph(Provenance.MODEL), {}, "neither measured nor mapped"),
        (mapped, {"change": "such perturbations"}, "no run with such perturbations"),
        (mapped, {"iteration_ns": 49_000_000}, "iterations of 50 to 1,000 ms were compared"),
        (mapped, {"cluster": edited()}, "not as it ships"),
        (lambda: mapped(host="measured"), {}, "host time of this machine"),
        (lambda: mapped(partial=True), {}, "partial"),
        (lambda: mapped(group="default_pg:0"), {}, "no mapped job (other trainer, a100, a100-8x, one node)"),
        (lambda: mapped(routing={"preset": "balanced"}), {}, "no mapped job (mixture of experts"),
        (lambda: mapped(of=(Provenance.UNKNOWN, 20_000)), {}, "2.0 % of device time are not modelled"),
        (lambda: mapped(world=8, cluster=cluster_text("h100-8x")), {}, "(megatron, a100, h100-8x, one node)"),
    ],
)  # fmt: skip
def test_what_no_comparison_covers(make, how, basis):
    found = expected_error(make(), **how)
    assert basis in found.basis
    assert (found.points, found.mean_percent, found.warnings) == (0, None, [])


def test_models_that_were_compared_with_nothing_are_warned_of():
    found = expected_error(mapped(world=16))
    assert found.basis == "no measurement of communication between nodes of a100-8x"
    assert found.warnings == [
        "not compared with measurements: communication between nodes of a100-8x; take times as estimates "
        "(docs/accuracy.md)"
    ]
    assert "kernels of" in expected_error(mapped(), device=load_device("h100")).basis


def test_it_stands_behind_the_provenance():
    report = expected_error(mapped()).beside_provenance({"a": 1, "provenance": {}, "b": 2})
    assert list(report) == ["a", "provenance", "expected_error", "b"]


def test_the_bands_that_ship_can_be_read(monkeypatch):
    monkeypatch.undo()
    for band in module._bands():
        assert {"prediction", "source"} <= set(band["covers"])
        assert 0 <= band["mean"] <= band["worst"]
