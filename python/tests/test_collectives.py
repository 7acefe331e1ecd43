"""The shipped collectives on CPU threads, against NumPy."""

import time

import numpy
import pytest

import fusewire
from fusewire.testing import run

LENGTHS = (0, 1, 7, 1000, 100_003)
OPS = {"sum": numpy.add, "max": numpy.maximum, "min": numpy.minimum}


def given(rank, shape, dtype, seed):
    """What a rank gives: whole numbers, whose sums are exact in every type and order."""
    values = numpy.random.default_rng((seed, rank)).integers(-8, 9, size=shape)
    return values.astype(dtype)


def opened():
    world = fusewire.World(timeout=60)
    return world, fusewire.Shm(world, window=1 << 18)


def reductions(seed):
    world, shm = opened()
    n = world.size
    for dtype in ("float32", "float16", "float64", "int32", "int64"):
        for op, fold in OPS.items():
            if dtype == "float64" and op != "sum":
                continue
            for length in LENGTHS:
                all_ = [given(rank, (n * length,), dtype, seed) for rank in range(n)]
                expected = fold.reduce(all_)
                own = all_[world.rank]
                where = (seed, dtype, op, length)
                assert numpy.array_equal(shm.all_reduce(own, op), expected), where
                # From any element on.
                aside = numpy.concatenate([own[:1], own])[1:]
                assert numpy.array_equal(shm.all_reduce(aside, op), expected), where
                in_place = own.copy()
                assert shm.all_reduce(in_place, op, out=in_place) is in_place, where
                assert numpy.array_equal(in_place, expected), where
                part = expected[world.rank * length : (world.rank + 1) * length]
                assert numpy.array_equal(shm.reduce_scatter(own, op), part), where
                root = length % n
                came = shm.reduce(own, root, op)
                assert (came is None) == (world.rank != root), where
                assert came is None or numpy.array_equal(came, expected), where
    mean = shm.all_reduce(numpy.full(5, world.rank, "float32"), "avg")
    assert (mean == numpy.float32((n - 1) / 2)).all()


def copies(seed):
    world, shm = opened()
    n, me = world.size, world.rank
    for dtype in ("uint8", "float16", "int64", "bool", "complex64", "float32"):
        for length in LENGTHS:
            all_ = [given(rank, (n * length, 2), dtype, seed) for rank in range(n)]
            own, root = all_[me], length % n
            parts = lambda x: x.reshape(n, length, 2)
            where = (seed, dtype, length)
            assert numpy.array_equal(shm.all_gather(own), numpy.concatenate(all_)), where
            whole = numpy.zeros((n * n * length, 2), dtype)
            whole[me * n * length : (me + 1) * n * length] = own
            assert shm.all_gather(None, out=whole) is whole, where
            assert numpy.array_equal(whole, numpy.concatenate(all_)), where
            came = numpy.concatenate([parts(x)[me] for x in all_])
            assert numpy.array_equal(shm.all_to_all(own), came), where
            assert numpy.array_equal(shm.broadcast(own, root), all_[root]), where
            assert numpy.array_equal(shm.scatter(own, root), parts(all_[root])[me]), where
            in_place = own.copy()
            assert shm.broadcast(in_place, root, out=in_place) is in_place, where
            assert numpy.array_equal(in_place, all_[root]), where
            out = numpy.zeros((length, 2), dtype)
            assert shm.scatter(own if me == root else None, root, out=out) is out, where
            assert numpy.array_equal(out, parts(all_[root])[me]), where
            whole = shm.gather(own, root)
            assert (whole is None) == (me != root), where
            assert whole is None or numpy.array_equal(whole, numpy.concatenate(all_)), where
            if n > 1:
                came = shm.sendrecv(own, (me + 1) % n, (me - 1) % n)
                assert numpy.array_equal(came, all_[(me - 1) % n]), where
    if n > 1:
        # Two ranks alone, which all have prepared above.
        x = numpy.arange(1000, dtype="float32")
        if me == 0:
            shm.send(x, 1)
        elif me == 1:
            assert numpy.array_equal(shm.recv(numpy.zeros_like(x), 0), x)


def outputs():
    world, shm = opened()
    n, me = world.size, world.rank
    x = numpy.arange(n * 64, dtype="int32") + 1000 * me
    expected = numpy.concatenate([numpy.arange(64, dtype="int32") + 64 * me + 1000 * rank for rank in range(n)])
    memory = shm.symmetric(n * 64, "int32")
    direct = numpy.from_dlpack(memory)
    assert not direct.any()
    for protocol in ("direct", "bulk", "simple", "ll", "ll128", None):
        direct[:] = -1
        world.barrier()
        out = shm.all_to_all(x, out=direct, options=fusewire.Options(protocol=protocol))
        assert out is direct and numpy.array_equal(direct, expected), protocol
        world.barrier()
    # A barrier waits for the last.
    shm.barrier()
    begin = time.monotonic()
    if me == n - 1:
        time.sleep(0.3)
    shm.barrier()
    assert time.monotonic() - begin > 0.29
    del memory  # The array keeps it.
    assert numpy.array_equal(direct, expected)
    read_only = numpy.arange(n * 64, dtype="int32")
    read_only.flags.writeable = False
    assert shm.all_reduce(read_only)[1] == n
    second = fusewire.World(beside=world, timeout=60)
    assert (second.rank, second.size) == (me, n)
    assert fusewire.Shm(second, window=1 << 16).all_gather(numpy.array([me]))[n - 1] == n - 1
    half = world.split(me % 2)
    assert (half.size, half.rank) == ((n + 1 - me % 2) // 2, me // 2)
    assert fusewire.Shm(half, window=1 << 16).all_reduce(numpy.ones(3, "int32"))[0] == half.size


@pytest.mark.parametrize("size", [1, 2, 3])
def test_reductions(size):
    run(size, reductions, 7 + size)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_copies(size):
    run(size, copies, 70 + size)


def test_outputs():
    run(3, outputs)
