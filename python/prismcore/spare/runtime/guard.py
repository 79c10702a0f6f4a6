"""Waiting for other members without waiting for the dead."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from prismcore.spare.runtime.lighthouse import Lighthouse

__all__ = ["Guard", "MembersLostError"]

T = TypeVar("T")

_FIRST_LOOK_S = 0.2
_LOOK_S = 0.2
_CHECK_S = 0.02
_LOOK_AT_SILENT_S = 0.05
_LOOK_PER_MEMBER_S = 0.003
"""Each member that waits asks for a page that grows with the members: in larger trainings it asks less
often."""
_SILENT_BEATS = 2
"""Who has missed so many signs of life is looked at more often."""


class MembersLostError(Exception):
    """The communicator of an epoch is of no more use. ``how``: ``collective``, ``heartbeat``, ``timeout`` or
    ``inside`` (another rank of the own group noticed); ``at``: when that was noticed, of
    time.perf_counter()."""

    def __init__(self, how: str, detail: str) -> None:
        super().__init__(detail)
        self.how = how
        self.at = time.perf_counter()


class Guard:
    """Waits on behalf of one epoch.

    Args:
        lighthouse: None: another rank of the group looks there.
        replicas: group by replica, of the other members.
        timeout_s: the longest wait, whoever is alive.
        settle_s: so long is one waited for whom a lighthouse that has begun anew does not list.
        check: is called often while it waits, and raises where the wait is of no use.
    """

    def __init__(
        self,
        lighthouse: Lighthouse | None,
        replicas: Mapping[str, int],
        *,
        timeout_s: float,
        settle_s: float,
        check: Callable[[], Any] | None = None,
    ) -> None:
        self._lighthouse = lighthouse
        self._check = check
        self._replicas = dict(replicas)
        self.timeout_s = timeout_s
        self._settle_s = settle_s
        self._unlisted_since: dict[str, float] = {}
        self._look_s = max(_LOOK_S, _LOOK_PER_MEMBER_S * len(replicas))
        self._look_at_silent_s = max(_LOOK_AT_SILENT_S, _LOOK_PER_MEMBER_S * len(replicas))

    def wait(self, wait: Callable[[float], bool], what: str, within_s: float = math.inf) -> None:
        """``wait(seconds)`` is true once what is waited for is there.

        Raises:
            MembersLostError: a member is dead, or it took too long.
        """
        limit_s = min(within_s, self.timeout_s)
        began = now = time.monotonic()
        look_at = began + _FIRST_LOOK_S
        while not wait(look_at - now if self._check is None else min(look_at - now, _CHECK_S)):
            if self._check is not None:
                self._check()
            now = time.monotonic()
            if now >= look_at:
                pause_s = self._look_at_silent_s if self.look() else self._look_s
                now = time.monotonic()
                if now - began > limit_s:
                    raise MembersLostError("timeout", f"{what} took longer than {limit_s:g} s")
                look_at = now + pause_s

    def run(
        self,
        work: Callable[[], T],
        what: str,
        *,
        dispose: Callable[[T], Any] = lambda _: None,
        within_s: float = math.inf,
    ) -> T:
        """Runs ``work`` in a thread of its own and waits for it. Where the wait is given up, the thread goes
        on to its own end, and ``dispose`` gets what comes of it.

        Raises:
            MembersLostError: as wait(); or ``work`` failed with a RuntimeError, as torch's do.
        """
        results: list[T] = []
        errors: list[BaseException] = []
        lock = threading.Lock()
        over = threading.Event()
        given_up = False

        def body() -> None:
            try:
                result = work()
            except BaseException as error:
                errors.append(error)
            else:
                with lock:
                    results.append(result)
                    late = given_up
                if late:
                    dispose(result)
            over.set()

        threading.Thread(target=body, name="prism_spare", daemon=True).start()
        try:
            self.wait(over.wait, what, within_s)
        except BaseException:
            with lock:
                given_up = True
                late = bool(results)
            if late:
                dispose(results[0])
            raise
        if errors:
            if isinstance(errors[0], RuntimeError):
                raise MembersLostError("collective", f"{what}: {errors[0]}")
            raise errors[0]
        return results[0]

    def look(self) -> bool:
        """Whether somebody has been silent for long, and may soon count as dead.

        Raises:
            MembersLostError: somebody counts as dead.
        """
        if self._lighthouse is None:
            return False
        heard = self._lighthouse.heard()
        if not heard:
            return False  # without a lighthouse, the limit holds
        now = time.monotonic()
        silent, dead = {}, {}
        for replica, group in self._replicas.items():
            state = heard.get(replica)
            if state is None:  # a lighthouse that has begun anew: those that are alive come to it soon
                ago_s = now - self._unlisted_since.setdefault(replica, now)
                is_dead = ago_s > self._settle_s
            else:
                self._unlisted_since.pop(replica, None)
                ago_s, is_dead = state.ago_s, state.dead
            if is_dead:
                dead[group] = ago_s
            elif ago_s > _SILENT_BEATS * self._lighthouse.heartbeat_s:
                silent[group] = ago_s
        if dead:
            told = ", ".join(f"group {group} for {ago_s:.2f} s" for group, ago_s in sorted(dead.items()))
            raise MembersLostError("heartbeat", f"no sign of life from {told}")
        return bool(silent)
