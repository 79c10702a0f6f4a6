"""Measures a device: one program, run by torch on a real GPU or on the virtual one (``prism profile``)."""

from prismcore.measure.measure import Measured, MeasureOptions, measure
from prismcore.measure.shapes import PRESETS, LayerShape, parse_shape

__all__ = ["PRESETS", "LayerShape", "MeasureOptions", "Measured", "measure", "parse_shape"]
