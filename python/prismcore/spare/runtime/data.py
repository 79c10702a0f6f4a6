"""Samples of any work of any step for any group: a sampler without state, a loader that reads ahead.

After a failure another group computes the micro-batch that was lost, so which samples it is made of
may depend on the work alone: not on the rank, nor on what was asked before. torch is imported for the
default `collate` alone, and only where it is installed.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from prismcore.errors import DataError, SpareError
from prismcore.spare.numbers import whole
from prismcore.spare.runtime.prefetch import Prefetch, Turn
from prismcore.spare.runtime.work import Work

__all__ = ["Dataset", "ShardLoader", "ShardSampler", "numpy_collate"]

T = TypeVar("T")

#: Permutations kept: steps straddle two epochs.
EPOCHS_KEPT = 2
_MOST = 2**63 - 1

_Indices = npt.NDArray[np.int64]


class Dataset(Protocol):
    """Samples by number, from 0. Where it has torch's ``__getitems__(numbers)``, that is called once a
    micro-batch instead."""

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(slots=True)
class _Epoch:
    building: threading.Lock = field(default_factory=threading.Lock)
    permutation: _Indices | None = None


class ShardSampler:
    """Which samples a micro-batch consists of.

    Samples form one endless stream, epoch after epoch, each a permutation of all of them. Sample j of
    a work stands at position ``((step * groups + shard) * micro_batches + micro_batch) *
    micro_batch_size + j``, so steps straddle epochs: none is lost or seen twice in an epoch.

    A permutation is the order of 64-bit draws of PCG64 keyed by (seed, epoch): a stream that numpy
    keeps from version to version, as ``Generator.permutation`` does not promise. It takes 8 bytes a
    sample, and two are kept; 20 bytes while it is sorted, at the epoch's first use. For a data set
    that shuffles itself (Megatron's do), ``shuffle=False`` costs nothing.

    To go on with another number of groups at `step`, give the new sampler ``first_step=step`` and
    ``first_position=old.position(step)``.

    Threads may share a sampler.

    Args:
        num_samples: samples of the data set, 1 or more.
        groups: shards of a step, N.
        micro_batches: of a shard, m.
        micro_batch_size: samples of a micro-batch.
        seed: 0 to 2**64 - 1.
        shuffle: False takes the samples in their order, in every epoch.
        first_step: the first that this sampler serves.
        first_position: where in the stream that step begins.

    Raises:
        SpareError: a number is not a whole one or out of its range.
    """

    def __init__(
        self,
        num_samples: int,
        *,
        groups: int,
        micro_batches: int,
        micro_batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        first_step: int = 0,
        first_position: int = 0,
    ) -> None:
        self.num_samples = whole("num_samples", num_samples, least=1, most=_MOST)
        self.groups = whole("groups", groups, least=1)
        self.micro_batches = whole("micro_batches", micro_batches, least=1)
        self.micro_batch_size = whole("micro_batch_size", micro_batch_size, least=1)
        self.seed = whole("seed", seed, least=0, most=2**64 - 1)
        if not isinstance(shuffle, bool):
            raise SpareError(f"shuffle {shuffle!r} found, expected True or False")
        self.shuffle = shuffle
        self.first_step = whole("first_step", first_step, least=0, most=_MOST)
        self.first_position = whole("first_position", first_position, least=0, most=_MOST)
        self._kept: OrderedDict[int, _Epoch] = OrderedDict()
        self._keeping = threading.Lock()

    @property
    def samples_per_step(self) -> int:
        """Of all groups together."""
        return self.groups * self.micro_batches * self.micro_batch_size

    def position(self, step: int) -> int:
        """Where `step` begins in the stream of samples.

        Raises:
            SpareError: the step lies before ``first_step``.
        """
        step = whole("step", step, least=self.first_step, most=_MOST)
        return self.first_position + (step - self.first_step) * self.samples_per_step

    def epoch_of(self, step: int) -> int:
        """The epoch, from 0, of the first sample of `step`; the last may lie in a later one."""
        return self.position(step) // self.num_samples

    def checked(self, work: Work) -> Work:
        """`work` as plain ints.

        Raises:
            SpareError: it is none of this sampler's.
        """
        try:
            step, shard, micro_batch = work
        except (TypeError, ValueError):
            raise SpareError(f"work {work!r} found, expected (step, shard, micro_batch)") from None
        return Work(
            whole("step of the work", step, least=self.first_step, most=_MOST),
            whole("shard of the work", shard, least=0, most=self.groups - 1),
            whole("micro_batch of the work", micro_batch, least=0, most=self.micro_batches - 1),
        )

    def indices(self, work: Work) -> _Indices:
        """The sample numbers of `work`, int64 of shape [micro_batch_size].

        Raises:
            SpareError: it is none of this sampler's.
        """
        step, shard, micro_batch = self.checked(work)
        before = (shard * self.micro_batches + micro_batch) * self.micro_batch_size
        epoch, offset = divmod(self.position(step) + before, self.num_samples)
        found: list[_Indices] = []
        missing = self.micro_batch_size
        while missing > 0:
            taken = min(missing, self.num_samples - offset)
            found.append(self._in_epoch(epoch, offset, offset + taken))
            missing -= taken
            epoch, offset = epoch + 1, 0
        return np.concatenate(found)

    def _in_epoch(self, epoch: int, begin: int, end: int) -> _Indices:
        if not self.shuffle:
            return np.arange(begin, end, dtype=np.int64)
        with self._keeping:
            kept = self._kept.setdefault(epoch, _Epoch())
            self._kept.move_to_end(epoch)
            while len(self._kept) > EPOCHS_KEPT:
                self._kept.popitem(last=False)
        # Outside the lock of all: who still works in the old epoch does not wait for the new one.
        with kept.building:
            if kept.permutation is None:
                key = np.random.SeedSequence(self.seed, spawn_key=(epoch,))
                drawn = np.random.PCG64(key).random_raw(self.num_samples)
                kept.permutation = np.argsort(drawn, kind="stable").astype(np.int64, copy=False)
            return kept.permutation[begin:end]


class ShardLoader(Generic[T]):
    """Serves the micro-batch of any work, and reads those ahead that it was told to expect.

    What a data set gives may depend on the sample's number alone: random augmentation has to be keyed
    by it, since worker threads share the random state of the process and run in no fixed order. With
    one worker, or none, one thread at a time is in the data set, though not always the same; with more
    it must stand several.

    Args:
        dataset: samples by number.
        sampler: says which numbers.
        collate: makes a micro-batch of a list of samples; default: torch's ``default_collate`` where
            torch is installed, else `numpy_collate`.
        ahead: micro-batches held at most, ready or being read.
        workers: daemon threads that read ahead, started at the first `expect`; 0: nothing is read
            ahead.

    Raises:
        SpareError: the data set cannot be asked by number or has fewer samples than the sampler
            counts; a number is out of its range.
    """

    def __init__(
        self,
        dataset: Dataset,
        sampler: ShardSampler,
        *,
        collate: Callable[[list[Any]], T] | None = None,
        ahead: int = 8,
        workers: int = 1,
    ) -> None:
        ahead = whole("ahead", ahead, least=1)
        workers = whole("workers", workers, least=0)
        if not hasattr(dataset, "__getitem__"):
            raise SpareError(
                f"dataset: found {type(dataset).__name__} without __getitem__, expected samples by number: "
                "any group may have to read any sample again"
            )
        if isinstance(dataset, Sized) and len(dataset) < sampler.num_samples:
            raise SpareError(
                f"dataset: found {len(dataset)} samples, expected {sampler.num_samples} as the sampler counts"
            )
        self.sampler = sampler
        reader = _Reader(dataset, sampler, _default_collate() if collate is None else collate)
        # Workers hold on to the prefetch, not to the loader: one that is forgotten stops them too.
        self._prefetch: Prefetch[T] = Prefetch(reader.read, ahead=ahead, workers=workers)
        self._finalizer = weakref.finalize(self, self._prefetch.stop)

    def expect(self, works: Sequence[Work]) -> None:
        """These are asked for next, in about this order; replaces what was expected before.

        What was read ahead and is no longer among the first `ahead` of them is dropped. Never waits.

        Raises:
            SpareError: a work is none of the sampler's (nothing changes then); the loader is closed.
        """
        self._prefetch.expect([self.sampler.checked(work) for work in works])

    def micro_batch(self, work: Work) -> T:
        """The samples of `work`, collated: as read ahead, else read at once in the caller's thread.

        Asked for again, or after an error, it is read again.

        Raises:
            SpareError: the work is none of the sampler's; the loader is closed, also meanwhile.
            DataError: data set or collate failed; names work and sample. Its cause is their error.
        """
        return self._prefetch.take(self.sampler.checked(work))

    def close(self, wait_s: float = 1.0) -> None:
        """Drops what was read ahead and stops the workers; whoever waits for a micro-batch gets an error.

        Waits at most `wait_s` seconds for workers inside the data set; one that stays there ends as
        soon as it comes out of it. A second call does nothing more.
        """
        self._finalizer.detach()
        self._prefetch.close(wait_s)

    def __enter__(self) -> ShardLoader[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(slots=True, frozen=True)
class _Reader(Generic[T]):
    dataset: Dataset
    sampler: ShardSampler
    collate: Callable[[list[Any]], T]

    def read(self, work: Work, turn: Turn) -> T:
        """The micro-batch; inside the data set only within `turn`, which may raise what is no Exception."""
        numbers: list[int] = self.sampler.indices(work).tolist()
        doing = ""
        try:
            fetch_all = getattr(self.dataset, "__getitems__", None)
            if callable(fetch_all):
                doing = f"dataset failed on samples {_few(numbers)}"
                with turn():
                    samples = list(fetch_all(numbers))
                if len(samples) != len(numbers):
                    raise ValueError(f"found {len(samples)} samples, expected {len(numbers)}")
            else:
                samples = []
                for number in numbers:
                    doing = f"dataset failed on sample {number}"
                    with turn():
                        samples.append(self.dataset[number])
            doing = f"collate failed on samples {_few(numbers)}"
            return self.collate(samples)
        except Exception as error:
            raise DataError(
                f"{doing} of step {work.step}, shard {work.shard}, micro-batch {work.micro_batch}: "
                f"{type(error).__name__}: {error}"
            ) from error


def _few(numbers: list[int]) -> str:
    """For a message of one line."""
    return str(numbers) if len(numbers) <= 8 else f"{numbers[0]}, {numbers[1]} and {len(numbers) - 2} more"


def numpy_collate(samples: list[Any]) -> Any:
    """Stacks samples along a new first axis, inside mappings, tuples and lists; strings stay a list.

    Samples of unequal shapes or keys raise what numpy or the mapping raises.
    """
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: numpy_collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, str | bytes):
        return list(samples)
    if isinstance(first, tuple | list):
        columns = [numpy_collate(list(column)) for column in zip(*samples, strict=True)]
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*columns)
        return tuple(columns) if isinstance(first, tuple) else columns
    return np.stack([np.asarray(sample) for sample in samples])


def _default_collate() -> Callable[[list[Any]], Any]:
    try:
        from torch.utils.data import default_collate
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        return numpy_collate
    collate: Callable[[list[Any]], Any] = default_collate
    return collate
