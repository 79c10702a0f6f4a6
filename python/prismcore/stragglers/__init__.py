"""What stragglers cost a job: replays in which some ops take as long as they do elsewhere."""

from __future__ import annotations

from prismcore.stragglers.analysis import StragglerReport, analyse

__all__ = ["StragglerReport", "analyse"]
