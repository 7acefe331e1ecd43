"""NCCL's all-to-all, and its ring of sends and receives (torch.distributed), graph replay and eager, as JSON lines.

torchrun --nproc-per-node N nccl.py
"""
import json
import os

import torch
import torch.distributed as dist

from timing import timed

rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
gpu = rank % torch.cuda.device_count()
torch.cuda.set_device(gpu)
dist.init_process_group("nccl", device_id=torch.device("cuda", gpu))
stream = torch.cuda.Stream()


nxt, prev = (rank + 1) % world, (rank - 1) % world


def run(op, bytes_):
    n = bytes_ // 4
    x = torch.arange(n, dtype=torch.int32, device="cuda") + rank * 1000003
    y = torch.full_like(x, -1)
    # They are made on another stream than the one that is timed.
    torch.cuda.synchronize()

    def one():
        if op == "all_to_all":
            dist.all_to_all_single(y, x)
        else:
            ends = [dist.P2POp(dist.isend, x, nxt), dist.P2POp(dist.irecv, y, prev)]
            for work in dist.batch_isend_irecv(ends):
                work.wait()

    with torch.cuda.stream(stream):
        for _ in range(3):
            one()
    torch.cuda.synchronize()
    if op == "all_to_all":
        c = n // world
        own = torch.arange(rank * c, (rank + 1) * c, dtype=torch.int32, device="cuda")
        checked = all(torch.equal(y[p * c : (p + 1) * c], own + p * 1000003) for p in range(world))
    else:
        checked = torch.equal(y, torch.arange(n, dtype=torch.int32, device="cuda") + prev * 1000003)
    per_graph, windows, replays = (2, 5, 2) if bytes_ >= 256 << 20 else (5, 5, 4) if bytes_ >= 16 << 20 else (20, 7, 10)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(per_graph):
            one()
    replayed = timed(stream, lambda: [graph.replay() for _ in range(replays)], windows, replays * per_graph)
    eager = timed(stream, lambda: [one() for _ in range(replays * per_graph)], windows, replays * per_graph)
    assert checked, f"{op} of {bytes_} bytes is wrong on rank {rank}"
    if rank == 0:
        wire = bytes_ * (world - 1) / world if op == "all_to_all" else bytes_
        row = dict(name="NCCL", op=op, world=world, bytes=bytes_, graph_us=replayed, eager_us=eager)
        print(json.dumps(row | dict(wire_gb_s=wire / replayed / 1e3, sms=0, checked=checked)), flush=True)


with torch.cuda.stream(stream):
    warm = torch.zeros(1024, device="cuda")
    for _ in range(500):
        dist.all_reduce(warm)
torch.cuda.synchronize()
for op in ("all_to_all", "sendrecv"):
    for bytes_ in [1 << k for k in range(10, 31, 2)]:
        run(op, bytes_)
dist.destroy_process_group()
