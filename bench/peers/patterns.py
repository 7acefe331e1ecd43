"""What follows a layer whose ranks each have a part of the sum, in torch around NCCL: graph replays, as lines like those of `patterns --time`.

torchrun --nproc-per-node N patterns.py ROWS..     N ranks; one alone needs no NCCL

The same rows, types and results as the program `patterns`. What is not NCCL's is compiled by torch.compile, so it is one Triton kernel for each step.
"""
import os
import sys

import torch
import torch.distributed as dist
from timing import replayed

COLS = 4096
E4M3 = torch.float8_e4m3fn


def norm(x, residual, gamma):
    summed = x.float() + residual.float()
    scale = torch.rsqrt(summed.square().mean(1, keepdim=True) + 1e-6)
    return summed.bfloat16(), summed * scale * gamma.float()


def quantised(x):
    groups = x.view(x.shape[0], -1, 128)
    scales = (groups.abs().amax(2) / 448.0).clamp(min=1e-30)
    return (groups / scales[:, :, None]).view_as(x).to(E4M3), scales


def dequantised(values, scales):
    return (values.float().view(values.shape[0], -1, 128) * scales[:, :, None]).view_as(values)


@torch.compile
def per_tensor(x, residual, gamma):
    following, normed = norm(x, residual, gamma)
    return following, (normed * 8.0).clamp(-448, 448).to(E4M3)


@torch.compile
def per_group(x, residual, gamma):
    following, normed = norm(x, residual, gamma)
    return following, *quantised(normed)


@torch.compile
def activated(x, bias):
    return torch.nn.functional.gelu(x.float() + bias.float(), approximate="tanh").bfloat16()


@torch.compile
def leaves(x):
    return quantised(x.float())


@torch.compile
def arrives(values, scales):
    return dequantised(values, scales).bfloat16()


@torch.compile
def sums(values, scales, ranks: int):
    rows = values.shape[0] // ranks
    return quantised(dequantised(values, scales).view(ranks, rows, -1).sum(0))


def main():
    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if ranks > 1:
        dist.init_process_group("nccl")
    for rows in map(int, sys.argv[1:] or ["64", "1024"]):
        def report(what, body):
            us = replayed(body)
            if rank == 0:
                print(f"{what}: {rows} rows, {ranks} ranks: {us:.1f} us", flush=True)

        torch.manual_seed(rank)
        every = torch.randn(ranks * rows, COLS, device="cuda").bfloat16()
        part, residual = every[:rows].contiguous(), torch.randn(rows, COLS, device="cuda").bfloat16()
        gamma, bias = (torch.randn(COLS, device="cuda").bfloat16() for _ in range(2))
        scattered = torch.empty_like(part)
        gathered, gathered_scales = torch.empty(ranks * rows, COLS, device="cuda", dtype=E4M3), torch.empty(ranks * rows, COLS // 128, device="cuda")
        arrived, arrived_scales = torch.empty_like(gathered), torch.empty_like(gathered_scales)

        def layer(then):
            if ranks > 1:
                dist.all_reduce(part)
            then(part, residual, gamma)

        def scatter():
            if ranks > 1:
                dist.reduce_scatter_tensor(scattered, every)
            activated(scattered if ranks > 1 else part, bias)

        def gather(values, scales):
            if ranks == 1:
                return arrives(values, scales)
            dist.all_gather_into_tensor(gathered.view(torch.uint8), values.view(torch.uint8))
            dist.all_gather_into_tensor(gathered_scales, scales)
            return arrives(gathered, gathered_scales)

        def both_ways():
            values, scales = leaves(every)
            if ranks > 1:
                dist.all_to_all_single(arrived.view(torch.uint8), values.view(torch.uint8))
                dist.all_to_all_single(arrived_scales, scales)
                values, scales = arrived, arrived_scales
            return gather(*sums(values, scales, ranks))

        report("all-reduce, residual, RMSNorm, e4m3 of one scale", lambda: layer(per_tensor))
        report("all-reduce, residual, RMSNorm, e4m3 of a scale for each 128", lambda: layer(per_group))
        report("reduce-scatter, bias, GELU", scatter)
        report("all-reduce by e4m3 both ways", both_ways)
        if ranks > 1:
            report("average of gradients", lambda: dist.all_reduce(part, op=dist.ReduceOp.AVG))
        weights = leaves(part)
        report("all-gather of e4m3, bfloat16 where it arrives", lambda: gather(*weights))
    if ranks > 1:
        dist.destroy_process_group()


main()
