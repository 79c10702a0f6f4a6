"""The accuracy table: what stands in it, and what is said where data are absent."""

import dataclasses
import json
import re

import pytest
from measurements import ACCURACY, DATA, ROOT, accuracy_benchmark, measured


@pytest.fixture
def run():
    with accuracy_benchmark("run") as module:
        yield module


def test_absent_data_are_named(run, tmp_path, capsys):
    assert run.main(["--data", str(tmp_path), "--out", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "Not compared: straggler" in shown.out
    assert "PRISM_DATA" in shown.err
    assert not list(tmp_path.iterdir())


def test_a_set_that_lacks_a_file_is_left_out(run, tmp_path, capsys):
    (tmp_path / "straggler").mkdir()
    for name in ("trace-AR.parquet", "meta-AR.yaml", "result-AR.json", "mw-AR.json", "ms-AR.json"):
        (tmp_path / "straggler" / name).write_text("")
    assert run.main(["--data", str(tmp_path), "--only", "straggler", "--json"]) == 1
    skipped = json.loads(capsys.readouterr().out)["skipped"]
    assert skipped == {"straggler": "straggler/trace-ST.parquet is not there"}


def test_rows_are_errors_in_percent(run, tmp_path):
    row = run.results.row(
        "set", "what", [(101, 100), (98, 100), (100, 100)], provenance={"measured": 1.0, "model": 0.0}
    )
    assert (row.points, row.mean, row.median, row.worst) == (3, *map(pytest.approx, (1, 1, 2)))
    near = run.results.row("set", "ends", [(5, 3)], provenance={}, unit="us", covers={"a": "b"})
    (tmp_path / "shipped").mkdir()
    rows = [row, near, dataclasses.replace(row, covers={"a": "b"})]
    run.results.write(tmp_path, rows, {"other": "not there"}, "command", shipped=tmp_path / "shipped")
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["rows"][0]["provenance"] == {"measured": 1.0}
    text = (tmp_path / "results.md").read_text()
    assert "| set | what | 3 | 1.000 | 1.000 | 2.000 | 100 % measured |  |" in text
    assert "| set | ends | 1 | 2.000 us | 2.000 us | 2.000 us | - |  |" in text
    assert "Not compared: other: not there." in text
    (band,) = json.loads((tmp_path / "shipped" / "accuracy_bands.json").read_text())
    assert band["covers"] == {"a": "b"}
    assert (band["what"], band["points"], band["worst"]) == ("what", 3, pytest.approx(2))


def test_reports_quote_the_figures_of_the_file(run):
    rows = json.loads((ACCURACY / "results.json").read_text())["rows"]
    shipped = json.loads((ROOT / "python" / "prismcore" / "report" / "accuracy_bands.json").read_text())
    assert shipped == run.results.bands(rows)
    assert shipped


@pytest.mark.parametrize(
    "sets",
    [
        "straggler AR|straggler ST",
        "Megatron TP 8|DLRM",
        "TP 8 calibrated",
        "A100 all-reduce|A100 Megatron TP 8|A100 MoE run",
        "A100 without a GPU",
    ],
)
def test_the_page_has_the_figures_of_the_file(run, sets):
    """docs/accuracy.md shows rows of results.json, and only those, for the sets of the table."""
    kept = json.loads((ACCURACY / "results.json").read_text())["rows"]
    page = (ROOT / "docs" / "accuracy.md").read_text()
    figure = r"([\d.]+(?: us)?)"
    line = rf"^\| ({sets}) \| ([^|]+) \| (\d+) \| {figure} \| {figure} \| {figure} \|"
    assert re.findall(line, page, re.M) == [
        (
            *(r["data_set"], r["what"], str(r["points"])),
            *(run.results.shown(r[k], r["unit"]) for k in ("mean", "median", "worst")),
        )
        for r in kept
        if r["data_set"] in sets.split("|")
    ]


def test_goals_of_the_pipeline_jobs(run, tmp_path, capsys):
    pytest.importorskip("pyarrow.parquet", reason="the extra parquet is not installed")
    measured("straggler/trace-AR.parquet")
    assert run.main(["--data", str(DATA), "--only", "straggler", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 18
    for row in rows:
        if row["what"].startswith("consistency"):
            assert row["mean"] <= 0.1
        if row["what"].startswith("prediction"):
            assert row["mean"] <= (0.58 if row["data_set"] == "straggler AR" else 1.5)
        if row["what"].startswith("what-if"):
            assert row["worst"] <= 1


def test_goals_of_the_profiled_jobs(run, capsys):
    measured("dlrm_8")
    assert run.main(["--data", str(DATA), "--only", "kineto", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    for name, most in (("Megatron TP 8", 1), ("DLRM", 2)):
        of_steps, of_ends, bare = (r for r in rows if r["data_set"] == name and "prediction" not in r["what"])
        assert of_steps["what"].startswith("consistency: step")
        assert of_steps["worst"] <= most
        assert of_ends["unit"] == "us"
        assert of_ends["median"] <= 100
        assert bare["what"].startswith("host time left out")
        assert bare["mean"] > 50


def test_a_calibrated_profile_is_nearer_than_its_base(run, capsys):
    measured("megatron_tp8")
    assert run.main(["--data", str(DATA), "--only", "calibrate", "--json"]) == 0
    rows = {row["what"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    table, base = (
        rows[f"kernels of ranks 4-7 by {what}"] for what in ("the table of ranks 0-3", "the base a100")
    )
    assert (table["points"], table["provenance"]) == (2424, {"table": 1.0})
    assert table["median"] < 1 < base["median"]
    assert table["mean"] < 2 < base["mean"]
    compute = rows["compute of each of ranks 4-7 by the table of ranks 0-3"]
    assert compute["mean"] < 1
    assert rows["each half of the all-reduces fitted to the other"]["median"] < 10
    shapes = "each half of the launch shapes by {}a100 with all shares at a half"
    unfitted, fitted = (rows[shapes.format(words)] for words in ("", "figures fitted to the other, from "))
    assert fitted["median"] < unfitted["median"] / 4


def test_folders_are_looked_at_before_the_work(run, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        run.main(["--data", str(tmp_path / "absent"), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert "no such folder" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        run.main(["--data", str(tmp_path), "--out", str(tmp_path / "file")])
    out = tmp_path / "new" / "out"
    assert run.main(["--only", "straggler", "--data", str(tmp_path), "--out", str(out)]) == 1  # nothing there
    assert out.is_dir()
    shown = capsys.readouterr().out
    assert f"`python benchmarks/accuracy/run.py --only straggler --data {tmp_path}`" in shown
