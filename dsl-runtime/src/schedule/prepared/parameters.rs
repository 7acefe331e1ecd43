//! A kernel's parameters without their types, so that what launches is compiled once, not for every schedule and every type of arguments.

use fusewire_device::launch::{Params, Shape};
use fusewire_device::ops::Ops;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

/// Parameters of one launch, where its caller has them.
pub(super) struct Parameters<'p> {
    at: *mut u8,
    bytes: usize,
    shape: *mut Shape,
    tell_peers: unsafe fn(*const u8, u64),
    types: PhantomData<&'p mut u8>,
}

impl<'p> Parameters<'p> {
    pub(super) fn of<O: Ops, S, R>(params: &'p mut Params<O, S, R>) -> Self
    where
        S: Copy + Send + Sync + 'static,
        R: Copy + Send + Sync + 'static,
    {
        const {
            assert!(
                align_of::<Params<O, S, R>>() <= align_of::<Line>(),
                "parameters are aligned to 128 bytes at most"
            )
        }
        let params = ptr::from_mut(params);
        // SAFETY: in bounds of what the reference is of.
        let shape = unsafe { &raw mut (*params).shape };
        let (at, bytes) = (params.cast(), size_of::<Params<O, S, R>>());
        Parameters { at, bytes, shape, tell_peers: tell_peers::<O>, types: PhantomData }
    }

    pub(super) fn reshape(&mut self, shape: Shape) {
        // SAFETY: a field of the parameters, which are borrowed for as long as `self` is.
        unsafe { self.shape.write(shape) }
    }

    /// Of the whole, for the driver.
    pub(super) fn address(&mut self) -> *mut c_void {
        self.at.cast()
    }

    /// A copy, which a CPU thread runs with.
    pub(super) fn kept(&self) -> Kept {
        let mut lines: Box<[Line]> =
            vec![Line([MaybeUninit::uninit(); _]); self.bytes.div_ceil(size_of::<Line>())].into();
        // SAFETY: so many bytes are there, and in the lines, which nothing else refers to yet.
        unsafe { ptr::copy_nonoverlapping(self.at, lines.as_mut_ptr().cast(), self.bytes) };
        Kept { lines, tell_peers: self.tell_peers }
    }
}

/// As aligned as any parameters are.
#[derive(Clone, Copy)]
#[repr(align(128))]
#[expect(dead_code, reason = "read by kernels alone, through the address")]
struct Line([MaybeUninit<u8>; 128]);

/// Parameters that nobody writes any more.
pub(super) struct Kept {
    /// Bytes of `Params` with the operations that `tell_peers` takes; all of its parts are `Copy + Send + Sync + 'static`.
    lines: Box<[Line]>,
    tell_peers: unsafe fn(*const u8, u64),
}

impl Kept {
    pub(super) fn address(&self) -> *const u8 {
        self.lines.as_ptr().cast()
    }

    /// Raises every peer's abort word.
    pub(super) fn tell_peers(&self, code: u64) {
        // SAFETY: the operations that this function is for are at the address: see the field.
        unsafe { (self.tell_peers)(self.address(), code) }
    }
}

// SAFETY: see the field `lines`.
unsafe impl Send for Kept {}
// SAFETY: the same.
unsafe impl Sync for Kept {}

/// # Safety
/// `params` points to parameters whose operations are `O`: they are the first field of a `repr(C)` struct.
unsafe fn tell_peers<O: Ops>(params: *const u8, code: u64) {
    // SAFETY: the caller's contract.
    let ops = unsafe { &*params.cast::<O>() };
    for peer in (0..ops.world()).filter(|p| *p != ops.rank()) {
        ops.raise_abort(peer, code);
    }
}
