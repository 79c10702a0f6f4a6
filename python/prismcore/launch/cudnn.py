"""Makes torch do without cuDNN, which the virtual GPU does not stand in for.

cuDNN's library brings its own CUDA runtime and finds no device. Torch has kernels of its own for all
that it otherwise gives to cuDNN: attention (flash, memory-efficient, math), convolution (im2col and
matrix products, one sample after the other), recurrent layers, normalisation.
"""

from __future__ import annotations

import warnings

__all__ = ["SWITCHED_OFF", "switch_off_cudnn"]

SWITCHED_OFF = (
    "cuDNN (the virtual GPU has none): attention takes flash attention, convolutions take torch's own "
    "kernels, whose times and work buffers are not cuDNN's"
)


def switch_off_cudnn() -> None:
    """From here on torch never takes cuDNN, also where the program asks for it (a warning says so)."""
    import torch

    torch._C._set_cudnn_enabled(False)
    torch._C._set_sdp_use_cudnn(False)
    torch._C._set_cudnn_enabled = _stays_off
    torch._C._set_sdp_use_cudnn = _stays_off
    # `torch.backends.cudnn.enabled = True` goes to what this property took when torch was imported.
    vars(type(torch.backends.cudnn))["enabled"].setter = _stays_off


def _stays_off(enabled: bool) -> None:
    if enabled:
        warnings.warn(f"prismcore switches off {SWITCHED_OFF}", stacklevel=3)
