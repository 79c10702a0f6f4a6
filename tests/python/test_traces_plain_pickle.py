"""Pickles of strangers: small files that stand for endless work are refused before any of it is done."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from prismcore.errors import TraceError
from prismcore.traces.plain_pickle import load_plain


def _nested(levels: int, container: type = tuple) -> Any:
    value = container(["lol"] * 10)
    for _ in range(levels):
        value = container([value] * 10)
    return value


_HOLDS_ITSELF: list[Any] = []
_HOLDS_ITSELF.append(_HOLDS_ITSELF)

# Ten lists made first and filled from the outside in, so that each is empty when it is used.
_FILLED_LATE = b"\x80\x02" + b"".join(b"]q%c" % i for i in range(20))
_FILLED_LATE += b"".join(b"h%c(" % i + b"h%c" % (i + 1) * 10 + b"e" for i in range(19)) + b"h\0."


@pytest.mark.parametrize(
    ("dump", "found"),
    [
        (b"\x80\x02}K\x01" + b"2\x86" * 20 + b"K\x01s.", "a container found as a key"),
        (b"\x80\x02(K\x01" + b"2\x86" * 20 + b"K\x01d.", "a container found as a key"),
        (pickle.dumps({"version": _nested(9)}, 2), "counting those used again"),
        (pickle.dumps({"version": _nested(9, list)}, 4), "counting those used again"),
        (pickle.dumps(["x" * 2**20] * 2000, 2), "counting those used again"),
        (pickle.dumps([[dict.fromkeys(range(20), 1)] * 200] * 10_000, 2), "counting those used again"),
        (pickle.dumps(_HOLDS_ITSELF, 2), "holds itself"),
        (_FILLED_LATE, "changes after its use"),
        (pickle.dumps(1 << 40_000, 2), "more than 64 bits"),
        (pickle.dumps([-(1 << 64)], 0), "more than 64 bits"),
    ],
)
def test_small_files_that_stand_for_endless_work_are_refused(dump: bytes, found: str) -> None:
    with pytest.raises(TraceError, match=found) as error:
        load_plain(dump, "dump")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_what_is_shared_a_few_times_is_read(protocol: int) -> None:
    frames = [{"name": "f", "filename": "a.py", "line": n} for n in range(30)]
    dump = {"entries": [{"frames": frames, "n": n} for n in range(500)], "all": (frames, frames)}
    assert load_plain(pickle.dumps(dump, protocol), "dump") == dump
