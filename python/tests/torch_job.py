"""What the checks with PyTorch share: this rank of the job, and the list of checks."""

import argparse
import os

import torch
import torch.distributed as dist

import fusewire
import fusewire.torch  # registers the backend

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


def raises_misuse(body, says):
    try:
        body()
    except fusewire.Misuse as error:
        assert says in str(error), error
    else:
        raise AssertionError(f"nobody said {says!r}")
