"""The NCCL door under torch's own ProcessGroupNCCL: one rank of a world of which the rest is absent."""

import pytest
from rank_process import run_rank

pytestmark = pytest.mark.torch

RANK, WORLD = 5000, 8192


def test_collectives_of_one_rank_of_8192():
    answer = run_rank(
        """
        init()
        for name, op in [("sum", dist.ReduceOp.SUM), ("avg", dist.ReduceOp.AVG), ("max", dist.ReduceOp.MAX)]:
            x = on_device([1.0, -2.0])
            dist.all_reduce(x, op=op)
            answer[name] = x.tolist()
        x = on_device([3], torch.int64)
        dist.all_reduce(x)
        answer["int64"] = x.tolist()
        x = on_device([1.5], torch.bfloat16)
        dist.all_reduce(x)
        answer["bfloat16"] = x.tolist()
        x = on_device([2.0])
        dist.all_reduce(x, op=dist._make_nccl_premul_sum(0.25))
        answer["premul"] = x.tolist()
        x = on_device([True, False], torch.bool)
        dist.all_reduce(x)
        answer["bool"] = x.tolist()
        x = on_device([1.0, 2.0])
        y = torch.full((WORLD * 2,), 9.0, device="cuda")
        dist.all_gather_into_tensor(y, x)
        answer["gathered"] = [y.view(-1, 2).min(0).values.numel(), y[:4].tolist(), y[-2:].tolist()]
        everything = y.cpu().view(WORLD, 2)
        answer["every member"] = bool((everything == torch.tensor([1.0, 2.0])).all())
        z = torch.zeros(1, device="cuda")
        dist.reduce_scatter_tensor(z, torch.arange(WORLD, dtype=torch.float32).cuda())
        answer["scattered"] = z.tolist()
        b = on_device([7.0])
        dist.broadcast(b, 0)
        answer["broadcast"] = b.tolist()
        dist.barrier()
        answer["ops"] = recorded()
        """,
        RANK,
        WORLD,
    )
    assert answer["sum"] == [8192.0, -16384.0]
    assert answer["avg"] == answer["max"] == [1.0, -2.0]
    assert answer["int64"] == [3 * WORLD]
    assert answer["bfloat16"] == [1.5 * WORLD]
    assert answer["premul"] == [0.25 * 2 * WORLD]
    assert answer["bool"] == [True, False]  # torch: the sum of truths is their maximum
    assert answer["every member"]
    assert answer["scattered"] == [RANK * WORLD]  # chunk 5,000 of the input holds 5,000.0
    assert answer["broadcast"] == [7.0]  # the root has the same, by the contract
    kinds = [op[0] for op in answer["ops"]]
    assert kinds == ["all_reduce"] * 7 + ["all_gather", "reduce_scatter", "broadcast", "all_reduce"]
    assert {(name, size) for _, _, name, size, _, _ in answer["ops"]} == {("default_pg:0", WORLD)}
    assert [op[5] for op in answer["ops"][7:9]] == [WORLD * 8, WORLD * 4]


def test_exchanges():
    answer = run_rank(
        """
        init()
        group = dist.new_group([0, 1, 2, 3], group_desc="EP4")
        sends, receives = [4, 3, 2, 1], [1, 2, 3, 4]
        x = torch.arange(10, dtype=torch.float32).cuda()
        y = torch.full((10,), -1.0, device="cuda")
        dist.all_to_all_single(y, x, receives, sends, group=group)
        answer["uneven"] = y.tolist()
        counts = on_device(sends, torch.int64)
        theirs = torch.full_like(counts, -1)
        dist.all_to_all_single(theirs, counts, group=group)
        answer["counts"] = theirs.tolist()
        payload = torch.full((sum(theirs.tolist()),), -1.0, device="cuda")
        dist.all_to_all_single(payload, x, theirs.tolist(), sends, group=group)
        answer["payload"] = payload.tolist()
        outs = [torch.full((2,), -1.0, device="cuda") for _ in range(4)]
        dist.all_to_all(outs, [on_device([float(i), -float(i)]) for i in range(4)], group=group)
        answer["lists"] = [out.tolist() for out in outs]
        answer["ops"] = recorded()
        """,
        1,
        8,
    )
    # chunks by position: [0 1 2 3] [4 5 6] [7 8] [9], cut or repeated to 1, 2, 3 and 4 elements
    assert answer["uneven"] == [0, 4, 5, 7, 8, 7, 9, 9, 9, 9]
    assert answer["counts"] == [4, 3, 2, 1]  # not negative, and their sum is what the rank holds
    assert answer["payload"] == list(range(10))
    assert answer["lists"] == [[i, -i] for i in range(4)]
    uneven = answer["ops"][:8]
    assert [op[0] for op in uneven] == ["send", "recv"] * 4
    assert [op[1] for op in uneven] == [True] * 7 + [False]  # one launch
    assert [op[4] for op in uneven[::2]] == [3, 0, 1, 2]  # relative to rank 1
    assert sorted(op[5] for op in uneven[::2]) == [4, 8, 12, 16]
    assert [op[0] for op in answer["ops"][8:9]] == ["all_to_all"]
    assert all(op[2].startswith("EP4:") and op[3] == 4 for op in answer["ops"])


def test_messages():
    answer = run_rank(
        """
        init()
        out, back = on_device([1.0, 2.0]), torch.full((2,), 9.0, device="cuda")
        work = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, out, (RANK + 1) % WORLD),
            dist.P2POp(dist.irecv, back, (RANK - 1) % WORLD),
        ])
        for item in work:
            item.wait()
        answer["received"] = back.tolist()
        dist.send(out, RANK + 1)
        dist.recv(back, RANK - 1)
        answer["ops"] = recorded()
        """,
        RANK,
        WORLD,
    )
    assert answer["received"] == [0.0, 0.0]
    first, second, alone, other = answer["ops"]
    assert first == ["send", True, "default_pg:0", WORLD, 1, 8]
    assert second == ["recv", False, "default_pg:0", WORLD, WORLD - 1, 8]
    # Unbatched messages: a communicator of two for each pair, the lower rank first.
    assert alone == ["send", False, "default_pg:0", 2, 1, 8]
    assert other == ["recv", False, "default_pg:0", 2, 1, 8]


def test_object_gathers_read_one_record_a_member():
    answer = run_rank(
        """
        init()
        gathered = [None] * WORLD
        dist.all_gather_object(gathered, {"rank": RANK, "shape": (3, 4), "name": "x" * 100})
        answer["records"] = len(gathered)
        answer["equal"] = all(item == gathered[0] for item in gathered)
        answer["first"] = gathered[0]
        answer["ops"] = recorded()
        """,
        RANK,
        WORLD,
    )
    assert answer["records"] == WORLD
    assert answer["equal"]
    assert answer["first"] == {"rank": RANK, "shape": [3, 4], "name": "x" * 100}
    assert [op[0] for op in answer["ops"]] == ["all_gather", "all_gather"]
    assert answer["ops"][0][5] == WORLD * 8  # one length a member, then the padded bytes


@pytest.mark.parametrize("eager", [False, True], ids=["lazy", "eager"])
def test_groups(eager):
    answer = run_rank(
        f"""
        init(eager={eager})
        groups = [dist.new_group(list(range(i, WORLD, 8)), group_desc="DP") for i in range(8)]
        mine = groups[RANK % 8]
        x = on_device([2.0])
        dist.all_reduce(x, group=mine)
        answer["sum"] = x.tolist()
        y = torch.zeros(WORLD // 8, device="cuda")
        dist.all_gather_into_tensor(y, on_device([3.0]), group=mine)
        answer["gathered"] = bool((y.cpu() == 3).all())
        answer["rank"] = dist.get_rank(mine)
        answer["open"] = [row[1:4] for row in _core.vgpu_communicators()]
        answer["ops"] = recorded()
        dist.destroy_process_group()
        """,
        RANK,
        WORLD,
    )
    assert answer["sum"] == [2.0 * WORLD // 8]
    assert answer["gathered"]
    assert answer["rank"] == RANK // 8
    mine = [row for row in answer["open"] if row[0].startswith("DP:")]
    assert [row[1:] for row in mine] == [[WORLD // 8, RANK // 8]]
    assert len(answer["open"]) == (2 if eager else 1)  # eager: the world's too
    assert [op[0] for op in answer["ops"]] == ["all_reduce", "all_gather"]


def test_a_device_mesh_of_an_eager_world_splits():
    answer = run_rank(
        """
        init(eager=True)
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "tp"))
        x = on_device([1.0])
        dist.all_reduce(x, group=mesh.get_group("dp"))
        dist.all_reduce(x, group=mesh.get_group("tp"))
        answer["sum"] = x.tolist()
        answer["sizes"] = sorted(row[2] for row in _core.vgpu_communicators())
        parts = dist.split_group(split_ranks=[[0, 1, 2], [3, 4, 5, 6, 7]])
        y = on_device([1.0])
        dist.all_reduce(y, group=parts)
        answer["parts"] = y.tolist()
        """,
        5,
        8,
    )
    assert answer["sum"] == [8.0]
    assert answer["sizes"][-1] == 8
    assert answer["parts"] == [5.0]


def test_coalesced_collectives_are_one_launch():
    answer = run_rank(
        """
        init()
        outs = [torch.zeros(8 * n, device="cuda") for n in (1, 2, 3)]
        parts = [on_device([1.0] * n) for n in (1, 2, 3)]
        manager = dist._coalescing_manager(dist.group.WORLD, torch.device("cuda"), async_ops=True)
        with manager as job:
            for out, part in zip(outs, parts):
                dist.all_gather_into_tensor(out, part, async_op=True)
        job.wait()
        answer["gathered"] = [out.tolist() for out in outs]
        with dist._coalescing_manager(group=dist.group.WORLD):
            for part in parts:
                dist.all_reduce(part)
        answer["reduced"] = [part.tolist() for part in parts]
        answer["ops"] = recorded()
        """,
        3,
        8,
    )
    assert answer["gathered"] == [[1.0] * 8 * n for n in (1, 2, 3)]
    assert answer["reduced"] == [[8.0] * n for n in (1, 2, 3)]
    trio = answer["ops"][:3]
    assert [op[0] for op in trio] == ["all_gather"] * 3
    assert [op[1] for op in trio] == [True, True, False]
    assert [op[5] for op in trio] == [8 * 4, 8 * 8, 8 * 12]
    assert [op[1] for op in answer["ops"][3:]] == [True, True, False]


def test_rooted_collectives():
    answer = run_rank(
        """
        init()
        for root in (2, 5):
            x = on_device([float(RANK)] * 2)
            dist.reduce(x, root)
            answer[f"reduce {root}"] = x.tolist()
            outs = [torch.full((2,), -1.0, device="cuda") for _ in range(WORLD)] if root == RANK else None
            dist.gather(on_device([1.0, 2.0]), outs, root)
            answer[f"gather {root}"] = [out.tolist() for out in outs or []]
            outs = [None] * WORLD if root == RANK else None
            dist.gather_object({"rank": RANK}, outs, root)
            answer[f"objects {root}"] = outs
            part = torch.full((1,), -1.0, device="cuda")
            parts = [on_device([float(i)]) for i in range(WORLD)] if root == RANK else None
            dist.scatter(part, parts, root)
            answer[f"scatter {root}"] = part.tolist()
        answer["ops"] = recorded()
        """,
        5,
        8,
    )
    assert answer["reduce 2"] == [5.0, 5.0]
    assert answer["reduce 5"] == [40.0, 40.0]
    assert answer["gather 2"] == []
    # Tensors of their own: torch copies the own one itself, the door never sees it.
    assert answer["gather 5"] == [[0.0, 0.0]] * 5 + [[1.0, 2.0]] + [[0.0, 0.0]] * 2
    assert answer["objects 2"] is None
    assert answer["objects 5"] == [{"rank": 5}] * 8  # side by side in one buffer
    assert answer["scatter 2"] == [0.0]  # only the root knows
    assert answer["scatter 5"] == [5.0]
    reduces = [op for op in answer["ops"] if op[0] == "reduce"]
    assert [op[4] for op in reduces] == [2, 5]  # the root's position


def test_calls_reach_the_door_and_its_memory_is_the_virtual_gpus():
    answer = run_rank(
        """
        answer["id"] = torch.cuda.nccl.unique_id()[:24].decode("latin-1")
        address = ctypes.c_void_p()
        before = torch.cuda.mem_get_info()[0]
        answer["allocate"] = door.ncclMemAlloc(ctypes.byref(address), ctypes.c_size_t(64 << 20))
        answer["taken"] = before - torch.cuda.mem_get_info()[0]
        answer["free"] = door.ncclMemFree(address)
        answer["back"] = before - torch.cuda.mem_get_info()[0]
        answer["again"] = door.ncclMemFree(address)
        """,
        3,
        4,
    )
    assert answer["id"].startswith("prismcore nccl rank 3 id")
    assert (answer["allocate"], answer["taken"]) == (0, 64 << 20)
    assert (answer["free"], answer["back"]) == (0, 0)
    assert answer["again"] == 4


def test_what_is_not_implemented_is_counted_and_says_so():
    answer = run_rank(
        """
        init(eager=True)
        x = on_device([1.0])
        dist.all_reduce(x)
        torch.cuda.synchronize()
        door.ncclGetLastError.restype = ctypes.c_char_p
        answer["code"] = door.ncclCommShrink(None)
        answer["why"] = door.ncclGetLastError(None).decode()
        answer["ignored"] = door.ncclResetDebugInit()
        answer["report"] = json.loads(_core.vgpu_report())["unimplemented"]
        """,
        0,
        4,
    )
    assert answer["code"] == 5
    assert "ncclCommShrink: not implemented by prismcore" in answer["why"]
    assert answer["ignored"] == 0
    text = str(answer["report"])
    assert "ncclCommShrink" in text
    assert "ncclResetDebugInit" in text
