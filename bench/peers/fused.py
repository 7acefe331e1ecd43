"""What one would write around NCCL (torch.distributed) instead of a fused kernel, bfloat16, graph replay and eager, as JSON lines.

torchrun --nproc-per-node N fused.py          measures; one rank alone has nothing to send, and each hook is one kernel of torch.compile there
python3 fused.py --compare torch.jsonl fusewire.jsonl    prints ratios

The same shapes, data types and scales as `bench_fused`. fp8 quantises by one scale that is known beforehand, on both sides; the row
`fp8_amax` also finds a scale for each chunk first, which `bench_fused` has no counterpart to: its ratio says what delayed scaling and
fusion save together.
"""
import json
import os
import sys

SIZES = [1 << k for k in (16, 20, 22, 24, 26, 28)]
OPS = ("copy", "scale", "transpose", "permute", "add", "fp8", "fp8_amax")
# Above 1: fusewire is faster. From 64 MiB on for `add`: the second figure, above 4 MiB.
GOALS = {"transpose": (2.5, 2.5), "fp8_amax": (4.0, 4.0), "add": (1.8, 1.3)}


def shape(chunk):
    """Rows and columns of a chunk, as square as powers of two allow."""
    rows = 1
    while chunk % (rows * 2) == 0 and rows * rows * 4 <= chunk:
        rows *= 2
    return rows, chunk // rows


def compare(torch_file, fusewire_file):
    def read(path):
        with open(path) as lines:
            return [json.loads(line) for line in lines if line.startswith("{")]

    theirs = {(r["op"], r["world"], r["bytes"]): r for r in read(torch_file)}
    ours = [r for r in read(fusewire_file) if r["name"] == "fusewire"]
    copies = {(r["world"], r["bytes"], r["output"]): r["graph_us"] for r in ours if r["op"] == "copy"}
    print("time of one in us (graph replay | eager); ratio above 1: fusewire is faster; copy: graph time over the copy hook's")
    print(f"{'hook':>10} {'GPUs':>4} {'MiB':>8} {'output':>9} {'way':>7} {'SMs':>4} {'wire MB':>8} | {'torch':>9} {'fusewire':>9} {'ratio':>6}"
          f" {'goal':>4} | {'torch':>9} {'fusewire':>9} {'ratio':>6} | {'copy':>5}")
    for r in ours:
        names = [r["op"]] + (["fp8_amax"] if r["op"] == "fp8" else [])
        for name in names:
            t = theirs.get((name, r["world"], r["bytes"]))
            if t is None:
                continue
            goals = GOALS.get(name)
            goal = "" if goals is None or r["bytes"] < 1 << 20 else goals[r["bytes"] > 4 << 20]
            copy = copies.get((r["world"], r["bytes"], r["output"]))
            eager = r["eager_us"] and t["eager_us"] / r["eager_us"]
            print(f"{name:>10} {r['world']:>4} {r['bytes'] / 2**20:>8.4g} {r['output']:>9} {r['protocol']:>7} {r['sms']:>4}"
                  f" {r['wire_bytes'] / 1e6:>8.2f} | {t['graph_us']:>9.1f} {r['graph_us']:>9.1f} {t['graph_us'] / r['graph_us']:>6.2f}"
                  f" {goal:>4} | {t['eager_us']:>9.1f} {r['eager_us']:>9.1f} {eager:>6.2f} | {copy and r['graph_us'] / copy or 0:>5.2f}")


if len(sys.argv) > 1 and sys.argv[1] == "--compare":
    compare(sys.argv[2], sys.argv[3])
    sys.exit()

import torch
import torch.distributed as dist

from timing import timed

rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
stream = torch.cuda.Stream()


def alone(op, x, y, z, order, scale):
    """What a hook is where there are no peers: one kernel, checked against torch's own operations."""
    rows, cols = x.shape[1:]
    body, expected = dict(
        copy=(lambda: y.copy_(x), lambda: x),
        scale=(lambda: y.copy_(x * scale), lambda: x * scale),
        transpose=(lambda: y.view(cols, rows).copy_(x[0].t()), lambda: x[0].t()),
        permute=(lambda: y[0].copy_(x[0][order]), lambda: x[0][order]),
        add=(lambda: z.add_(x), lambda: x + x),
        fp8=(lambda: y.copy_((x.float() * (1 / scale)).to(torch.float8_e4m3fn).float() * scale),
             lambda: (x.float() * (1 / scale)).to(torch.float8_e4m3fn).float() * scale),
    )[op]
    torch._dynamo.reset()
    # The driver's copy is faster than a kernel.
    body = body if op == "copy" else torch.compile(body, dynamic=False)
    z.copy_(x)
    y.fill_(float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        body()
    torch.cuda.synchronize()
    got = z if op == "add" else y
    assert torch.equal(got.flatten(), expected().to(got.dtype).flatten()), f"{op} of {x.numel()} elements is wrong"
    return body


def run(op, bytes_):
    chunk = bytes_ // 2 // world
    rows, cols = shape(chunk)
    generator = torch.Generator(device="cuda").manual_seed(bytes_ + rank)
    numbers = torch.randint(-128, 128, (world, rows, cols), device="cuda", generator=generator)
    x = numbers.to(torch.bfloat16) / 8
    y, z, t = (torch.full_like(x, float("nan")) for _ in range(3))
    order = torch.randperm(world * rows, device="cuda", generator=generator)
    q, got = (torch.empty(x.shape, dtype=torch.float8_e4m3fn, device="cuda") for _ in range(2))
    scale = 0.25

    def copy():
        dist.all_to_all_single(y, x)

    def scaled():
        torch.mul(x, scale, out=t)
        dist.all_to_all_single(y, t)

    def transpose():
        t.view(world, cols, rows).copy_(x.transpose(1, 2))
        dist.all_to_all_single(y, t)

    def permute():
        torch.index_select(x.view(-1, cols), 0, order, out=t.view(-1, cols))
        dist.all_to_all_single(y, t)

    def add():
        dist.all_to_all_single(y, x)
        z.add_(y)

    def fp8():
        q.copy_(x.float() * (1 / scale))
        dist.all_to_all_single(got.view(torch.uint8), q.view(torch.uint8))
        y.copy_(got.float() * scale)

    def fp8_amax():
        own = x.abs().amax(dim=(1, 2), keepdim=True).float() / 448
        q.copy_(x.float() / own)
        dist.all_to_all_single(got.view(torch.uint8), q.view(torch.uint8))
        # As if the peers' scales were known: sending them would be another exchange.
        y.copy_(got.float() * own)

    if world == 1:
        one = alone(op, x, y, z, order, scale)
    else:
        one = dict(copy=copy, scale=scaled, transpose=transpose, permute=permute, add=add, fp8=fp8, fp8_amax=fp8_amax)[op]
    with torch.cuda.stream(stream):
        for _ in range(3):
            one()
    torch.cuda.synchronize()
    per_graph, windows, replays = (2, 5, 2) if bytes_ >= 256 << 20 else (5, 5, 4) if bytes_ >= 16 << 20 else (20, 7, 10)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(per_graph):
            one()
    replayed = timed(stream, lambda: [graph.replay() for _ in range(replays)], windows, replays * per_graph)
    eager = timed(stream, lambda: [one() for _ in range(replays * per_graph)], windows, replays * per_graph)
    if rank == 0:
        element = 1 if op.startswith("fp8") else 2
        row = dict(name="torch", op=op, world=world, bytes=bytes_, graph_us=replayed, eager_us=eager)
        print(json.dumps(row | dict(wire_bytes=chunk * (world - 1) * element)), flush=True)


with torch.cuda.stream(stream):
    warm = torch.zeros(1024, device="cuda")
    for _ in range(500):
        dist.all_reduce(warm)
torch.cuda.synchronize()
for bytes_ in SIZES:
    for op in OPS:
        # Of scales that are found first, one rank alone measures nothing.
        if world > 1 or op != "fp8_amax":
            run(op, bytes_)
dist.destroy_process_group()
