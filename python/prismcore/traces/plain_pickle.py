"""Unpickles files of strangers: plain containers, numbers and texts, and nothing else.

Pickle is a program for a stack machine. Before it runs, it is looked through: only instructions that
build plain values, a bounded number of them, and no index into the memo beyond their number (which
would make the machine allocate that much); what it would build is counted (:mod:`pickle_sizes`), for a
container used again is another copy of it to who reads it. While it runs, no name is ever looked up.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, NoReturn

from prismcore.errors import TraceError
from prismcore.traces.pickle_sizes import MOST_VALUES, Sizes

__all__ = ["MOST_BYTES", "load_plain"]

#: Of a file; an instruction of one byte can make an object of 64 to 232 bytes.
MOST_BYTES = 512 << 20

_PLAIN = frozenset(
    """
    PROTO FRAME MARK STOP POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4
    FLOAT BINFLOAT UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 STRING BINSTRING SHORT_BINSTRING BINBYTES
    SHORT_BINBYTES BINBYTES8 EMPTY_DICT DICT SETITEM SETITEMS EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE
    TUPLE TUPLE1 TUPLE2 TUPLE3 GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE
    """.split()  # noqa: SIM905
)
_WHOLE = frozenset("INT BININT BININT1 BININT2 LONG LONG1 LONG4".split())  # noqa: SIM905
_NAMES = frozenset(("GLOBAL", "STACK_GLOBAL", "INST"))
_TEXTS = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "UNICODE", "BINUNICODE8", "STRING", "SHORT_BINSTRING"))
_DAMAGE = (
    pickle.UnpicklingError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    EOFError,
    MemoryError,
    RecursionError,
)


def load_plain(data: bytes, path: str) -> Any:
    """The value that a pickle holds.

    Raises TraceError, which names ``path``: for a pickle that wants a global (which), any other
    instruction, too many values, larger numbers than of 64 bits, keys that are containers, a container
    that holds itself, and where it is damaged.
    """
    try:
        _look_through(data, path)
        return _Plain(data, path).load()
    except _DAMAGE as error:
        raise TraceError(f"{path}: damaged pickle: {str(error) or type(error).__name__}") from error


def _look_through(data: bytes, path: str) -> None:
    if len(data) > MOST_BYTES:
        raise TraceError(f"{path}: {len(data):,} bytes found, expected at most {MOST_BYTES:,}")
    texts: list[str] = []
    sizes = Sizes(path)
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        name = opcode.name
        if count >= MOST_VALUES:
            raise TraceError(f"{path}: more than {MOST_VALUES:,} values found, expected fewer")
        if name in _PLAIN:
            if name in _TEXTS:
                texts = [*texts[-1:], str(argument)]
            elif name in ("LONG_BINPUT", "PUT") and int(argument or 0) > len(data):
                raise TraceError(f"{path}: memo index {argument:,} in a pickle of {len(data):,} bytes")
            elif name in _WHOLE and int(argument or 0).bit_length() > 64:
                raise TraceError(
                    f"{path}: a whole number of more than 64 bits found, expected no larger ones"
                )
            sizes.step(name, argument)
        elif name in _NAMES:
            wanted = str(argument).replace(" ", ".") if name != "STACK_GLOBAL" else ".".join(texts)
            _refuse(path, wanted)
        else:
            raise TraceError(f"{path}: pickle instruction {name} found, expected plain containers and values")


def _refuse(path: str, wanted: str) -> NoReturn:
    raise TraceError(
        f"{path}: the pickle wants {wanted[:120]!r}, expected plain containers and values; it is not loaded"
    )


class _Plain(pickle.Unpickler):
    """Knows no names; a second fence behind :func:`_look_through`."""

    def __init__(self, data: bytes, path: str) -> None:
        super().__init__(io.BytesIO(data))
        self._path = path

    def find_class(self, module: str, name: str) -> NoReturn:
        _refuse(self._path, f"{module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        _refuse(self._path, "a persistent id")
