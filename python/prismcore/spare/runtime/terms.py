"""What all groups of a training must have alike, so that they compute the same step."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from prismcore import __version__
from prismcore.spare.runtime.options import SessionOptions

__all__ = ["Terms", "common_terms", "difference", "terms_of"]

Terms = Mapping[str, str]
"""By name, in words: plain JSON values that compare by ``==``."""


def terms_of(options: SessionOptions) -> Terms:
    placement = options.placement
    table = hashlib.blake2b(placement.stacks().tobytes(), digest_size=6).hexdigest()
    return {
        "placement": f"{placement.kind} of {placement.groups} groups, r = {placement.redundancy} ({table})",
        "micro_batches": str(options.micro_batches),
        "seed": str(options.seed),
        "deterministic": str(options.deterministic),
        "backend": options.backend,
        "positions": str(options.positions),
        "version": __version__,
    }


def difference(found: Terms, expected: Terms) -> str:
    """In words; empty: there is none."""
    names = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
    return "; ".join(
        f"{name} = {found.get(name, 'nothing')} found, the others have {expected.get(name, 'nothing')}"
        for name in names
    )


def common_terms(terms: Sequence[Terms]) -> Terms:
    """Those of most; of equally many, those that come first."""
    counts = Counter(tuple(sorted(each.items())) for each in terms)
    return dict(counts.most_common(1)[0][0])
