"""Names that profiles of a calibration are written under."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from prismcore.errors import PrismError, ProfileError
from prismcore.outputs import check_file, file_target
from prismcore.profiles.cluster import cluster_files
from prismcore.profiles.device import device_files

__all__ = ["SUFFIXES", "check_targets", "reference"]

SUFFIXES = (".toml", ".kernels.csv", ".cluster.toml")


def check_targets(
    profile: Path, *, base: str | None, cluster: str | None, sources: Sequence[Path] = ()
) -> None:
    """What is written for ``profile`` replaces nothing that is read: no source, no profile that is extended,
    no profile which that extends, no table of one.

    Raises PrismError where it would, where a file cannot be written, or where a name that would stand in a
    profile is not UTF-8; ProfileError where a base cannot be read.
    """
    read = [*sources]
    if base is not None:
        read += device_files(base)
    if cluster is not None:
        read += cluster_files(cluster)
    targets = [profile.with_suffix(suffix) for suffix in SUFFIXES]
    for path in targets:
        check_file(path, sources=read)
    if len({file_target(path).resolve() for path in targets}) < len(targets):
        raise PrismError(f"{profile}: {', '.join(map(str, targets))} are links to one file, expected three")
    extended = [reference(name, profile) for name in (base, cluster) if name is not None]
    for name in (profile.name, *extended):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ProfileError(
                f"{name}: is not UTF-8, expected names that are: profiles name their table and what they "
                "extend, and are text in UTF-8"
            ) from None


def reference(base: str, path: Path) -> str:
    """The base as the profile at ``path`` names it: a shipped one by name, a file by its way from there."""
    name = base.removeprefix("virtual:")
    if not name.endswith(".toml") and os.sep not in name:
        return name
    return os.path.relpath(Path(name).absolute(), path.absolute().parent)
