//! Objects of the C interface.

use crate::api::Api;

/// An object that is freed when its last owner here is gone.
pub struct Handle<T> {
    pub api: &'static Api,
    at: Passed<T>,
    free: unsafe extern "C" fn(*mut T),
}

/// A pointer to an object: whoever has it may use it from any thread.
pub struct Passed<T>(pub *mut T);
// SAFETY: objects of the C interface may be used by several threads.
unsafe impl<T> Send for Passed<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Passed<T> {}

impl<T> Clone for Passed<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Passed<T> {}

impl<T> Passed<T> {
    /// The pointer; by a method, so that closures capture the whole.
    pub fn get(self) -> *mut T {
        self.0
    }
}

impl<T> Handle<T> {
    /// # Safety
    /// `at` is an object of the interface that nobody else frees, and `free` frees it.
    pub unsafe fn new(api: &'static Api, at: *mut T, free: unsafe extern "C" fn(*mut T)) -> Self {
        Handle { api, at: Passed(at), free }
    }

    /// The object, for as long as this is borrowed.
    pub fn get(&self) -> Passed<T> {
        self.at
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // SAFETY: by `new`.
        unsafe { (self.free)(self.at.0) };
    }
}
