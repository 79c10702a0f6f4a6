"""What torch otherwise gives to cuDNN runs on its own kernels, also where the program asks for cuDNN."""

import pytest
from rank_process import run_rank

pytestmark = pytest.mark.torch


def test_torch_does_without_cudnn_whatever_the_program_sets() -> None:
    answer = run_rank("""
        import warnings
        import torch.nn as nn
        import torch.nn.functional as F
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from prismcore.launch.cudnn import switch_off_cudnn

        switch_off_cudnn()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.backends.cudnn.enabled = True
            torch.backends.cudnn.benchmark = True
            torch.backends.cuda.enable_cudnn_sdp(True)
        answer["told"] = [str(w.message) for w in told]
        answer["enabled"] = [torch.backends.cudnn.enabled, torch.backends.cuda.cudnn_sdp_enabled()]
        on = {"device": "cuda", "requires_grad": True}
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            for layer, shape in (
                (nn.Conv2d(32, 32, 3), (2, 32, 16, 16)),
                (nn.Conv2d(32, 32, 3, groups=32), (2, 32, 16, 16)),
                (nn.Conv1d(32, 16, 3, dilation=2), (2, 32, 16)),
                (nn.Conv3d(4, 8, 3), (2, 4, 8, 8, 8)),
                (nn.ConvTranspose2d(32, 32, 3, groups=4), (2, 32, 16, 16)),
                (nn.BatchNorm2d(32), (2, 32, 16, 16)),
            ):
                layer.cuda()(torch.randn(shape, **on)).sum().backward()
                assert all(p.grad is not None for p in layer.parameters())
            nn.LSTM(64, 128, 2).cuda()(torch.randn(10, 4, 64, **on))[0].sum().backward()
        q = torch.randn(2, 4, 128, 64, dtype=torch.bfloat16, **on)
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]):
            F.scaled_dot_product_attention(q, q, q).sum().backward()
        names = {row[0] for row in kernels()}
        answer["products"] = len(names)
    """)
    assert len(answer["told"]) == 2
    assert "the virtual GPU has none" in answer["told"][0]
    assert answer["enabled"] == [False, False]
    assert answer["products"] > 0
