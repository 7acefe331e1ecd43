"""Fused GPU communication kernels, from Python.

    import fusewire, numpy

    world = fusewire.World()              # started by torchrun, mpirun or srun
    shm = fusewire.Shm(world)             # or Nvl(world), on GPUs
    total = shm.all_reduce(numpy.ones(1 << 20, "float32"))

Tensors are those of NumPy, PyTorch, CuPy and whatever else has DLPack. On a GPU, work is queued on the current stream of the tensors' library,
and a capture of it records the work. Kernels of one's own come by ``fusewire.load("libkernels.so")``.
"""

from __future__ import annotations

from ._fusewire import Field, Kernel, Launcher, Options, Stream, Symmetric
from ._transport import Nvl, Shm, Transport
from ._world import Kernels, World, load
from .errors import DeviceError, Error, Fault, LostError, Misuse, PeerError

__all__ = [
    "DeviceError",
    "Error",
    "Fault",
    "Field",
    "Kernel",
    "Kernels",
    "Launcher",
    "LostError",
    "Misuse",
    "Nvl",
    "Options",
    "PeerError",
    "Shm",
    "Stream",
    "Symmetric",
    "Transport",
    "World",
    "load",
]
