"""What a reorder solver must do, written out slowly and independently: scipy's maximum flow for depths,
OR-tools' minimum-cost flow for changes, sets for who holds what."""

from __future__ import annotations

import numpy as np
from ortools.graph.python import min_cost_flow
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

Pair = tuple[int, int]


def feasible(stacks, alive, depth, parts) -> bool:
    """Whether all parts fit at the depth: maximum flow source -> types -> groups -> sink."""
    n = len(stacks)
    rows, columns, capacities = [], [], []

    def edge(a, b, capacity):
        rows.append(a)
        columns.append(b)
        capacities.append(capacity)

    for one in range(n):
        edge(0, 1 + one, parts)
        if alive[one]:
            edge(1 + n + one, 2 * n + 1, depth)
            for of_group in stacks[one]:
                edge(1 + int(of_group), 1 + n + one, parts)
    size = 2 * n + 2
    graph = csr_array((np.array(capacities, dtype=np.int32), (rows, columns)), shape=(size, size))
    return maximum_flow(graph, 0, 2 * n + 1).flow_value == n * parts


def least_depth(stacks, alive, parts, lowest=0):
    """The least feasible depth of at least `lowest`, or None: wipe-out."""
    survivors = sum(alive)
    if survivors == 0:
        return None
    for depth in range(max(lowest, -(-len(stacks) * parts // survivors)), len(stacks[0]) * parts + 1):
        if feasible(stacks, alive, depth, parts):
            return depth
    return None


def least_cost(stacks, alive, depth, parts, free) -> int:
    """The fewest parts at places beyond what `free` (type, group) -> parts gives for nothing."""
    n = len(stacks)
    flow = min_cost_flow.SimpleMinCostFlow()
    for one in range(n):
        flow.set_node_supply(one, parts)
        if not alive[one]:
            continue
        flow.add_arc_with_capacity_and_unit_cost(n + one, 2 * n, depth, 0)
        for of_group in stacks[one]:
            kept = free.get((int(of_group), one), 0)
            if kept:
                flow.add_arc_with_capacity_and_unit_cost(int(of_group), n + one, kept, 0)
            flow.add_arc_with_capacity_and_unit_cost(int(of_group), n + one, parts, 1)
    flow.set_node_supply(2 * n, -n * parts)
    assert flow.solve() == flow.OPTIMAL
    return flow.optimal_cost()


class Model:
    """Follows a Reorderer call by call and asserts everything that it promises."""

    def __init__(self, reorderer):
        self.solver = reorderer
        self.parts = reorderer.micro_batches
        self.stacks = reorderer.placement.stacks()
        self.first_orders = [reorderer.work(g)[0].type if self.parts == 1 else None for g in self.everyone()]
        self.restart()

    def everyone(self):
        return range(len(self.stacks))

    def restart(self):
        self.alive = [True] * len(self.stacks)
        self.depth = self.parts
        self.orders = [list(map(int, stack)) for stack in self.stacks]
        if self.parts == 1:
            for group, first in enumerate(self.first_orders):
                self.orders[group].remove(first)
                self.orders[group].insert(0, first)
        self.owners = self.solver.owners()
        self.begin_step()
        self.check_layout()

    def begin_step(self):
        self.computed = {(t, p): set() for t in self.everyone() for p in range(self.parts)}
        for group in self.everyone():
            if self.alive[group]:
                for part in self.solver.work(group):
                    self.computed[part].add(group)
        self.holders = self.owners.copy()
        assert (self.solver.holders() == self.holders).all()

    def free(self, depth):
        """(type, group) -> parts that the group takes at this depth for nothing."""
        if self.parts == 1:
            return {(t, g): 1 for g in self.everyone() if self.alive[g] for t in self.orders[g][:depth]}
        count = {}
        for (type_, _), group in np.ndenumerate(self.owners):
            if self.alive[group]:
                count[type_, int(group)] = count.get((type_, int(group)), 0) + 1
        return count

    def fail(self, groups):
        before = self.owners
        for group in groups:
            self.alive[group] = False
        for holders in self.computed.values():
            holders.difference_update(groups)
        plan = self.solver.fail(groups)
        depth = least_depth(self.stacks, self.alive, self.parts, self.depth)
        lost = [
            t
            for t, hosts in enumerate(self.solver.placement.hosts())
            if not any(self.alive[h] for h in hosts)
        ]
        assert plan.survivors == sum(self.alive)
        assert list(plan.lost_types) == lost
        assert plan.wipe_out == bool(lost) == (depth is None) == self.solver.wiped_out
        if plan.wipe_out:
            assert len(plan.patches) == len(plan.moves) == 0
            return plan
        self.follow(plan, before, depth)
        expected = "deepened" if depth > self.depth else "reordered" if plan.new_work else "kept"
        assert plan.outcome == expected
        self.depth = depth
        self.check_patches(plan)
        return plan

    def rejoin(self, groups):
        before = self.owners
        holders = self.solver.holders()
        for group in groups:
            self.alive[group] = True
            if self.parts == 1:
                first = self.first_orders[group]
                self.orders[group] = [first, *(int(t) for t in self.stacks[group] if t != first)]
        plan = self.solver.rejoin(groups)
        depth = min(self.depth, least_depth(self.stacks, self.alive, self.parts))
        self.follow(plan, before, depth)
        assert plan.outcome == ("shallower" if depth < self.depth else "kept")
        self.depth = depth
        assert len(plan.patches) == 0
        assert (self.solver.holders() == holders).all()
        return plan

    def follow(self, plan, before, depth):
        """Depth, cost, moves and orders of a plan."""
        assert plan.depth == self.solver.depth == depth
        free = self.free(depth)
        # A re-joined group owns nothing, whatever it did before it went down.
        cost = least_cost(self.stacks, self.alive, depth, self.parts, free)
        self.owners = self.solver.owners()
        taken = {}
        for (type_, _), group in np.ndenumerate(self.owners):
            taken[type_, int(group)] = taken.get((type_, int(group)), 0) + 1
        assert plan.new_work == sum(max(0, n - free.get(key, 0)) for key, n in taken.items()) == cost
        moved = [
            [t, p, int(before[t, p]), int(group)]
            for (t, p), group in np.ndenumerate(self.owners)
            if group != before[t, p]
        ]
        assert plan.moves.tolist() == moved
        if self.parts == 1:
            for group in self.everyone():
                self.reorder(group, depth)
        self.check_layout(depth)
        assert [plan.work(g) for g in self.everyone()] == [self.solver.work(g) for g in self.everyone()]

    def reorder(self, group, depth):
        """The paper's rewriting: owned types come to the front, the rest keeps its order."""
        order = self.orders[group]
        owned = {int(t) for t in self.stacks[group] if self.owners[t, 0] == group and self.alive[group]}
        front = [t if t in owned else None for t in order[:depth]]
        new = owned - set(order[:depth])
        if not new:
            return
        work = [part.type for part in self.solver.work(group)]
        for rank in sorted((i for i, t in enumerate(front) if t is None), reverse=True)[: len(new)]:
            assert work[rank] in new
            new.discard(work[rank])
            front[rank] = work[rank]
        rest = iter([t for t in order if t not in front])
        front = [next(rest) if t is None else t for t in front]
        self.orders[group] = front + [t for t in order if t not in front]

    def check_layout(self, depth=None):
        depth = depth or self.depth
        loads = [0] * len(self.stacks)
        for (type_, _), group in np.ndenumerate(self.owners):
            assert self.alive[group]
            assert type_ in self.stacks[group]
            loads[group] += 1
        assert max(loads) <= depth
        for group in self.everyone():
            work = self.solver.work(group)
            owned = [
                (t, p)
                for t in map(int, self.stacks[group])
                for p in range(self.parts)
                if self.owners[t, p] == group and self.alive[group]
            ]
            if self.parts > 1:
                assert work == owned
            elif self.alive[group]:
                assert [part.type for part in work] == self.orders[group][:depth]
                assert set(owned) <= set(work)
            else:
                assert work == []

    def check_patches(self, plan):
        """Exactly what no survivor has computed is patched, by its owner; one live holder counts."""
        missing = [part for part, holders in self.computed.items() if not holders]
        assert [(t, p) for _, t, p in plan.patches.tolist()] == sorted(missing)
        per_group = {}
        for group, type_, part in plan.patches.tolist():
            assert self.owners[type_, part] == group
            self.computed[type_, part].add(group)
            per_group[group] = per_group.get(group, 0) + 1
        assert plan.patch_depth == max(per_group.values(), default=0)
        holders = self.solver.holders()
        for (t, p), group in np.ndenumerate(holders):
            assert group in self.computed[t, p]
            previous = self.holders[t, p]
            if previous in self.computed[t, p]:
                assert group == previous  # for as long as it lives
            elif self.owners[t, p] in self.computed[t, p]:
                assert group == self.owners[t, p]
        self.holders = holders

    def commit(self):
        self.solver.commit()
        self.begin_step()
