"""The loop of one group: what it is handed out, what it may do wrong, what its gradients are."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spare_training import Lighthouse

from prismcore.errors import MembershipError, SpareError, WipeOutError
from prismcore.spare.placement import custom, golomb
from prismcore.spare.runtime.inject import POINTS, Injector, fail

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ALONE = custom([[0]])


@pytest.fixture
def begin(lighthouse: Lighthouse, tmp_path: Path) -> Iterator[Any]:
    """Begins sessions of one group; they are closed at the end."""
    from prismcore.spare import Session, SessionOptions

    sessions = []

    def make(model: Any, micro_batches: int = 3, session: Any = None, **options: Any) -> Any:
        begun = Session(
            SessionOptions(
                placement=ALONE,
                micro_batches=micro_batches,
                group=0,
                lighthouse=lighthouse.address,
                host="localhost",
                **options,
            ),
            params=model.parameters(),
            state={"model": model},
            **({"events": tmp_path / "events"} | (session or {})),
        )
        sessions.append(begun)
        return begun

    yield make
    for session in sessions:
        session.close()


def line() -> Any:
    model = torch.nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0]]))
    return model


def loss_of(model: Any, number: int) -> Any:
    return (model(torch.tensor([float(number + 1), 1.0])) * (number + 1)).sum()


EXPECTED = [sum((n + 1) ** 2 for n in range(3)) / 3, sum(n + 1 for n in range(3)) / 3]


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("clear", ["never", "none", "before"])
def test_gradients_are_the_mean(begin: Any, deterministic: bool, clear: str) -> None:
    model = line()
    session = begin(model, deterministic=deterministic)
    for step in range(3):
        losses = []
        for work in session.step():
            assert work.step == session.step_number == step
            if clear == "before":
                model.zero_grad(set_to_none=True)
            loss = loss_of(model, work.micro_batch)
            loss.backward()
            losses.append(float(loss.detach()))
            session.accumulate(work, loss)
        assert model.weight.grad.tolist()[0] == pytest.approx(EXPECTED, rel=1e-6)
        assert session.loss == pytest.approx(sum(losses) / 3, rel=1e-12)
        if clear == "none":
            model.zero_grad()
    assert session.step_number == 3
    assert session.group == 0
    assert session.groups_alive == 1


def test_what_a_loop_may_do_wrong(begin: Any) -> None:
    model = line()
    session = begin(model)
    with pytest.raises(SpareError, match=r"handed out and not accumulated; expected accumulate"):
        for _ in session.step():
            pass
    works = session.step()
    work = next(works)
    with pytest.raises(
        SpareError, match=r"accumulate\(Work\(step=0, shard=0, micro_batch=2\)\) found, expected"
    ):
        session.accumulate(work._replace(micro_batch=2), 1.0)
    with pytest.raises(SpareError, match=r"loss of shape \[2\] found, expected one number"):
        session.accumulate(work, torch.zeros(2))
    with pytest.raises(SpareError, match=r"step\(\) within step\(\)"):
        next(session.step())
    with pytest.raises(SpareError, match=r"resume_at\(4\) after the first step"):
        session.resume_at(4)
    loss = loss_of(model, work.micro_batch)
    loss.square().backward(create_graph=True)
    with pytest.raises(SpareError, match="create_graph=True"):
        session.accumulate(work, loss)
    works.close()
    session.close()
    session.close()
    with pytest.raises(SpareError, match=r"step\(\) after close\(\)"):
        next(session.step())


def test_a_step_that_was_left_goes_on(begin: Any) -> None:
    """What was computed counts, and nothing twice."""
    model = line()
    session = begin(model)
    for work in session.step():
        loss_of(model, work.micro_batch).backward()
        session.accumulate(work, 0.0)
        break
    rest = []
    for work in session.step():
        rest.append(work.micro_batch)
        loss_of(model, work.micro_batch).backward()
        session.accumulate(work, 0.0)
    assert rest == [1, 2]
    assert model.weight.grad.tolist()[0] == pytest.approx(EXPECTED, rel=1e-6)


def test_a_micro_batch_that_broke_off_does_not_count_twice(begin: Any) -> None:
    """Its gradients may be added already, in part or as a whole."""
    model = line()
    session = begin(model)
    works = session.step()
    for work in works:
        loss_of(model, work.micro_batch).backward()
        if work.micro_batch == 1:
            break  # as an exception does
        session.accumulate(work, 0.0)
    works.close()
    for work in session.step():
        loss_of(model, work.micro_batch).backward()
        session.accumulate(work, 0.0)
    assert model.weight.grad.tolist()[0] == pytest.approx(EXPECTED, rel=1e-6)


def test_parameters_without_gradients_and_of_several_types(begin: Any) -> None:
    model = torch.nn.ModuleList(
        [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double(), torch.nn.Linear(2, 2).bfloat16()]
    )
    model[0].bias.requires_grad_(False)
    session = begin(model, micro_batches=2)
    for work in session.step():
        loss = sum(layer(torch.ones(2, dtype=layer.weight.dtype)).sum().double() for layer in model)
        loss.backward()
        session.accumulate(work, loss)
    assert model[0].bias.grad is None
    for layer in model:
        assert layer.weight.grad.dtype == layer.weight.dtype
        assert layer.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_losses_that_are_no_numbers(begin: Any) -> None:
    model = line()
    session = begin(model)
    for value in (float("nan"), float("inf")):
        for work in session.step():
            session.accumulate(work, value)
        assert str(session.loss) == str(value)


def test_events(begin: Any, tmp_path: Path) -> None:
    model = line()
    session = begin(model)
    for work in session.step():
        session.accumulate(work, 2.0)
    session.close()
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [event["event"] for event in events] == ["start", "membership", "commit", "stop"]
    assert events[2]["loss"] == 2.0
    assert events[2]["parts"] == 3


def test_checkpoints_are_written_and_begun_from(begin: Any, tmp_path: Path) -> None:
    from prismcore.spare import Checkpoints

    def train(steps: int) -> Any:
        model = line()
        with Checkpoints(tmp_path / "checkpoints", every_steps=2) as checkpoints:
            session = begin(model, session={"checkpoints": checkpoints})
            first = None
            while session.step_number < steps:
                for work in session.step():
                    first = work.step if first is None else first
                    session.accumulate(work, 0.0)
                with torch.no_grad():
                    model.weight.add_(1.0)
            session.close()
        return first, model.weight.tolist()[0]

    assert train(5) == (0, [6.0, 3.0])
    assert train(7) == (4, [8.0, 5.0])


def test_the_last_checkpoint_that_fails_is_a_warning(
    begin: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from prismcore.spare import Checkpoints

    model = line()
    folder = tmp_path / "checkpoints"
    with Checkpoints(folder, every_steps=1) as checkpoints:
        session = begin(model, session={"checkpoints": checkpoints})
        for _ in range(2):
            for work in session.step():
                session.accumulate(work, 0.0)
        checkpoints.wait()
        shutil.rmtree(folder)
        folder.write_text("in the way")
        for work in session.step():  # its save is under way at the end
            session.accumulate(work, 0.0)
        session.close()
    assert session.step_number == 3
    assert str(folder) in caplog.text


def test_a_wipe_out_is_told_though_the_checkpoints_cannot_be_read(
    lighthouse: Lighthouse, tmp_path: Path
) -> None:
    from prismcore.spare import Checkpoints, Session, SessionOptions, Timeouts

    with Lighthouse() as running, Checkpoints(tmp_path / "checkpoints", every_steps=9) as checkpoints:
        session = Session(
            SessionOptions(
                placement=golomb(4, 2),
                micro_batches=1,
                group=1,
                lighthouse=running.address,
                host="localhost",
                timeouts=Timeouts(begin_s=0.2),
            ),
            params=line().parameters(),
            state={},
            checkpoints=checkpoints,
        )

        def at(point: str, **_: Any) -> None:
            (tmp_path / "checkpoints").write_text("in the way") if point == "ready" else None

        session._injector.at = at
        with pytest.raises(WipeOutError, match=r"no step is committed: start all groups .* their checkpoint"):
            next(session.step())
        session.close()


def test_a_session_that_cannot_be_leaves_nothing_open(lighthouse: Lighthouse, tmp_path: Path) -> None:
    from prismcore.spare import Session, SessionOptions, Timeouts

    good = {"placement": ALONE, "micro_batches": 1, "group": 0, "lighthouse": lighthouse.address}
    alone = {"position": 1, "positions": 2, "store": "127.0.0.1:9", "timeouts": Timeouts(agree_s=0.3)}
    for options, params, words in (
        ({}, torch.nn.ReLU().parameters(), "no parameter"),
        (alone, line().parameters(), "position 1 has not met"),
    ):
        with pytest.raises(SpareError, match=words):
            Session(SessionOptions(**good | options), params=params, state={}, events=tmp_path / "events")
        opened = [os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.exists()]
        assert str(tmp_path / "events") not in opened


def test_a_lighthouse_of_others(begin: Any) -> None:
    from prismcore.spare import Session, SessionOptions

    model = line()
    first = begin(model, training="a")
    works = first.step()
    next(works)
    options = SessionOptions(
        placement=ALONE, micro_batches=1, group=0, lighthouse=first._options.lighthouse, training="b"
    )
    other = Session(options, params=model.parameters(), state={})
    works.close()

    refused = []

    def join() -> None:
        with pytest.raises(MembershipError, match=r"also serves group0:.*, which is not of training 'b'"):
            next(other.step())
        refused.append(True)

    import threading

    waiting = threading.Thread(target=join)
    waiting.start()
    for _ in range(200):  # the first one looks for newcomers at its step boundaries
        if not waiting.is_alive():
            break
        for work in first.step():
            first.accumulate(work, 0.0)
        waiting.join(0.02)
    waiting.join(60)
    assert refused
    other.close()


def test_no_lighthouse(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from prismcore.spare import Session, SessionOptions, Timeouts

    monkeypatch.delenv("TORCHFT_LIGHTHOUSE", raising=False)
    with pytest.raises(SpareError, match="no lighthouse given and TORCHFT_LIGHTHOUSE is not set"):
        SessionOptions(placement=ALONE, micro_batches=1, group=0)
    options = SessionOptions(
        placement=ALONE,
        micro_batches=1,
        group=0,
        lighthouse="http://127.0.0.1:9",
        timeouts=Timeouts(lighthouse_s=0.3),
    )
    session = Session(options, params=line().parameters(), state={})
    with pytest.raises(MembershipError, match=r"lighthouse at http://127.0.0.1:9 has not answered for 0.3 s"):
        next(session.step())
    session.close()


def test_a_host_name_that_leads_nowhere(lighthouse: Lighthouse) -> None:
    from prismcore.spare import Session, SessionOptions, Timeouts

    options = SessionOptions(
        placement=ALONE,
        micro_batches=1,
        group=0,
        lighthouse=lighthouse.address,
        host="no-such-host.invalid",
        timeouts=Timeouts(agree_s=1.0, meet_s=1.0),
    )
    session = Session(options, params=line().parameters(), state={})
    with pytest.raises(MembershipError, match=r"have not met within 1 s .*'no-such-host.invalid'"):
        next(session.step())
    session.close()


def test_too_few_groups_to_begin() -> None:
    """Those that are there cannot begin: a shard has no host among them."""
    from prismcore.spare import Session, SessionOptions, Timeouts

    with Lighthouse() as running:
        session = Session(
            SessionOptions(
                placement=golomb(4, 2),
                micro_batches=1,
                group=1,
                lighthouse=running.address,
                host="localhost",
                timeouts=Timeouts(begin_s=0.2),
            ),
            params=line().parameters(),
            state={},
        )
        with pytest.raises(WipeOutError, match=r"hosts shard 0, 3 \(1 of 4 .*; no step is committed: start"):
            next(session.step())
        session.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"group": 8}, "group 8 found, expected 0 to 7"),
        ({"micro_batches": 0}, "0 micro-batches found"),
        ({"backend": "mpi"}, "backend 'mpi' found, expected gloo or nccl"),
    ],
)
def test_options_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    from prismcore.spare import SessionOptions, Timeouts

    good = {"placement": golomb(8, 3), "micro_batches": 1, "group": 0, "lighthouse": "http://x:1"}
    with pytest.raises(SpareError, match=words):
        SessionOptions(**good | changes)
    with pytest.raises(SpareError, match=r"agree_s = 0 found, expected more than 0 seconds"):
        Timeouts(agree_s=0)
    with pytest.raises(SpareError, match=r"collective_s = None found, expected more than 0 seconds"):
        Timeouts(collective_s=None)
    assert Timeouts(begin_s=None).begin_s is None


def test_no_parameters(begin: Any) -> None:
    with pytest.raises(SpareError, match="no parameter with requires_grad"):
        begin(torch.nn.ReLU())


def test_injections_read_as_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    struck: list[Any] = []
    monkeypatch.setattr("prismcore.spare.runtime.inject._strike", struck.append)
    twice = fail(group=3).during("commit", step=7, visit=1)
    injector = Injector([twice])
    for point, step in (("commit", 7), ("commit", 8), ("reduce", 7)):
        injector.at(point, group=3, step=step)
    assert struck == []
    injector.at("commit", group=3, step=7)
    assert struck == [twice]
    Injector([fail(group=2).during("commit", step=7)]).at("commit", group=3, step=7)
    assert struck == [twice]
    with pytest.raises(SpareError, match="point 'lunch' found, expected one of compute"):
        fail(group=1).during("lunch", step=1)
    assert set(POINTS) >= {"compute", "reduce", "commit"}
