"""The ghost store: what torch asks of a store when its peers do not run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.torch

keys = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def ghost_store():
    from prismcore.launch.store import GhostStore

    return GhostStore


@settings(max_examples=50, deadline=None)
@given(key=keys, other=keys)
def test_a_unique_id_that_nobody_published_tells_its_key_on_every_rank(ghost_store, key, other):
    one, two = ghost_store(8), ghost_store(8)
    unique_id = one.get(key)
    assert len(unique_id) == 128
    assert two.get(key) == unique_id
    assert one.get(key) == unique_id
    assert one.key_of(unique_id) == key
    assert (one.get(other) == unique_id) == (key == other)


def test_what_was_set_is_what_is_read(ghost_store):
    store = ghost_store(4)
    store.set("a", b"x")
    store.append("a", "y")
    store.multi_set(["b", "c"], [b"1", b"2"])
    assert store.multi_get(["a", "b", "c"]) == [b"xy", b"1", b"2"]
    assert store.check(["a", "b"])
    assert not store.check(["a", "absent"])
    assert store.delete_key("b")
    assert not store.delete_key("b")
    assert store.num_keys() == 2
    assert store.compare_set("a", b"other", b"z") == b"xy"
    assert store.compare_set("a", b"xy", b"z") == b"z"
    assert store.compare_set("new", b"", b"first") == b"first"


def test_a_published_unique_id_tells_its_key_too(ghost_store):
    store = ghost_store(4)
    store.set("default_pg/0//cuda//0:1", b"i" * 128)
    assert store.key_of(b"i" * 128) == "default_pg/0//cuda//0:1"


@pytest.mark.parametrize("world", [1, 8, 8192])
def test_a_counting_barrier_of_torch_passes_at_once(ghost_store, world):
    from datetime import timedelta

    import torch.distributed.distributed_c10d as c10d

    store = ghost_store(world)
    c10d._store_based_barrier(0, store, "group", world, timedelta(seconds=5))
    assert store.add("arrivals", 0) == 0
    assert store.add("arrivals", 1) == world


@pytest.mark.parametrize(
    ("key", "pair"),
    [
        ("default_pg/0//cuda//3:4", (3, 4)),
        ("7:12", (7, 12)),
        ("default_pg/0//cuda//0", None),
        ("default_pg/0//UniqueNCCLID:0", None),
    ],
)
def test_keys_of_pairs(key, pair):
    from prismcore.launch.store import pair_of_key

    assert pair_of_key(key) == pair
