"""Small PyTorch execution traces on paper, in the layouts of old and new schemas."""

import json

from prismcore.traces.execution_trace import read_execution_trace_set

SCHEMAS = ("1.0.1", "1.0.2-chakra.0.0.4", "1.1.0-chakra.0.0.4", "1.1.1-chakra.0.0.4")


class Trace:
    """Nodes of one rank; ids as the observer gives them: from one counter, at the begin of each op."""

    def __init__(self, schema="1.0.1"):
        self.schema = schema
        self.nodes = []
        self.ids = 1
        self.records = 0
        self.op("[pytorch|profiler|execution_trace|thread]", parent=1)

    def op(self, name, *, parent=2, thread=1, inputs=(), shapes=(), types=(), outputs=(), attrs=None):
        self.ids += 1
        inputs, shapes, types, outputs = (list(v) for v in (inputs, shapes, types, outputs))
        node = {"name": name, "id": self.ids}
        own = {"rf_id": self.records, "tid": thread, **(attrs or {})}
        self.records += 1
        if self.schema == "1.0.1":
            node |= {"parent": parent, "inputs": inputs, "input_shapes": shapes, "input_types": types}
            node |= {"outputs": outputs, "output_shapes": [], "output_types": []} | own
        else:
            node |= {"ctrl_deps": parent, "inputs": {"values": inputs, "shapes": shapes, "types": types}}
            node |= {"outputs": {"values": outputs, "shapes": [], "types": []}}
            node["attrs"] = [{"name": k, "type": "uint64", "value": v} for k, v in own.items()]
        self.nodes.append(node)
        return self.ids

    def groups(self, *groups):
        self.op("## process_group:init ##", inputs=[json.dumps(list(groups))], types=["String"])

    def product(self, m, k, n, thread=1):
        tensors = [[90, 91, 0, m * k, 2, "cuda:0"], [92, 93, 0, k * n, 2, "cuda:0"]]
        types = ["Tensor(c10::Half)"] * 2
        return self.op("aten::mm", thread=thread, inputs=tensors, shapes=[[m, k], [k, n]], types=types)

    def call(self, name, number, group, rank, *, elements=1024, tail=(), thread=1, splits=([], [])):
        tensor = [10, 11, 0, elements, 4, "cuda:0"]
        parent = self.op(f"c10d::{name}_", thread=thread)
        self.op(
            "record_param_comms", parent=parent, thread=thread, outputs=[[tensor]],
            inputs=[[tensor], number, group, rank, name, *splits, *tail],
            shapes=[[[elements]]], types=["GenericList[Tensor(float)]"],
        )  # fmt: skip

    def wait(self, number, rank=0, thread=1):
        group = 0 if self.schema < "1.1" else ["", ""]
        self.op("record_param_comms", thread=thread, inputs=[number, group, rank, "wait", [], [], 1])

    def write(self, path):
        path.write_text(json.dumps({"schema": self.schema, "pid": 7, "nodes": self.nodes}))
        return path


def kineto(path, rank, events, world=2):
    """A Kineto trace; events: category, name, begin and end in us, thread or stream, arguments."""
    listed = [
        {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": thread, "ts": begin, "dur": end - begin,
         "args": args}
        for category, name, begin, end, thread, args in events
    ]  # fmt: skip
    header = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}
    path.write_text(json.dumps({**header, "traceEvents": listed}))
    return path


def read(paths):
    return [trace for path in paths for trace in read_execution_trace_set([path])]


def two_ranks(folder, schema="1.0.1", change=lambda rank, trace: None):
    """Each: a product, an all-reduce that the next product waits for, and one more all-reduce."""
    paths = []
    for rank in range(2):
        trace = Trace(schema)
        group, tail = 7000 + rank, [2]
        if schema != "1.0.1":
            told = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2, "group_count": 1}
            trace.groups(told if schema.startswith("1.1") else told | {"backend_id": group})
        if schema.startswith("1.1"):
            group, tail = ["0", "default_pg"], [0, 1, 2]
        trace.product(512, 1024, 2048)
        trace.call("allreduce", 3, group, rank, elements=1 << 20, tail=tail)
        trace.wait(3, rank)
        trace.product(512, 1024, 2048, thread=2)
        trace.call("allreduce", 4, group, rank, elements=1 << 10, tail=tail)
        trace.wait(4, rank)
        change(rank, trace)
        paths.append(trace.write(folder / f"et_rank{rank}.json"))
    return paths


def kineto_beside(folder, rank, *, index=1, late=0):
    """A Kineto trace of :func:`two_ranks`; ``index``: what Ev Idx differs by, None: it is not in it."""
    trace = json.loads((folder / f"et_rank{rank}.json").read_text())
    events, at, number = [], 100 + late, 0
    for node in trace["nodes"]:
        args = {} if index is None else {"Ev Idx": node["rf_id"] + index}
        args["Input type"] = ["Scalar" if "wait" in map(str, node["inputs"]) else "TensorList"]
        events.append(("cpu_op", node["name"], at, at + 40, 500 + node["tid"], args))
        launches = node["name"] == "aten::mm" or "allreduce" in map(str, node["inputs"])
        if launches:
            number += 1
            mine = {"correlation": number, "device": 0}
            events.append(("cuda_runtime", "cudaLaunchKernel", at + 5, at + 10, 500 + node["tid"], mine))
            if node["name"] == "aten::mm":
                span, name, stream = (at + 10, at + 30), "gemm", 7
            else:
                end = 200 * number + 100
                span, name, stream = (at + 10, end), "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 24
            events.append(("kernel", name, *span, stream, {**mine, "stream": stream}))
        at += 50
    return kineto(folder / f"kineto_rank{rank}.json", rank, events)
