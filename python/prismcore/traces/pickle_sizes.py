"""How many values a pickle stands for, told from its instructions alone, before any is made.

A container that is used again counts again: a text of it, or a loop over it, takes that long. So nested
ones of which each holds the one before ten times cannot pass for small. What is used again may not change
afterwards, so that its size is final; a container that holds itself is thereby refused as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prismcore.errors import TraceError

__all__ = ["MOST_VALUES", "Sizes"]

MOST_VALUES = 24_000_000

_CHARACTERS = 64  #: of a text or bytes, that count as one value
_MADE = frozenset(("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"))
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Container:
    """Its values, itself among them, and whether something else holds it by now."""

    __slots__ = ("size", "used")

    def __init__(self) -> None:
        self.size, self.used = 1, False


_Value = int | _Container  #: the size of a number or text


class Sizes:
    """The stack machine of pickle, with sizes for values."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stack: list[_Value] = []
        self._marks: list[int] = []
        self._memo: dict[int, _Value] = {}
        self._steps: dict[str, Callable[[Any], object]] = {
            "MARK": lambda _: self._marks.append(len(self._stack)),
            "TUPLE": lambda _: self._push(self._marks.pop()),
            "LIST": lambda _: self._push(self._marks.pop()),
            "DICT": lambda _: self._push(self._marks.pop(), keys=True),
            "APPEND": lambda _: self._add(len(self._stack) - 1),
            "APPENDS": lambda _: self._add(self._marks.pop()),
            "SETITEM": lambda _: self._add(len(self._stack) - 2, keys=True),
            "SETITEMS": lambda _: self._add(self._marks.pop(), keys=True),
            "POP": self._pop,
            "POP_MARK": lambda _: self._take(self._marks.pop()),
            "DUP": lambda _: self._again(self._stack[-1]),
            "MEMOIZE": lambda _: self._keep(len(self._memo)),
            **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), self._keep),
            **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda at: self._again(self._memo[at])),
            **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda _: None),
        }

    def step(self, name: str, argument: Any) -> None:
        """One instruction. Raises TraceError: too many values, a key that is a container, or a container
        changed after it was used; LookupError: nothing there."""
        run = self._steps.get(name)
        if run is not None:
            run(argument)
        elif name in _MADE:
            self._stack.append(_Container())
        elif name in _TUPLES:
            self._push(len(self._stack) - _TUPLES[name])
        else:
            long = len(argument) // _CHARACTERS if isinstance(argument, str | bytes) else 0
            self._stack.append(1 + long)

    def _take(self, begin: int, keys: bool = False) -> int:
        """Values from there on leave the stack."""
        if begin < 0:
            raise LookupError("a value is missing")
        values = self._stack[begin:]
        del self._stack[begin:]
        if keys and not all(isinstance(key, int) for key in values[::2]):
            raise TraceError(f"{self._path}: a container found as a key, expected texts and numbers")
        return sum(value if isinstance(value, int) else value.size for value in values)

    def _grow(self, container: _Container, size: int) -> None:
        container.size += size
        if container.size > MOST_VALUES:
            raise TraceError(
                f"{self._path}: more than {MOST_VALUES:,} values found, counting those used again, "
                "expected fewer"
            )

    def _push(self, begin: int, keys: bool = False) -> None:
        container = _Container()
        self._grow(container, self._take(begin, keys))
        self._stack.append(container)

    def _add(self, begin: int, keys: bool = False) -> None:
        size = self._take(begin, keys)
        container = self._stack[-1]
        if isinstance(container, int):
            raise LookupError("a container is missing")
        if container.used:
            raise TraceError(
                f"{self._path}: a container found that holds itself, or changes after its use, "
                "expected neither"
            )
        self._grow(container, size)

    def _again(self, value: _Value) -> None:
        if isinstance(value, _Container):
            value.used = True
        self._stack.append(value)

    def _keep(self, at: int) -> None:
        self._memo[at] = self._stack[-1]

    def _pop(self, _: Any) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._stack.pop()
