"""NCCL's collectives in bfloat16 (torch.distributed), and torch's all-reduces over symmetric memory, graph replay and eager, as JSON lines.

torchrun --nproc-per-node N collectives.py
"""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from timing import timed

rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
gpu = rank % torch.cuda.device_count()
torch.cuda.set_device(gpu)
dist.init_process_group("nccl", device_id=torch.device("cuda", gpu))
stream = torch.cuda.Stream()
group = dist.group.WORLD.group_name


def contribution(r, n):
    """Small integers: their sums are exact, so that any order of adding has the same bits."""
    generator = torch.Generator(device="cuda").manual_seed(r)
    return torch.randint(-8, 9, (n,), generator=generator, device="cuda").to(torch.bfloat16)


def run(name, op, bytes_):
    n = bytes_ // 2
    part = n // world
    chunk = part if op in ("all_gather", "reduce_scatter") else n
    n = part * world if op in ("all_gather", "reduce_scatter") else n
    x = contribution(rank, part if op == "all_gather" else n)
    y = torch.full((part if op == "reduce_scatter" else n,), float("nan"), dtype=torch.bfloat16, device="cuda")
    # Nothing but broadcast, reduce and torch's symmetric memory works in place here, and those only: what they begin with is written each time
    # that they are checked, not when they are timed.
    if name != "NCCL":
        y = symm_mem.empty(n, dtype=torch.bfloat16, device="cuda")
        symm_mem.rendezvous(y, dist.group.WORLD)
    in_place = op in ("broadcast", "reduce", "all_reduce")
    torch.cuda.synchronize()

    def one():
        if name == "torch one-shot":
            torch.ops.symm_mem.one_shot_all_reduce_out(y, "sum", group, out)
        elif name == "torch two-shot":
            torch.ops.symm_mem.two_shot_all_reduce_(y, "sum", group)
        elif op == "all_gather":
            dist.all_gather_into_tensor(y, x)
        elif op == "reduce_scatter":
            dist.reduce_scatter_tensor(y, x)
        elif op == "broadcast":
            dist.broadcast(y, 0)
        elif op == "reduce":
            dist.reduce(y, 0)
        else:
            dist.all_reduce(y)

    ready = torch.zeros(1, device="cuda")
    out = torch.empty_like(y) if name == "torch one-shot" else y
    with torch.cuda.stream(stream):
        if in_place:
            y.copy_(x)
            # Peers read what they reduce: it is there on all ranks.
            torch.cuda.synchronize()
            dist.all_reduce(ready)
            torch.cuda.synchronize()
        one()
    torch.cuda.synchronize()
    if op == "all_gather":
        want = torch.cat([contribution(r, part) for r in range(world)])
    elif op == "broadcast":
        want = contribution(0, n)
    else:
        want = sum(contribution(r, n).float() for r in range(world)).to(torch.bfloat16)
        if op == "reduce_scatter":
            want = want[rank * part : (rank + 1) * part]
    wrong = 0 if op == "reduce" and rank != 0 else int((out != want).sum().item())
    assert wrong == 0, f"{name}'s {op} of {bytes_} bytes has {wrong} wrong elements on rank {rank}"
    # Sums in place grow without end: of zeros they do not.
    if in_place:
        y.zero_()
    torch.cuda.synchronize()
    per_graph, windows, replays = (2, 5, 2) if bytes_ >= 256 << 20 else (5, 5, 4) if bytes_ >= 16 << 20 else (20, 7, 10)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(per_graph):
            one()
    replayed = timed(stream, lambda: [graph.replay() for _ in range(replays)], windows, replays * per_graph)
    eager = timed(stream, lambda: [one() for _ in range(replays * per_graph)], windows, replays * per_graph)
    if rank == 0:
        factor = {"all_reduce": 2 * (world - 1) / world, "broadcast": 1, "reduce": 1}.get(op, (world - 1) / world)
        rate = bytes_ / replayed / 1e3
        row = dict(name=name, op=op, world=world, bytes=bytes_, count=chunk, graph_us=replayed, eager_us=eager)
        row |= dict(type="bfloat16", algbw=rate, busbw=rate * factor, wire_gb_s=rate * factor, sms=0, wrong=wrong, checked=True)
        print(json.dumps(row), flush=True)


with torch.cuda.stream(stream):
    warm = torch.zeros(1024, device="cuda")
    for _ in range(500):
        dist.all_reduce(warm)
torch.cuda.synchronize()
sizes = [1 << k for k in range(10, 29, 2)]
for op in sys.argv[1:] or ("all_gather", "broadcast", "reduce", "reduce_scatter", "all_reduce"):
    for bytes_ in sizes:
        run("NCCL", op, bytes_)
for name in ("torch one-shot", "torch two-shot"):
    for bytes_ in sizes:
        try:
            run(name, "all_reduce", bytes_)
        except (RuntimeError, AttributeError) as error:
            if rank == 0:
                print(f"{name} of {bytes_} bytes does not run: {str(error).splitlines()[0]}", flush=True)
            break
dist.destroy_process_group()
