"""Puts what a user's rules give in place of what ghosts send (:mod:`prismcore.rules`)."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from prismcore import _core
from prismcore.errors import RuleError
from prismcore.graph import DataType, OpKind
from prismcore.rules import Call, Rule

__all__ = ["RuleDoor"]


class _RuleCall(ctypes.Structure):
    """``PrismRuleCall`` of ``csrc/intercept/rules.h``."""

    _fields_ = [
        ("group", ctypes.c_char_p),
        ("size", ctypes.c_uint32),
        ("position", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("dtype", ctypes.c_uint32),
        ("peer", ctypes.c_int64),
        ("elements", ctypes.c_int64),
    ]


_Match = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(_RuleCall))
_Fill = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)

_NEVER = 2**31 - 1
"""As the first threshold of Python's garbage collector: so many objects are never made in a rule."""

_TORCH_NAMES = {"float8e4m3": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}


class RuleDoor:
    """Stands between the rules and the NCCL door of one rank.

    ``failed`` ends the rank with an error; it does not return.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        rank: int,
        iteration: Callable[[], int],
        site: Callable[[], str],
        failed: Callable[[BaseException], Any],
    ) -> None:
        self._rules = rules
        self._rank = rank
        self._iteration = iteration
        self._site = site
        self._failed = failed
        self._had = [0] * len(rules)
        self._due: dict[int, tuple[Rule, Call]] = {}
        self._next = 0
        self._lock = threading.Lock()  # backward passes communicate from a thread of their own
        self._hooks = (_Match(self._match), _Fill(self._fill))  # the door keeps only their addresses

    def install(self, door: ctypes.CDLL) -> None:
        """Makes the door (libprism_nccl.so, loaded) ask. Without rules it asks nothing."""
        if self._rules:
            _core.vgpu_share_interpreter()
            door.prism_nccl_set_rules(*self._hooks)

    @property
    def uses(self) -> dict[str, int]:
        """How many calls each rule has had."""
        names = [f"{number} {rule.name}" for number, rule in enumerate(self._rules, start=1)]
        return dict(zip(names, self._had, strict=True))

    def _match(self, pointer: Any) -> int:
        try:
            return self._match_call(pointer.contents)
        except BaseException as error:
            self._failed(error)
            return -1

    def _match_call(self, asked: _RuleCall) -> int:
        call = Call(
            rank=self._rank,
            group=asked.group.decode(),
            size=asked.size,
            position=asked.position,
            kind=OpKind(asked.kind).name.lower(),
            dtype=DataType(asked.dtype).name.lower(),
            elements=asked.elements,
            peer=asked.peer,
            iteration=self._iteration(),
            call_site=self._site(),
            number=0,
        )
        i = next((i for i, rule in enumerate(self._rules) if rule.fits(call)), None)
        if i is None:
            return -1
        with self._lock:
            number = self._next
            self._next += 1
            self._due[number] = (self._rules[i], replace(call, number=self._had[i]))
            self._had[i] += 1
        return number

    def _fill(self, number: int, to: int, size: int) -> None:
        try:
            rule, call = self._due.pop(number)
            with _no_collection():
                _fill_with(rule, call, to, size)
        except BaseException as error:
            self._failed(error)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Rules may run beside the program: what it left as garbage is not for them to free, with torch's
    allocator locked by a thread that waits for the rule.

    Whether the collector is switched on is left to the program, which may switch it meanwhile.
    """
    first, *others = gc.get_threshold()
    gc.set_threshold(_NEVER, *others)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == _NEVER:  # else the program has set another meanwhile
            gc.set_threshold(first, *gc.get_threshold()[1:])


def _fill_with(rule: Rule, call: Call, to: int, size: int) -> None:
    import torch

    dtype = getattr(torch, _TORCH_NAMES.get(call.dtype, call.dtype))
    with torch.no_grad(), torch.device("cpu"):
        view = torch.frombuffer((ctypes.c_char * size).from_address(to), dtype=dtype)
        received = view.clone()
        with _no_communication(rule):
            given = rule.fill(call, received)
        given = received if given is None else _as_tensor(rule, call, given)
        try:
            view.copy_(given.to(dtype).broadcast_to(view.shape))
        except RuntimeError:
            shape = f"a tensor of shape {list(given.shape)}"
            raise _refusal(rule, call, shape, f"one that broadcasts to [{call.elements}]") from None


def _as_tensor(rule: Rule, call: Call, given: Any) -> Any:
    """What a rule gave, as a dense tensor in host memory that can be of the call's type."""
    import torch

    try:
        tensor = given if isinstance(given, torch.Tensor) else torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        told = str(error).partition("\n")[0]
        raise _refusal(
            rule, call, f"{type(given).__name__} ({told})", "a tensor, an array or a number"
        ) from None
    if tensor.device.type != "cpu":
        raise _refusal(rule, call, f"a tensor on {tensor.device}", "one on the CPU")
    if tensor.layout is not torch.strided:
        raise _refusal(rule, call, f"a sparse tensor ({tensor.layout})", "a dense one: to_dense()")
    if tensor.is_complex():
        raise _refusal(rule, call, f"complex numbers ({tensor.dtype})", f"{call.dtype}")
    return tensor


def _refusal(rule: Rule, call: Call, found: str, expected: str) -> RuleError:
    return RuleError(
        f"rule {rule.name} gave {found} for {call.kind} on communicator '{call.group}' at {call.call_site}, "
        f"expected {expected}"
    )


@contextlib.contextmanager
def _no_communication(rule: Rule) -> Iterator[None]:
    """A collective of a rule would wait for the call that waits for the rule."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Refusing(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.namespace in ("c10d", "_c10d_functional"):
                raise RuleError(
                    f"rule {rule.name} communicates itself ({func}); expected it to make what is received "
                    "from its arguments alone"
                )
            return func(*args, **(kwargs or {}))

    with Refusing():
        yield
