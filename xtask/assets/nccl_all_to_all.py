"""NCCL's all-to-all (torch.distributed), graph replay and eager, as JSON lines.

torchrun --nproc-per-node N nccl_all_to_all.py
"""
import json
import os
import statistics

import torch
import torch.distributed as dist

rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
stream = torch.cuda.Stream()


def timed(body, windows, count):
    """Median over windows of the time of one operation in microseconds; the slowest rank's."""
    with torch.cuda.stream(stream):
        body()
    torch.cuda.synchronize()
    times = []
    for _ in range(windows):
        dist.barrier()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record(stream)
            body()
            end.record(stream)
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / count * 1e3)
    slowest = torch.tensor([statistics.median(times)], device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


for bytes_ in [1 << k for k in range(10, 31, 2)]:
    n = bytes_ // 4
    x = torch.arange(n, dtype=torch.int32, device="cuda") + rank * 1000003
    y = torch.full_like(x, -1)

    def one():
        dist.all_to_all_single(y, x)

    with torch.cuda.stream(stream):
        for _ in range(3):
            one()
    torch.cuda.synchronize()
    c = n // world
    own = torch.arange(rank * c, (rank + 1) * c, dtype=torch.int32, device="cuda")
    checked = all(torch.equal(y[p * c : (p + 1) * c], own + p * 1000003) for p in range(world))
    per_graph, windows, replays = (2, 5, 2) if bytes_ >= 256 << 20 else (5, 5, 4) if bytes_ >= 16 << 20 else (20, 7, 10)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(per_graph):
            one()
    replayed = timed(lambda: [graph.replay() for _ in range(replays)], windows, replays * per_graph)
    eager = timed(lambda: [one() for _ in range(replays * per_graph)], windows, replays * per_graph)
    if rank == 0:
        wire = bytes_ * (world - 1) / world / replayed / 1e3
        row = dict(name="NCCL", op="all_to_all", world=world, bytes=bytes_, graph_us=replayed, eager_us=eager)
        print(json.dumps(row | dict(wire_gb_s=wire, sms=0, checked=checked)), flush=True)
    del graph
dist.destroy_process_group()
