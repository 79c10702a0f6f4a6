"""What holds for all tests, and what those of trainings through failures share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from spare_training import Lighthouse, Training

# No test may fail because a machine is busy. A gate (CI=1) runs the same examples each time, so that it
# speaks of the change before it; ``make fuzz`` looks for others.
settings.register_profile("untimed", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("untimed")


@pytest.fixture(scope="module")
def lighthouse() -> Iterator[Lighthouse]:
    from spare_training import Lighthouse

    with Lighthouse() as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(lighthouse: Lighthouse, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A training of the default sizes in which nothing fails."""
    from spare_training import Training, run

    training = Training(folder=tmp_path_factory.mktemp("undisturbed"), lighthouse=lighthouse.address)
    assert set(run(training).values()) == {0}
    return training


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """A folder of .prism files: a healthy job, two that cannot run, and damaged ones."""
    import jobs

    folder = tmp_path_factory.mktemp("graphs")
    whole = jobs.pipeline()
    whole.save(folder / "job.prism")
    jobs.deadlock().save(folder / "deadlock.prism")
    jobs.mismatch().save(folder / "mismatch.prism")
    data = bytearray(whole.to_bytes())
    (folder / "short.prism").write_bytes(data[: len(data) // 2])
    data[len(data) // 2] ^= 0x55
    (folder / "flipped.prism").write_bytes(data)
    (folder / "empty.prism").write_bytes(b"")
    (folder / "text.prism").write_text("not a graph")
    return folder
