import argparse
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismcore.cli import parsing
from prismcore.cli.perturbation import add_perturbations, perturbation_words
from prismcore.rank_list import format_ranks


@given(st.sets(st.integers(0, 5000), min_size=1))
def test_rank_list_inverts_format(ranks):
    assert parsing.rank_list(format_ranks(ranks)) == sorted(ranks)


def test_rank_list_of_the_design():
    assert parsing.rank_list("0,8,16-31") == [0, 8, *range(16, 32)]
    assert format_ranks([0, 8, *range(16, 32)]) == "0,8,16-31"
    assert parsing.rank_list("5,3,4-5") == [3, 4, 5]


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "0-99999999999", "1.5", "0x3"])
def test_bad_rank_lists_say_what_is_expected(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected|above the largest"):
        parsing.rank_list(text)


@given(st.integers(0, 2**62), st.sampled_from([("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9)]))
def test_times_are_exact(value, unit):
    name, scale = unit
    if value * scale < 2**63:
        assert parsing.time_ns(f"{value}{name}") == value * scale
    else:
        with pytest.raises(argparse.ArgumentTypeError):
            parsing.time_ns(f"{value}{name}")


def test_times_with_decimals():
    assert parsing.time_ns("0.000001s") == 1000
    assert parsing.time_ns("1.5us") == 1500


@pytest.mark.parametrize("text", ["5", "1.5ns", "ms", "-1ms", "1e3ms", "1 m", "99999999999s", "nan s", "٣ms"])
def test_bad_times_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        parsing.time_ns(text)


def test_slow_rank_forms():
    assert parsing.slow_rank("3:1.5") == parsing.SlowRankFlag(rank=3, factor=1.5)
    assert parsing.slow_rank("3:2@10ms-1s") == parsing.SlowRankFlag(
        rank=3, factor=2.0, from_ns=10_000_000, to_ns=1_000_000_000
    )
    from_begin = parsing.SlowRankFlag(rank=3, factor=2.0, from_ns=0, to_ns=10)
    assert [parsing.slow_rank(f"3:2@{begin}-10ns") for begin in ("0", "0s")] == [from_begin] * 2
    curve = parsing.ClockCurveFlag(rank=3, file=Path("logs/day@2-1:hot.CSV"))
    assert parsing.slow_rank("3:logs/day@2-1:hot.CSV") == curve


def test_slow_link_forms():
    assert parsing.slow_link("3-8:1.5") == parsing.SlowLinkFlag(rank=3, other=8, factor=1.5)
    assert parsing.slow_link("3-*:2@10ms-1s") == parsing.SlowLinkFlag(
        rank=3, other=None, factor=2.0, from_ns=10_000_000, to_ns=1_000_000_000
    )


@pytest.mark.parametrize(
    "text",
    [
        "3",
        "3:2",
        "3-8",
        "3-8:",
        "3-8:0.9",
        "3-8:nan",
        "3-8:1e7",
        "3-8:2@5",
        "3-8:2@2s-1s",
        "3-3:2",
        "*-3:2",
        "3-8-9:2",
        "٣-8:2",
        "3-16777216:2",
        "-1-2:2",
    ],
)
def test_bad_slow_links_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        parsing.slow_link(text)


def test_jitter_forms():
    assert parsing.jitter("7:0.05") == parsing.JitterFlag(seed=7, sigma=0.05)
    assert parsing.jitter("0:2") == parsing.JitterFlag(seed=0, sigma=2.0)


def test_failure_forms():
    assert parsing.failures("0,8-9@2s") == parsing.FailuresFlag(ranks=(0, 8, 9), at_ns=2_000_000_000)


@pytest.mark.parametrize("text", ["", "0", "0@", "@2s", "0@2", "0@2s-3s", "3-1@2s", "0@2s@3s", "x@2s"])
def test_bad_failures_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        parsing.failures(text)


@pytest.mark.parametrize("text", ["7", "0.1", "7:", ":0.1", "7:-0.1", "7:2.1", "7:nan", "-7:0.1", "7:0.1:3"])
def test_bad_jitters_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="SEED:SIGMA"):
        parsing.jitter(text)


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--slow-rank 3:1.5 --slow-rank 4:0.1@10ns-1s --slow-rank '3:a b.csv'",
        "--slow-link 3-8:1.5 --slow-link '3-*:2@1ms-2ms' --jitter 7:0.05",
        "--fail-ranks 0,8-9@2s --fail-ranks 1@5ns",
    ],
)
def test_perturbations_as_words_of_another_command_line(flags):
    parser = argparse.ArgumentParser()
    add_perturbations(parser)
    args = parser.parse_args(shlex.split(flags))
    assert parser.parse_args(shlex.split(perturbation_words(args))) == args


@pytest.mark.parametrize(
    "text",
    [
        "3",
        "3:",
        "3:.csv",
        "x:a.csv",
        "3:0",
        "3:-1",
        "3:nan",
        "3:inf",
        "3:1@5",
        "3:1@2s-1s",
        "x:1",
        "1-2:2",
        "٣:2",
    ],
)
def test_bad_slow_ranks_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        parsing.slow_rank(text)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=8))
def test_ranges_that_overlap_are_one_ascending_list(spans):
    text = ",".join(f"{first}-{first + more}" for first, more in spans)
    expected = {rank for first, more in spans for rank in range(first, first + more + 1)}
    assert parsing.rank_list(text) == sorted(expected)


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "٣", "²", "1_000", "9" * 19, "9" * 5000])
def test_whole_numbers_are_ascii_digits_of_a_sane_length(text):
    for kind in (parsing.positive_int, parsing.natural_int):
        with pytest.raises(argparse.ArgumentTypeError, match="whole number") as caught:
            kind(text)
        assert len(str(caught.value)) < 150


def test_whole_numbers_from_their_least_on():
    assert (parsing.natural_int("0"), parsing.positive_int(" 7 ")) == (0, 7)
    with pytest.raises(argparse.ArgumentTypeError, match="at least 1"):
        parsing.positive_int("0")


@given(st.floats(1e-6, 1e7, allow_subnormal=False))
def test_seconds_are_plain_numbers(value):
    assert parsing.seconds(str(value)) == parsing.positive_seconds(str(value)) == value


def test_zero_seconds():
    assert parsing.seconds("0") == 0
    with pytest.raises(argparse.ArgumentTypeError, match=r"found .0.0., expected seconds .* above 0"):
        parsing.positive_seconds("0.0")


@pytest.mark.parametrize(
    "text", ["", "-1", "nan", "inf", "-inf", "1.1e7", "1e999", "5s", "1_0", "0x5", "1,000"]
)
def test_bad_seconds_are_refused(text):
    for parse in (parsing.seconds, parsing.positive_seconds):
        with pytest.raises(argparse.ArgumentTypeError, match=r"found .* expected seconds without a unit"):
            parse(text)


@pytest.mark.parametrize("text", ["", "0", "9", "-2", "2.0", "1e0", "²", "9" * 5000])
def test_whole_numbers_in_a_range(text):
    parse = parsing.whole_number(1, 8)
    assert [parse(str(n)) for n in range(1, 9)] == list(range(1, 9))
    with pytest.raises(argparse.ArgumentTypeError, match="expected a whole number from 1 to 8"):
        parse(text)


@given(st.floats(0, 1, allow_subnormal=False))
def test_shares(value):
    assert parsing.share(str(value)) == value


@pytest.mark.parametrize("text", ["", "-0.1", "1.01", "nan", "50%", "inf"])
def test_bad_shares_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number from 0 to 1"):
        parsing.share(text)
