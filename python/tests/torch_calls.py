"""Collectives of a transport on tensors, and the operators that torch compiles and differentiates."""

import torch
import torch.distributed as dist

import fusewire
import fusewire.torch as ft
from torch_job import CUDA, DEVICE, asked, check, local, on, raises_misuse, rank, size, whole


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
