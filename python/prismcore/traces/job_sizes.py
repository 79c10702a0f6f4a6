"""Sizes of a training job that a trace does not say itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from prismcore.errors import TraceError

__all__ = ["JobSizes", "read_job_sizes"]

_LINE = re.compile(r"(?P<key>[A-Za-z_]\w*)\s*:\s*(?P<value>[^#]*?)\s*(?:#.*)?")
_MOST = 2**24


@dataclass(kw_only=True, slots=True, frozen=True)
class JobSizes:
    """Parallel sizes: data, pipeline, tensor, replicas of sequence parallelism (``dsp``),
    chunks of a stage (``vpp``)."""

    dp: int
    pp: int
    tp: int = 1
    dsp: int = 1
    vpp: int = 1
    world: int = 0  #: ranks; 0: the product of dp, dsp, pp and tp

    def __post_init__(self) -> None:
        for key in ("dp", "pp", "tp", "dsp", "vpp"):
            _check(key, getattr(self, key))
        if self.world == 0:
            object.__setattr__(self, "world", self.dp * self.dsp * self.pp * self.tp)
        _check("world", self.world)

    @staticmethod
    def seen(
        dp_rank: npt.NDArray[Any],
        stage: npt.NDArray[Any],
        rank: npt.NDArray[Any],
        model_chunk: npt.NDArray[Any],
    ) -> JobSizes:
        """The smallest sizes that hold these places, columns of a trace."""
        dp, pp = int(dp_rank.max()) + 1, int(stage.max()) + 1
        chunks = int(model_chunk.max()) + 1
        return JobSizes(dp=dp, pp=pp, vpp=max(1, -(-chunks // pp)), world=int(rank.max()) + 1)

    def __str__(self) -> str:
        parts = f"dp {self.dp}, pp {self.pp}, tp {self.tp}"
        if self.dsp > 1:
            parts += f", dsp {self.dsp}"
        if self.vpp > 1:
            parts += f", vpp {self.vpp}"
        return f"{parts}, world {self.world}"


def read_job_sizes(path: Path) -> JobSizes:
    """Sizes from a flat YAML file of lines ``dp_size: 4``: ``dp_size`` and ``pp_size``, and where it
    has them ``tp_size``, ``dsp_size``, ``vpp_size`` and ``world_size``. Other keys are ignored.

    Raises TraceError for a file that cannot be read, lacks a size or holds one that cannot be.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise TraceError(f"{path}: cannot be read: {reason}") from error
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line.strip())
        if match is None or not match["key"].endswith("_size"):
            continue
        value = match["value"].strip("'\"")
        if not re.fullmatch(r"[0-9]{1,8}", value):
            raise TraceError(
                f"{path}: line {number}: {match['key']} {value!r} found, expected a whole number from 1 on"
            )
        key = match["key"].removesuffix("_size")
        if found.setdefault(key, int(value)) != int(value):
            raise TraceError(f"{path}: line {number}: {match['key']} {value} found, and {found[key]} before")
    for key in ("dp", "pp"):
        if key not in found:
            raise TraceError(f"{path}: no {key}_size found, expected a line such as '{key}_size: 4'")
    try:
        return JobSizes(**{k: v for k, v in found.items() if k in JobSizes.__dataclass_fields__})
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from error


def _check(key: str, value: int) -> None:
    if not 1 <= value <= _MOST:
        raise TraceError(f"{key} size {value} found, expected 1 to {_MOST}")
