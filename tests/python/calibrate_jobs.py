"""Jobs whose kernels, transfers and calls take what given profiles say, as files of torch's profiler."""

import json
from dataclasses import dataclass, field

from prismcore.comm import collective_cost
from prismcore.cost import KernelShape, kernel_cost

ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 11, false, false>"
    "(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)"
)
A100 = {
    "id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85174583296,
    "computeMajor": 8, "computeMinor": 0, "numSms": 108,
}  # fmt: skip
PRODUCT = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
SPLIT = "void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(float*)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)"
MIB = 1 << 20
SIZES = (16 << 10, 256 << 10, 2 * MIB, 64 * MIB, 512 * MIB)
ELEMENTS = (40_000, 100_000, 250_000)  # blocks
CALL = 2_000  # ns that a launch takes, at the end of its gap


@dataclass
class Job:
    """``device``, ``cluster``: profiles. ``late_ns``: when each rank begins."""

    device: object
    cluster: object
    late_ns: list[int]
    gap_ns: int = 50_000  # from one launch to the next, where nothing holds the host up
    events: list[list[dict]] = field(default_factory=list)

    def __post_init__(self):
        self.core = self.device.to_core()
        self.cluster_core = self.cluster.to_core()
        self.events = [[] for _ in self.late_ns]
        self.host = list(self.late_ns)
        self.stream = list(self.late_ns)
        self.number = 0

    @property
    def ranks(self):
        return range(len(self.late_ns))

    def add(self, rank, category, name, span, thread=1, **args):
        begin, end = span
        event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "args": args}
        self.events[rank].append({**event, "ts": begin, "dur": end - begin})

    def launch(self, rank, name, call="cudaLaunchKernel"):
        """Of the next number; returns when the device may begin."""
        begin = self.host[rank] + self.gap_ns - CALL
        self.host[rank] += self.gap_ns
        self.add(rank, "cuda_runtime", call, (begin, self.host[rank]), correlation=self.number)
        return max(self.host[rank], self.stream[rank])

    def kernel(self, name, blocks, threads=128, duration=None):
        shape = KernelShape(grid=(blocks, 1, 1), block=(threads, 1, 1))
        if duration is None:
            duration = kernel_cost(name, shape, self.core).duration_ns
        self.number += 1
        for rank in self.ranks:
            begin = self.launch(rank, name)
            self.stream[rank] = begin + duration
            self.add(rank, "kernel", name, (begin, begin + duration), 7, correlation=self.number, device=0,
                     stream=7, grid=[blocks, 1, 1], block=[threads, 1, 1])  # fmt: skip
        return duration

    def product(self, n, k, m, split_ns=0):
        """[n, k] x [k, m] in bfloat16; ``split_ns`` of it adds the parts of a split product up."""
        shape = KernelShape(dtype="bfloat16", m=m, n=n, k=k, batch=1)
        duration = kernel_cost("gemm", shape, self.core).duration_ns
        for rank in self.ranks:
            call = self.host[rank]
            for name, part in ((PRODUCT, duration - split_ns), (SPLIT, split_ns)):
                if part:
                    self.number += 1
                    begin = self.launch(rank, name)
                    self.stream[rank] = begin + part
                    launch = {"grid": [n // 128, m // 128, 1], "block": [256, 1, 1]}
                    self.add(rank, "kernel", name, (begin, begin + part), 7,
                             correlation=self.number, device=0, stream=7, **launch)  # fmt: skip
            dims = {"Input Dims": [[n, k], [k, m]], "Input type": ["c10::BFloat16"] * 2}
            self.add(rank, "cpu_op", "aten::mm", (call, self.host[rank]), **dims)
        return duration

    def all_reduce(self, nbytes, lengthen_ns=0):
        members = list(self.ranks)
        cost = collective_cost("all_reduce", nbytes, members, cluster=self.cluster_core)
        self.number += 1
        arrivals = [self.launch(rank, "nccl") for rank in self.ranks]
        end = max(arrivals) + cost.duration_ns + lengthen_ns
        for rank, arrival in zip(self.ranks, arrivals, strict=True):
            self.stream[rank] = end
            told = {"Process Group Name": "0", "Process Group Ranks": str(members), "dtype": "BFloat16",
                    "Group size": len(members), "In msg nelems": nbytes // 2}  # fmt: skip
            self.add(rank, "kernel", NCCL, (arrival, end), 7,
                     correlation=self.number, device=0, stream=7, **told)  # fmt: skip
        self.synchronise()
        return cost

    def copy(self, nbytes, memory="Pinned", bandwidth=None):
        duration = (
            round(nbytes / (bandwidth or self.device.pcie_bandwidth) * 1e9) + self.device.kernel_floor_ns
        )
        self.number += 1
        for rank in self.ranks:
            begin = self.launch(rank, "copy", "cudaMemcpyAsync")
            self.stream[rank] = begin + duration
            self.add(rank, "gpu_memcpy", f"Memcpy HtoD ({memory} -> Device)", (begin, begin + duration), 7,
                     correlation=self.number, device=0, stream=7, bytes=nbytes)  # fmt: skip

    def synchronise(self):
        for rank in self.ranks:
            begin, end = self.host[rank], max(self.host[rank], self.stream[rank])
            self.host[rank] = end
            self.add(rank, "cuda_runtime", "cudaStreamSynchronize", (begin, end))

    def write(self, folder, device=A100, step=2, damage=None):
        folder.mkdir(exist_ok=True)
        for rank in self.ranks:
            end = max(self.host[rank], self.stream[rank])
            self.add(rank, "user_annotation", f"ProfilerStep#{step}", (0, end))
            lines = []
            for event in self.events[rank]:
                ts, dur = event["ts"] + 10**15, event["dur"]
                text = json.dumps({k: v for k, v in event.items() if k not in ("ts", "dur")})[:-1]
                lines.append(
                    f'{text}, "ts": {ts // 1000}.{ts % 1000:03d}, "dur": {dur // 1000}.{dur % 1000:03d}}}'
                )
            of = device[rank] if isinstance(device, list) else device
            header = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": len(self.late_ns)}}
            if of is not None:
                header["deviceProperties"] = [of]
            whole = json.dumps(header)[:-1] + f', "traceEvents": [{",".join(lines)}]}}'
            (folder / f"rank{rank}_trace.json").write_text(whole if damage is None else damage(whole))
        return folder


def job_of(device, cluster, *, late=(0, 3000, 70_000, 0), gap=50_000, repeats=3):
    """A job of all kinds of work."""
    job = Job(device=device, cluster=cluster, late_ns=list(late), gap_ns=gap)
    for _ in range(repeats):
        for blocks in ELEMENTS:
            job.kernel(ADD, blocks)
            job.kernel(SOFTMAX, blocks)
        job.product(4096, 4096, 1024)
        job.product(8192, 2048, 4096, split_ns=10_000)
        job.kernel("triton_poi_fused_7", 777, duration=43_210)
        job.copy(32 * MIB)
        job.synchronise()
        for blocks in (1, 2, 3, 4, 5):  # short: the device waits for the host
            job.kernel(ADD, blocks)
        job.synchronise()
        for size in SIZES * 2:
            job.all_reduce(size)
    return job
