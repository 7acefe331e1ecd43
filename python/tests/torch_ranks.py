"""One rank of a job under torchrun: fusewire with PyTorch, on GPUs where each rank has one, else on the CPU.

    torchrun --nproc-per-node 2 tests/torch_ranks.py [--quick]
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import fusewire
import fusewire.torch as ft

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="fewer replays")
parser.add_argument("--only", default="", help="checks whose names have this")
asked = parser.parse_args()

local, size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
CUDA = torch.cuda.device_count() >= size
if CUDA:
    torch.cuda.set_device(local)
DEVICE = torch.device("cuda", local) if CUDA else torch.device("cpu")
dist.init_process_group("cpu:gloo,cuda:nccl" if CUDA else "gloo")
rank = dist.get_rank()
world = fusewire.World.from_process_group(timeout=60)
on = (fusewire.Nvl if CUDA else fusewire.Shm)(world)
torch.manual_seed(17 * rank + 3)

CHECKS = []


def check(body):
    CHECKS.append(body)
    return body


def whole(shape, dtype, seed=0):
    """What every rank gives: whole numbers, exact in any order."""
    made = torch.Generator().manual_seed(seed)
    all_ = torch.randint(-8, 9, (size, *shape), generator=made).to(dtype)
    return all_.to(DEVICE), all_[rank].to(DEVICE).clone()


@check
def copies_and_reductions():
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
        for n in (size, size * 33, size * 100_003):
            all_, x = whole((n,), dtype, n)
            total = all_.sum(0)
            part = slice(rank * n // size, (rank + 1) * n // size)
            assert torch.equal(on.all_reduce(x), total), (dtype, n)
            in_place = x.clone()
            assert torch.equal(on.all_reduce(in_place, out=in_place), total), (dtype, n)
            assert torch.equal(on.reduce_scatter(x), total[part]), (dtype, n)
            assert torch.equal(on.all_reduce(x, "max"), all_.max(0).values), (dtype, n)
            assert torch.equal(on.all_gather(x), all_.reshape(-1)), (dtype, n)
            assert torch.equal(on.all_to_all(x), all_.reshape(size, size, -1)[:, rank].reshape(-1)), (dtype, n)
            assert torch.equal(on.broadcast(x, size - 1), all_[size - 1]), (dtype, n)
            in_place = x.clone()
            assert on.broadcast(in_place, 0, out=in_place) is in_place
            assert torch.equal(in_place, all_[0]), (dtype, n)
    eight = torch.randint(0, 100, (size * 48,), device=DEVICE, dtype=torch.uint8).view(torch.float8_e4m3fn)
    assert torch.equal(on.broadcast(eight, 0).view(torch.uint8), on.all_gather(eight)[: eight.numel()].view(torch.uint8))


@check
def symmetric_memory():
    out = torch.from_dlpack(on.symmetric((size, 1000), torch.bfloat16))
    assert out.device == DEVICE and not out.any()
    all_, x = whole((size, 1000), torch.bfloat16)
    assert on.all_to_all(x, out=out) is out
    assert torch.equal(out, all_[:, rank])


@check
def pools_of_symmetric_memory():
    if not CUDA:
        return "needs GPUs"
    n = size * 4_000_000
    pool = on.mem_pool()
    with torch.cuda.use_mem_pool(pool):
        outs = [torch.empty(n, dtype=torch.bfloat16, device=DEVICE) for _ in range(3)]
        large = torch.empty(size << 20, dtype=torch.float32, device=DEVICE)
    ordinary = torch.empty_like(outs[0])
    launcher = on._copy("all_to_all", outs[0].nbytes // size)

    def plan(out):
        return launcher.explain(torch.empty_like(out).view(torch.uint32), out.view(torch.uint32))

    # A rank that is alone copies to itself, wherever the output is.
    assert size == 1 or "straight into" not in plan(ordinary), plan(ordinary)
    for k, out in enumerate(outs):
        assert size == 1 or "straight into" in plan(out), plan(out)
        all_, x = whole((n,), torch.bfloat16, k)
        on.all_to_all(x, out=out)
        assert torch.equal(out, all_.reshape(size, size, -1)[:, rank].reshape(-1)), k
    # A part of a tensor, in a graph.
    all_, x = whole((size * 1000,), torch.float32)
    part = large[4096 : 4096 + x.numel()]
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        on.all_to_all(x, out=part)
    for _ in range(3):
        large.zero_()
        graph.replay()
        assert torch.equal(part, all_.reshape(size, size, -1)[:, rank].reshape(-1))
        assert large.count_nonzero() == part.count_nonzero()
    del graph, part
    # What was freed is used again, on another stream as well; what is left of a pool outlives it.
    kept = outs[1]
    del outs, large, out
    side = torch.cuda.Stream()
    all_, x = whole((n,), torch.bfloat16, 7)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.use_mem_pool(pool), torch.cuda.stream(side):
        again = torch.empty(n, dtype=torch.bfloat16, device=DEVICE)
    with torch.cuda.stream(side):
        on.all_to_all(x, out=again)
    side.synchronize()
    assert torch.equal(again, all_.reshape(size, size, -1)[:, rank].reshape(-1))
    del pool, again
    torch.cuda.empty_cache()
    on.all_to_all(x, out=kept)
    assert torch.equal(kept, all_.reshape(size, size, -1)[:, rank].reshape(-1))
    del kept
    torch.cuda.empty_cache()
    # A segment that is freed while a stream is to write it goes behind that.
    pool = on.mem_pool()
    with torch.cuda.use_mem_pool(pool), torch.cuda.stream(side):
        late = torch.empty(8 << 20, device=DEVICE)
        torch.cuda._sleep(100_000_000)
        late.fill_(3.0)
    del late, pool
    torch.cuda.empty_cache()
    assert not side.query(), "the stream was waited for"
    side.synchronize()
    # As many pools as there can be, and again when they are gone.
    for _ in range(2):
        pools = [on.mem_pool() for _ in range(8)]
        raises_misuse(on.mem_pool, "8 pools")
        del pools
    if size > 1:
        # A rank that allocates otherwise is told.
        pool = on.mem_pool()
        with torch.cuda.use_mem_pool(pool):
            before = torch.empty(1000 * (1 + rank), device=DEVICE)
            out = torch.empty(size * 100, device=DEVICE)
        try:
            on.all_to_all(torch.zeros(size * 100, device=DEVICE), out=out, options=fusewire.Options(protocol="direct"))
            on.synchronize()
        except fusewire.Fault as fault:
            assert "symmetric buffer" in str(fault), fault
        else:
            raise AssertionError("outputs at different places were written")
        on.renew()
        del before, out, pool


@check
def a_barrier_waits_for_the_last():
    on.barrier()
    if not CUDA:
        return None
    begin, end = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    begin.record()
    if rank == 0:
        torch.cuda._sleep(100_000_000)
    on.barrier()
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) > 20, begin.elapsed_time(end)
    return None


def raises_misuse(body, says):
    try:
        body()
    except fusewire.Misuse as error:
        assert says in str(error), error
    else:
        raise AssertionError(f"nobody said {says!r}")


@check
def operators_pass_opcheck():
    _, x = whole((size * 4, 3), torch.float32)
    x = x.requires_grad_()
    number = on.number
    for op, rest in ((ft._ops.all_to_all, ()), (ft._ops.all_gather, ()), (ft._ops.reduce_scatter, ("sum",)), (ft._ops.all_reduce, ("sum",))):
        torch.library.opcheck(op.default, (x, *rest, number), test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))
    out = torch.empty_like(x)
    torch.library.opcheck(ft._ops.all_reduce_out.default, (x.detach(), "sum", number), {"out": out.detach()}, test_utils=("test_schema", "test_faketensor"))


@check
def gradients_are_each_others():
    """Of sum(w * f(x)), against the same on plain tensors of all ranks."""
    shape = (size * 4, 3)
    xs, x = whole(shape, torch.float32, 1)
    for name, run in {
        "all_to_all": lambda x: ft.all_to_all(x, on),
        "all_gather": lambda x: ft.all_gather(x, on),
        "reduce_scatter": lambda x: ft.reduce_scatter(x, on),
        "reduce_scatter avg": lambda x: ft.reduce_scatter(x, on, "avg"),
        "all_reduce": lambda x: ft.all_reduce(x, on),
    }.items():
        leaves = [one.clone().requires_grad_() for one in xs]
        every = torch.stack(leaves)
        results = {
            "all_to_all": lambda: every.reshape(size, size, 4, 3).transpose(0, 1).reshape(size, -1, 3),
            "all_gather": lambda: every.reshape(1, -1, 3).expand(size, -1, 3),
            "reduce_scatter": lambda: every.sum(0).reshape(size, 4, 3),
            "reduce_scatter avg": lambda: every.mean(0).reshape(size, 4, 3),
            "all_reduce": lambda: every.sum(0).expand(size, -1, -1),
        }[name]()
        weights, w = whole(results.shape[1:], torch.float32, 2)
        (weights * results).sum().backward()
        own = x.clone().requires_grad_()
        result = run(own)
        assert torch.equal(result, results[rank]), name
        (w * result).sum().backward()
        assert torch.equal(own.grad, leaves[rank].grad), (name, own.grad, leaves[rank].grad)


@check
def compiled_without_a_break():
    def step(x, w):
        y = ft.all_gather(x * 2, on)
        return ft.reduce_scatter(y * w, on).relu()

    _, x = whole((6, 4), torch.float32, 3)
    w = torch.ones(size * 6, 4, device=DEVICE)
    compiled = torch.compile(step, fullgraph=True, backend="inductor" if CUDA else "aot_eager")
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected, found = step(a, w), compiled(b, w)
    assert torch.equal(expected, found)
    expected.sum().backward()
    found.sum().backward()
    assert torch.equal(a.grad, b.grad)


@check
def captured_and_replayed():
    if not CUDA:
        return "needs GPUs"
    x, y = torch.zeros(size * 1000, device=DEVICE), torch.empty(size * 1000, device=DEVICE)
    count = torch.zeros(1, device=DEVICE)
    z = torch.empty_like(x)
    on.all_to_all(x, out=y), on.all_reduce(y, out=z)  # Prepared, before the capture.
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.copy_(count.expand_as(x) + rank)
        on.all_to_all(x, out=y)
        on.all_reduce(y, out=z)
        inner = on.all_gather(z[:4])  # Memory of the graph's own pool.
        count += 1
    replays = 1000 if asked.quick else 10_000
    for _ in range(replays):
        graph.replay()
    torch.cuda.synchronize()
    base = replays - 1
    blocks = torch.arange(size, device=DEVICE, dtype=torch.float32).repeat_interleave(1000)
    assert torch.equal(y, blocks + base), (y, base)
    assert torch.equal(z, size * (blocks + base))
    assert torch.equal(inner, z[:4].repeat(size))
    on.check()
    # Eager calls go on behind it.
    assert torch.equal(on.all_reduce(torch.ones(5, device=DEVICE)), torch.full((5,), float(size), device=DEVICE))


@check
def other_streams():
    if not CUDA:
        return "needs GPUs"
    side = torch.cuda.Stream()
    x = torch.full((1 << 20,), 1.0, device=DEVICE)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        x.fill_(3.0)
        y = on.all_reduce(x)  # Behind the fill, since it is queued on the current stream.
        z = y + 1
    side.synchronize()
    assert z[7].item() == 3 * size + 1
    out = torch.empty_like(x)
    side.wait_stream(torch.cuda.current_stream())
    on.all_reduce(x, out=out, stream=side)
    torch.cuda.current_stream().wait_stream(side)
    assert out[5].item() == 3 * size


@check
def what_cannot_be_is_refused():
    x = torch.ones(size * 8, device=DEVICE)
    cases = [
        (lambda: on.all_reduce(x.bool()), "no reduction 'sum' of bool"),
        (lambda: on.all_gather(x[::2]), "not contiguous"),
        (lambda: on.all_gather(torch.zeros(9, dtype=torch.uint8, device=DEVICE)[1:]), "elements of 4 bytes"),
        (lambda: on.all_reduce(x, out=x.view_as(x)), "overlap"),
        (lambda: on.all_reduce(x, out=x[:4]), "`out` has 16 bytes"),
        (lambda: on.all_reduce(x, out=torch.empty_like(x, dtype=torch.int32)), "should have float32"),
        (lambda: on.all_reduce(torch.ones(3, device="meta")), "argument `input`"),
    ]
    if CUDA:
        cases.append((lambda: on.all_reduce(x.cpu()), "is on the CPU, but the kernel runs on GPU"))
        other = torch.device("cuda", (local + 1) % torch.cuda.device_count())
        if other != DEVICE:
            cases.append((lambda: on.all_reduce(x.to(other)), f"is on GPU {other.index}, but the kernel runs on GPU {local}"))
    for body, says in cases:
        try:
            body()
        except (fusewire.Misuse, BufferError, RuntimeError) as error:
            assert says in str(error) or "meta" in str(error), str(error)
        else:
            raise AssertionError(f"was not refused: {says}")


def model():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8)).to(DEVICE)


def steps(net, loss_of=lambda net, x: net(x).square().mean()):
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(1000 + rank)
    for _ in range(3):
        x = torch.randn(16, 64, device=DEVICE)
        optimiser.zero_grad()
        loss_of(net, x).backward()
        optimiser.step()


def unequal(group):
    """Rank r sends 3 p (r + 1) rows to rank p: to rank 0 none, and to itself as well. In one tensor, and in tensors of their own."""
    rows = [[3 * to * (r + 1) for to in range(size)] for r in range(size)]
    row = torch.arange(5, dtype=torch.bfloat16, device=DEVICE)
    made = lambda r, to: (row + 8 * r + to).repeat(rows[r][to], 1)
    sent = [made(rank, to) for to in range(size)]
    expected = [made(r, rank) for r in range(size)]
    out = row.new_full((sum(len(one) for one in expected), 5), -1)
    dist.all_to_all_single(out, torch.cat(sent), [len(one) for one in expected], rows[rank], group=group)
    assert torch.equal(out, torch.cat(expected)), (out, expected)
    apart = [torch.full_like(one, -1) for one in expected]
    dist.all_to_all(apart, sent, group=group)
    assert all(torch.equal(a, b) for a, b in zip(apart, expected))


def batched(group):
    """A ring, both ways, in which every rank names its sends first: more than staging holds."""
    n = 1 << 21
    x = torch.full((n,), float(rank), device=DEVICE)
    came = [torch.full_like(x, -1) for _ in range(2)]
    peers = [(rank + 1) % size, (rank - 1) % size]
    operations = [dist.P2POp(dist.isend, x, peer, group=group) for peer in peers]
    operations += [dist.P2POp(dist.irecv, y, peer, group=group) for y, peer in zip(came, peers)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert all(bool((y == peer).all()) for y, peer in zip(came, peers))
    # One that nobody waits for begins with the next operation.
    came[0].fill_(-1)
    dist.batch_isend_irecv([dist.P2POp(dist.isend, x, peers[0], group=group), dist.P2POp(dist.irecv, came[0], peers[1], group=group)])
    dist.all_reduce(x.clone(), group=group)
    assert bool((came[0] == peers[1]).all())


@check
def the_backend_does_what_torch_has():
    group = dist.new_group(backend="fusewire")
    all_, x = whole((size * 5,), torch.float32, 9)
    other = None  # The default group: NCCL or gloo.
    pairs = []

    def both(run):
        pairs.append([run(group), run(other)])

    def all_reduce(group, op=dist.ReduceOp.SUM):
        y = x.clone()
        dist.all_reduce(y, op, group=group)
        return y

    def all_gather(group):
        parts = [torch.empty_like(x) for _ in range(size)]
        dist.all_gather(parts, x, group=group)
        return torch.cat(parts)

    def reduce_scatter_tensor(group):
        y = x.new_empty(5)
        dist.reduce_scatter_tensor(y, x, group=group)
        return y

    def all_gather_into_tensor(group):
        y = x.new_empty(size * x.numel())
        dist.all_gather_into_tensor(y, x, group=group)
        return y

    def all_to_all_single(group):
        y = torch.empty_like(x)
        dist.all_to_all_single(y, x, group=group)
        return y

    def broadcast(group):
        y = x.clone()
        dist.broadcast(y, size - 1, group=group)
        return y

    def reduce(group):
        y = x.clone()
        dist.reduce(y, 0, group=group)
        return y if rank == 0 else x

    def exchange(group):
        y = torch.zeros_like(x)
        if rank == 0:
            dist.send(x, 1, group=group)
            dist.recv(y, 1, group=group)
        elif rank == 1:
            dist.recv(y, 0, group=group)
            dist.send(x, 0, group=group)
        return y

    both(all_reduce)
    both(lambda group: all_reduce(group, dist.ReduceOp.MAX))
    both(all_gather)
    both(all_gather_into_tensor)
    both(broadcast)
    both(reduce)
    # gloo has these for few devices.
    assert torch.equal(reduce_scatter_tensor(group), all_.sum(0).chunk(size)[rank])
    assert torch.equal(all_to_all_single(group), torch.cat([one.chunk(size)[rank] for one in all_]))
    unequal(group)
    batched(group)
    if hasattr(dist, "gather_single"):
        whole_ = x.new_empty(size * x.numel()) if rank == 0 else None
        dist.gather_single(x, whole_, 0, group=group)
        assert rank > 0 or torch.equal(whole_, all_.reshape(-1))
    if size > 1:
        both(exchange)
    for k, (found, expected) in enumerate(pairs):
        assert torch.equal(found, expected), (k, found, expected)
    dist.barrier(group=group)
    told = [None] * size
    dist.all_gather_object(told, {"rank": rank}, group=group)
    assert told == [{"rank": r} for r in range(size)]


def columns(x):
    """A copy that no kernel takes as it lies."""
    return x.t().clone(memory_format=torch.contiguous_format).t()


#: Reductions by another way than that of the backend.
BY_TWOS = {
    "SUM": lambda a, b: a + b,
    "AVG": lambda a, b: a + b,
    "PRODUCT": lambda a, b: a * b,
    "MAX": lambda a, b: torch.where(a > b, a, b),
    "MIN": lambda a, b: torch.where(a < b, a, b),
    "BAND": lambda a, b: a & b,
    "BOR": lambda a, b: a | b,
    "BXOR": lambda a, b: a ^ b,
}


@check
def reductions_without_a_kernel_are_folded():
    group = dist.new_group(backend="fusewire")
    numbers = ("SUM", "PRODUCT", "MAX", "MIN")
    bits = ("BAND", "BOR", "BXOR")
    cases = [(torch.float32, ("PRODUCT",)), (torch.float64, ("AVG", "MAX")), (torch.int32, ("AVG", *bits)), (torch.complex64, ("SUM", "AVG"))]
    cases += [(dtype, numbers + bits) for dtype in (torch.uint8, torch.int8, torch.int16)]
    cases += [(torch.bool, ("SUM", "PRODUCT", "MAX", *bits))]
    for dtype, names in cases:
        for name in names:
            op = getattr(dist.ReduceOp, name)
            for n in (1, 7):
                all_, x = whole((size, n), dtype, n)
                expected = all_[0].clone()
                for part in all_[1:]:
                    expected = BY_TWOS[name](expected, part)
                same = torch.equal
                if name == "AVG":
                    expected = expected.div(size, rounding_mode="trunc" if dtype == torch.int32 else None)
                    same = torch.allclose  # Kernels round otherwise.
                y = x.clone()
                dist.all_reduce(y, op, group=group)
                assert same(y, expected), (dtype, name, y, expected)
                y = columns(x)
                dist.reduce(y, size - 1, op, group=group)
                assert same(y, expected if rank == size - 1 else x), (dtype, name)
                part = torch.empty_like(x[0])
                dist.reduce_scatter_tensor(part, x, op, group=group)
                assert same(part, expected[rank]), (dtype, name, part, expected[rank])
                part.zero_()
                dist.reduce_scatter(part, list(x), op, group=group)
                assert same(part, expected[rank]), (dtype, name)
    for dtype, op in ((torch.float32, dist.ReduceOp.BAND), (torch.bool, dist.ReduceOp.AVG), (torch.float8_e4m3fn, dist.ReduceOp.SUM)):
        x = torch.ones(size, device=DEVICE).to(dtype)
        try:
            dist.all_reduce(x, op, group=group)
        except fusewire.Misuse as error:
            assert "convert the tensor" in str(error), str(error)
        else:
            raise AssertionError(f"was not refused: {op} of {dtype}")
    try:
        dist.recv(x.float(), group=group)
    except fusewire.Misuse as error:
        assert "give `src`" in str(error), str(error)
    else:
        raise AssertionError("was not refused: a receive from anybody")


@check
def copies_go_where_they_are_asked():
    group = dist.new_group(backend="fusewire")
    for dtype in (torch.float32, torch.complex64, torch.bool, torch.uint8):
        all_, x = whole((size, 6), dtype, 4)
        # In place, past a multiple of 16 bytes, and not contiguous.
        for lies in (lambda x: x.clone(), lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape), columns):
            for root in range(size):
                y = lies(x)
                at = y.data_ptr()
                dist.broadcast(y, root, group=group)
                assert torch.equal(y, all_[root]) and y.data_ptr() == at, (dtype, root)
                parts = [lies(part) for part in x] if rank == root else None
                y = lies(x)[0]
                dist.scatter(y, parts, root, group=group)
                assert torch.equal(y, all_[root][rank]), (dtype, root)
            y = lies(torch.zeros_like(x).repeat(size, 1))
            if y.is_contiguous():
                y[rank * size : (rank + 1) * size] = x
                dist.all_gather_into_tensor(y, y[rank * size : (rank + 1) * size], group=group)
                assert torch.equal(y, all_.view(-1, 6)), dtype
                dist.all_to_all_single(y, all_.view(-1, 6) if rank == 0 else torch.zeros_like(y), group=group)
                assert torch.equal(y[:size], all_[rank]) and not y[size:].any(), dtype


@check
def a_ddp_step_is_that_of_torch():
    group = dist.new_group(backend="fusewire")
    ids = [local] if CUDA else None
    ours, theirs = model(), model()
    steps(DistributedDataParallel(ours, device_ids=ids, process_group=group))
    steps(DistributedDataParallel(theirs, device_ids=ids))
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b)
    flat = torch.cat([p.detach().reshape(-1) for p in ours.parameters()])
    assert torch.equal(*on.all_gather(flat).reshape(size, -1)[[0, -1]]), "ranks differ"


@check
def an_fsdp2_step_is_that_of_torch():
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    group = dist.new_group(backend="fusewire")
    ours, theirs = model(), model()
    mesh = DeviceMesh.from_group(group, DEVICE.type)
    for layer in (ours[0], ours[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(ours, mesh=mesh)
    steps(ours)
    steps(DistributedDataParallel(theirs, device_ids=[local] if CUDA else None))
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a.full_tensor() if hasattr(a, "full_tensor") else a, b)


@check
def what_a_call_costs():
    """Host time of one eager call, microseconds: the device keeps up with small ones only if it is less."""
    x, out = torch.ones(size * 256, device=DEVICE), torch.empty(size * 256, device=DEVICE)
    group = dist.new_group(backend="fusewire")
    rows = {
        "nvl.all_reduce(x, out=out)": lambda: on.all_reduce(x, out=out),
        "nvl.all_reduce(x)": lambda: on.all_reduce(x),
        "fusewire.torch.all_reduce(x, nvl)": lambda: ft.all_reduce(x, on),
        "dist.all_reduce(x), backend fusewire": lambda: dist.all_reduce(x, group=group),
        "dist.all_reduce(x), " + dist.get_backend(): lambda: dist.all_reduce(x),
    }
    for name, run in rows.items():
        times = []
        for _ in range(5 if asked.quick else 30):
            if CUDA:
                torch.cuda.synchronize()
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(20):
                run()
            times.append((time.perf_counter() - begin) / 20)
        x.fill_(1)
        if rank == 0:
            print(f"    {sorted(times)[len(times) // 2] * 1e6:7.2f} us  {name}", flush=True)


@check
def what_symmetric_outputs_save():
    """Device time of a replayed all-to-all, microseconds, into ordinary memory and into a pool's."""
    if not CUDA or size == 1:
        return "needs GPUs"
    pool = on.mem_pool()
    for mib in (1, 16, 64, 256):
        x = torch.randn((mib << 19), dtype=torch.bfloat16, device=DEVICE)
        expected = torch.empty_like(x)
        dist.all_to_all_single(expected, x)
        with torch.cuda.use_mem_pool(pool):
            symmetric = torch.empty_like(x)
        rows = []
        for out in (torch.empty_like(x), symmetric):
            out.zero_()
            on.all_to_all(x, out=out)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(10):
                    on.all_to_all(x, out=out)
            times = []
            for _ in range(12 if asked.quick else 60):
                begin, end = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end) * 100)
            assert torch.equal(out, expected)
            rows.append(sorted(times)[len(times) // 2])
        if rank == 0:
            print(f"    {mib:4} MiB: ordinary {rows[0]:8.1f} us, of a pool {rows[1]:8.1f} us", flush=True)
        del symmetric, out, graph
    return None


failed = False
for body in CHECKS:
    if asked.only not in body.__name__:
        continue
    begin = time.perf_counter()
    try:
        left_out = body()
        if CUDA:
            torch.cuda.synchronize()
        state = f"left out: {left_out}" if left_out else "ok"
    except BaseException as error:
        import traceback

        traceback.print_exc()
        state, failed = f"FAILED: {type(error).__name__}: {error}", True
    if rank == 0 or failed:
        print(f"rank {rank}: {body.__name__.replace('_', ' ')}: {state} ({time.perf_counter() - begin:.1f} s)", flush=True)
    if failed:
        break
if failed:
    os._exit(1)
dist.barrier()
world.close()
dist.destroy_process_group()
sys.exit(0)
