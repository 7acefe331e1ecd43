"""The backend ``fusewire`` of ``torch.distributed``: ``Nvl`` for tensors on GPUs, ``Shm`` for those of the CPU."""

from __future__ import annotations

import functools
import sys

import torch
import torch.distributed as dist

from ._transport import Nvl, Shm, _dtype_name, _has_kernel
from ._world import World, unique_id
from .errors import Error, Misuse
from .torch import _input

#: Reductions: how transports call them, and how torch does two parts.
_OPS = {
    dist.ReduceOp.SUM: ("sum", torch.add),
    dist.ReduceOp.AVG: ("avg", torch.add),
    dist.ReduceOp.MAX: ("max", torch.maximum),
    dist.ReduceOp.MIN: ("min", torch.minimum),
    dist.ReduceOp.PRODUCT: ("product", torch.mul),
    dist.ReduceOp.BAND: ("bitwise and", torch.bitwise_and),
    dist.ReduceOp.BOR: ("bitwise or", torch.bitwise_or),
    dist.ReduceOp.BXOR: ("bitwise xor", torch.bitwise_xor),
}


def _reduction(op, *tensors):
    """The operation, whether a kernel does it with such tensors, and the tensors: for sums of complex numbers, their parts.

    What no kernel does (products, bitwise operations, element types such as ``uint8`` and ``bool``), torch does: the parts of all ranks are gathered
    and folded in the order of the ranks. An all-reduce then takes memory for the tensors of all ranks, and each rank receives as many bytes. So does the
    root of a reduce. A reduce-scatter takes as much as its input.
    """
    op = getattr(op, "op", op)
    if op not in _OPS:
        raise Misuse(f"the backend `fusewire` has no reduction {op}: use one of {', '.join(name for name, _ in _OPS.values())}")
    if op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        tensors = [torch.view_as_real(x) if x.is_complex() else x for x in tensors]
    x = tensors[0]
    by_kernel = _has_kernel(_OPS[op][0], _dtype_name(x.dtype))
    if not by_kernel:
        _can_fold(op, x.dtype, x.device)
    return op, by_kernel, *tensors


@functools.cache
def _can_fold(op, dtype, device):
    """Refuses what torch cannot fold, before anything is sent."""
    try:
        _fold(op, torch.ones(2, dtype=dtype, device=device), 2, torch.empty(1, dtype=dtype, device=device))
    except RuntimeError as error:
        raise Misuse(f"no reduction {_OPS[op][0]!r} of {dtype} ({error}): convert the tensor first") from None


def _fold(op, whole, size, out):
    """Folds the parts of all ranks, one behind the other in ``whole``, which is written over."""
    first, *others = whole.view(size, out.numel())
    for part in others:
        _OPS[op][1](first, part, out=first)
    if op == dist.ReduceOp.AVG:
        first.div_(size, rounding_mode=None if first.is_floating_point() else "trunc")
    out.copy_(first.view(out.shape))


def _as_it_lies(tensor, run, keep=False):
    """Runs with ``tensor`` if kernels take it as it lies, else with another that is copied to it; ``keep``: what is in it counts."""
    tensor = tensor.detach()
    if tensor.is_contiguous() and tensor.data_ptr() % 16 == 0:
        run(tensor)
        return
    other = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    if keep:
        other.copy_(tensor)
    run(other)
    tensor.copy_(other)


class _Done(dist._Work):
    """Work that was queued on the current stream: what runs behind it there has it."""

    def __init__(self, result):
        super().__init__()
        self._result = result
        self._future = None

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True

    def is_success(self):
        return True

    def result(self):
        return self._result

    def get_future(self):
        if self._future is None:
            devices = sorted({tensor.device.index for tensor in _tensors(self._result) if tensor.is_cuda})
            self._future = torch.futures.Future(devices=[torch.device("cuda", index) for index in devices])
            self._future.set_result(self._result)
        return self._future


class _Batched(_Done):
    """One of a batch, which begins when any of them is waited for."""

    def __init__(self, result, begin):
        super().__init__(result)
        self._begin = begin

    def wait(self, timeout=None):
        self._begin()
        return True

    def is_completed(self):
        return self.wait()

    def get_future(self):
        self._begin()
        return super().get_future()


def _in_batch():
    """Whether `batch_isend_irecv` is what calls. Some releases of torch (2.11) tell groups of torch's own class alone that a batch begins, and call one
    operation after the other of all others."""
    frame = sys._getframe(1)
    for _ in range(8):
        frame = frame.f_back
        if frame is None or frame.f_code.co_name == "batch_isend_irecv":
            return frame is not None
    return False


def _tensors(result):
    for one in result:
        yield from _tensors(one) if isinstance(one, (list, tuple)) else (one,)


class _Ranks(dist.ProcessGroup):
    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._name = self._words = "undefined"
        # Sends and receives of a `batch_isend_irecv` that has not begun, if there is one.
        self._batch = None
        if rank == 0:
            store.set("fusewire", unique_id().hex())
        identity = bytes.fromhex(store.get("fusewire").decode())
        self._world = World.connect(identity, rank, size, timeout=timeout.total_seconds())
        # Now, since all ranks are here; what cannot be is told when it is used.
        deadline = min(timeout.total_seconds(), 24 * 3600.0)
        self._transports = {"cpu": self._open(Shm, deadline)}
        if torch.cuda.is_available():
            self._transports["cuda"] = self._open(Nvl, deadline)

    def _open(self, kind, deadline):
        try:
            transport = kind(self._world, deadline=deadline)
            # Two ranks alone call these: their kernels are prepared while all are here.
            for part in (4, 1):
                transport._copy("sendrecv", part)
            return transport
        except Error as error:
            return error

    def _on(self, tensor):
        """The transport for a tensor's device."""
        self._begin(self._batch)
        transport = self._transports.get(tensor.device.type)
        if transport is None:
            raise Misuse(f"tensors on {tensor.device}: the backend `fusewire` has ranks on GPUs of CUDA and on CPUs")
        if isinstance(transport, Error):
            raise transport
        return transport

    def getBackendName(self):
        return "fusewire"

    # Names: torch keeps them in a backend of its own, which a group in Python has none of.

    def _set_group_name(self, name):
        self._name = name

    def getGroupName(self):
        return self._name

    group_name = property(getGroupName)

    def _set_group_desc(self, words):
        self._words = words

    def getGroupDesc(self):
        return self._words

    group_desc = property(getGroupDesc)

    # Reductions.

    def allreduce(self, tensors, opts=None):
        asked = opts.reduceOp if opts is not None and not isinstance(opts, dist.ReduceOp) else opts or dist.ReduceOp.SUM
        for tensor in tensors:
            on, (op, by_kernel, x) = self._on(tensor), _reduction(asked, tensor)
            if by_kernel:
                _as_it_lies(x, lambda x: on.all_reduce(x, _OPS[op][0], out=x), keep=True)
            else:
                _fold(op, on.all_gather(_input(x).reshape(-1)), on.size, x.detach())
        return _Done(tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts):
        for tensor in tensors:
            on, (op, by_kernel, x) = self._on(tensor), _reduction(opts.reduceOp, tensor)
            if by_kernel:
                came = on.reduce(_input(x), opts.rootRank, _OPS[op][0])
                if came is not None:
                    x.detach().copy_(came)
            else:
                came = on.gather(_input(x).reshape(-1), opts.rootRank)
                if came is not None:
                    _fold(op, came, on.size, x.detach())
        return _Done(tensors)

    def _reduce_scatter_base(self, output, x, opts):
        on, (op, by_kernel, x, out) = self._on(x), _reduction(opts.reduceOp, x, output)
        if by_kernel:
            x = _input(x, out)
            _as_it_lies(out, lambda out: on.reduce_scatter(x, _OPS[op][0], out=out))
        else:
            _fold(op, on.all_to_all(_input(x).reshape(-1)), on.size, out.detach())
        return _Done([output])

    def reduce_scatter(self, outputs, inputs, opts):
        for output, parts in zip(outputs, inputs):
            self._reduce_scatter_base(output, torch.cat([part.reshape(-1) for part in parts]), opts)
        return _Done(outputs)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        for output, x in zip(outputs, inputs):
            self._reduce_scatter_base(output, x, opts)
        return _Done(outputs)

    # Copies.

    def broadcast(self, tensors, opts):
        for x in tensors:
            on = self._on(x)
            _as_it_lies(x, lambda x: on.broadcast(x, opts.rootRank, out=x), keep=True)
        return _Done(tensors)

    def _allgather_base(self, output, x, opts=None):
        on = self._on(x)
        _as_it_lies(output, lambda out: on.all_gather(_input(x, output), out=out))
        return _Done([output])

    def allgather(self, outputs, inputs, opts=None):
        for parts, x in zip(outputs, inputs):
            self._deal(self._on(x).all_gather(_input(x).reshape(-1)), parts)
        return _Done(outputs)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        for k, x in enumerate(inputs):
            if x.numel() > 0:
                self._deal(self._on(x).all_gather(_input(x).reshape(-1)), [parts[k] for parts in outputs])
        return _Done(outputs)

    def _deal(self, whole, outputs):
        """Gives each rank's part of a tensor to its output."""
        for output, part in zip(outputs, whole.chunk(self.size())):
            output.copy_(part.view(output.shape))

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, x in zip(outputs, inputs):
            self._allgather_base(output, x)
        return _Done(outputs)

    def alltoall_base(self, output, x, output_splits, input_splits, opts=None):
        if not output_splits and not input_splits:
            on = self._on(x)
            _as_it_lies(output, lambda out: on.all_to_all(_input(x, output), out=out))
            return _Done([output])
        # Even where they are equal here, they may not be on another rank.
        self._exchange(*(
            tensor.split(list(splits) or tensor.shape[0] // self.size())
            for tensor, splits in ((output, output_splits), (_input(x, output), input_splits))
        ))
        return _Done([output])

    def alltoall(self, outputs, inputs, opts=None):
        self._exchange(outputs, inputs)
        return _Done(outputs)

    def _exchange(self, outputs, inputs):
        """Parts of any sizes, one for each rank."""

        def some(parts):
            return [(peer, x) for peer, x in enumerate(parts) if x.numel() > 0]

        self._pair_by_pair(some(inputs), some(outputs))

    def _pair_by_pair(self, sends, receives):
        """Peers with tensors, together. In each turn every rank has one other, and the lower of the two sends first: a wait is for a pair that comes
        no later in this order, so none is for ever."""
        me = self.rank()
        for turn in range(self.size()):
            peer = (turn - me) % self.size()
            steps = [(self._send, [x for to, x in sends if to == peer])]
            steps.append((self._receive, [x for source, x in receives if source == peer]))
            if peer == me:
                (_, own), (_, outputs) = steps
                for x, output in zip(own, outputs):
                    output.copy_(x.view(output.shape))
                continue
            for step, tensors in steps if me < peer else reversed(steps):
                for x in tensors:
                    step(x, peer)

    def _send(self, x, peer):
        self._on(x).send(_input(x), peer)

    def _receive(self, x, peer):
        on = self._on(x)
        _as_it_lies(x, lambda x: on.recv(x, peer))

    # The same by the names that later releases of torch call them by.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    def gather_single(self, output, x, opts):
        on = self._on(x)
        if on.rank == opts.rootRank:
            _as_it_lies(output, lambda out: on.gather(_input(x, output), opts.rootRank, out=out))
        else:
            on.gather(_input(x), opts.rootRank)
        return _Done([output])

    def gather(self, outputs, inputs, opts):
        for k, x in enumerate(inputs):
            came = self._on(x).gather(_input(x).reshape(-1), opts.rootRank)
            if came is not None:
                self._deal(came, outputs[k])
        return _Done(outputs)

    def scatter(self, outputs, inputs, opts):
        for k, output in enumerate(outputs):
            on = self._on(output)
            whole = torch.cat([part.reshape(-1) for part in inputs[k]]) if on.rank == opts.rootRank else None
            _as_it_lies(output, lambda out: on.scatter(whole, opts.rootRank, out=out))
        return _Done(outputs)

    def send(self, tensors, peer, tag=0):
        return self._one_way(0, tensors, peer)

    def recv(self, tensors, peer, tag=0):
        return self._one_way(1, tensors, peer)

    def recv_anysource(self, tensors, tag=0):
        raise Misuse("the backend `fusewire` receives from a rank that is named: give `src`, or receive in a group of gloo")

    def _one_way(self, way, tensors, peer):
        if self._batch is None and _in_batch():
            self._batch = ([], [])
        batch = self._batch
        if batch is not None:
            batch[way].extend((peer, x) for x in tensors)
            return _Batched(tensors, lambda: self._begin(batch))
        for x in tensors:
            (self._send, self._receive)[way](x, peer)
        return _Done(tensors)

    def _begin(self, batch):
        """Queues a batch, unless it has begun."""
        if batch is not None and batch is self._batch:
            self._batch = None
            self._pair_by_pair(*batch)

    # `batch_isend_irecv` of torch 2.15, which asks the group's backend: here they are one.

    supports_coalescing = True
    supports_splitting = False

    def _get_backend(self, device):
        return self

    def supports_tensor_alloc(self, device):
        return False

    def _start_coalescing(self, device):
        self._batch = ([], [])

    def _end_coalescing(self, device):
        batch = self._batch or ([], [])
        self._begin(batch)
        return _Done([x for part in batch for _, x in part])

    def barrier(self, opts=None):
        self._begin(self._batch)
        if "cuda" in self._transports:
            # As NCCL's: what this rank has queued comes before it.
            torch.cuda.current_stream().synchronize()
        self._world.barrier()
        return _Done([])


dist.Backend.register_backend("fusewire", _Ranks, devices=["cpu", "cuda"])
