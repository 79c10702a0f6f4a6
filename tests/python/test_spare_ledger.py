"""Which samples are in each step's gradients, over a training that loses a group, gets it back, and is then
begun again by fewer groups from its checkpoint."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from spare_training import PATIENCE_S, Lighthouse

from prismcore.spare.placement import golomb
from prismcore.spare.runtime.data import ShardLoader, ShardSampler

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SAMPLES = 37  # steps begin and end within epochs
MICRO_BATCHES, SIZE = 2, 2


@pytest.fixture
def lighthouse() -> Iterator[Lighthouse]:
    with Lighthouse() as running:
        yield running


class DiesError(Exception):
    pass


class Ledger(torch.nn.Module):
    """Its gradient says how often each sample counts."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = torch.nn.Parameter(torch.zeros(SAMPLES, dtype=torch.float64))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return self.counts[samples].sum()


class Groups:
    """Each in a thread. ``steps``: by step, what each group found in its gradients."""

    def __init__(self, lighthouse: Lighthouse, folder: Path, sampler: ShardSampler, *, groups: int) -> None:
        self._address = lighthouse.address
        self._folder = folder
        self._sampler = sampler
        self._groups = groups
        self.steps: dict[int, list[Counter[int]]] = {}
        self.errors: list[BaseException] = []
        self.is_back = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, group: int, until: int, dies: int = -1, waits: int = -1) -> None:
        """``dies``: in this step; ``waits``: in this step, until another group is back."""
        thread = threading.Thread(target=self._train, args=(group, until, dies, waits))
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert self.errors == []

    def _train(self, group: int, until: int, dies: int, waits: int) -> None:
        from prismcore.spare import Checkpoints, Session, SessionOptions, Timeouts

        options = SessionOptions(
            placement=golomb(self._groups, 2),
            micro_batches=MICRO_BATCHES,
            group=group,
            lighthouse=self._address,
            host="localhost",
            timeouts=Timeouts(leave_s=2, rejoin_s=0.05),
        )
        model = Ledger()
        try:
            with (
                Checkpoints(self._folder, every_steps=1) as checkpoints,
                ShardLoader(range(SAMPLES), self._sampler, ahead=2) as loader,
                Session(
                    options,
                    params=model.parameters(),
                    state={"model": model},
                    data=loader,
                    checkpoints=checkpoints,
                ) as session,
            ):
                while session.step_number < until:
                    for number, work in enumerate(session.step()):
                        if work.step == dies and number == 1:
                            raise DiesError
                        if work.step == waits:
                            self.is_back.wait(PATIENCE_S)
                        loss = model(loader.micro_batch(work))
                        loss.backward()
                        session.accumulate(work, loss)
                    grad = model.counts.grad
                    assert grad is not None
                    parts = self._groups * MICRO_BATCHES
                    counts = {sample: round(float(x) * parts) for sample, x in enumerate(grad) if x != 0}
                    assert torch.allclose(grad * parts, (grad * parts).round(), atol=1e-9)
                    self.steps.setdefault(session.step_number - 1, []).append(Counter(counts))
        except DiesError:
            pass
        except BaseException as error:
            self.errors.append(error)


def expected(sampler: ShardSampler, step: int, groups: int) -> Counter[int]:
    works = [(step, shard, number) for shard in range(groups) for number in range(MICRO_BATCHES)]
    return Counter(int(sample) for work in works for sample in sampler.indices(work))


def test_no_sample_is_lost_or_seen_twice(lighthouse: Lighthouse, tmp_path: Path) -> None:
    sizes = {"micro_batches": MICRO_BATCHES, "micro_batch_size": SIZE, "seed": 3}
    four = ShardSampler(SAMPLES, groups=4, **sizes)
    first = Groups(lighthouse, tmp_path / "checkpoints", four, groups=4)
    for group in range(4):
        first.start(group, 8, dies=2 if group == 1 else -1, waits=4)
    while 3 not in first.steps and not first.errors:
        threading.Event().wait(0.02)
    first.start(1, 8)
    threading.Event().wait(1.0)  # it is heard of within a few looks
    first.is_back.set()
    first.join()
    assert [len(first.steps[step]) for step in range(8)] == [4, 4, 3, 3, 3, 4, 4, 4]

    three = ShardSampler(SAMPLES, groups=3, first_step=7, first_position=four.position(7), **sizes)
    again = Groups(lighthouse, tmp_path / "checkpoints", three, groups=3)
    for group in range(3):
        again.start(group, 12)
    again.join()
    assert sorted(again.steps) == list(range(7, 12))  # the last step was not saved: it is made again

    seen: Counter[int] = Counter()
    for step in range(12):
        found = first.steps[step] if step < 7 else again.steps[step]
        assert len(found) == (len(first.steps[step]) if step < 7 else 3)
        by = (four, 4) if step < 7 else (three, 3)
        for counts in found:
            assert counts == expected(by[0], step, by[1])
        seen += found[0]
    total = 7 * 4 * MICRO_BATCHES * SIZE + 5 * 3 * MICRO_BATCHES * SIZE
    assert sum(seen.values()) == total
    whole, more = divmod(total, SAMPLES)
    assert Counter(seen.values()) == Counter({whole: SAMPLES - more, whole + 1: more})
