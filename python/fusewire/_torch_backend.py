"""The backend ``fusewire`` of ``torch.distributed``: ``Nvl`` for tensors on GPUs, ``Shm`` for those of the CPU."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ._transport import Nvl, Shm
from ._world import World, unique_id
from .errors import Error, Misuse
from .torch import _input

_OPS = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "avg", dist.ReduceOp.MAX: "max", dist.ReduceOp.MIN: "min"}


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


def _tensors(result):
    for one in result:
        yield from _tensors(one) if isinstance(one, (list, tuple)) else (one,)


class _Ranks(dist.ProcessGroup):
    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._name = self._words = "undefined"
        # Sends and receives that `batch_isend_irecv` has begun, if it has.
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

    def _fold(self, run, x, out, op):
        name = _OPS.get(op.op if hasattr(op, "op") else op)
        if name is None:
            raise Misuse(f"{op} is not among the reductions of the backend `fusewire`: {', '.join(_OPS.values())}")
        run(_input(x, out), name, out)

    def _in_place(self, x, run):
        """Runs with a fresh output: inputs are read while outputs are written."""
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        run(out)
        x.copy_(out)

    def allreduce(self, tensors, opts=None):
        op = opts.reduceOp if opts is not None and not isinstance(opts, dist.ReduceOp) else opts or dist.ReduceOp.SUM
        for x in tensors:
            on = self._on(x)
            self._in_place(x, lambda out: self._fold(lambda x, op, out: on.all_reduce(x, op, out=out), x, out, op))
        return _Done(tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts):
        for x in tensors:
            on = self._on(x)
            out = torch.empty_like(x) if on.rank == opts.rootRank else None
            self._fold(lambda x, op, out: on.reduce(x, opts.rootRank, op, out=out), x, out, opts.reduceOp)
            if out is not None:
                x.copy_(out)
        return _Done(tensors)

    def _reduce_scatter_base(self, output, x, opts):
        on = self._on(x)
        self._fold(lambda x, op, out: on.reduce_scatter(x, op, out=out), x, output, opts.reduceOp)
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
            self._in_place(x, lambda out: on.broadcast(_input(x), opts.rootRank, out=out))
        return _Done(tensors)

    def _allgather_base(self, output, x, opts=None):
        self._on(x).all_gather(_input(x, output), out=output)
        return _Done([output])

    def allgather(self, outputs, inputs, opts=None):
        for parts, x in zip(outputs, inputs):
            whole = self._on(x).all_gather(_input(x).reshape(-1))
            for part, came in zip(parts, whole.chunk(self.size())):
                part.copy_(came.view(part.shape))
        return _Done(outputs)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        for k, x in enumerate(inputs):
            if x.numel() > 0:
                whole = self._on(x).all_gather(_input(x).reshape(-1))
                for parts, came in zip(outputs, whole.chunk(self.size())):
                    parts[k].copy_(came.view(parts[k].shape))
        return _Done(outputs)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, x in zip(outputs, inputs):
            self._allgather_base(output, x)
        return _Done(outputs)

    def alltoall_base(self, output, x, output_splits, input_splits, opts=None):
        if not output_splits and not input_splits:
            self._on(x).all_to_all(_input(x, output), out=output)
            return _Done([output])
        # Even where they are equal here, they may not be on another rank.
        whole = output if output.is_contiguous() else torch.empty_like(output, memory_format=torch.contiguous_format)
        parts = [
            tensor.split(list(splits) or tensor.shape[0] // self.size())
            for tensor, splits in ((whole, output_splits), (_input(x, output), input_splits))
        ]
        self._exchange(*parts)
        if whole is not output:
            output.copy_(whole)
        return _Done([output])

    def alltoall(self, outputs, inputs, opts=None):
        self._exchange(outputs, inputs)
        return _Done(outputs)

    def _exchange(self, outputs, inputs):
        """Parts of any sizes."""
        parts = [(True, x, peer) for peer, x in enumerate(inputs)] + [(False, x, peer) for peer, x in enumerate(outputs)]
        self._pair_by_pair([part for part in parts if part[1].numel() > 0])

    def _pair_by_pair(self, parts):
        """Sends (``True``, tensor, peer) and receives, together. In each turn every rank has one other, and the lower of the two sends first: a
        wait is for a pair that comes no later in this order, so none is for ever."""
        me = self.rank()
        for turn in range(self.size()):
            peer = (turn - me) % self.size()
            of = {sends: [x for sent, x, to in parts if sent == sends and to == peer] for sends in (True, False)}
            if peer == me:
                for x, out in zip(of[True], of[False]):
                    out.copy_(x.view(out.shape))
                continue
            for sends in (me < peer, me > peer):
                for x in of[sends]:
                    if sends:
                        self._on(x).send(_input(x), peer)
                    else:
                        self._receive(x, peer)

    def _receive(self, x, peer):
        aligned = x.is_contiguous() and x.data_ptr() % 16 == 0
        came = x if aligned else torch.empty(x.shape, dtype=x.dtype, device=x.device)
        self._on(x).recv(came, peer)
        if came is not x:
            x.copy_(came)

    # The same by the names that later releases of torch call them by.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    def gather_single(self, output, x, opts):
        came = self._on(x).gather(_input(x).reshape(-1), opts.rootRank)
        if came is not None:
            output.copy_(came.view(output.shape))
        return _Done([output])

    def gather(self, outputs, inputs, opts):
        for k, x in enumerate(inputs):
            came = self._on(x).gather(_input(x).reshape(-1), opts.rootRank)
            if came is not None:
                for output, part in zip(outputs[k], came.chunk(self.size())):
                    output.copy_(part.view(output.shape))
        return _Done(outputs)

    def scatter(self, outputs, inputs, opts):
        for k, output in enumerate(outputs):
            on = self._on(output)
            if on.rank == opts.rootRank:
                whole = torch.cat([part.reshape(-1) for part in inputs[k]])
            else:
                whole = output.new_empty(self.size() * output.numel())
            on.scatter(whole, opts.rootRank, out=output)
        return _Done(outputs)

    def send(self, tensors, peer, tag=0):
        if self._batch is not None:
            self._batch += [(True, x, peer) for x in tensors]
        else:
            for x in tensors:
                self._on(x).send(_input(x), peer)
        return _Done(tensors)

    def recv(self, tensors, peer, tag=0):
        if self._batch is not None:
            self._batch += [(False, x, peer) for x in tensors]
        else:
            for x in tensors:
                self._receive(x, peer)
        return _Done(tensors)

    # `batch_isend_irecv`, which asks the group's backend: here they are one.

    supports_coalescing = True
    supports_splitting = False

    def _get_backend(self, device):
        return self

    def supports_tensor_alloc(self, device):
        return False

    def _start_coalescing(self, device):
        self._batch = []

    def _end_coalescing(self, device):
        parts, self._batch = self._batch, None
        self._pair_by_pair(parts)
        return _Done([x for _, x, _ in parts])

    def barrier(self, opts=None):
        if "cuda" in self._transports:
            # As NCCL's: what this rank has queued comes before it.
            torch.cuda.current_stream().synchronize()
        self._world.barrier()
        return _Done([])


dist.Backend.register_backend("fusewire", _Ranks, devices=["cpu", "cuda"])
