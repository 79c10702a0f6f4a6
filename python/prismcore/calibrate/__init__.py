"""Calibration: figures and tables of profiles from measured traces (``docs/profiles.md``)."""

from prismcore.calibrate.calibrate import Calibrated, calibrate
from prismcore.calibrate.samples import Samples, merged_samples

__all__ = ["Calibrated", "Samples", "calibrate", "merged_samples"]
