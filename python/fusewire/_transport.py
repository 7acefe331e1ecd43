"""Transports, and the collectives that every one has."""

from __future__ import annotations

import itertools
import sys
import weakref

from . import _fusewire
from .errors import Misuse

#: Transports by their numbers: operators of torch name them so.
_NUMBERED = weakref.WeakValueDictionary()
_NUMBERS = itertools.count(1)

#: PyTorch's allocators of pools, by the numbers of these: kept for as long as the process runs.
_ALLOCATORS = {}

#: How kernels call the element types that are reduced.
_REDUCED = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "int32": "i32", "int64": "i64"}
_OPS = {"sum": "sum", "avg": "average", "mean": "average", "max": "max", "min": "min"}


def _has_kernel(op, dtype):
    """Whether a kernel reduces so."""
    if _OPS.get(op) == "average":
        return dtype in ("float32", "float16", "bfloat16")
    return op in _OPS and dtype in _REDUCED and (op == "sum" or dtype != "float64")


class Transport:
    """A transport: who reaches whom, and how. Made on every rank of a world, with equal options.

    ``window``: bytes of staging for each peer and direction, 32 MiB by default. ``deadline``: seconds that one wait in a kernel may last, 10 by
    default.

    Every rank calls the same collectives in the same order, with tensors of equal size and type. They are contiguous; one that begins at no multiple
    of 16 bytes goes element by element, which is slower. What is copied in parts of whole 4 bytes begins at a multiple of 4. The first call of each kind prepares its kernel on every rank; that of ``send``, ``recv``
    and ``sendrecv`` too. On CPU threads a call has ended when it returns. On a GPU it is queued, on ``stream`` or on the current stream of the tensors' library. Streams that were used live as long as
    the transport; those of PyTorch do. Tensors are read and written as they are: gradients are those of ``fusewire.torch``.
    """

    _name = None

    def __init__(self, world, *, window=None, channels=None, ll128_channels=None, ll_channels=None, deadline=None):
        self._world = world
        self._raw = _fusewire.Transport(
            world._raw,
            self._name,
            window=window,
            channels=channels,
            ll128_channels=ll128_channels,
            ll_channels=ll_channels,
            deadline=deadline,
        )
        self.name, self.device = self._raw.name, self._raw.device
        self.rank, self.size = self._raw.rank, self._raw.size
        self._launchers = {}
        self.number = next(_NUMBERS)
        _NUMBERED[self.number] = self

    # What every transport does.

    @property
    def world(self):
        """Its world."""
        return self._world

    @property
    def stream(self):
        """Its own stream. Where ranks share a GPU, kernels of this rank run on this stream alone: see ``torch.cuda.ExternalStream``."""
        return self._raw.stream

    def prepare(self, kernel):
        """Prepares a kernel of the world's library. Collective."""
        return self._raw.prepare(kernel)

    def symmetric(self, shape, dtype="float32"):
        """Zeroed memory that every rank has and all map, as an object with ``__dlpack__``. Collective.

        ``torch.from_dlpack`` and ``numpy.from_dlpack`` make tensors of it. As the output of a copy, peers store to it directly: the fastest way.
        """
        shape = [shape] if isinstance(shape, int) else list(shape)
        return self._raw._symmetric(shape, _dtype_name(dtype))

    def synchronize(self, stream=None):
        """Waits for what was launched, on one stream or on all. A fault of a kernel comes out here."""
        self._raw.synchronize(stream)

    def check(self):
        """Raises the fault, if a kernel was aborted since the last ``renew``."""
        self._raw.check()

    def renew(self):
        """Makes the transport usable again after a fault. Collective."""
        self._raw.renew()

    def abort(self, reason="no reason given"):
        """Ends every wait of its kernels, on this rank and on its peers, with a ``Fault``: ``.rank`` is this one, ``.waited_for`` is ``reason``.

        From any thread, also while others wait in a collective; it waits for nobody. Then the transport is to be renewed.
        """
        self._raw.abort(reason)

    def close(self):
        """Ends the transport: waits for what this rank has launched, then for every rank. Collective."""
        self._raw.close()

    def __repr__(self):
        return repr(self._raw)

    # Collectives.

    def all_reduce(self, x, op="sum", *, out=None, stream=None, options=None):
        """What all ranks give, folded, on every rank: the same bits everywhere, whatever the size and the algorithm.

        ``op``: "sum", "avg", "max" or "min". Half precision is added up in single, and rounded once. ``out=x`` is in place.
        """
        if out is x:
            self._reduction("all_reduce", op, x, "_in_place")(x, stream=stream, options=options)
            return x
        launcher = self._reduction("all_reduce", op, x)
        if out is None:
            out = _empty(x, x.shape)
        launcher._run(x, out, 1, 1, stream, options, False, 0, None, None)
        return out

    def reduce_scatter(self, x, op="sum", *, out=None, stream=None, options=None):
        """Part ``rank`` along the first dimension of what all ranks give, folded."""
        launcher = self._reduction("reduce_scatter", op, x)
        if out is None:
            out = _empty(x, self._part(x.shape))
        launcher._run(x, out, 1, self.size, stream, options, False, 0, None, None)
        return out

    def reduce(self, x, root=0, op="sum", *, out=None, stream=None, options=None):
        """What all ranks give, folded, on ``root``; others get ``None``."""
        launcher = self._reduction("reduce", op, x)
        if self.rank != root:
            launcher._run(x, _nothing(x), 0, 1, stream, options, False, root, None, None)
            return None
        if out is None:
            out = _empty(x, x.shape)
        launcher._run(x, out, 1, 1, stream, options, False, root, None, None)
        return out

    def all_gather(self, x, *, out=None, stream=None, options=None):
        """What all ranks give, one behind the other along the first dimension, on every rank.

        ``x=None`` is in place: a rank gives its own part of ``out``. All ranks do that, or none.
        """
        if x is None:
            self._part(out.shape)
            launcher = self._copy("all_gather", _bytes(out) // self.size, "_in_place")
            launcher._run(None, out, 1, 1, stream, options, True, 0, None, None)
            return out
        launcher = self._copy("all_gather", _bytes(x))
        if out is None:
            out = _empty(x, self._whole(x.shape))
        launcher._run(x, out, self.size, 1, stream, options, True, 0, None, None)
        return out

    def all_to_all(self, x, *, out=None, stream=None, options=None):
        """Part ``p`` of ``x`` goes to rank ``p``; what comes from rank ``p`` is part ``p`` of the result. Parts are along the first dimension."""
        launcher = self._copy("all_to_all", _bytes(x) // self.size)
        if out is None:
            self._part(x.shape)
            out = _empty(x, x.shape)
        launcher._run(x, out, 1, 1, stream, options, True, 0, None, None)
        return out

    def broadcast(self, x, root=0, *, out=None, stream=None, options=None):
        """What ``root`` gives, on every rank; of the others' ``x`` the shape and the type count alone.

        ``out=x`` is in place, of which the others need no other memory.
        """
        launcher = self._copy("broadcast", _bytes(x))
        in_place = out is x
        if in_place and self.rank != root:
            launcher._run(_nothing(x), x, 1, 0, stream, options, True, root, None, None)
            return x
        if out is None or in_place:
            out = _empty(x, x.shape)
        launcher._run(x, out, 1, 1, stream, options, True, root, None, None)
        return x if in_place else out

    def gather(self, x, root=0, *, out=None, stream=None, options=None):
        """What all ranks give, one behind the other, on ``root``; others get ``None``."""
        launcher = self._copy("gather", _bytes(x))
        if self.rank != root:
            launcher._run(x, _nothing(x), 0, 1, stream, options, True, root, None, None)
            return None
        if out is None:
            out = _empty(x, self._whole(x.shape))
        launcher._run(x, out, self.size, 1, stream, options, True, root, None, None)
        return out

    def scatter(self, x, root=0, *, out=None, stream=None, options=None):
        """Part ``rank`` of what ``root`` gives; of the others' ``x`` the shape and the type count alone, and with ``out`` it may be ``None``."""
        if x is None and out is not None and self.rank != root:
            self._copy("scatter", _bytes(out))._run(_nothing(out), out, 1, 0, stream, options, True, root, None, None)
            return out
        launcher = self._copy("scatter", _bytes(x) // self.size)
        if out is None:
            out = _empty(x, self._part(x.shape))
        launcher._run(x, out, 1, self.size, stream, options, True, root, None, None)
        return out

    def send(self, x, to, *, stream=None, options=None):
        """Sends ``x`` to one rank, which calls ``recv``."""
        launcher = self._copy("sendrecv", _bytes(x))
        launcher._run(x, _nothing(x), 0, 1, stream, options, True, 0, to, None)

    def recv(self, out, source, *, stream=None, options=None):
        """Receives into ``out`` what one rank sends."""
        launcher = self._copy("sendrecv", _bytes(out))
        launcher._run(_nothing(out), out, 1, 0, stream, options, True, 0, None, source)
        return out

    def sendrecv(self, x, to, source, *, out=None, stream=None, options=None):
        """Sends ``x`` to one rank and receives as much from another (or the same), at once."""
        launcher = self._copy("sendrecv", _bytes(x))
        if out is None:
            out = _empty(x, x.shape)
        launcher._run(x, out, 1, 1, stream, options, True, 0, to, source)
        return out

    def barrier(self, *, stream=None):
        """Meets all ranks: what is queued behind it on the stream runs when every rank's has come to it. On CPU threads the call itself waits for them. On a
        GPU ``stream`` is PyTorch's current one by default."""
        launcher = self._launchers.get("barrier")
        if launcher is None:
            launcher = self._launchers["barrier"] = self._shipped("barrier", "custom", "")
        if stream is None and self.device is not None:
            torch = sys.modules.get("torch")
            if torch is None:
                raise Misuse("a barrier has no tensors that say what stream it is for: name one, as in `stream=nvl.stream`")
            stream = torch.cuda.current_stream(self.device)
        launcher(stream=stream, blocks=1)

    # Inside.

    def _part(self, shape):
        if len(shape) == 0 or shape[0] % self.size:
            raise Misuse(f"a tensor of shape {tuple(shape)} has no {self.size} equal parts along its first dimension, one for each rank")
        return (shape[0] // self.size, *shape[1:])

    def _whole(self, shape):
        return (self.size * shape[0], *shape[1:]) if len(shape) else (self.size,)

    def _reduction(self, schedule, op, x, where=""):
        key = (schedule + where, op, _dtype(x))
        launcher = self._launchers.get(key)
        if launcher is None:
            name = _dtype_name(x.dtype)
            if not _has_kernel(op, name):
                there = (f"{op} of {', '.join(of for of in _REDUCED if _has_kernel(op, of))}" for op in ("sum", "avg", "max", "min"))
                raise Misuse(f"no reduction {op!r} of {name}: there are {'; '.join(there)}")
            launcher = self._launchers[key] = self._shipped(f"{_OPS[op]}_{_REDUCED[name]}{where}", schedule, "")
        return launcher

    def _copy(self, schedule, part, where=""):
        key = (schedule + where, part % 4 == 0)
        launcher = self._launchers.get(key)
        if launcher is None:
            launcher = self._launchers[key] = self._shipped(f"copy{where}", schedule, "u32" if part % 4 == 0 else "u8")
        return launcher

    def _shipped(self, name, schedule, element):
        asked = (name, schedule, element, self.name)
        for kernel in self._world._library.kernels():
            if (kernel.name, kernel.schedule, kernel.element, kernel.transport) == asked:
                return self._raw.prepare(kernel)
        raise Misuse(f"{self._world._library!r} has no kernel `{name}` by {schedule} on {self.name}")


class Shm(Transport):
    """Host shared memory between the processes of one host. Kernels run on CPU threads."""

    _name = "Shm"


class Nvl(Transport):
    """GPUs of one host that reach each other's memory, over NVLink or PCIe. The GPU is that of the rank's place on its host."""

    _name = "Nvl"

    def mem_pool(self):
        """A ``torch.cuda.MemPool`` whose tensors are symmetric memory, so that peers store straight into them as outputs.

            pool = nvl.mem_pool()
            with torch.cuda.use_mem_pool(pool):
                out = torch.empty(n, dtype=torch.bfloat16, device="cuda")

        Every rank makes the same pools, and allocates and frees the same sizes in them in the same order. The pool grows by a collective: a rank that
        allocates alone waits for the others until the world's timeout, and then finds no memory. Outputs then have the same place on every rank; a
        launch whose outputs have not raises ``Fault``. ``torch.cuda.empty_cache`` and want of memory free segments: they come to all ranks, or to none.

        Allocate before a capture, not within. Tensors of one segment are one buffer to the order of streams: calls with two of them on two streams run one behind
        the other. There are at most eight pools at a time. Close the transport after its pools are gone.
        """
        import torch

        number, alloc, free = self._raw._pool()
        try:
            # PyTorch's own pointers to it may outlive the pool.
            allocator = _ALLOCATORS.get(number)
            if allocator is None:
                made = torch.cuda.memory.CUDAPluggableAllocator(_fusewire.__file__, alloc, free)
                allocator = _ALLOCATORS[number] = (made, made.allocator())
            pool = torch.cuda.MemPool(allocator[1])
        except BaseException:
            _fusewire._pool_closed(number)
            raise
        pool._fusewire = self
        weakref.finalize(pool, _fusewire._pool_closed, number)
        return pool


def _dtype_name(dtype):
    """"float32", of a dtype of NumPy, torch or CuPy, or of a name."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or str(dtype)
    return name.rpartition(".")[2]


def _dtype(x):
    try:
        return x.dtype
    except AttributeError:
        raise Misuse(f"a {type(x).__name__} is no tensor: give one of NumPy, PyTorch, CuPy or another library with DLPack") from None


def _bytes(x):
    _dtype(x)
    return x.nbytes


def _nothing(x):
    """An output of no elements."""
    return x.reshape(-1)[:0]


def _empty(x, shape):
    """A tensor like ``x`` of another shape."""
    if hasattr(x, "new_empty"):
        return x.new_empty(shape)
    space = x.__array_namespace__()
    return space.empty(shape, dtype=x.dtype, device=x.device)
