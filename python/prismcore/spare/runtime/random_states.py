"""Random number generators as a part of the state."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

__all__ = ["RandomStates"]


class RandomStates:
    """The global generators of torch (CPU, and the current GPU where CUDA is in use), Python and numpy.

    Give one to :meth:`Checkpoints.save` and :meth:`Checkpoints.load`; own generators (``torch.Generator``,
    ``numpy.random.Generator``) go in as plain values, by their states.
    """

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "torch": torch.get_rng_state(),
            "python": random.getstate(),
            "numpy": np.random.get_state(),
        }
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(state["torch"])
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])
