//! `fusewire_device` for virtual threads: every access to a shared word is a place where another one may go on.

pub use fusewire_device::group;

pub mod wait {
    pub use fusewire_device::wait::{Control, LOOK_NS};
}

#[allow(clippy::extra_unused_type_parameters)] // scope and order are those of the operations' own sources; here all are the strictest
pub mod atomic {
    pub use fusewire_device::atomic::{AcqRel, Acquire, Device, Relaxed, Release, System};
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

    pub trait Word: Copy {
        unsafe fn get(at: *const Self) -> Self;
        unsafe fn set(at: *mut Self, value: Self);
    }

    macro_rules! word {
        ($t:ty, $atomic:ty) => {
            impl Word for $t {
                unsafe fn get(at: *const Self) -> Self {
                    // SAFETY: the caller's contract.
                    unsafe { <$atomic>::from_ptr(at.cast_mut()) }.load(SeqCst)
                }
                unsafe fn set(at: *mut Self, value: Self) {
                    // SAFETY: the caller's contract.
                    unsafe { <$atomic>::from_ptr(at) }.store(value, SeqCst);
                }
            }
        };
    }
    word!(u32, AtomicU32);
    word!(u64, AtomicU64);

    pub unsafe fn load<S, O, T: Word>(at: *const T) -> T {
        crate::machine::point();
        // SAFETY: the caller's contract.
        unsafe { T::get(at) }
    }

    pub unsafe fn store<S, O, T: Word>(at: *mut T, value: T) {
        crate::machine::point();
        // SAFETY: the caller's contract.
        unsafe { T::set(at, value) };
    }

    pub trait Modify<S, O>: Copy {
        unsafe fn fetch_add(at: *mut Self, value: Self) -> Self;
        unsafe fn compare_exchange(at: *mut Self, old: Self, new: Self) -> Self;
        unsafe fn fetch_max(at: *mut Self, value: Self) -> Self;
    }

    impl<S, O> Modify<S, O> for u64 {
        unsafe fn fetch_add(at: *mut Self, value: Self) -> Self {
            crate::machine::point();
            // SAFETY: the caller's contract.
            unsafe { AtomicU64::from_ptr(at) }.fetch_add(value, SeqCst)
        }
        unsafe fn compare_exchange(at: *mut Self, old: Self, new: Self) -> Self {
            crate::machine::point();
            // SAFETY: the caller's contract.
            unsafe { AtomicU64::from_ptr(at) }
                .compare_exchange(old, new, SeqCst, SeqCst)
                .unwrap_or_else(|found| found)
        }
        unsafe fn fetch_max(at: *mut Self, value: Self) -> Self {
            crate::machine::point();
            // SAFETY: the caller's contract.
            unsafe { AtomicU64::from_ptr(at) }.fetch_max(value, SeqCst)
        }
    }
}

pub mod arch {
    pub fn now_ns() -> u64 {
        crate::machine::now()
    }

    pub fn relax(_turn: u32) {
        crate::machine::point();
    }

    pub fn fence_system() {
        crate::machine::point();
    }

    pub unsafe fn store_16(at: *mut u8, v: [u32; 4]) {
        crate::machine::point();
        // SAFETY: the caller's contract.
        unsafe { at.cast::<[u32; 4]>().write(v) };
    }
}
