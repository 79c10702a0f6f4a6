"""The loss of a step that is committed by agreement, in groups of several ranks."""

from __future__ import annotations

import socket
import threading

import pytest
from spare_training import PATIENCE_S, Lighthouse

from prismcore.spare.placement import custom
from prismcore.spare.runtime.guard import MembersLostError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_all_ranks_have_the_loss_of_the_step_though_their_round_failed(lighthouse: Lighthouse) -> None:
    """A rank that has the sum notices a loss before the others of its group do. Only the last position knows
    losses."""
    from prismcore.spare import Session, SessionOptions, Timeouts

    stores = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as server:
            stores.append(f"127.0.0.1:{server.getsockname()[1]}")
    losses: dict[tuple[int, int], list[tuple[int, float]]] = {(g, p): [] for g in range(2) for p in range(2)}
    errors: list[BaseException] = []

    def train(group: int, position: int) -> None:
        try:
            model = torch.nn.Linear(1, 1)
            options = SessionOptions(
                placement=custom([[0, 1], [1, 0]]),
                micro_batches=2,
                group=group,
                position=position,
                positions=2,
                store=stores[group],
                lighthouse=lighthouse.address,
                host="localhost",
                timeouts=Timeouts(leave_s=2),
            )
            with Session(options, params=model.parameters(), state={"model": model}) as session:
                struck = []

                def at(point: str, *, group: int, step: int) -> None:
                    if (group, position, point, step) == (0, 1, "summed", 2) and not struck:
                        struck.append(True)
                        raise MembersLostError("heartbeat", "group 1")

                session._injector.at = at  # type: ignore[method-assign]
                while session.step_number < 5:
                    for work in session.step():
                        session.accumulate(work, float(work.step) if position == 1 else None)
                    losses[group, position].append((session.step_number - 1, session.loss))
                assert bool(struck) == ((group, position) == (0, 1))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=ranks) for ranks in losses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert errors == []
    for told in losses.values():
        assert told == [(step, float(step)) for step in range(5)]
