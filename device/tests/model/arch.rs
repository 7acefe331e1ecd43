//! `arch` by loom: every word and every 16 bytes of payload is an object of the model checker, found by its address.

use crate::atomic::{AcqRel, Acquire, Block, Device, Load, Modify, Relaxed, Release, Store, System};
use loom::{cell::UnsafeCell, sync::atomic};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::atomic::Ordering,
};

/// What is removed from the protocol, to see that the checker notices.
#[derive(Clone, Copy, PartialEq)]
pub enum Removed {
    Nothing,
    Release,
    Acquire,
}

// Loom runs its threads as coroutines of one OS thread, so these are shared by all of them.
thread_local! {
    static REMOVED: Cell<Removed> = const { Cell::new(Removed::Nothing) };
    static U32: RefCell<HashMap<usize, Rc<atomic::AtomicU32>>> = RefCell::default();
    static U64: RefCell<HashMap<usize, Rc<atomic::AtomicU64>>> = RefCell::default();
    static PAYLOAD: RefCell<HashMap<usize, Rc<UnsafeCell<[u32; 4]>>>> = RefCell::default();
}

/// Forgets every object: an execution begins or ends.
pub fn reset(removed: Removed) {
    REMOVED.set(removed);
    U32.with_borrow_mut(HashMap::clear);
    U64.with_borrow_mut(HashMap::clear);
    PAYLOAD.with_borrow_mut(HashMap::clear);
}

/// Makes the word at an address exist, by the thread that all others come from.
pub fn prepare_word(at: u64) {
    u64::word(at as *const u64);
}

/// Makes the 16 bytes at an address exist.
pub fn prepare_payload(at: *const u8) {
    payload(at);
}

fn payload(at: *const u8) -> Rc<UnsafeCell<[u32; 4]>> {
    assert!((at as usize).is_multiple_of(16));
    PAYLOAD.with_borrow_mut(|all| {
        all.entry(at as usize).or_insert_with(|| Rc::new(UnsafeCell::new([0; 4]))).clone()
    })
}

fn order(order: Ordering) -> Ordering {
    match (REMOVED.get(), order) {
        (Removed::Release, Ordering::Release) | (Removed::Acquire, Ordering::Acquire) => Ordering::Relaxed,
        (_, order) => order,
    }
}

pub fn now_ns() -> u64 {
    0
}

pub fn block_index() -> u32 {
    0
}

pub fn relax(_turn: u32) {
    loom::thread::yield_now();
}

pub fn follow() {}

pub fn follow_in<const BRANCH: u32>() {}

pub fn late(number: u64) -> u64 {
    number
}

pub fn arm_panic<G: crate::group::Group>(_: &G, _: &crate::wait::Control, _: u32, _: u32) {}

pub fn armed() -> Option<(crate::wait::Control, u32, u32)> {
    None
}

pub fn block_panicked() -> bool {
    false
}

/// # Safety
/// None needed: the checker looks.
pub unsafe fn load_16(at: *const u8) -> [u32; 4] {
    // SAFETY: the checker reports a race instead of letting it happen.
    payload(at).with(|words| unsafe { *words })
}

/// # Safety
/// As for [`load_16`].
pub unsafe fn load_16_once(at: *const u8) -> [u32; 4] {
    // SAFETY: as above.
    unsafe { load_16(at) }
}

/// # Safety
/// As for [`load_16`].
pub unsafe fn store_16(at: *mut u8, v: [u32; 4]) {
    // SAFETY: as above.
    payload(at).with_mut(|words| unsafe { *words = v });
}

trait Word: Sized {
    type Object;
    fn word(at: *const Self) -> Rc<Self::Object>;
}

macro_rules! words {
    ($t:ty, $object:ty, $all:ident) => {
        impl Word for $t {
            type Object = $object;
            fn word(at: *const Self) -> Rc<Self::Object> {
                $all.with_borrow_mut(|all| all.entry(at as usize).or_insert_with(|| Rc::new(<$object>::new(0))).clone())
            }
        }
        words!(@scope $t, System);
        words!(@scope $t, Device);
        words!(@scope $t, Block);
    };
    (@scope $t:ty, $scope:ty) => {
        words!(@load $t, $scope, Relaxed);
        words!(@load $t, $scope, Acquire);
        words!(@store $t, $scope, Relaxed);
        words!(@store $t, $scope, Release);
        words!(@modify $t, $scope, Relaxed);
        words!(@modify $t, $scope, AcqRel);
    };
    (@load $t:ty, $scope:ty, $order:ident) => {
        impl Load<$scope, $order> for $t {
            unsafe fn load(at: *const Self) -> Self {
                Self::word(at).load(order(Ordering::$order))
            }
        }
    };
    (@store $t:ty, $scope:ty, $order:ident) => {
        impl Store<$scope, $order> for $t {
            unsafe fn store(at: *mut Self, value: Self) {
                Self::word(at).store(value, order(Ordering::$order));
            }
        }
    };
    (@modify $t:ty, $scope:ty, $order:ident) => {
        impl Modify<$scope, $order> for $t {
            unsafe fn fetch_add(at: *mut Self, value: Self) -> Self {
                Self::word(at).fetch_add(value, Ordering::$order)
            }
            unsafe fn exchange(at: *mut Self, value: Self) -> Self {
                Self::word(at).swap(value, Ordering::$order)
            }
            unsafe fn compare_exchange(at: *mut Self, old: Self, new: Self) -> Self {
                match Self::word(at).compare_exchange(old, new, Ordering::$order, Ordering::Relaxed) {
                    Ok(v) | Err(v) => v,
                }
            }
            unsafe fn fetch_max(at: *mut Self, value: Self) -> Self {
                Self::word(at).fetch_max(value, Ordering::$order)
            }
        }
    };
}
words!(u32, atomic::AtomicU32, U32);
words!(u64, atomic::AtomicU64, U64);

/// There are no processes here: ranks say that they cannot read each other's.
///
/// # Safety
/// None is needed.
pub unsafe fn read_process(_: u64, _: u64, _: *mut u8, _: usize) -> bool {
    false
}
