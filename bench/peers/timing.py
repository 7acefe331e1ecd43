"""How NCCL's and torch's sides are timed: as `fusewire_examples::ranks::timed` times ours."""
import statistics

import torch
import torch.distributed as dist


def elapsed(stream, body):
    """Milliseconds of what the body queues, behind the same once before: ranks come out of a barrier some microseconds apart, and the
    first operations bring their GPUs together."""
    with torch.cuda.stream(stream):
        body()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(stream)
        body()
        end.record(stream)
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def timed(stream, body, windows, count):
    """Median over windows of the time of one operation in microseconds; the slowest rank's."""
    # Clocks and links go to rest while nothing runs: 40 ms of work first, as often on all ranks.
    once = torch.tensor([elapsed(stream, body)], device="cuda")
    dist.all_reduce(once, dist.ReduceOp.MAX)
    with torch.cuda.stream(stream):
        for _ in range(min(int(40 / max(once.item(), 1e-3)), 1000)):
            body()
    torch.cuda.synchronize()
    times = []
    for _ in range(windows):
        dist.barrier()
        torch.cuda.synchronize()
        times.append(elapsed(stream, body) / count * 1e3)
    slowest = torch.tensor([statistics.median(times)], device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def replayed(body):
    """Median in microseconds of what the body queues, replayed from a graph of ten; of this rank alone, which may be the only one."""
    for _ in range(3):
        body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            body()
    times = []
    for _ in range(11):
        graph.replay()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(10):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 10)
    return sorted(times)[5]
