"""Small PyTorch execution traces on paper, in the layouts of old and new schemas."""

import json


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
