import dataclasses
import re
from pathlib import Path

import pytest

from prismcore.errors import ProfileError
from prismcore.profiles.cluster import (
    FOLDER,
    ClusterProfile,
    cluster_names,
    cluster_text,
    default_cluster_for,
    load_cluster,
    parse_cluster,
)


@pytest.mark.parametrize("name", cluster_names())
def test_every_shipped_profile_reads_and_converts(name: str):
    profile = load_cluster(name)
    assert profile.name == name
    core = profile.to_core()
    assert core.name == name
    assert core.gpus_per_node == profile.gpus_per_node
    assert core.multi_node.ring.inter_gbps == profile.multi_node.ring.inter_gbps
    assert core.one_node.ring.inter_gbps == profile.one_node.ring.intra_gbps
    assert core.p2p_channels_per_peer_multi_node == profile.p2p.channels_per_peer_multi_node
    assert core.eager_bytes == profile.p2p.eager_bytes
    assert core.one_node.calibration.ring_fill_steps == profile.one_node.calibration.ring_fill_steps
    assert parse_cluster(cluster_text(name), "text") == profile


def test_every_core_field_is_set_from_the_profile():
    """A field of the core that to_core() forgets would keep its default silently."""
    profile = load_cluster("a100-8x")
    core = profile.to_core()
    names = {name for name in dir(core) if not name.startswith("_")}
    flat = set(ClusterProfile.__slots__) - {"p2p"}
    p2p = {
        f if f in ("nvlink_gbps", "nic_gbps", "eager_bytes") else f"p2p_{f}" for f in profile.p2p.__slots__
    }
    assert names == flat | p2p
    assert core.cpu.name == "amd"
    assert core.one_node.calibration.extra_latency_us == [9.2, 9.2, 31.1]


@pytest.mark.parametrize("name", cluster_names())
def test_every_figure_has_a_source_or_says_assumption(name: str):
    """Figures share the comment on their line or the one of the block above them."""
    commented = False
    for line in (FOLDER / f"{name}.toml").read_text().splitlines():
        if not line.strip():
            commented = False
        elif line.startswith("#"):
            commented = True
        elif re.match(r"\w+ = ", line) and not line.startswith("name ="):
            block = commented or "#" in line
            assert block or line.startswith(("intra_link", "nvls_channels", "tree_", "channels_per_peer")), (
                line
            )


def test_unknown_names_list_the_known_ones():
    with pytest.raises(
        ProfileError, match=r"found 'h100', expected one of a100-8x, b200-8x, h100-8x, h200-8x"
    ):
        load_cluster("h100")


@pytest.mark.parametrize(
    ("line", "replacement", "message"),
    [
        (
            "gpus_per_node = 8 ",
            "gpus_per_node = 0 ",
            "gpus_per_node: found 0, expected an integer at least 1",
        ),
        ("nic_gbps = 48.0", "nic_gbps = -1.0", "p2p.nic_gbps: found -1.0, expected a number above 0"),
        ("nic_gbps = 48.0", "nic_gbps = nan", "p2p.nic_gbps: found nan, expected a number above 0"),
        ("nic_gbps = 48.0", "nic_gbps = '48'", "p2p.nic_gbps: found '48', expected a number above 0"),
        ("nic_gbps = 48.0", "nic_gbp = 48.0", "p2p.nic_gbp: found an unknown key"),
        ('cpu = "intel"', 'cpu = "sparc"', "cpu: found 'sparc', expected one of 'intel', 'amd', 'other'"),
        (
            "intra_gbps = 45.0, inter_gbps = 45.0",
            "intra_gbps = 45.0",
            "multi_node.ring.inter_gbps: found nothing",
        ),
        ("nvls_channels = 16", "nvls_channels = 0", "nvls_channels: found 0 with nvls = true"),
        ("[p2p]", "[p3p]", "p3p: found an unknown key"),
    ],
)
def test_a_wrong_file_names_file_key_found_expected(
    tmp_path: Path, line: str, replacement: str, message: str
):
    text = cluster_text("h100-8x")
    assert line in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(line, replacement))
    with pytest.raises(ProfileError, match=re.escape(f"{path}: {message}")):
        load_cluster(path)


def test_a_figure_set_in_python_is_checked_too():
    profile = load_cluster("h100-8x")
    profile.p2p.nic_gbps = float("nan")
    with pytest.raises(ProfileError, match=r"cluster profile h100-8x: p2p.nic_gbps: found nan"):
        profile.to_core()
    assert dataclasses.replace(profile, name="x").name == "x"


@pytest.mark.parametrize("device", ["a100", "h100", "h200", "b200"])
def test_default_cluster_for_a_device(device: str):
    assert load_cluster(default_cluster_for(device)).name == f"{device}-8x"
    assert default_cluster_for(f"virtual:{device}") == f"{device}-8x"


def test_no_default_cluster_for_an_unknown_device():
    known = "a100, a100-megatron-deepspeed, b200, h100, h200"
    with pytest.raises(ProfileError, match=rf"device 'tpu'.*{known}.*--cluster"):
        default_cluster_for("tpu")
