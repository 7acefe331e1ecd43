//! What went wrong, for C.

use fusewire::{Error, Operation};
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// How a call ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fusewire_status {
    /// As it should.
    FUSEWIRE_OK = 0,
    /// The caller asked for something that cannot be; nothing was done.
    FUSEWIRE_MISUSE = 1,
    /// A kernel ended before its work was done: a wait expired, it panicked, a peer launched something else, a rank aborted.
    FUSEWIRE_FAULT = 2,
    /// Ranks disagree, are missing, or did not come in time.
    FUSEWIRE_PEER = 3,
    /// A rank died.
    FUSEWIRE_LOST = 4,
    /// CUDA, an adapter or the operating system refused something.
    FUSEWIRE_DEVICE = 5,
    /// The library has an error of its own.
    FUSEWIRE_BUG = 6,
}
use fusewire_status::{
    FUSEWIRE_BUG, FUSEWIRE_DEVICE, FUSEWIRE_FAULT, FUSEWIRE_LOST, FUSEWIRE_MISUSE, FUSEWIRE_OK, FUSEWIRE_PEER,
};

/// The last error of a thread. Numbers are -1 and strings empty where there is nothing to say.
#[repr(C)]
#[derive(Debug)]
pub struct fusewire_error {
    /// Which kind.
    pub status: fusewire_status,
    /// The whole of it in words.
    pub message: *const c_char,
    /// Fault: the rank that gave up first. Lost: that rank.
    pub rank: i64,
    /// Fault: the peer that it had to do with.
    pub peer: i64,
    /// Fault: the channel or the signal.
    pub channel: i64,
    /// Fault: the kernel that the rank had launched last.
    pub kernel: *const c_char,
    /// Fault: what the rank waited for, such as "data"; where it panicked; why it called `fusewire_transport_abort`; or how its launch
    /// differs from that of another rank.
    pub waited_for: *const c_char,
}

/// An error and the strings that it points to.
struct Kept {
    error: fusewire_error,
    _strings: [CString; 3],
}

thread_local! {
    static LAST: RefCell<Option<Box<Kept>>> = const { RefCell::new(None) };
}

/// The error of this thread's last call that did not end with `FUSEWIRE_OK`, or null. Valid until the thread's next such call.
#[unsafe(no_mangle)]
pub extern "C" fn fusewire_last_error() -> *const fusewire_error {
    LAST.with_borrow(|last| last.as_ref().map_or(ptr::null(), |kept| ptr::from_ref(&kept.error)))
}

/// Runs a call's body: an error or a panic of it becomes the thread's last error.
pub(crate) fn guard(body: impl FnOnce() -> fusewire::Result<()>) -> fusewire_status {
    let kept = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return FUSEWIRE_OK,
        Ok(Err(error)) => of(&error),
        Err(panic) => {
            let what = panic.downcast_ref::<String>().map(String::as_str);
            let what = what.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
            keep(
                FUSEWIRE_BUG,
                format!("fusewire panicked, which is an error of its own: {what}"),
                Fields::default(),
            )
        }
    };
    let status = kept.error.status;
    LAST.with_borrow_mut(|last| *last = Some(kept));
    status
}

#[derive(Default)]
struct Fields {
    rank: Option<usize>,
    peer: Option<usize>,
    channel: Option<usize>,
    kernel: String,
    waited_for: String,
}

fn of(error: &Error) -> Box<Kept> {
    let (status, fields) = match error {
        Error::Misuse { .. } | Error::Peers(_) => (FUSEWIRE_MISUSE, Fields::default()),
        Error::Fault(fault) => {
            let mut fields = Fields { rank: Some(fault.rank), ..Fields::default() };
            match &fault.operation {
                Some(Operation::Expired { what, peer, channel, .. }) => {
                    (fields.peer, fields.channel) = (Some(*peer), Some(*channel));
                    fields.waited_for = (*what).to_owned();
                }
                Some(Operation::Panicked { file, line, column, .. }) => {
                    fields.waited_for = format!("{file}:{line}:{column}");
                }
                Some(Operation::Aborted { reason } | Operation::Disagreed { reason }) => {
                    fields.waited_for.clone_from(reason);
                }
                Some(Operation::Mismatch { peer, channel, .. } | Operation::Cut { peer, channel, .. }) => {
                    (fields.peer, fields.channel) = (Some(*peer), Some(*channel));
                }
                Some(
                    Operation::Adapter { peer, .. }
                    | Operation::Fabric { peer, .. }
                    | Operation::Elsewhere { peer, .. }
                    | Operation::OutOfRange { peer, .. }
                    | Operation::Refused { peer, .. },
                ) => fields.peer = Some(*peer),
                _ => {}
            }
            if let Some(launched) = &fault.launched {
                fields.kernel = launched[0].to_string();
            }
            (FUSEWIRE_FAULT, fields)
        }
        Error::Lost { rank } => (FUSEWIRE_LOST, Fields { rank: Some(*rank), ..Fields::default() }),
        Error::Peer(_) => (FUSEWIRE_PEER, Fields::default()),
        _ => (FUSEWIRE_DEVICE, Fields::default()),
    };
    keep(status, error.to_string(), fields)
}

fn keep(status: fusewire_status, message: String, fields: Fields) -> Box<Kept> {
    let Fields { rank, peer, channel, kernel, waited_for } = fields;
    let string = |text: String| CString::new(text.replace('\0', " ")).unwrap_or_default();
    let strings = [message, kernel, waited_for].map(string);
    let number = |n: Option<usize>| n.and_then(|n| i64::try_from(n).ok()).unwrap_or(-1);
    let [message, kernel, waited_for] = strings.each_ref().map(|text| text.as_ptr());
    let [rank, peer, channel] = [rank, peer, channel].map(number);
    let error = fusewire_error { status, message, rank, peer, channel, kernel, waited_for };
    Box::new(Kept { error, _strings: strings })
}
