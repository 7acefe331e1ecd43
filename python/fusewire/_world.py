"""Worlds, and libraries of kernels."""

from __future__ import annotations

import atexit
import itertools
import os
import weakref

from . import _fusewire
from .errors import Error, Misuse

#: Worlds that were not closed, by the order in which they were made.
_OPEN = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()


@atexit.register
def _leave():
    """Ranks wait for each other at their ends, so that none is taken for lost: in one order, the last world first."""
    for _, world in sorted(_OPEN.items(), reverse=True):
        try:
            world.close()
        except Error:
            pass  # A rank that failed is gone, and has said why.


class World:
    """The ranks of a job.

    ``World()`` meets the ranks that the same launcher started: torchrun, mpirun, srun, or the variables ``FUSEWIRE_RANK`` and so on.
    Collective, as all methods that say so: every rank calls them, in the same order. Waits raise after ``timeout`` seconds, 60 by default.

    ``library`` says whose kernels its transports run: what ``load`` gave, or else those that come with the package. A second world of the same
    ranks, for another library, is made ``beside`` the first.
    """

    def __init__(self, *, library=None, beside=None, timeout=None):
        raw = _library(library)
        if beside is None:
            self._meet(raw, _fusewire.World.from_env(raw, timeout))
            return
        identity = raw.unique_id() if beside.rank == 0 else bytes(128)
        identity = beside.broadcast(identity)
        self._meet(raw, _fusewire.World.connect(raw, identity, beside.rank, beside.size, timeout))

    def _meet(self, library, raw):
        self._library, self._raw, self._number = library, raw, next(_NUMBERS)
        _OPEN[self._number] = self

    @classmethod
    def _of(cls, library, raw):
        world = cls.__new__(cls)
        world._meet(library, raw)
        return world

    @classmethod
    def single(cls, *, library=None):
        """A world of this rank alone."""
        raw = _library(library)
        return cls._of(raw, _fusewire.World.single(raw))

    @classmethod
    def connect(cls, identity, rank, size, *, library=None, timeout=None):
        """Meets the ranks that have the same id, which ``unique_id`` made on one of them. Collective."""
        raw = _library(library)
        return cls._of(raw, _fusewire.World.connect(raw, identity, rank, size, timeout))

    @classmethod
    def from_process_group(cls, group=None, *, library=None, timeout=None):
        """The ranks of a process group of ``torch.distributed``, the default one if none is given. Collective."""
        import torch.distributed as dist

        rank, size = dist.get_rank(group), dist.get_world_size(group)
        raw = _library(library)
        told = [raw.unique_id() if rank == 0 else None]
        first = 0 if group is None else dist.get_global_rank(group, 0)
        dist.broadcast_object_list(told, src=first, group=group)
        return cls._of(raw, _fusewire.World.connect(raw, told[0], rank, size, timeout))

    @property
    def rank(self):
        """This rank."""
        return self._raw.rank

    @property
    def size(self):
        """Ranks."""
        return self._raw.size

    @property
    def local_rank(self):
        """This rank among those of its host."""
        return self._raw.local_rank

    def split(self, color, key=0):
        """The ranks with the same color as a world of their own, in the order of key. Collective."""
        return World._of(self._library, self._raw._split(color, key))

    def broadcast(self, data, root=0):
        """The bytes of ``root``, of which every rank gives as many. Collective."""
        return self._raw.broadcast(data, root)

    def barrier(self):
        """Waits for every rank. Collective."""
        self._raw.barrier()

    def close(self):
        """Waits until every rank is done with the world, or is gone, and leaves it. Collective; the end of the program does it too."""
        if _OPEN.pop(self._number, None) is not None:
            self._raw._teardown()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"World(rank {self.rank} of {self.size})"


def unique_id(library=None):
    """An id by which ranks meet (``World.connect``), made by one of them."""
    return _library(library).unique_id()


def _library(library):
    if library is None:
        return _BUNDLED
    if isinstance(library, Kernels):
        return library._raw
    raise Misuse(f"library={library!r}: it should be what `fusewire.load` gave")


class Kernels:
    """The kernels of a library, as attributes: ``kernels.double_add.all_to_all(shm)`` prepares one on a transport of this library.

    ``World`` and the transports are those of the package; worlds of this library are made by ``kernels.World()``.
    """

    def __init__(self, raw):
        self._raw = raw
        self._modules = {}
        for kernel in raw.kernels():
            self._modules.setdefault(kernel.name, []).append(kernel)

    def World(self, **options):
        """A world whose transports run this library's kernels: ``fusewire.World(library=self, ..)``."""
        return World(library=self, **options)

    def __getattr__(self, name):
        modules = self.__dict__.get("_modules", {})
        if name in modules:
            return Module(name, modules[name])
        raise AttributeError(f"{self!r} has no kernel `{name}`; it has {', '.join(modules) or 'none'}")

    def __dir__(self):
        return [*super().__dir__(), *self._modules]

    def __iter__(self):
        return (kernel for kernels in self._modules.values() for kernel in kernels)

    def __repr__(self):
        return f"Kernels({str(self._raw.path)!r})"


class Module:
    """The kernels of one module or schedule function: a method for each schedule."""

    def __init__(self, name, kernels):
        self._name, self._kernels = name, kernels

    def __getattr__(self, schedule):
        kernels = [kernel for kernel in self.__dict__.get("_kernels", []) if kernel.schedule == schedule]
        if not kernels:
            there = ", ".join(dict.fromkeys(kernel.schedule for kernel in self._kernels))
            raise AttributeError(f"`{self._name}` has no schedule `{schedule}`; it has {there}")
        return lambda transport, element=None: transport.prepare(_choose(kernels, transport, element))

    def __dir__(self):
        return [*super().__dir__(), *(kernel.schedule for kernel in self._kernels)]

    def on(self, transport):
        """Prepares a schedule function. Collective."""
        return self.custom(transport)

    def __repr__(self):
        return "\n".join(map(repr, self._kernels))


def _choose(kernels, transport, element):
    fits = [kernel for kernel in kernels if kernel.transport == transport.name and element in (None, kernel.element)]
    if len(fits) == 1:
        return fits[0]
    there = ", ".join(f"{kernel.transport}" + f" of {kernel.element}" * bool(kernel.element) for kernel in kernels)
    name = f"`{kernels[0].name}` by {kernels[0].schedule} on {transport.name}"
    asked = f" of {element}" if element else ""
    if not fits:
        raise Misuse(f"{name}{asked} was not compiled; there is {there}")
    raise Misuse(f"{name} is of several element types or numbers; name one of them, as in `element={fits[0].element!r}`: there is {there}")


def load(path):
    """Loads a library of kernels, which a crate with ``fusewire_capi::export!(..)`` and ``crate-type = ["cdylib"]`` builds."""
    return Kernels(_fusewire.Library.load(os.fspath(path)))


_BUNDLED = _fusewire.Library.bundled()
