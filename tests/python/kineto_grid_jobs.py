"""Jobs of pipeline x data x tensor parallel ranks on paper: times by a plain max-plus evaluation, and as
events of torch's profiler.

The oracle of tests/python/test_traces_kineto_grid.py: Python loops over ops, no code of the package.
"""

from collections import Counter
from dataclasses import dataclass, field

from kineto_events import ALL_REDUCE, SEND_RECEIVE, call, event, group, launch

COMPUTE, SIDE, TENSOR, DATA, PIPE, WORLD = 7, 9, 24, 28, 30, 32


@dataclass
class Layer:
    """The same on all ranks, but for ``kernel`` and ``gap``, which have one value a rank; us."""

    gap: list[int]
    kernel: list[int]
    lead: int  # of a kernel's begin to its call, where the stream is free; may be negative
    tensor: int | None = None  # transfer of an all-reduce behind it
    data: int | None = None
    message: int | None = None  # from each stage to the next, received before the next layer
    side: int | None = None  # a kernel of a second thread, which waits for it


@dataclass
class Grid:
    pp: int
    dp: int
    tp: int
    layers: list[Layer]
    late: list[int]  # begin of each rank
    events: dict[int, list[dict]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)  # when all of a rank was over
    meetings: list[tuple[tuple[int, ...], dict[int, int]]] = field(
        default_factory=list
    )  # call of each member

    @property
    def ranks(self):
        return range(self.pp * self.dp * self.tp)

    def place(self, rank):
        return rank // (self.dp * self.tp), rank // self.tp % self.dp, rank % self.tp

    def run(self):
        self.host, side = ({r: self.late[r] for r in self.ranks} for _ in range(2))
        self.free = {r: {} for r in self.ranks}  # by stream
        host, free = self.host, self.free
        self.events = {r: [] for r in self.ranks}
        self.meetings = []
        self.seen, self.number = Counter(), 0
        for layer in self.layers:
            for rank in self.ranks:
                number = self.next_number()
                at = host[rank] + layer.gap[rank]
                begin = max(at + layer.lead, free[rank].get(COMPUTE, 0), self.late[rank])
                host[rank] = at + 5
                free[rank][COMPUTE] = begin + layer.kernel[rank]
                self.events[rank] += launch(number, at, begin, layer.kernel[rank], stream=COMPUTE)
                if layer.side is not None:
                    number = self.next_number()
                    at = max(side[rank], host[rank])
                    begin = max(at + 7, free[rank].get(SIDE, 0))
                    end = free[rank][SIDE] = begin + layer.side
                    self.events[rank] += launch(
                        number, at, begin, layer.side, stream=SIDE, tid=2, name="side"
                    )
                    self.events[rank].append(call("cudaStreamSynchronize", at + 6, end + 3 - at - 6, tid=2))
                    side[rank] = end + 3
            for transfer, name, stream, key in (
                (layer.tensor, "tp", TENSOR, lambda r: self.place(r)[:2]),
                (layer.data, "dp", DATA, lambda r: self.place(r)[::2]),
            ):
                groups = {}
                for rank in self.ranks:
                    groups.setdefault(key(rank), []).append(rank)
                for members in groups.values() if transfer is not None else ():
                    self.collective(members, transfer, name, stream)
            if layer.message is not None:
                self.messages(layer.message)
        self.collective([*self.ranks], 40, "world", WORLD)
        self.ends = {r: max(host[r], side[r], *free[r].values()) for r in self.ranks}
        for rank in self.ranks:
            end = max(host[rank], side[rank])
            self.events[rank].append(
                event("user_annotation", "ProfilerStep#1", self.late[rank], end - self.late[rank])
            )
        return self

    def next_number(self):
        self.number += 1
        return self.number

    def collective(self, members, transfer, name, stream):
        host, free = self.host, self.free
        arrivals, calls = {}, {}
        for rank in members:
            calls[rank] = host[rank]
            host[rank] += 5
            arrivals[rank] = max(host[rank], free[rank].get(COMPUTE, 0), free[rank].get(stream, 0))
        end = max(arrivals.values()) + transfer
        told = group(name, members, Seq=self.seen[name, tuple(members)])
        self.seen[name, tuple(members)] += 1
        for rank in members:
            free[rank][stream] = free[rank][COMPUTE] = end  # the next kernel waits
            begin = arrivals[rank]
            self.events[rank] += launch(self.next_number(), calls[rank], begin, end - begin, name=ALL_REDUCE,
                                        stream=stream, **told)  # fmt: skip
            self.events[rank].append(call("cudaStreamWaitEvent", host[rank], 0))
        if len(members) > 1:
            self.meetings.append((tuple(members), calls))

    def messages(self, transfer):
        host, free = self.host, self.free
        width = self.dp * self.tp
        for source in range((self.pp - 1) * width):
            target = source + width
            members = [source % width + width * stage for stage in range(self.pp)]
            arrivals, calls = {}, {}
            for rank in (source, target):
                calls[rank] = host[rank]
                host[rank] += 5
                arrivals[rank] = max(host[rank], free[rank].get(PIPE, 0))
            arrivals[source] = max(arrivals[source], free[source].get(COMPUTE, 0))
            end = max(arrivals.values()) + transfer
            for rank, name, side, peer in (
                (source, "send", "Dst Rank", target),
                (target, "recv", "Src Rank", source),
            ):
                free[rank][PIPE] = end
                told = group("pp", members, **{"Collective name": name, side: members.index(peer)})
                begin = arrivals[rank]
                self.events[rank] += launch(self.next_number(), calls[rank], begin, end - begin, stream=PIPE,
                                            name=SEND_RECEIVE, **told)  # fmt: skip
            free[target][COMPUTE] = max(free[target].get(COMPUTE, 0), end)
            self.meetings.append(((source, target), calls))


def shifted(events, clock):
    return [one | {"ts": one["ts"] + clock} for one in events]


def begun_late(events, at):
    """What a ring buffer holds that began at a time: calls and their ops from then on, no marks of steps."""
    kept = {e["args"]["correlation"] for e in events if e["cat"] == "cuda_runtime" and e["ts"] >= at
            and "correlation" in e["args"]}  # fmt: skip
    return [
        e
        for e in events
        if (e["args"]["correlation"] in kept if "correlation" in e["args"] else e["ts"] >= at)
        and e["cat"] != "user_annotation"
    ]
