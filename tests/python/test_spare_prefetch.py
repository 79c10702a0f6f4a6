"""Reading ahead: the same batches as by plain reading; nothing unwanted is held, nothing left behind."""

import gc
import itertools
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_spare_data import ENVIRONMENT, PATIENCE_S, Samples, in_order, samplers, works_of

from prismcore.errors import SpareError
from prismcore.spare.runtime.data import ShardLoader
from prismcore.spare.runtime.work import Work


def wait_until_ready(loader, *works):
    """Until these are read ahead."""
    prefetch = loader._prefetch
    with prefetch._changed:
        assert prefetch._changed.wait_for(
            lambda: all(w in prefetch._items and prefetch._items[w].ready for w in works), PATIENCE_S
        )


def data_threads():
    return [t for t in threading.enumerate() if t.name.startswith("prism-data")]


@pytest.fixture(autouse=True)
def nothing_left_behind():
    yield
    for thread in data_threads():
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def ahead_by_hand(sampler, dataset, work):
    return [dataset[i] for i in sampler.indices(work).tolist()]


@settings(max_examples=60)
@given(data=st.data(), sampler=samplers, ahead=st.integers(1, 9), workers=st.integers(0, 3))
def test_batches_are_the_same_with_and_without_prefetch(data, sampler, ahead, workers):
    """Whatever is expected, replaced and asked for, in whatever order."""
    all_works = works_of(sampler, range(3))
    dataset = [f"sample {i}" for i in range(sampler.num_samples)]
    several = st.lists(st.sampled_from(all_works), max_size=12)
    with ShardLoader(dataset, sampler, collate=list, ahead=ahead, workers=workers) as loader:
        for expected, asked in data.draw(st.lists(st.tuples(several, several), max_size=5)):
            loader.expect(expected)
            for work in data.draw(st.permutations(expected)) + asked:
                assert loader.micro_batch(work) == ahead_by_hand(sampler, dataset, work)


def test_what_is_expected_is_read_once_by_a_worker():
    dataset, sampler = Samples(240), in_order()
    works = works_of(sampler, range(2))
    with ShardLoader(dataset, sampler, collate=list, ahead=3) as loader:
        loader.expect(works)
        for i, work in enumerate(works):
            wait_until_ready(loader, *works[i : i + 3])
            assert loader.micro_batch(work) == [10 * n for n in range(4 * i, 4 * i + 4)]
    assert dataset.read == [(n, "prism-data-0") for n in range(96)]


def test_no_more_is_held_than_asked_for():
    dataset, sampler = Samples(240), in_order()
    works = works_of(sampler, range(2))
    with ShardLoader(dataset, sampler, collate=list, ahead=3) as loader:
        loader.expect(works)
        wait_until_ready(loader, *works[:3])
        assert not loader._prefetch._may_take_up()
        # A patch goes before what is held: the last of that makes room.
        loader.expect([works[9], *works])
        wait_until_ready(loader, works[9], *works[:2])
        assert list(loader._prefetch._items) == [*works[:2], works[9]]
    assert [n for n, _ in dataset.read] == [*range(12), *range(36, 40)]


def test_the_next_step_is_read_while_this_one_is_computed():
    """Expecting again what is held reads nothing again."""
    dataset, sampler = Samples(240), in_order(groups=1)
    steps = [works_of(sampler, [s]) for s in range(4)]
    with ShardLoader(dataset, sampler, collate=list, ahead=4) as loader:
        for now, following in itertools.pairwise(steps):
            loader.expect(now + following)
            for work in now:
                loader.micro_batch(work)
            wait_until_ready(loader, *following)
    assert sorted(n for n, _ in dataset.read) == list(range(64))


def test_what_is_not_expected_is_read_by_the_caller():
    dataset, sampler = Samples(240), in_order()
    with ShardLoader(dataset, sampler, collate=list) as loader:
        assert loader.micro_batch(Work(1, 0, 1)) == [520, 530, 540, 550]
        assert data_threads() == []  # before the first expect
    assert {name for _, name in dataset.read} == {threading.current_thread().name}


def test_expectations_replaced_while_one_is_read():
    """What is not wanted any more is left after the sample at hand, and read by the caller if asked for."""
    dataset, sampler = Samples(240, gates=[1]), in_order()
    dropped, patch = Work(0, 0, 0), Work(0, 2, 3)
    with ShardLoader(dataset, sampler, collate=list) as loader:
        loader.expect([dropped, Work(0, 0, 1)])
        assert dataset.entered[1].wait(PATIENCE_S)
        loader.expect([patch])
        dataset.gates[1].set()
        wait_until_ready(loader, patch)
        assert [n for n, _ in dataset.read] == [0, 1, 44, 45, 46, 47]
        assert loader.micro_batch(patch) == [440, 450, 460, 470]
        assert loader.micro_batch(dropped) == [0, 10, 20, 30]
    assert [n for n, _ in dataset.read[6:]] == [0, 1, 2, 3]


def test_a_caller_whose_work_is_dropped_reads_it():
    dataset, sampler = Samples(240, gates=[1]), in_order()
    with ShardLoader(dataset, sampler, collate=list, workers=2) as loader:
        loader.expect([Work(0, 0, 0)])
        assert dataset.entered[1].wait(PATIENCE_S)
        with ThreadPoolExecutor(1) as threads:
            found = threads.submit(loader.micro_batch, Work(0, 0, 0))
            loader.expect([Work(0, 0, 1)])
            wait_until_ready(loader, Work(0, 0, 1))
            dataset.gates[1].set()
            assert found.result(PATIENCE_S) == [0, 10, 20, 30]
        assert loader.micro_batch(Work(0, 0, 1)) == [40, 50, 60, 70]


def test_dropped_and_expected_again():
    dataset, sampler = Samples(240, gates=[1]), in_order()
    with ShardLoader(dataset, sampler, collate=list) as loader:
        loader.expect([Work(0, 0, 0)])
        assert dataset.entered[1].wait(PATIENCE_S)
        loader.expect([])
        loader.expect([Work(0, 0, 0)])
        dataset.gates[1].set()
        wait_until_ready(loader, Work(0, 0, 0))
        assert loader.micro_batch(Work(0, 0, 0)) == [0, 10, 20, 30]


def test_a_worker_that_is_blocked_does_not_keep_close():
    dataset, sampler = Samples(240, gates=[1]), in_order()
    loader = ShardLoader(dataset, sampler, collate=list)
    loader.expect(works_of(sampler, [0]))
    assert dataset.entered[1].wait(PATIENCE_S)
    (worker,) = data_threads()
    with ThreadPoolExecutor(2) as threads:
        waits = threads.submit(loader.micro_batch, Work(0, 0, 0))  # for the worker
        reads = threads.submit(loader.micro_batch, Work(1, 0, 0))  # for its turn
        with loader._prefetch._changed:
            assert loader._prefetch._changed.wait_for(lambda: loader._prefetch._callers == 1, PATIENCE_S)
        loader.close(wait_s=0.01)
        for call in (waits, reads):
            with pytest.raises(SpareError, match="the loader is closed"):
                call.result(PATIENCE_S)
    assert worker.is_alive()
    dataset.gates[1].set()
    worker.join(PATIENCE_S)
    assert not worker.is_alive()
    assert [n for n, _ in dataset.read] == [0, 1]  # not one sample more


def test_a_closed_loader():
    loader = ShardLoader(Samples(240), in_order(), collate=list, workers=3)
    with loader:
        loader.expect([Work(0, 0, 0)])
        wait_until_ready(loader, Work(0, 0, 0))
    assert data_threads() == []
    loader.close()
    for ask in (lambda: loader.expect([]), lambda: loader.micro_batch(Work(0, 0, 0))):
        with pytest.raises(SpareError, match="the loader is closed, expected no more work"):
            ask()


def test_a_forgotten_loader_leaves_no_thread():
    loader = ShardLoader(Samples(240), in_order(), collate=list, workers=2)
    loader.expect(works_of(loader.sampler, range(1)))
    threads = data_threads()
    assert len(threads) == 2
    del loader
    gc.collect()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_program_ends_with_a_blocked_worker():
    program = """
        import threading
        from prismcore.spare.runtime.data import ShardLoader, ShardSampler

        entered = threading.Event()
        class Blocked:
            def __getitem__(self, i):
                entered.set()
                threading.Event().wait()

        sampler = ShardSampler(8, groups=1, micro_batches=1, micro_batch_size=1)
        loader = ShardLoader(Blocked(), sampler, collate=list)
        loader.expect([(0, 0, 0)])
        assert entered.wait(200)
        print("ends")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


def test_one_thread_at_a_time_unless_more_workers_are_asked_for():
    class Alone(Samples):
        inside, most, lock = 0, 0, threading.Lock()

        def __getitem__(self, i):
            with self.lock:
                self.inside += 1
                self.most = max(self.most, self.inside)
            threading.Event().wait(0.0005)
            with self.lock:
                self.inside -= 1
            return i

    dataset, sampler = Alone(240), in_order()
    works = works_of(sampler, range(3))
    with ShardLoader(dataset, sampler, collate=list) as loader, ThreadPoolExecutor(3) as threads:
        loader.expect(works)
        found = list(threads.map(loader.micro_batch, reversed(works)))
    assert found == [ahead_by_hand(sampler, dataset, w) for w in reversed(works)]
    assert dataset.most == 1


def test_a_caller_goes_before_the_worker():
    """A patch waits for one sample that is being read ahead, not for a whole micro-batch."""
    dataset, sampler = Samples(240, gates=[1]), in_order()
    with ShardLoader(dataset, sampler, collate=list) as loader, ThreadPoolExecutor(1) as threads:
        loader.expect([Work(0, 0, 0)])
        assert dataset.entered[1].wait(PATIENCE_S)
        patch = threads.submit(loader.micro_batch, Work(1, 0, 0))
        with loader._prefetch._changed:
            assert loader._prefetch._changed.wait_for(lambda: loader._prefetch._callers == 1, PATIENCE_S)
        dataset.gates[1].set()
        assert patch.result(PATIENCE_S) == [480, 490, 500, 510]
        assert loader.micro_batch(Work(0, 0, 0)) == [0, 10, 20, 30]
    assert [n for n, _ in dataset.read] == [0, 1, 48, 49, 50, 51, 2, 3]


def test_two_workers_read_side_by_side():
    both = threading.Barrier(2)

    class Together(Samples):
        def __getitem__(self, i):
            both.wait(PATIENCE_S)
            return i

    sampler = in_order(micro_batch_size=1)
    with ShardLoader(Together(240), sampler, collate=list, workers=2) as loader:
        loader.expect([Work(0, 0, 0), Work(0, 0, 1)])
        assert [loader.micro_batch(Work(0, 0, i)) for i in (0, 1)] == [[0], [1]]
