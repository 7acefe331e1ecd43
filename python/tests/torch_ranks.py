"""One rank of a job under torchrun: fusewire with PyTorch, on GPUs where each rank has one, else on the CPU.

    torchrun --nproc-per-node 2 tests/torch_ranks.py [--quick]
"""

import os
import sys
import time
import traceback

import torch
import torch.distributed as dist

# Each brings its checks, which run in this order.
import torch_calls, torch_backend, torch_costs  # noqa: E401, F401
from torch_job import CHECKS, CUDA, asked, rank, world

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
