"""The backend `fusewire` of torch's process groups, beside NCCL or gloo."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import fusewire
from torch_job import CUDA, DEVICE, check, local, on, rank, size, whole


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
