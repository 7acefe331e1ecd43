"""What is refused: exceptions that name the argument, and nothing done; never a crash."""

import threading
import time

import numpy
import pytest
from hypothesis import HealthCheck, given, settings, strategies

import fusewire
from fusewire.testing import run

SHM = []


@pytest.fixture(scope="module")
def shm():
    SHM.append(fusewire.Shm(fusewire.World.single(), window=1 << 16))
    return SHM[-1]


ODD = numpy.zeros(33, "uint8")
X = numpy.arange(16, dtype="float32")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (lambda shm: shm.all_reduce(X[::2]), "argument `input` is not contiguous (shape [8], strides [2])"),
        (lambda shm: shm.all_reduce(X.reshape(4, 4).T), "argument `input` is not contiguous"),
        (lambda shm: shm.all_reduce(X > 3), "no reduction 'sum' of bool"),
        (lambda shm: shm.all_reduce(X.astype("complex64")), "no reduction 'sum' of complex64"),
        (lambda shm: shm.all_reduce(X, "xor"), "no reduction 'xor' of float32: there are sum of float32, "),
        (lambda shm: shm.all_reduce(3.0), "a float is no tensor"),
        (lambda shm: shm.all_reduce(X.astype("float64"), "max"), "no reduction 'max' of float64: there are sum of float32"),
        (lambda shm: shm.all_reduce(X.astype("int32"), "avg"), "; avg of float32, float16, bfloat16; max of float32"),
        (lambda shm: shm.all_gather([1, 2]), "a list is no tensor"),
        (lambda shm: shm.all_reduce(X, out=X[:]), "buffers `input` and `output` overlap"),
        (lambda shm: shm.all_gather(ODD[1:]), "the address of elements of 4 bytes is a multiple of that"),
        (lambda shm: shm.all_reduce(X, out=X.astype("int32")), "argument `output` has dtype int32, but should have float32"),
        (lambda shm: shm.all_gather(ODD[:4], out=numpy.zeros(3, "uint8")), "`out` has 3 bytes, but should have 4"),
        (lambda shm: shm.reduce_scatter(X, out=X[:8]), "`out` has 32 bytes, but should have 64"),
        (lambda shm: shm.all_reduce(X, out=numpy.frombuffer(bytes(64), "float32")), "`output` is read-only"),
        (lambda shm: shm.broadcast(X, root=1), "root 1 in a world of 1"),
        (lambda shm: shm.send(X, 0), "rank 0 cannot send to itself"),
        (lambda shm: shm.symmetric(4, "float128"), "no symmetric memory of `float128`"),
        (lambda shm: shm.symmetric((-1, 4)), "symmetric memory of shape [-1, 4]"),
        (lambda shm: shm.symmetric((1 << 40, 1 << 40)), "symmetric memory of shape"),
        (lambda shm: fusewire.Options(protocol="ll12"), "there are simple, ll, ll128, local, direct, bulk, copy, two_shot, ll128_two_shot, hierarchical"),
        (lambda shm: fusewire.Shm(shm.world, window=16), "16 bytes per peer"),
        (lambda shm: fusewire.Shm(shm.world, deadline=-1), "deadline=-1"),
        (lambda shm: fusewire.load("/nowhere/lib.so"), "/nowhere/lib.so"),
        (lambda shm: fusewire.load("/proc/self/exe"), "/proc/self/exe"),
        (lambda shm: fusewire.World(library="kernels"), "it should be what `fusewire.load` gave"),
        (lambda shm: fusewire.World.connect(b"abc", 0, 1), "an id of 3 bytes"),
    ],
)
def test_what_cannot_be_is_refused(shm, body, says):
    with pytest.raises(fusewire.Misuse) as refused:
        body(shm)
    assert says in str(refused.value)
    assert isinstance(refused.value, ValueError)
    assert shm.all_reduce(X)[3] == 3


def test_without_a_launcher_a_world_says_what_it_looked_for(monkeypatch):
    for name in ("FUSEWIRE_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(fusewire.Error, match="torchrun"):
        fusewire.World()


shapes = strategies.lists(strategies.integers(0, 5), min_size=0, max_size=4)
dtypes = strategies.sampled_from(["float32", "int64", "uint8", "float16", "bool", "complex128", "U3", "datetime64[s]"])


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=shapes, dtype=dtypes, step=strategies.integers(-2, 2), start=strategies.integers(0, 3), other=shapes)
def test_any_array_is_taken_or_refused(shm, shape, dtype, step, start, other):
    """Whatever is given: the right values, or an exception."""
    x = numpy.zeros(shape, dtype)
    if x.ndim and step:
        x = x[start::step]
    out = numpy.ones(other, dtype)
    for run_ in (lambda: shm.all_gather(x), lambda: shm.all_reduce(x), lambda: shm.all_gather(x, out=out)):
        try:
            came = run_()
        except (fusewire.Misuse, BufferError, TypeError):
            continue
        assert came.dtype == x.dtype and came.size == x.size and (came == x.reshape(-1).reshape(came.shape)).all()


def met(deadline):
    """A world and a transport that has worked once, and what it reduced."""
    world = fusewire.World(timeout=30)
    shm = fusewire.Shm(world, window=1 << 16, deadline=deadline)
    x = numpy.ones(1000, "float32")
    shm.all_reduce(x)
    return world, shm, x


def late():
    world, shm, x = met(deadline=0.3)
    if world.rank == 0:
        with pytest.raises(fusewire.Fault) as fault:
            shm.all_reduce(x)
        error = fault.value
        assert (error.rank, error.peer) == (0, 1) and error.waited_for and error.channel is not None, vars(error)
        assert "all_reduce" in (error.kernel or "") and "rank 1" in str(error), (error.kernel, str(error))
        with pytest.raises(fusewire.Fault):
            shm.check()
    world.barrier()
    shm.renew()
    assert shm.all_reduce(x)[0] == 2
    shm.close()
    with pytest.raises(fusewire.Misuse, match="closed"):
        shm.all_reduce(x)


def aborted():
    world, shm, x = met(deadline=60)
    if world.rank == 0:
        # Rank 1 never comes: another thread ends the wait.
        threading.Timer(0.05, shm.abort, ["rank 1 is late"]).start()
        began = time.monotonic()
        with pytest.raises(fusewire.Fault) as fault:
            shm.all_reduce(x)
        assert time.monotonic() - began < 10
        assert (fault.value.rank, fault.value.waited_for) == (0, "rank 1 is late"), vars(fault.value)
    world.barrier()
    with pytest.raises(fusewire.Fault, match="rank 0 aborted Shm: rank 1 is late"):
        while True:
            shm.check()
    shm.renew()
    assert shm.all_reduce(x)[0] == 2


def disagreeing():
    world = fusewire.World(timeout=30)
    shm = fusewire.Shm(world, window=1 << 16, deadline=1)
    with pytest.raises(fusewire.Error) as refused:
        shm.all_reduce(numpy.ones(10, "float32" if world.rank else "int32"))
    assert "kernel" in str(refused.value) and "sum_i32" in str(refused.value), str(refused.value)


def test_a_rank_that_waits_in_vain_says_for_whom():
    run(2, late)


def test_another_thread_ends_a_wait():
    run(2, aborted)


def test_ranks_that_reduce_different_types_are_told():
    run(2, disagreeing)
