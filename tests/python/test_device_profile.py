import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismcore.cost import DTYPES, KernelShape, kernel_cost, kernel_families
from prismcore.errors import ProfileError
from prismcore.profiles.device import FOLDER, Efficiency, device_profiles, load_device
from prismcore.profiles.timing_table import COLUMNS, TimingRow, read_table, write_table


def edited(tmp_path: Path, old: str, new: str) -> Path:
    text = (FOLDER / "h100.toml").read_text()
    assert old in text
    path = tmp_path / "own.toml"
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize("name", device_profiles())
def test_shipped_profiles_reach_the_core_unchanged(name):
    profile = load_device(f"virtual:{name}")
    core = profile.to_core()
    assert core.name == profile.name
    assert core.memory_bytes == profile.memory_bytes
    assert (core.compute_major, core.compute_minor) == profile.compute_capability
    assert core.bf16_flops == profile.peak.bf16
    assert core.fp8_flops == profile.peak.fp8
    assert core.host.launch_ns == profile.host.launch_ns
    assert core.host.reserve_ns == profile.host.reserve_ns
    shares = dict(zip(kernel_families(), core.efficiency, strict=False))
    assert shares.pop("unknown") == 0
    assert shares == dataclasses.asdict(profile.efficiency)


def test_the_known_devices_ship():
    assert device_profiles() == ["a100", "a100-megatron-deepspeed", "b200", "h100", "h200"]
    assert {f.name for f in dataclasses.fields(Efficiency)} == set(kernel_families()) - {"unknown"}


@pytest.mark.parametrize("name", device_profiles())
def test_memory_figures_agree_with_each_other(name):
    profile = load_device(name)
    bus = 2 * profile.memory_clock_khz * 1e3 * profile.memory_bus_bits / 8
    assert profile.memory_bandwidth == pytest.approx(bus, rel=0.01)


@pytest.mark.parametrize("name", device_profiles())
def test_every_figure_has_its_source_or_says_that_it_is_assumed(name):
    section = ""
    for line in (FOLDER / f"{name}.toml").read_text().splitlines():
        if line.startswith("["):
            section = line
        if "=" not in line or line.startswith("#"):
            continue
        if section == "[peak]" or line.startswith("name"):
            continue  # the section's comment names the data sheet
        if section == "[efficiency]" and "0.85" in line:
            continue  # the first of them says where it is from
        assert "# " in line, line


def test_an_unknown_device_is_answered_with_the_known_ones():
    known = "a100, a100-megatron-deepspeed, b200, h100, h200"
    with pytest.raises(ProfileError, match=rf"'h101'.*{known}.*did you mean 'h100'"):
        load_device("virtual:h101")
    with pytest.raises(ProfileError, match="No such file"):
        load_device("nowhere/x.toml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sms = 132", "sms = 0", "sms: found 0"),
        ("sms = 132", "sms = 1.5", "sms: found 1.5"),
        ("[9, 0]", "[9]", r"compute_capability: found \[9\], expected \[major, minor\]"),
        ("context_bytes = 545_259_520", "context_bytes = 99_000_000_000", "context_bytes: found 99000000000"),
        ("shared_per_sm = 233_472", "shared_per_sm = 2048", "shared_per_block_optin"),
        ("gemm = 0.78", "gemm = 1.78", r"efficiency.gemm: found 1.78"),
        ("launch_ns = 25_000", "lunch_ns = 25_000", "host.lunch_ns: found an unknown key"),
        ("memory_bandwidth = 3.35e12", "memory_bandwidth = 3350", r"found 3350, expected .*1e\+08 .*bytes/s"),
        ("memory_bytes = 84_986_691_584", "memory_bytes = 80", "memory_bytes: found 80"),
        ("clock_khz = 1_980_000", "clock_khz = 1980", "clock_khz: found 1980"),
        ("bf16 = 989.4e12", "bf16 = 989.4", r"peak.bf16: found 989.4, expected .*operations/s"),
        ("sms = 132", 'sms = 132\ntable = "none.csv"', "found no file 'none.csv'"),
    ],
)
def test_figures_that_cannot_be_are_refused_in_one_line(tmp_path, old, new, message):
    with pytest.raises(ProfileError, match=message) as caught:
        load_device(edited(tmp_path, old, new))
    assert "\n" not in str(caught.value)


def test_figures_set_in_python_are_checked_too():
    profile = load_device("h100")
    profile.efficiency.gemm = 0.5
    assert profile.to_core().efficiency[kernel_families().index("gemm")] == 0.5
    profile.sms = -1
    with pytest.raises(ProfileError, match="device profile NVIDIA H100 80GB HBM3: sms: found -1, expected"):
        profile.to_core()


counts = st.integers(0, 2**32 - 1)
wide = st.integers(0, 2**62)
triples = st.tuples(counts, counts, counts)
rows = st.builds(
    TimingRow,
    name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1),
    shape=st.builds(
        KernelShape,
        grid=triples,
        block=triples,
        shared_bytes=counts,
        dtype=st.sampled_from(sorted(DTYPES)),
        transposes=st.integers(0, 3),
        m=wide,
        n=wide,
        k=wide,
        batch=wide,
    ),
    duration_ns=st.integers(0, 2**53),
)


@given(st.lists(rows, max_size=5, unique_by=lambda row: (row.name, row.shape)))
def test_a_table_reads_back_what_was_written(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("table") / "t.csv"
    write_table(path, written)
    assert read_table(path) == written


def test_rows_of_a_profiles_table_win_over_the_model(tmp_path):
    path = edited(tmp_path, "sms = 132", 'sms = 132\ntable = "own.csv"')
    shape = KernelShape(dtype="bfloat16", m=64, n=64, k=64, batch=1)
    write_table(tmp_path / "own.csv", [TimingRow(name="gemm", shape=shape, duration_ns=4321)])
    core = load_device(path).to_core()
    assert core.rows == 1
    cost = kernel_cost("gemm", shape, core)
    assert (cost.duration_ns, cost.provenance, cost.family) == (4321, "table", "gemm")
    assert kernel_cost("gemm_lt", shape, core).provenance == "model"


HEAD = ",".join(COLUMNS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found columns"),
        ("name,duration_ns\nf,1\n", "found columns"),
        (f"{HEAD}\nf,1\n", r"t.csv:2: found another number of cells"),
        (f"{HEAD}\nf,1,1,1,1,1,1,0,none,0,0,0,0,0,\n", "duration_ns: found ''"),
        (f"{HEAD}\nf,1,1,1,1,1,1,0,none,0,0,0,0,0,-4\n", "duration_ns: found '-4'"),
        (f"{HEAD}\nf,4294967296,1,1,1,1,1,0,none,0,0,0,0,0,4\n", "grid_x"),
        (f"{HEAD}\nf,1,1,1,1,1,1,0,bf16,0,0,0,0,0,4\n", "dtype: found 'bf16', expected one of int8"),
        (f"{HEAD}\n,1,1,1,1,1,1,0,none,0,0,0,0,0,4\n", "name: found nothing"),
        (
            f"{HEAD}\nf,,,,,,,,,,,,,,4\nf,1,1,1,1,1,1,0,none,0,0,0,0,0,5\n",
            "t.csv:3: found the kernel of line 2 again",
        ),
    ],
)
def test_tables_that_cannot_be_are_refused_with_file_and_line(tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ProfileError, match=message):
        read_table(path)


def test_a_table_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match="expected CSV in UTF-8"):
        read_table(path)
