"""The checkpoints of a training, as its loop comes by: none of their failures ends it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from prismcore.errors import CheckpointError
from prismcore.spare.runtime.checkpoints import Checkpoints, Saved

__all__ = ["Keeper"]

_log = logging.getLogger(__name__)


class Keeper:
    """
    Args:
        checkpoints: None: there are none, and nothing is done.
        state: what is saved and loaded, by name.
        told: is called for each one that is complete.
    """

    def __init__(
        self, checkpoints: Checkpoints | None, state: Mapping[str, Any], told: Callable[[Saved], Any]
    ) -> None:
        self._checkpoints = checkpoints
        self._state = dict(state)
        self._told = told

    @property
    def exists(self) -> bool:
        return self._checkpoints is not None

    def has_any(self) -> bool:
        """Raises CheckpointError where the folder cannot be read."""
        return self._checkpoints is not None and self._checkpoints.latest() is not None

    def load(self) -> int:
        """The newest one. Returns its step.

        Raises:
            CheckpointError: it is damaged, or of another state.
        """
        assert self._checkpoints is not None
        return self._checkpoints.load(self._state)

    def newest(self, step: int) -> int | None:
        """For a message: None where there is none, or where the folder cannot be read, which is a warning."""
        try:
            return None if self._checkpoints is None else self._checkpoints.latest()
        except CheckpointError as error:
            _log.warning("step %d: %s", step, error)
            return None

    def tell(self, step: int) -> None:
        """What became of the last save. One that failed is a warning: the next one tries again."""
        if self._checkpoints is None:
            return
        try:
            saved = self._checkpoints.poll()
            if saved is not None:
                self._told(saved)
        except CheckpointError as error:
            _log.warning("step %d: %s", step, error)

    def is_due(self, step: int) -> bool:
        checkpoints = self._checkpoints
        if checkpoints is None:
            return False
        try:
            return checkpoints.due(step, time.monotonic()) and step > (checkpoints.latest() or 0)
        except CheckpointError as error:
            _log.warning("step %d: %s", step, error)
            return False

    def save(self, step: int) -> None:
        if self._checkpoints is None:
            return
        try:
            self._checkpoints.save(step, self._state)
        except CheckpointError as error:
            _log.warning("step %d: %s", step, error)

    def finish(self, step: int) -> None:
        """As tell(), for the save that still writes."""
        if self._checkpoints is None:
            return
        try:
            saved = self._checkpoints.wait()
            if saved is not None:
                self._told(saved)
        except CheckpointError as error:
            _log.warning("step %d, the last checkpoint: %s", step, error)
