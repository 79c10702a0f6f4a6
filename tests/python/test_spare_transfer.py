"""The state of a training, as it comes to a group that joins."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from spare_training import PATIENCE_S, Lighthouse

from prismcore.errors import SpareError
from prismcore.spare.placement import custom

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Holder:
    def __init__(self, state: Any) -> None:
        self.state = state
        self.given: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state}

    def load_state_dict(self, given: dict[str, Any]) -> None:
        self.given = given["state"]


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("not to be pickled")


def join(lighthouse: Lighthouse, state: Any) -> tuple[Any, list[BaseException | None]]:
    """What the second of two groups is given as a training begins, and how they end."""
    from prismcore.spare import Session, SessionOptions, Timeouts

    holders = [Holder(state), Holder(None)]
    errors: list[BaseException | None] = [None, None]
    sessions = []
    for group, holder in enumerate(holders):
        model = torch.nn.Linear(1, 1)
        options = SessionOptions(
            placement=custom([[0, 1], [1, 0]]),
            micro_batches=1,
            group=group,
            lighthouse=lighthouse.address,
            host="localhost",
            timeouts=Timeouts(leave_s=1, begin_s=3 if group == 0 else None),
        )
        sessions.append(Session(options, params=model.parameters(), state={"holder": holder}))

    def train(group: int) -> None:
        try:
            with sessions[group] as session:
                for work in session.step():
                    session.accumulate(work, 0.0)
        except BaseException as error:
            errors[group] = error

    threads = [threading.Thread(target=train, args=(group,)) for group in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    return holders[1].given, errors


def test_whatever_a_state_is_made_of(lighthouse: Lighthouse) -> None:
    plain = torch.arange(6.0).reshape(2, 3)
    complex_ = torch.complex(plain, plain + 1)
    state = {
        "plain": plain,
        "turned": plain.t(),
        "parameter": torch.nn.Parameter(plain.bfloat16()),
        "empty": torch.zeros(0, 3),
        "number": torch.tensor(7),
        "sparse": plain.to_sparse(),
        "rows": plain.to_sparse_csr(),
        "conjugate": complex_.conj(),
        "negative": complex_.conj().imag,
        "others": [1, "two", {"three": (plain, None)}],
    }
    given, errors = join(lighthouse, state)
    assert errors == [None, None]
    assert set(given) == set(state)
    for name in ("plain", "turned", "parameter", "empty", "number", "conjugate", "negative"):
        assert given[name].dtype == state[name].dtype
        assert torch.equal(given[name], state[name].detach())
    for name in ("sparse", "rows"):
        assert given[name].layout == state[name].layout
        assert torch.equal(given[name].to_dense(), plain)
    assert given["others"][:2] == [1, "two"]
    assert torch.equal(given["others"][2]["three"][0], plain)


def test_a_state_that_cannot_be_sent_is_an_error_of_the_one_that_wants_it(lighthouse: Lighthouse) -> None:
    given, errors = join(lighthouse, {"weights": torch.ones(3), "hook": Unpicklable()})
    assert given is None
    assert errors[0] is None  # it begins alone
    assert isinstance(errors[1], SpareError)
    assert "cannot (TypeError: not to be pickled)" in str(errors[1])
