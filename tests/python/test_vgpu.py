"""Unmodified torch on the virtual GPU: values, memory, streams, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
from vgpu_program import run_program

from prismcore.graph import OpKind

pytestmark = pytest.mark.torch

TRANSFORMER = """
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN is not stood in for

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

class Model(nn.Module):
    def __init__(self, words=8000, width=512, heads=8, layers=2):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))

with torch.device("cuda"):
    model = Model().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

def train(iterations):
    for _ in range(iterations):
        tokens = torch.randint(0, 8000, (2, 512), device="cuda")
        logits = model(tokens)
        loss = F.cross_entropy(logits.float().view(-1, 8000), tokens.view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _core.vgpu_mark("iteration")
    return loss.item()
"""


def test_the_device_is_the_profile() -> None:
    answer = run_program("""
        assert torch.cuda.is_available() and torch.cuda.device_count() == 8
        p = torch.cuda.get_device_properties(3)
        answer.update(name=p.name, total=p.total_memory, sms=p.multi_processor_count, cc=[p.major, p.minor],
                      shared=p.shared_memory_per_block_optin, l2=p.L2_cache_size)
        answer["ones"] = str(torch.ones(4, device="cuda").shape)
        answer["profile"] = [profile.name, profile.memory_bytes, profile.sms, profile.l2_bytes]
        answer["free"], answer["total_now"] = torch.cuda.mem_get_info()
        answer["context"] = profile.context_bytes
    """)
    assert [answer["name"], answer["total"], answer["sms"], answer["l2"]] == answer["profile"]
    assert answer["cc"] == [9, 0]
    assert answer["shared"] == 227 << 10
    assert answer["free"] == answer["total_now"] - answer["context"] - (2 << 20)


def test_bytes_of_the_host_make_the_round_trip() -> None:
    answer = run_program("""
        import random
        g = torch.Generator().manual_seed(3)
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool):
            x = torch.randint(0, 2, (100, 33), generator=g).to(dtype)
            assert torch.equal(x.cuda().cpu(), x), dtype
            assert torch.equal(x.cuda().clone().cpu(), x), dtype
            assert torch.equal(x.cuda()[3:50].cpu(), x[3:50]), dtype
        pinned = torch.arange(1000.0).pin_memory()
        assert pinned.is_pinned()
        device = pinned.to("cuda", non_blocking=True)
        back = torch.empty(1000).pin_memory()
        back.copy_(device, non_blocking=True)
        torch.cuda.synchronize()
        answer["same"] = torch.equal(back, pinned)
        strided = torch.arange(64.0).view(8, 8).cuda()[:, ::2]
        answer["item"] = torch.tensor(41.5).cuda().item()
        answer["list"] = torch.tensor([3, 1, 4]).cuda().tolist()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            on_side = torch.arange(5).cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        answer["side"] = on_side.cpu().tolist()
        answer["large"] = torch.full((1 << 20,), 7.0).cuda().cpu().abs().max().item()
        answer["reads"] = report()["reads"]
    """)
    assert answer["same"]
    assert answer["item"] == 41.5
    assert answer["list"] == [3, 1, 4]
    assert answer["side"] == [0, 1, 2, 3, 4]
    assert answer["large"] == 0  # above the limit bytes do not move; they read as zero
    assert answer["reads"]["written"]["reads"] == 19
    assert answer["reads"]["large"] == {"reads": 1, "bytes": 4 << 20}


def test_a_block_reads_as_zero_from_its_allocation() -> None:
    answer = run_program("""
        x = torch.arange(1, 1001).cuda()
        where = x.data_ptr()
        del x
        y = torch.empty(1000, dtype=torch.int64, device="cuda")
        answer["same_block"] = y.data_ptr() == where
        answer["sum"] = int(y.cpu().abs().sum())
        # Kernels compute nothing; what they write stays what it was: zero here.
        answer["ones"] = torch.ones(4, device="cuda").tolist()
        answer["unique"] = torch.zeros(4, device="cuda").tolist()
    """)
    assert answer["same_block"]
    assert answer["sum"] == 0
    assert answer["ones"] == answer["unique"] == [0, 0, 0, 0]


@pytest.mark.parametrize("segments", ["", "expandable_segments:True"])
def test_out_of_memory_is_torchs_own_error(segments: str) -> None:
    answer = run_program(
        """
        held = torch.empty(60 << 30, dtype=torch.uint8, device="cuda")
        before = rss()
        try:
            torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            answer["text"] = str(error)
        record = report()["out_of_memory"]
        answer["record"] = record
        del held
        torch.cuda.empty_cache()
        again = torch.empty(70 << 30, dtype=torch.uint8, device="cuda")
        again.fill_(3)
        again.zero_()
        answer["grown"] = rss() - before
        """,
        PYTORCH_CUDA_ALLOC_CONF=segments,
    )
    assert "Tried to allocate 30.00 GiB" in answer["text"]
    assert "total capacity of 79.15 GiB" in answer["text"]
    assert answer["grown"] < 64 << 20
    record = answer["record"]
    assert record["held_bytes"] + record["free_bytes"] == 84_986_691_584
    assert record["count"] >= 1
    if not segments:
        assert record["asked_bytes"] == 30 << 30
        assert record["held_bytes"] == (60 << 30) + 545_259_520


def test_elapsed_time_is_the_modelled_duration() -> None:
    answer = run_program("""
        a = torch.empty(1 << 28, device="cuda")
        b = torch.empty_like(a)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.add(a, 1, out=b)  # so that the device is behind when the clock starts
        start.record()
        for _ in range(3):
            torch.add(a, 1, out=b)
        end.record()
        answer["early"] = [end.query(), torch.cuda.current_stream().query()]
        end.synchronize()
        answer["late"] = [end.query(), torch.cuda.current_stream().query()]
        answer["ms"] = start.elapsed_time(end)
        ops = finish().ops(0)
        kernels = ops[ops["kind"] == 1]
        answer["kernels_ns"] = [int(d) for d in kernels["duration_ns"][-3:]]
        answer["bytes"] = a.numel() * 8
    """)
    assert answer["early"] == [False, False]
    assert answer["late"] == [True, True]
    assert answer["ms"] == pytest.approx(sum(answer["kernels_ns"]) * 1e-6, rel=1e-6)
    # 2 GiB cannot move faster than the memory's bandwidth.
    assert min(answer["kernels_ns"]) > answer["bytes"] / 3.35e12 * 1e9


def test_streams_wait_for_events() -> None:
    answer = run_program("""
        side = torch.cuda.Stream()
        a = torch.empty(1 << 28, device="cuda")
        torch.cuda.synchronize()
        a.add_(1)
        done = torch.cuda.Event()
        done.record()
        with torch.cuda.stream(side):
            small = torch.empty(16, device="cuda")
            small.add_(1)
            free_running = torch.cuda.Event(enable_timing=True)
            free_running.record()
            side.wait_event(done)
            small.add_(1)
        free_running.synchronize()
        answer["independent"] = done.query()
        side.synchronize()
        answer["after"] = done.query()
        ops = finish().ops(0)
        answer["waits"] = [[int(op["stream"]), int(op["event_stream"]), int(op["peer"])]
                           for op in ops[ops["kind"] == 5]]
    """)
    assert answer["independent"] is False
    assert answer["after"] is True
    assert answer["waits"] == [[1, 0, 1]]


def test_training_records_kernels_and_the_allocators_curve() -> None:
    answer = run_program(
        TRANSFORMER
        + """
answer["loss"] = train(3)
answer["grad"] = all(p.grad is None for p in model.parameters())
stats = torch.cuda.memory_stats()
answer["stats"] = [stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]]
answer["live"] = torch.cuda.memory_allocated()
answer["report"] = report()
graph = finish()
ops = graph.ops(0)
answer["ops"] = [[int(op["kind"]), int(op["bytes"]), int(op["duration_ns"])] for op in ops]
answer["names"] = sorted({graph.kernel(int(op["ref"])).name for op in ops[ops["kind"] == 1]})
answer["iterations"] = graph.iterations
answer["device_peak"] = graph.rank(0).peaks.device_bytes
answer["context"] = profile.context_bytes
"""
    )
    kind, size, duration = (np.array(column) for column in zip(*answer["ops"], strict=True))
    live = np.cumsum(np.where(kind == OpKind.ALLOCATE, size, 0) - np.where(kind == OpKind.FREE, size, 0))
    reserved = np.cumsum(
        np.where(kind == OpKind.RESERVE, size, 0) - np.where(kind == OpKind.RELEASE, size, 0)
    )
    assert [int(live.max()), int(reserved.max())] == answer["stats"]
    assert int(live[-1]) == answer["live"]
    assert answer["device_peak"] == answer["stats"][1] + answer["context"]
    assert answer["iterations"] == 3
    assert np.isfinite(answer["loss"])
    assert any("flash" in name for name in answer["names"])
    assert any("gemm" in name for name in answer["names"])
    assert any("multi_tensor_apply" in name for name in answer["names"])
    assert (duration[kind == OpKind.KERNEL] > 0).all()
    assert answer["report"]["unknown_kernels"] == []
    assert answer["report"]["unimplemented"] == []


def test_two_runs_record_the_same() -> None:
    body = TRANSFORMER + "train(2); answer['digest'] = finish().digest()\n"
    assert run_program(body) == run_program(body)


def test_a_program_leaves_though_threads_of_autograd_have_not_begun() -> None:
    """As on a machine that is busy: who has the GIL keeps it."""
    answer = run_program("""
        sys.setswitchinterval(100)
        x = torch.ones(4, device="cuda", requires_grad=True)
        (x * 2).sum().backward()
        answer["grad"] = list(x.grad.shape)
    """)
    assert answer["grad"] == [4]


def test_the_interpreter_ends_as_it_always_does() -> None:
    body = "answer['ops'] = (torch.ones(4).cuda() + 1).shape[0]; kept = torch.cuda.Stream()"
    assert run_program(body, leave="")["ops"] == 4


def test_a_forked_rank_starts_anew() -> None:
    answer = run_program("""
        import os
        # The parent has used nothing but torch's modules; each child is a rank of its own.
        digests = []
        for rank in (0, 0):
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                _core.vgpu_start(rank, 1, 8, profile.to_core(), load_cluster("h100-8x").to_core())
                x = torch.arange(10.0).cuda() + 1
                torch.cuda.synchronize()
                os.write(write, finish().digest().encode())
                os._exit(0)
            os.close(write)
            digests.append(os.read(read, 100).decode())
            answer["status"] = os.waitpid(child, 0)[1]
        answer["digests"] = digests
    """)
    assert answer["status"] == 0
    assert answer["digests"][0]
    assert answer["digests"][0] == answer["digests"][1]


def test_the_stream_ordered_allocator_works() -> None:
    answer = run_program(
        """
        x = torch.arange(10.0).cuda()
        answer["back"] = x.cpu().tolist()
        big = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        answer["used"] = torch.cuda.memory_allocated()
        del big
        torch.cuda.empty_cache()
        try:
            torch.empty(90 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            answer["refused"] = True
        """,
        PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync",
    )
    assert answer["back"] == list(range(10))
    assert answer["used"] >= 1 << 30
    assert answer["refused"]


def test_expandable_segments_map_and_unmap() -> None:
    answer = run_program(
        """
        x = torch.arange(10.0).cuda()
        big = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            other = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        answer["back"] = x.cpu().tolist()
        free = torch.cuda.mem_get_info()[0]
        del big
        torch.cuda.empty_cache()
        answer["given_back"] = torch.cuda.mem_get_info()[0] - free
        answer["reserved"] = torch.cuda.memory_reserved()
        """,
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
    )
    assert answer["back"] == list(range(10))
    assert answer["given_back"] >= 1 << 30
    assert answer["reserved"] < 1 << 30


def test_capture_is_refused_by_name() -> None:
    answer = run_program("""
        graph = torch.cuda.CUDAGraph()
        x = torch.zeros(3, device="cuda")
        try:
            with torch.cuda.graph(graph):
                x.add_(1)
        except RuntimeError as error:
            answer["text"] = str(error)
        answer["unimplemented"] = report()["unimplemented"]
        answer["goes_on"] = torch.arange(3).cuda().tolist()
    """)
    assert "not supported by prismcore's virtual GPU" in answer["text"]
    assert {"library": "cudart", "function": "cudaStreamBeginCapture", "calls": 1} in answer["unimplemented"]
    assert answer["goes_on"] == [0, 1, 2]


def test_a_call_that_is_not_implemented_is_counted_and_refused() -> None:
    answer = run_program("""
        import ctypes
        runtime = ctypes.CDLL("libcudart.so.13")
        driver = ctypes.CDLL("libcuda.so.1")
        answer["codes"] = [runtime.cudaGraphCreate(None, 0), runtime.cudaGraphCreate(None, 0),
                           driver.cuTexObjectCreate(None, None, None, None)]
        answer["bad"] = [runtime.cudaStreamSynchronize(ctypes.c_void_p(ctypes.addressof(ctypes.c_uint64(7)))),
                         runtime.cudaSetDevice(99), runtime.cudaFree(ctypes.c_void_p(4096))]
        answer["bad"].append(runtime.cudaPeekAtLastError())
        answer["bad"] += [runtime.cudaGetLastError() for _ in range(2)]
        answer["unimplemented"] = report()["unimplemented"]
    """)
    assert answer["codes"] == [801, 801, 801]
    assert answer["bad"] == [400, 101, 1, 1, 1, 0]
    assert {"library": "cudart", "function": "cudaGraphCreate", "calls": 2} in answer["unimplemented"]
    assert {"library": "cuda", "function": "cuTexObjectCreate", "calls": 1} in answer["unimplemented"]


def test_triton_kernels_are_launched_through_the_driver(tmp_path: Path) -> None:
    answer = run_program(
        # The compiler reads the function's source, so the program needs a file of its own.
        f"""
        from pathlib import Path
        path = Path({str(tmp_path)!r}) / "compiled.py"
        path.write_text("import torch\\n\\ndef function(x):\\n    return torch.tanh(x * x) + x\\n")
        sys.path.insert(0, str(path.parent))
        from compiled import function

        answer["shape"] = list(torch.compile(function)(torch.ones(4096, device="cuda")).shape)
        torch.cuda.synchronize()
        graph = finish()
        answer["names"] = [graph.kernel(i).name for i in range(graph.num_kernels)]
        """,
        TRITON_CACHE_DIR=str(tmp_path / "triton"),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
    )
    assert answer["shape"] == [4096]
    assert any(name.startswith("triton_") for name in answer["names"])


def test_what_a_rule_supplies_is_read_back() -> None:
    answer = run_program("""
        import numpy as np
        x = torch.empty(4, dtype=torch.int64, device="cuda")
        y = torch.empty(3, dtype=torch.int64, device="cuda")
        mask = torch.ones(64, dtype=torch.bool, device="cuda")
        _core.vgpu_supply(x.data_ptr(), np.arange(4).tobytes(), torch.cuda.current_stream().cuda_stream)
        _core.vgpu_answer_reads([np.int32(64).tobytes(), np.int64(5).tobytes()])
        answer["x"], answer["y"] = x.tolist(), y.tolist()
        answer["one"], answer["again"] = y[:1].item(), x[2:3].item()
        answer["selected"] = torch.zeros(64, device="cuda").masked_select(mask).numel()
        _core.vgpu_answer_reads([])
        answer["after"] = y[:1].item()
        answer["reads"] = report()["reads"]["supplied"]
    """)
    assert answer["x"] == [0, 1, 2, 3]
    assert answer["y"] == [0, 0, 0]  # no answer is 24 bytes long
    assert (answer["one"], answer["again"]) == (5, 5)  # memory may hold what an earlier owner wrote
    assert (answer["selected"], answer["after"]) == (64, 0)
    assert answer["reads"] == {"reads": 3, "bytes": 20}


def test_what_a_rule_supplies_is_no_op() -> None:
    plain = """
        import numpy as np
        x = torch.empty(4, dtype=torch.int64, device="cuda")
        RULE
        answer["x"], answer["one"] = x.tolist(), torch.empty(1, dtype=torch.int64, device="cuda").item()
        ops = finish().ops(0)
        answer["ops"] = [ops[field].tolist() for field in ("kind", "host_ns", "duration_ns", "bytes")]
    """
    rule = "_core.vgpu_supply(x.data_ptr(), np.ones(4, dtype=np.int64).tobytes(), 0)"
    rule += "; _core.vgpu_answer_reads([np.int64(5).tobytes()])"
    answers = [run_program(plain.replace("RULE", text)) for text in ("pass", rule)]
    assert [a["x"] + [a["one"]] for a in answers] == [[0] * 5, [1, 1, 1, 1, 5]]
    assert answers[0]["ops"] == answers[1]["ops"]


def test_supplied_bytes_wait_for_their_turn_in_a_stream() -> None:
    answer = run_program("""
        import numpy as np
        x = torch.empty(8, dtype=torch.int64, device="cuda")
        source = torch.full((8,), 7).pin_memory()
        torch.cuda.synchronize()
        stream = torch.cuda.current_stream().cuda_stream
        x.copy_(source, non_blocking=True)
        _core.vgpu_supply(x.data_ptr(), np.full(4, 3).tobytes(), stream)
        x[6:].copy_(source[6:] * 0 + 9, non_blocking=True)
        answer["x"] = x.tolist()
        host = torch.zeros(2, dtype=torch.int64)
        try:
            _core.vgpu_supply(host.data_ptr(), b"12345678", stream)
        except Exception as error:
            answer["error"] = str(error)
    """)
    assert answer["x"] == [3, 3, 3, 3, 7, 7, 9, 9]
    assert "not device memory" in answer["error"]
