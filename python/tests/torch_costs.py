"""Times: what a call costs the host, and what symmetric outputs save."""

import time

import torch
import torch.distributed as dist

import fusewire.torch as ft
from torch_job import CUDA, DEVICE, asked, check, on, rank, size


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
