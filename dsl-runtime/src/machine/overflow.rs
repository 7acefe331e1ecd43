//! A hook that recurses without end overflows its thread's stack, which no process survives. It ends with a sentence that names the kernel.
//!
//! The guard page below each thread's stack makes the overflow a signal. The handler here tells one that hit the guard of a block's thread
//! from any other, writes the sentence and aborts; every other goes to whoever handled the signal before.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::{Once, OnceLock};

/// What a thread runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    /// Path of the kernel's module or function.
    pub kernel: &'static str,
    /// File of it.
    pub file: &'static str,
    /// This rank.
    pub rank: usize,
}

thread_local! {
    static RUNNING: Cell<Option<(Running, u32)>> = const { Cell::new(None) };
    /// Lowest address of the thread's stack, and one past its guard's.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// How far below a stack's end an access is taken for an overflow: a frame that is larger than the guard page may pass it.
const BELOW: usize = 1 << 20;

/// Notes what this thread runs from here on.
pub(crate) fn enter(running: Running, block: u32) {
    install();
    if STACK.get() == (0, 0) {
        STACK.set(own_stack().unwrap_or((0, 1)));
    }
    RUNNING.set(Some((running, block)));
}

/// This thread runs no hook any more.
pub(crate) fn leave() {
    RUNNING.set(None);
}

/// First address of this thread's stack, and how much of it may be the guard.
fn own_stack() -> Option<(usize, usize)> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut low, mut bytes, mut guard) = (std::ptr::null_mut(), 0, 0);
    // SAFETY: the attributes are made by the first call, read by the next ones, and ended once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let got = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut bytes);
        let guarded = libc::pthread_attr_getguardsize(attributes.as_ptr(), &raw mut guard);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (got == 0 && guarded == 0).then_some((low as usize, guard.max(4096)))
    }
}

type Handler = unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// The handlers before, by signal.
static BEFORE: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];
const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
            // SAFETY: a zeroed action is one without flags and mask. The handler is safe to run at any time: it allocates and locks nothing.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(signal, std::ptr::null(), &raw mut old) != 0 {
                    continue;
                }
                let _ = before.set(old);
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = on_signal as Handler as usize;
                // On the alternate stack that the standard library gives its threads.
                new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigaction(signal, &raw const new, std::ptr::null_mut());
            }
        }
    });
}

/// # Safety
/// Called by the system, as a signal's handler.
unsafe extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system's own description of the signal.
    let at = unsafe { (*info).si_addr() } as usize;
    let (low, guard) = STACK.get();
    if let Some((running, block)) = RUNNING.get()
        && low > 0
        && (low.saturating_sub(BELOW)..low + guard).contains(&at)
    {
        said(&running, block);
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
    // SAFETY: as the system would have called it.
    unsafe { pass_on(signal, info, context) };
}

/// Hands a signal to who handled it before.
///
/// # Safety
/// As for a handler.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = SIGNALS.iter().position(|s| *s == signal).and_then(|k| BEFORE[k].get());
    // SAFETY: the action that the system gave for this signal, called as its flags say; or the system's own, at the next access.
    unsafe {
        match before {
            Some(action) if action.sa_sigaction == libc::SIG_IGN => {}
            Some(action) if action.sa_sigaction != libc::SIG_DFL => {
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    std::mem::transmute::<usize, Handler>(action.sa_sigaction)(signal, info, context);
                } else {
                    std::mem::transmute::<usize, unsafe extern "C" fn(libc::c_int)>(action.sa_sigaction)(
                        signal,
                    );
                }
            }
            _ => {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// The sentence, in one write, without memory of the heap.
fn said(running: &Running, block: u32) {
    let mut text = Text { bytes: [0; 640], len: 0 };
    text.add("fusewire: a hook of `");
    text.add(running.kernel);
    text.add("` (");
    text.add(running.file);
    text.add(") has overflowed its thread's stack on rank ");
    text.number(running.rank as u64);
    text.add(", block ");
    text.number(u64::from(block));
    text.add(": it recurses without end, or keeps too much on the stack. The process ends; its peers are told that it is lost\n");
    // SAFETY: the bytes of `text`.
    let _ = unsafe { libc::write(2, text.bytes.as_ptr().cast(), text.len) };
}

struct Text {
    bytes: [u8; 640],
    len: usize,
}

impl Text {
    fn add(&mut self, part: &str) {
        for byte in part.bytes() {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
    }

    fn number(&mut self, mut value: u64) {
        let (mut digits, mut first) = ([0u8; 20], 20);
        while first == 20 || value > 0 {
            first -= 1;
            digits[first] = b'0' + (value % 10) as u8;
            value /= 10;
        }
        self.add(std::str::from_utf8(&digits[first..]).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn numbers_and_text_that_is_too_long() {
        let mut text = Text { bytes: [0; 640], len: 0 };
        for value in [0, 7, 1234, u64::MAX] {
            text.number(value);
            text.add(" ");
        }
        assert_eq!(&text.bytes[..text.len], b"0 7 1234 18446744073709551615 ");
        text.add(&"x".repeat(1000));
        assert_eq!((text.len, text.bytes[639]), (640, b'x'));
    }
}
