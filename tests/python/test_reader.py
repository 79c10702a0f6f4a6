import contextlib
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prismcore.errors import ProfileError
from prismcore.profiles.reader import (
    Range,
    known_profiles,
    problem,
    read_file,
    read_mapping,
    read_profile,
    read_text,
)


@dataclass(kw_only=True, slots=True)
class Link:
    gbps: Annotated[float, Range(above=0, maximum=1e5, unit="GB/s")]
    rails: Annotated[int, Range(minimum=1, maximum=64)] = 1


@dataclass(kw_only=True, slots=True)
class Machine:
    name: str
    wiring: Literal["ring", "tree"] = "ring"
    fast: bool = True
    limit: Annotated[float, Range(maximum=10)] | None = None
    link: Link
    links: list[Link] = field(default_factory=list)
    shares: dict[str, Annotated[float, Range(maximum=1)]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.wiring == "tree" and len(self.links) > 2:
            raise problem("links", f"{len(self.links)} links", "at most 2 in a tree")


GOOD = """
name = "small"
limit = 3
[link]
gbps = 50
rails = 4
[[links]]
gbps = 1.5
[shares]
gemm = 0.7
"""


def test_reads_tables_lists_and_defaults():
    machine = read_text(Machine, GOOD, "small.toml")
    assert machine == Machine(
        name="small", limit=3.0, link=Link(gbps=50.0, rails=4), links=[Link(gbps=1.5)], shares={"gemm": 0.7}
    )
    assert type(machine.link.gbps) is float
    assert type(machine.limit) is float


@pytest.mark.parametrize(
    ("change", "key", "found", "expected"),
    [
        (("gbps = 50\n", ""), "link.gbps", "nothing", "a number above 0 and at most 100000 (GB/s)"),
        (("gbps = 50\n", "gbps = 0\n"), "link.gbps", "0", "a number above 0"),
        (("gbps = 50\n", "gbps = nan\n"), "link.gbps", "nan", "a number above 0"),
        (("gbps = 50\n", "gbps = inf\n"), "link.gbps", "inf", "a number above 0"),
        (("gbps = 50\n", "gbps = -1.5\n"), "link.gbps", "-1.5", "a number above 0"),
        (("gbps = 50\n", "gbps = 1e6\n"), "link.gbps", "1000000.0", "at most 100000"),
        (("gbps = 50\n", "gbps = '50'\n"), "link.gbps", "'50'", "a number above 0"),
        (("gbps = 50\n", "gbps = true\n"), "link.gbps", "true", "a number above 0"),
        (("gbps = 50\n", "gbps = " + "9" * 400 + "\n"), "link.gbps", "9", "a number above 0"),
        (("rails = 4", "rails = 4.0"), "link.rails", "4.0", "an integer at least 1 and at most 64"),
        (("rails = 4", "rail = 4"), "link.rail", "an unknown key", "did you mean 'rails'?"),
        (("limit = 3", "limit = 11"), "limit", "11", "a number at least 0 and at most 10"),
        (("limit = 3", "wiring = 'mesh'"), "wiring", "'mesh'", "one of 'ring', 'tree'"),
        (("limit = 3", "fast = 1"), "fast", "1", "true or false"),
        (("gbps = 1.5", "gbps = 'x'"), "links[0].gbps", "'x'", "a number"),
        (("gemm = 0.7", "gemm = 1.7"), "shares.gemm", "1.7", "at most 1"),
        (("[[links]]\ngbps = 1.5", "[links]\ngbps = 1.5"), "links", "a table", "a list"),
        (('name = "small"', "name = 3"), "name", "3", "a text of one line"),
        (('name = "small"', 'name = ""'), "name", "''", "a text of one line"),
        (('name = "small"', 'name = "a\\nb"'), "name", "'a\\nb'", "a text of one line"),
    ],
)
def test_a_wrong_figure_names_file_key_found_and_expected(change, key, found, expected):
    assert change[0] in GOOD
    with pytest.raises(ProfileError) as caught:
        read_text(Machine, GOOD.replace(*change), "small.toml")
    message = str(caught.value)
    assert message.startswith(f"small.toml: {key}: found {found}")
    assert expected in message
    assert "\n" not in message


def test_a_record_may_check_its_fields_against_each_other():
    text = "wiring = 'tree'\n" + GOOD + "[[links]]\ngbps = 1\n[[links]]\ngbps = 2\n"
    with pytest.raises(
        ProfileError, match=re.escape("f.toml: links: found 3 links, expected at most 2 in a tree")
    ):
        read_text(Machine, text.replace("[shares]\ngemm = 0.7\n", ""), "f.toml")


@pytest.mark.parametrize(
    "content",
    [b"name = ", b"\xff\xfe", b"a = 1\na = 2", b"\x00", b"a = " + b"9" * 5000, b"#" * (1 << 20) + b"#"],
)
def test_a_file_that_is_not_toml(tmp_path: Path, content: bytes):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=re.escape(str(path))):
        read_file(Machine, path)


def test_unknown_names_list_the_known_ones(tmp_path: Path):
    for name in ("h100", "a100"):
        (tmp_path / f"{name}.toml").write_text(GOOD)
    assert known_profiles(tmp_path) == ["a100", "h100"]
    assert read_profile(Machine, "h100", tmp_path, kind="device").name == "small"
    assert read_profile(Machine, str(tmp_path / "a100.toml"), tmp_path, kind="device").name == "small"
    assert read_profile(Machine, tmp_path / "a100.toml", tmp_path, kind="device").name == "small"
    with pytest.raises(
        ProfileError,
        match=r"device profile: found 'h1000', expected one of a100, h100.*did you mean 'h100'",
    ):
        read_profile(Machine, "h1000", tmp_path, kind="device")
    with pytest.raises(ProfileError, match="No such file"):
        read_profile(Machine, tmp_path / "none.toml", tmp_path, kind="device")
    with pytest.raises(ProfileError, match="directory"):
        read_profile(Machine, tmp_path, tmp_path, kind="device")


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "link", "gbps", "rails", "links", "shares", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(table=st.dictionaries(st.sampled_from(["name", "link", "limit", "links", "shares", "x"]), json_like))
def test_any_table_is_read_or_refused(table):
    machine = None
    with contextlib.suppress(ProfileError):
        machine = read_mapping(Machine, table, "any.toml")
    if machine is not None:
        assert math.isfinite(machine.link.gbps)
        assert machine.link.gbps > 0
        assert machine.name == table["name"]
