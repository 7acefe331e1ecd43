"""For PyTorch: operators that ``torch.compile`` and autograd know, and a backend of ``torch.distributed``.

    nvl = fusewire.Nvl(fusewire.World.from_process_group())
    y = fusewire.torch.all_to_all(x, nvl)            # differentiable, and one node of a compiled graph

    dist.init_process_group("fusewire")              # after `import fusewire.torch`: DDP, FSDP and `torch.distributed` run on it

The methods of a transport (``nvl.all_to_all(x)``) do the same with less of a way to go, without gradients.
"""

from __future__ import annotations

import torch

from ._transport import _NUMBERED, Transport
from .errors import Misuse

_LIBRARY = torch.library.Library("fusewire", "DEF")


def _transport(number):
    transport = _NUMBERED.get(number)
    if transport is None:
        raise Misuse(f"there is no transport number {number}: it is gone")
    return transport


def _input(x, output=None):
    """Contiguous, at a multiple of 16 bytes, where kernels are fastest, and not in the output: callers of torch may gather and reduce in place."""
    x = x.detach().contiguous()
    begin, end = x.data_ptr(), x.data_ptr() + x.nbytes
    apart = output is None or end <= output.data_ptr() or output.data_ptr() + output.nbytes <= begin
    return x if begin % 16 == 0 and apart else x.clone()


def _define(name, arguments, functional, shape):
    """An operator `name`, and `name_out` that writes its result into a tensor that is there."""

    def fake(x, *rest):
        return x.new_empty(shape(x, *rest))

    def run(x, *rest):
        return functional(_transport(rest[-1]), _input(x), *rest[:-1])

    def run_out(x, *rest, out):
        functional(_transport(rest[-1]), _input(x, out), *rest[:-1], out=out)

    _LIBRARY.define(f"{name}(Tensor x, {arguments}int transport) -> Tensor")
    _LIBRARY.define(f"{name}_out(Tensor x, {arguments}int transport, *, Tensor(a!) out) -> ()")
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl(name, run, key)
        _LIBRARY.impl(f"{name}_out", run_out, key)
    torch.library.register_fake(f"fusewire::{name}", fake, lib=_LIBRARY)
    torch.library.register_fake(f"fusewire::{name}_out", lambda x, *rest, out: None, lib=_LIBRARY)


def _part(x, *rest):
    return (x.shape[0] // _transport(rest[-1]).size, *x.shape[1:])


def _whole(x, *rest):
    size = _transport(rest[-1]).size
    return (size * x.shape[0], *x.shape[1:]) if x.dim() else (size,)


def _same(x, *rest):
    return x.shape


_define("all_reduce", "str op, ", Transport.all_reduce, _same)
_define("reduce_scatter", "str op, ", Transport.reduce_scatter, _part)
_define("all_gather", "", Transport.all_gather, _whole)
_define("all_to_all", "", Transport.all_to_all, _same)
_define("broadcast", "int root, ", Transport.broadcast, _same)
_ops = torch.ops.fusewire


def _differentiable(name, backward):
    def setup(ctx, inputs, output):
        ctx.rest = inputs[1:]

    def gradient(ctx, grad):
        return (backward(grad.contiguous(), *ctx.rest), *(None for _ in ctx.rest))

    torch.library.register_autograd(f"fusewire::{name}", gradient, setup_context=setup, lib=_LIBRARY)


def _linear(op):
    if op not in ("sum", "avg", "mean"):
        raise Misuse(f"a reduction {op!r} has no gradient here: `sum` and `avg` have one")
    return op


# Each other's transposes.
_differentiable("all_to_all", lambda grad, transport: _ops.all_to_all(grad, transport))
_differentiable("all_gather", lambda grad, transport: _ops.reduce_scatter(grad, "sum", transport))
_differentiable("all_reduce", lambda grad, op, transport: _ops.all_reduce(grad, _linear(op), transport))


def _gathered(grad, op, transport):
    whole = _ops.all_gather(grad, transport)
    return whole if _linear(op) == "sum" else whole / _transport(transport).size


_differentiable("reduce_scatter", _gathered)


def all_reduce(x, transport, op="sum"):
    """What all ranks give, folded, on every rank. Its gradient is that of all ranks, folded likewise."""
    return _ops.all_reduce(x, op, transport.number)


def reduce_scatter(x, transport, op="sum"):
    """Part ``rank`` along the first dimension of what all ranks give, folded. Its gradient is gathered."""
    return _ops.reduce_scatter(x, op, transport.number)


def all_gather(x, transport):
    """What all ranks give, one behind the other along the first dimension. Its gradient is reduced and scattered."""
    return _ops.all_gather(x, transport.number)


def all_to_all(x, transport):
    """Part ``p`` of ``x`` goes to rank ``p``, and its gradient comes back."""
    return _ops.all_to_all(x, transport.number)


def broadcast(x, transport, root=0):
    """What ``root`` gives, on every rank."""
    return _ops.broadcast(x, root, transport.number)


from . import _torch_backend as _torch_backend  # noqa: E402  registers it
