"""Emulate large LLM training jobs rank by rank, and train through failures without restarting."""

from __future__ import annotations

__version__ = "0.1.0"
