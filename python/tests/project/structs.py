"""Structs as elements and by value: `cargo xtask test` adds the kernel of structs.rs and these tests to a project of a user's."""

import ctypes
import struct

import fusewire
import numpy
import pytest
from fusewire.testing import run

import project


class Complex(ctypes.Structure):
    _fields_ = [("re", ctypes.c_float), ("im", ctypes.c_float)]


LIKE = numpy.dtype([("re", "f4"), ("im", "f4")])
X = numpy.arange(12, dtype="float32").view("complex64")
BY = {
    "ctypes": Complex(2, -3),
    "a scalar": numpy.array((2, -3), LIKE)[()],
    "an array of no dimension": numpy.array((2, -3), LIKE),
    "bytes": struct.pack("=2f", 2, -3),
    "a complex number": numpy.complex64(2 - 3j),
}
PLUS = {
    "ctypes": (Complex * 2)(Complex(1, 2), Complex(10, 20)),
    "an array": numpy.array([(1, 2), (10, 20)], LIKE),
    "every second": numpy.array([(1, 2), (0, 0), (10, 20), (0, 0)], LIKE)[::2],
}


@pytest.fixture(scope="module")
def turned():
    shm = fusewire.Shm(fusewire.World.single(library=project.kernels), window=1 << 16)
    return project.kernels.turned.all_to_all(shm)


def called(turned, by, conjugate=False, **others):
    out = numpy.zeros_like(X)
    turned(X.view("uint8"), out.view("uint8"), by, conjugate, **others)
    return out


@pytest.mark.parametrize("by", BY.values(), ids=BY)
def test_a_struct_by_value(turned, by):
    assert numpy.array_equal(called(turned, by), X * (2 - 3j))


@pytest.mark.parametrize("plus", PLUS.values(), ids=PLUS)
def test_an_array_of_structs_by_value(turned, plus):
    assert numpy.array_equal(called(turned, Complex(1, 0), plus=plus), X + (11 + 22j))


def test_a_bool_by_value(turned):
    assert numpy.array_equal(called(turned, Complex(1, 0), True), X.conj())


def rank():
    world = project.kernels.World()
    turned = project.kernels.turned.all_to_all(fusewire.Shm(world, window=1 << 16))
    mine = lambda rank: (numpy.arange(world.size * 300) + 1j * rank).astype("complex64").reshape(world.size, 300)
    out = numpy.zeros((world.size, 300), "complex64")
    turned(mine(world.rank).view("uint8"), out.view("uint8"), by=Complex(0, 2), conjugate=False)
    assert numpy.array_equal(out, 2j * numpy.stack([mine(sender)[world.rank] for sender in range(world.size)]))


def test_structs_between_ranks():
    run(2, rank)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"by": Complex}, "has no bytes; give 8 bytes, as a `ctypes.Structure`"),
        ({"by": 3.0}, "a float has no bytes; give 8 bytes"),
        ({"by": None}, "a NoneType has no bytes"),
        ({"by": bytes(7)}, "it has 7 bytes; give 8 bytes"),
        ({"by": (Complex * 2)()}, "it has 16 bytes; give 8 bytes"),
        ({"plus": Complex()}, "it has 8 bytes; give 16 bytes"),
        ({"switch": bytes(8)}, "switch: bytes (value) cannot be"),
        ({"switch": bytes(8)}, "not all bytes are a value of its type in Rust"),
        ({"mode": b"\2"}, "not all bytes are a value of its type in Rust"),
        ({"conjugate": b"\2"}, "conjugate: bool (value) cannot be b'\\x02'"),
        ({"input": X}, "argument `input` has dtype complex64, but should have uint8, the bytes of its structs"),
        ({"input": X.view("uint8")[:-1]}, "`input` has elements of Complex, of 8 bytes"),
    ],
)
def test_what_is_no_struct_is_refused(turned, given, says):
    out = numpy.zeros_like(X)
    good = {"input": X.view("uint8"), "output": out.view("uint8"), "by": Complex(1, 0), "conjugate": False}
    with pytest.raises(fusewire.Misuse) as refused:
        turned(**{**good, **given})
    assert says in str(refused.value)
    assert not out.any()


def test_fields_say_what_they_take(turned):
    fields = {field.name: (field.dtype, field.size, field.any_bytes) for field in turned.fields}
    assert fields == {
        "input": ("bytes", 8, True),
        "output": ("bytes", 8, True),
        "by": ("bytes", 8, True),
        "conjugate": ("bool", 1, False),
        "plus": ("bytes", 16, True),
        "switch": ("bytes", 8, False),
        "mode": ("bytes", 1, False),
    }
