"""Mock routing: exact counts, and what each preset promises."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismcore.errors import RoutingError
from prismcore.routing import PRESETS, RoutingShape, counts, parse_rule
from prismcore.routing.apportion import apportion

MOMENT = {"step": 0, "layer": 0, "micro_batch": 0}


@st.composite
def shapes(draw):
    ranks = draw(st.integers(1, 8))
    experts = ranks * draw(st.integers(1, 6))
    return RoutingShape(
        tokens=draw(st.integers(0, 5000)),
        topk=draw(st.integers(1, experts)),
        experts=experts,
        ranks=ranks,
        sources=ranks * draw(st.integers(1, 3)),
    )


moments = st.fixed_dictionaries({name: st.integers(0, 2**33) for name in ("step", "layer", "micro_batch")})


def possible(name, shape):
    return name != "empty-rank" or shape.experts - shape.experts_per_rank >= shape.topk


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=60, deadline=None)
@given(shape=shapes(), moment=moments, seed=st.integers(0, 2**63 - 1))
def test_counts_are_whole_exact_and_within_what_a_source_has(name, shape, moment, seed):
    rule = parse_rule(f"{name}:seed={seed}")
    if not possible(name, shape):
        with pytest.raises(RoutingError, match="empty-rank"):
            counts(rule, shape, **moment)
        return
    table = counts(rule, shape, **moment)
    assert table.shape == (shape.sources, shape.experts)
    assert table.dtype == np.int64
    assert (table.sum(axis=1) == shape.tokens * shape.topk).all()
    assert table.min(initial=0) >= 0
    assert table.max(initial=0) <= shape.tokens
    assert (table == counts(rule, shape, **moment)).all()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_apportion_rounds_exact_shares(data):
    """Against shares found with fractions, one column at a time."""
    from fractions import Fraction

    columns = data.draw(st.integers(1, 7))
    weights = data.draw(st.lists(st.integers(0, 9), min_size=columns, max_size=columns))
    cap = data.draw(st.integers(0, 30))
    total = data.draw(st.integers(0, cap * columns))
    phase = data.draw(st.integers(0, 100))
    found = apportion(np.array([weights]), total, cap, np.array([phase]))[0].tolist()
    assert sum(found) == total
    shares, rest, left = {}, Fraction(total), set(range(columns))
    while left:
        weight = sum(weights[i] for i in left)
        part = {i: rest * weights[i] / weight if weight else rest / len(left) for i in left}
        full = {i for i in left if part[i] >= cap and (weights[i] or (not weight and rest))}
        if not full:
            shares |= part
            break
        shares |= dict.fromkeys(full, Fraction(cap))
        rest -= cap * len(full)
        left -= full
    for i, count in enumerate(found):
        assert abs(count - shares[i]) < 1
        assert count <= cap


def test_half_of_everything_goes_to_expert_0():
    shape = RoutingShape(tokens=1000, topk=2, experts=8, ranks=4, sources=4)
    table = counts(parse_rule("hot-experts:heat=7"), shape, **MOMENT)
    assert (table[:, 0] == 1000).all()  # all tokens, each goes to one other expert besides
    assert sorted(set(table[:, 1:].ravel())) == [142, 143]


def test_balanced_is_balanced_on_ranks_too():
    # sglang issue 37741: 256 experts, top-8, 8 tokens left the odd ranks of 16 without any.
    shape = RoutingShape(tokens=8, topk=8, experts=256, ranks=16, sources=16)
    table = counts(parse_rule("balanced"), shape, **MOMENT)
    assert (table.reshape(16, 16, 16).sum(axis=2) == 4).all()
    assert table.sum(axis=0).max() - table.sum(axis=0).min() <= 1
    even = counts(parse_rule("balanced"), RoutingShape(tokens=64, topk=2, experts=8, sources=4), **MOMENT)
    assert (even == 16).all()


SHAPE = RoutingShape(tokens=840, topk=2, experts=8, ranks=4, sources=8)


def table_of(text, **moment):
    return counts(parse_rule(text), SHAPE, **{**MOMENT, **moment})


def by_rank(table):
    return table.reshape(SHAPE.sources, SHAPE.ranks, -1).sum(axis=2)


def test_hot_experts_and_hot_rank():
    table = table_of("hot-experts:experts=1+6-7,heat=3")
    hot, cool = table[:, [1, 6, 7]], table[:, [0, 2, 3, 4, 5]]
    assert (hot == 360).all()
    assert (cool == 120).all()
    ranks = by_rank(table_of("hot-rank:rank=2,heat=2"))
    assert (ranks == [336, 336, 672, 336]).all()


def test_spread_heat_loads_ranks_alike_and_experts_not():
    tables = [table_of("spread-heat:heat=3", layer=layer) for layer in range(6)]
    for table in tables:
        assert (by_rank(table) == 420).all()
        assert sorted(table[0]) == [105] * 4 + [315] * 4
    assert len({tuple(t[0]) for t in tables}) > 1  # other experts in other layers


def test_ragged_source_gives_every_source_its_own_row():
    tables = [table_of("ragged-source", micro_batch=m) for m in range(2)]
    rows = {tuple(row) for table in tables for row in table.tolist()}
    assert len(rows) == 2 * SHAPE.sources


def test_empty_rank_gets_nothing():
    assert (by_rank(table_of("empty-rank:rank=3"))[:, 3] == 0).all()
    assert (by_rank(table_of("empty-rank:rank=3"))[:, :3] == 560).all()


def test_rotating_hotspot_visits_ranks_then_experts():
    hot = [int(table_of("rotating-hotspot:period=2", step=s)[0].argmax()) for s in range(20)]
    assert hot[::2] == hot[1::2]
    assert hot[::2] == [0, 2, 4, 6, 1, 3, 5, 7, 0, 2]


def test_bursts_come_once_in_a_period_and_to_all_sources():
    hit = 0
    for m in range(400):
        table = table_of("burst:period=8,heat=10", micro_batch=m)
        peak = table.max(axis=1)
        assert (peak == peak[0]).all()
        hit += bool(peak[0] > 210)
        if peak[0] > 210:
            assert (table.argmax(axis=1) == table[0].argmax()).all()
        else:
            assert (table == 210).all()
    assert 25 <= hit <= 80


GOLDEN = """
from prismcore.routing import RoutingShape, counts, parse_rule
shape = RoutingShape(tokens=1000, topk=3, experts=12, ranks=4, sources=2)
for text in ("balanced", "ragged-source:seed=7", "burst:period=1", "spread-heat"):
    print(counts(parse_rule(text), shape, step=2, layer=5, micro_batch=3).tolist())
"""


def test_counts_are_the_same_in_every_process():
    """Golden: a rule that changes makes recorded jobs differ from new ones."""
    done = subprocess.run([sys.executable, "-c", GOLDEN], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[[250, 250, 250, 250, 250, 250, 250, 250, 250, 250, 250, 250], [250, 250, 250, 250, 250, 250, 25"
        "0, 250, 250, 250, 250, 250]]",
        "[[200, 125, 352, 125, 259, 427, 174, 424, 244, 261, 168, 241], [190, 255, 388, 387, 277, 157, 28"
        "6, 289, 228, 258, 123, 162]]",
        "[[182, 182, 1000, 181, 182, 182, 182, 182, 181, 182, 182, 182], [182, 182, 1000, 182, 181, 182, "
        "182, 182, 182, 181, 182, 182]]",
        "[[125, 500, 125, 125, 500, 125, 500, 125, 125, 125, 500, 125], [125, 500, 125, 125, 500, 125, 50"
        "0, 125, 125, 125, 500, 125]]",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hot-expert", "preset 'hot-expert': expected one of balanced, hot-experts"),
        ("", "preset '': expected one of"),
        ("balanced:heat=2", "routing balanced: found 'heat=2', expected seed=..."),
        ("hot-rank:", "routing hot-rank: found '', expected rank=..., heat=..., seed=..."),
        ("hot-rank:rank", "found 'rank'"),
        ("hot-rank:rank=-1", "rank '-1', expected a whole number of at least 0"),
        ("hot-rank:rank=1,rank=2", "found rank twice"),
        ("burst:period=0", "period '0', expected a whole number of at least 1"),
        ("burst:heat=0.5", "heat '0.5', expected a number from 1 to 1000"),
        ("burst:heat=nan", "heat 'nan', expected a number"),
        ("burst:heat=1.2345", "heat '1.2345', expected a number from 1 to 1000, of at most three decimals"),
        ("hot-experts:experts=1+", r"experts '1\+', expected numbers and ranges"),
        ("hot-experts:experts=3-1", "experts '3-1'"),
        ("balanced:seed=9223372036854775808", "seed '9223372036854775808'"),
    ],
)
def test_rules_that_cannot_be_are_told_in_one_line(text, words):
    with pytest.raises(RoutingError, match=words) as caught:
        parse_rule(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hot-experts:experts=8", "routing hot-experts: expert 8, expected below the 8 experts of the layer"),
        ("hot-rank:rank=4", "routing hot-rank: rank 4, expected below the 4 expert-parallel ranks"),
        ("spread-heat:hot=3", "hot 3, expected at most the 2 experts of a rank"),
    ],
)
def test_rules_that_do_not_fit_the_job_are_told_in_one_line(text, words):
    with pytest.raises(RoutingError, match=words):
        table_of(text)


@pytest.mark.parametrize(
    "sizes",
    [
        {"tokens": -1, "topk": 1, "experts": 1},
        {"tokens": 1, "topk": 3, "experts": 2},
        {"tokens": 1, "topk": 0, "experts": 2},
        {"tokens": 1, "topk": 1, "experts": 5, "ranks": 2},
        {"tokens": 1, "topk": 1, "experts": 4, "sources": 0},
    ],
)
def test_shapes_that_cannot_be_are_refused(sizes):
    with pytest.raises(RoutingError, match="expected"):
        RoutingShape(**sizes)


def test_numbers_beyond_64_bits_are_refused():
    shape = RoutingShape(tokens=2**50, topk=2, experts=8)
    with pytest.raises(RoutingError, match="64 bits"):
        counts(parse_rule("balanced"), shape, **MOMENT)


@pytest.mark.parametrize("name", PRESETS)
def test_the_text_of_a_rule_is_that_rule(name):
    rule = parse_rule(f"{name}:seed=3")
    assert parse_rule(str(rule)) == rule
    assert str(parse_rule("hot-experts:heat=2.50")) == "hot-experts:experts=0,heat=2.5,seed=0"
