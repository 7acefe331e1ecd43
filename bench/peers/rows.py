"""What one would write instead of hooks of whole rows, in Triton around NCCL: graph replays, as lines like those of `rows --time`.

torchrun --nproc-per-node N rows.py ROWS..     N ranks; one alone needs no NCCL

The same rows, types and results as the program `rows`: block-scaled e4m3 of an all-to-all, and all-reduce, residual, RMSNorm and e4m3 with a
scale for each row. Each Triton kernel has one program for a row, and is checked against torch.
"""
import os
import sys

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from timing import replayed

COLS = 4096


@triton.jit
def quantise(x, y, s, COLS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, COLS // 128)[:, None]
    at = group * 128 + tl.arange(0, 128)[None, :]
    values = tl.load(x + row * COLS + at).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), 1) / 448.0, 1e-30)
    tl.store(y + row * COLS + at, (values / scale[:, None]).to(tl.float8e4nv))
    tl.store(s + row * (COLS // 128) + tl.arange(0, COLS // 128), scale)


@triton.jit
def dequantise(y, s, x, COLS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, COLS // 128)[:, None]
    at = group * 128 + tl.arange(0, 128)[None, :]
    scale = tl.load(s + row * (COLS // 128) + group)
    tl.store(x + row * COLS + at, (tl.load(y + row * COLS + at).to(tl.float32) * scale).to(tl.bfloat16))


@triton.jit
def both_ways(x, out, COLS: tl.constexpr):
    """Quantised and back in one kernel: what a rank does with its own chunk."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, COLS // 128)[:, None] * 128 + tl.arange(0, 128)[None, :]
    values = tl.load(x + row * COLS + at).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), 1) / 448.0, 1e-30)[:, None]
    tl.store(out + row * COLS + at, ((values / scale).to(tl.float8e4nv).to(tl.float32) * scale).to(tl.bfloat16))


@triton.jit
def norm(x, residual, gamma, out, scales, COLS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, COLS)
    values = tl.load(x + row * COLS + at).to(tl.float32) + tl.load(residual + row * COLS + at).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / COLS + 1e-6)
    normed = values * scale * tl.load(gamma + at).to(tl.float32)
    most = tl.maximum(tl.max(tl.abs(normed), 0), 1e-30)
    tl.store(out + row * COLS + at, (normed * (448.0 / most)).to(tl.float8e4nv))
    tl.store(scales + row, most / 448.0)


def main():
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if ranks > 1:
        dist.init_process_group("nccl")
    for rows in map(int, sys.argv[1:] or ["64", "1024"]):
        def report(what, own_bytes, us):
            if rank == 0:
                print(f"{what}: {rows} rows, {ranks} ranks: {us:.1f} us, {own_bytes / us / 1e3:.0f} GB/s of own memory", flush=True)

        torch.manual_seed(rank)
        every = ranks * rows
        x = torch.randn(every, COLS, device="cuda").bfloat16()
        back = torch.empty_like(x)
        if ranks == 1:
            def exchange():
                both_ways[(every,)](x, back, COLS, num_warps=8)
        else:
            y, arrived = (torch.empty(every, COLS, device="cuda", dtype=torch.float8_e4m3fn) for _ in range(2))
            s, scales_arrived = (torch.empty(every, COLS // 128, device="cuda") for _ in range(2))

            def exchange():
                quantise[(every,)](x, y, s, COLS, num_warps=8)
                dist.all_to_all_single(arrived.view(torch.uint8), y.view(torch.uint8))
                dist.all_to_all_single(scales_arrived, s)
                dequantise[(every,)](arrived, scales_arrived, back, COLS, num_warps=8)
        exchange()
        if ranks == 1:
            assert (back - x).abs().max() <= x.abs().max() / 16, "quantised and back"
        report("all-to-all by e4m3", 4 * every * COLS, replayed(exchange))

        part = x[:rows].contiguous()
        residual = torch.randn(rows, COLS, device="cuda").bfloat16()
        gamma = torch.randn(COLS, device="cuda").bfloat16()
        out = torch.empty(rows, COLS, device="cuda", dtype=torch.float8_e4m3fn)
        scales = torch.empty(rows, device="cuda")

        def layer():
            if ranks > 1:
                dist.all_reduce(part)
            norm[(rows,)](part, residual, gamma, out, scales, COLS, num_warps=8)

        norm[(rows,)](part, residual, gamma, out, scales, COLS, num_warps=8)
        sums = part.float() + residual.float()
        expected = sums * torch.rsqrt(sums.square().mean(1, keepdim=True) + 1e-6) * gamma.float()
        error = (out.float() * scales[:, None] - expected).abs() - expected.abs() / 15 - scales[:, None] / 1000
        assert error.max() <= 0, "RMSNorm"
        report("all-reduce, residual, RMSNorm, e4m3", 5 * rows * COLS, replayed(layer))
    if ranks > 1:
        dist.destroy_process_group()


main()
