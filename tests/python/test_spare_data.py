"""Samples of a training: the whole stream against its definition, and what goes wrong named."""

import itertools
import os
import subprocess
import sys
import textwrap
import threading
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import prismcore
from prismcore.errors import DataError, SpareError
from prismcore.spare.runtime.data import ShardLoader, ShardSampler, numpy_collate
from prismcore.spare.runtime.work import Work

#: Long enough for any machine; nothing waits this long unless it is broken.
PATIENCE_S = 240
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(prismcore.__file__).resolve().parents[1])}


def works_of(sampler, steps):
    return [Work(*w) for w in itertools.product(steps, range(sampler.groups), range(sampler.micro_batches))]


def stream_of(sampler, steps):
    return [i for work in works_of(sampler, steps) for i in sampler.indices(work).tolist()]


sizes = {
    "groups": st.integers(1, 5),
    "micro_batches": st.integers(1, 4),
    "micro_batch_size": st.integers(1, 5),
    "shuffle": st.booleans(),
}
samplers = st.builds(ShardSampler, num_samples=st.integers(1, 90), seed=st.integers(0, 2**64 - 1), **sizes)


def check_epochs(stream, num_samples):
    for begin in range(0, len(stream), num_samples):
        epoch = stream[begin : begin + num_samples]
        assert max(Counter(epoch).values()) == 1
        if len(epoch) == num_samples:
            assert sorted(epoch) == list(range(num_samples))


# --- sampler


@given(samplers, st.integers(1, 12))
def test_no_sample_is_lost_or_seen_twice_in_an_epoch(sampler, steps):
    stream = stream_of(sampler, range(steps))
    assert len(stream) == steps * sampler.samples_per_step
    check_epochs(stream, sampler.num_samples)


@given(samplers, st.integers(0, 6), st.integers(1, 6), st.fixed_dictionaries(sizes))
def test_another_number_of_groups_goes_on_in_the_same_epoch(old, before, after, other):
    other["shuffle"] = old.shuffle
    new = ShardSampler(
        old.num_samples, seed=old.seed, first_step=before, first_position=old.position(before), **other
    )
    stream = stream_of(old, range(before)) + stream_of(new, range(before, before + after))
    check_epochs(stream, old.num_samples)
    unbroken = ShardSampler(
        old.num_samples, seed=old.seed, shuffle=old.shuffle, groups=1, micro_batches=1, micro_batch_size=1
    )
    assert stream == stream_of(unbroken, range(len(stream)))


@given(samplers, st.integers(0, 30))
def test_epoch_of_a_step_is_that_of_its_first_sample(sampler, step):
    assert sampler.epoch_of(step) == (step * sampler.samples_per_step) // sampler.num_samples
    assert sampler.position(step) == step * sampler.samples_per_step


@given(samplers, st.randoms(use_true_random=False))
def test_who_asks_and_in_which_order_does_not_matter(sampler, random):
    works = works_of(sampler, range(8))
    expected = dict(zip(works, map(sampler.indices, works), strict=True))
    asked = random.sample(works, k=len(works) // 2)
    for work in asked:  # each as if by a group that knows nothing yet
        fresh = ShardSampler(
            sampler.num_samples,
            groups=sampler.groups,
            micro_batches=sampler.micro_batches,
            micro_batch_size=sampler.micro_batch_size,
            seed=sampler.seed,
            shuffle=sampler.shuffle,
        )
        assert np.array_equal(fresh.indices(work), expected[work])


def test_threads_share_a_sampler():
    """More epochs in use than are kept."""
    sampler = ShardSampler(1_000, groups=7, micro_batches=3, micro_batch_size=31)
    works = works_of(sampler, range(12))
    expected = [sampler.indices(w).tolist() for w in works]
    for work in works[:2]:
        assert sampler.indices(work).dtype == np.int64
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda i: sampler.indices(works[i * 37 % len(works)]), range(len(works))))
    assert [f.tolist() for f in found] == [expected[i * 37 % len(works)] for i in range(len(works))]


def test_what_is_given_out_is_the_callers():
    sampler = ShardSampler(50, groups=1, micro_batches=1, micro_batch_size=10)
    work = Work(0, 0, 0)
    before = sampler.indices(work).tolist()
    sampler.indices(work)[:] = -1
    assert sampler.indices(work).tolist() == before


GOLDEN = [1, 8, 6, 5, 19, 9, 12, 10, 14, 2, 17, 15, 16, 18, 4, 7, 0, 11, 3, 13, 1, 10, 4, 9]
GOLDEN_FAR = [18, 14, 5]


def test_the_order_never_changes():
    """A run that is resumed with a later version sees the same samples."""
    sampler = ShardSampler(20, groups=2, micro_batches=2, micro_batch_size=3, seed=7)
    assert stream_of(sampler, range(2)) == GOLDEN
    assert sampler.indices(Work(10**15, 1, 0)).tolist() == GOLDEN_FAR


def test_a_permutation_is_the_order_of_keyed_draws():
    for seed, epoch in ((0, 0), (0, 1), (2**64 - 1, 3)):
        sampler = ShardSampler(500, groups=1, micro_batches=1, micro_batch_size=500, seed=seed)
        drawn = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(epoch,))).random_raw(500).tolist()
        assert sampler.indices(Work(epoch, 0, 0)).tolist() == sorted(range(500), key=drawn.__getitem__)


def test_every_sample_comes_everywhere():
    """Where a sample stands, over seeds and over epochs: uniform."""
    whole = {"groups": 1, "micro_batches": 1, "micro_batch_size": 10}
    by_seed = [ShardSampler(10, seed=s, **whole).indices(Work(0, 0, 0)) for s in range(2_000)]
    one = ShardSampler(10, seed=3, **whole)
    by_epoch = [one.indices(Work(e, 0, 0)) for e in range(2_000)]
    for orders in (by_seed, by_epoch):
        for place in (0, 4, 9):
            counts = np.bincount([o[place] for o in orders], minlength=10)
            assert stats.chisquare(counts).pvalue > 1e-4
        follows = np.bincount([(o[1] - o[0]) % 10 for o in orders], minlength=10)[1:]
        assert stats.chisquare(follows).pvalue > 1e-4


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"num_samples": 0}, "num_samples 0 found, expected a whole number from 1 "),
        ({"num_samples": 2.5}, "num_samples 2.5 found, expected a whole number"),
        ({"groups": 0}, "groups 0 found, expected a whole number from 1 "),
        ({"micro_batches": True}, "micro_batches True found"),
        ({"micro_batch_size": "4"}, "micro_batch_size '4' found"),
        ({"seed": -1}, "seed -1 found, expected a whole number from 0 to 18446744073709551615"),
        ({"seed": 2**64}, "seed 18446744073709551616 found"),
        ({"shuffle": "no"}, "shuffle 'no' found, expected True or False"),
        ({"first_step": -1}, "first_step -1 found"),
        ({"first_position": None}, "first_position None found"),
    ],
)
def test_a_sampler_of_what_cannot_be(changed, words):
    right = {"num_samples": 10, "groups": 2, "micro_batches": 2, "micro_batch_size": 2}
    ShardSampler(**right)
    with pytest.raises(SpareError, match=words):
        ShardSampler(**{**right, **changed})


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ((4, 0, 0), "step of the work 4 found, expected a whole number from 5 "),
        ((5, 3, 0), "shard of the work 3 found, expected a whole number from 0 to 2"),
        ((5, -1, 0), "shard of the work -1 found"),
        ((5, 0, 2), "micro_batch of the work 2 found, expected a whole number from 0 to 1"),
        ((5, 0.5, 0), "shard of the work 0.5 found"),
        ((5, 0), r"work \(5, 0\) found, expected \(step, shard, micro_batch\)"),
        (5, "work 5 found"),
    ],
)
def test_work_that_is_none(work, words):
    sampler = ShardSampler(100, groups=3, micro_batches=2, micro_batch_size=1, first_step=5)
    with ShardLoader(range(100), sampler) as loader:
        for ask in (sampler.indices, loader.micro_batch, lambda w: loader.expect([(5, 0, 0), w])):
            with pytest.raises(SpareError, match=words):
                ask(work)
    with pytest.raises(SpareError, match="step 4 found, expected a whole number from 5 "):
        sampler.epoch_of(4)


# --- loader


class Samples:
    """Sample i is 10 i. Notes who reads what; samples in `gates` wait until they may be read."""

    def __init__(self, count, gates=()):
        self.count = count
        self.read = []
        self.entered = {i: threading.Event() for i in gates}
        self.gates = {i: threading.Event() for i in gates}
        self.broken = {}

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        self.read.append((i, threading.current_thread().name))
        if i in self.gates:
            self.entered[i].set()
            assert self.gates[i].wait(PATIENCE_S)
        if i in self.broken:
            raise self.broken[i]
        return 10 * i


def in_order(count=240, **sizes):
    """Work k of step 0 is samples 4 k to 4 k + 3."""
    return ShardSampler(
        count, **{"groups": 3, "micro_batches": 4, "micro_batch_size": 4, "shuffle": False, **sizes}
    )


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_errors_of_the_data_set_name_the_work(workers):
    dataset, sampler = Samples(240), in_order()
    cause = OSError("no route to storage")
    dataset.broken[58] = cause
    works = works_of(sampler, range(2))
    with ShardLoader(dataset, sampler, collate=list, workers=workers) as loader:
        loader.expect(works)
        for i, work in enumerate(works):
            if work == Work(1, 0, 2):
                with pytest.raises(
                    DataError,
                    match=r"^dataset failed on sample 58 of step 1, shard 0, micro-batch 2: OSError: no r",
                ) as caught:
                    loader.micro_batch(work)
                assert caught.value.__cause__ is cause
                assert isinstance(caught.value, SpareError)
                del dataset.broken[58]  # asked for again, it is read again
            assert loader.micro_batch(work) == [10 * n for n in range(4 * i, 4 * i + 4)]


@pytest.mark.parametrize("workers", [0, 1])
def test_stop_iteration_of_a_data_set_is_an_error(workers):
    """It must not end the loop over the work of a step as if all were done."""
    dataset, sampler = Samples(240), in_order()
    dataset.broken[0] = StopIteration()
    with ShardLoader(dataset, sampler, collate=list, workers=workers) as loader:
        loader.expect([Work(0, 0, 0)])
        with pytest.raises(DataError, match="sample 0 of step 0, shard 0, micro-batch 0: StopIteration"):
            loader.micro_batch(Work(0, 0, 0))


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_collate_name_the_work(workers):
    def collate(samples):
        raise ValueError(f"{len(samples)} of unequal length")

    with ShardLoader(Samples(240), in_order(), collate=collate, workers=workers) as loader:
        loader.expect([Work(0, 1, 2)])
        with pytest.raises(
            DataError,
            match=r"^collate failed on samples \[24, 25, 26, 27\] of step 0, shard 1, micro-batch 2: "
            "ValueError: 4 of unequal length$",
        ):
            loader.micro_batch(Work(0, 1, 2))


def test_a_message_stays_short():
    sampler = in_order(micro_batch_size=20)
    words = "^collate failed on samples 0, 1 and 18 more of step 0, shard 0, micro-batch 0: TypeError"
    loader = ShardLoader(range(240), sampler, collate="no function")
    with loader, pytest.raises(DataError, match=words):
        loader.micro_batch(Work(0, 0, 0))


class Batched(Samples):
    def __getitems__(self, numbers):
        self.read.append(numbers)
        return [str(n) for n in numbers][: self.count]


def test_a_data_set_that_gives_several_at_once():
    dataset = Batched(240)
    with ShardLoader(dataset, in_order(), collate=list) as loader:
        assert loader.micro_batch(Work(0, 0, 1)) == ["4", "5", "6", "7"]
        assert dataset.read == [[4, 5, 6, 7]]
        dataset.count = 3
        with pytest.raises(DataError, match=r"samples \[4, 5, 6, 7\] .*found 3 samples, expected 4"):
            loader.micro_batch(Work(0, 0, 1))


@pytest.mark.parametrize(
    ("dataset", "changed", "words"),
    [
        (iter([1]), {}, "dataset: found list_iterator without __getitem__, expected samples by number"),
        (range(239), {}, "dataset: found 239 samples, expected 240"),
        (range(240), {"ahead": 0}, "ahead 0 found, expected a whole number from 1 "),
        (range(240), {"workers": -1}, "workers -1 found, expected a whole number from 0 "),
        (range(240), {"workers": 1.0}, "workers 1.0 found"),
    ],
)
def test_a_loader_of_what_cannot_be(dataset, changed, words):
    with pytest.raises(SpareError, match=words):
        ShardLoader(dataset, in_order(), collate=list, **changed)


# --- collate

Pair = namedtuple("Pair", ["x", "y"])


def test_numpy_collate():
    samples = [
        {"tokens": np.full((2, 3), i, np.int32), "name": f"s{i}", "pair": Pair(i, [1.5 * i]), "flat": (i,)}
        for i in range(4)
    ]
    found = numpy_collate(samples)
    assert found["tokens"].shape == (4, 2, 3)
    assert found["tokens"].dtype == np.int32
    assert found["tokens"][:, 1, 2].tolist() == [0, 1, 2, 3]
    assert found["name"] == ["s0", "s1", "s2", "s3"]
    assert isinstance(found["pair"], Pair)
    assert found["pair"].x.tolist() == [0, 1, 2, 3]
    assert found["pair"].y[0].tolist() == [0, 1.5, 3, 4.5]
    assert isinstance(found["flat"], tuple)
    with pytest.raises(ValueError, match="shape"):
        numpy_collate([np.zeros(2), np.zeros(3)])


def test_without_torch():
    program = """
        import sys
        sys.modules["torch"] = None
        from prismcore.spare.runtime.data import ShardLoader, ShardSampler

        sampler = ShardSampler(8, groups=1, micro_batches=1, micro_batch_size=8, shuffle=False)
        with ShardLoader(range(8), sampler) as loader:
            loader.expect([(0, 0, 0)])
            print(repr(loader.micro_batch((0, 0, 0))))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("array([0, 1, 2, 3, 4, 5, 6, 7])\n", "")


@pytest.mark.torch
def test_torch_collates_where_it_is_installed():
    import torch

    dataset = torch.utils.data.TensorDataset(torch.arange(480).reshape(240, 2), torch.arange(240))
    sampler = ShardSampler(240, groups=3, micro_batches=4, micro_batch_size=4, seed=1)
    with ShardLoader(dataset, sampler) as loader:
        loader.expect(works_of(sampler, range(1)))
        for work in works_of(sampler, range(1)):
            x, y = loader.micro_batch(work)
            assert y.tolist() == sampler.indices(work).tolist()
            assert torch.equal(x[:, 0], 2 * y)
