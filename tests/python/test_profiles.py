"""Profiles that extend others, and how a profile is written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismcore.errors import ProfileError
from prismcore.profiles.cluster import cluster_text, load_cluster, parse_cluster
from prismcore.profiles.device import load_device
from prismcore.profiles.toml_text import toml_text


def test_profiles_extend_others(tmp_path):
    (tmp_path / "own.csv").write_text(
        "name,grid_x,grid_y,grid_z,block_x,block_y,block_z,shared_bytes,dtype,transposes,m,n,k,batch,duration_ns\n"
        "fused,1,1,1,1,1,1,0,none,0,0,0,0,0,77\n"
    )
    (tmp_path / "own.toml").write_text('base = "a100"\ntable = "own.csv"\n[efficiency]\ngemm = 0.5\n')
    folder = tmp_path / "below"
    folder.mkdir()
    (folder / "mine.toml").write_text('base = "../own.toml"\nkernel_floor_ns = 1_000\n')
    profile, base = load_device(folder / "mine.toml"), load_device("a100")
    assert (profile.efficiency.gemm, profile.efficiency.softmax) == (0.5, base.efficiency.softmax)
    assert (profile.kernel_floor_ns, [row.duration_ns for row in profile.rows]) == (1000, [77])
    (tmp_path / "links.toml").write_text('base = "a100-8x"\n[one_node.calibration]\nring_fill_steps = 0.1\n')
    cluster = load_cluster(tmp_path / "links.toml")
    assert cluster.one_node.calibration.ring_fill_steps == 0.1
    assert cluster.one_node.ring == load_cluster("a100-8x").one_node.ring
    assert parse_cluster(cluster_text(tmp_path / "links.toml"), "kept") == cluster
    assert cluster_text("a100-8x").startswith("# DGX")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base = "own.toml"', "base: found .*own.toml, which extends this profile itself"),
        ('base = "two.toml"', "two.toml: base: found .*own.toml, which extends"),
        ('base = "z100"', "own.toml: base: device profile: found 'z100', expected one of a100"),
        ('base = "nowhere.toml"', "nowhere.toml: found No such file"),
        ("base = 3", "base: found 3, expected the name or file of a profile"),
        ('base = "a100"\nsms = 0', "own.toml: sms: found 0"),
        (
            'base = "a100"\n[efficiency]\ngem = 0.5',
            r"efficiency.gem: found an unknown key.*did you mean 'gemm'",
        ),
        ('base = "a100"\nefficiency = 3', "efficiency: found 3, expected a table"),
    ],
)
def test_bases_that_cannot_be(tmp_path, text, message):
    (tmp_path / "own.toml").write_text(text)
    (tmp_path / "two.toml").write_text('base = "own.toml"')
    with pytest.raises(ProfileError, match=message):
        load_device(tmp_path / "own.toml")


_keys = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)
_values = st.one_of(
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12),
)


@settings(max_examples=25, deadline=None)
@given(
    table=st.dictionaries(
        _keys,
        st.recursive(
            _values | st.lists(_values, max_size=3),
            lambda inner: st.dictionaries(_keys, inner, max_size=3),
            max_leaves=8,
        ),
        max_size=5,
    )
)
def test_toml_reads_back(table):
    tomllib = pytest.importorskip("tomllib")
    assert tomllib.loads(toml_text(table)) == table
