//! Errors of the C interface as exceptions of `fusewire.errors`.

use crate::api::Api;
use fusewire_capi::{fusewire_error, fusewire_status};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::ffi::{CStr, c_char};

/// An exception by its name in `fusewire.errors`.
pub fn raise(py: Python<'_>, name: &str, message: &str) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || PyModule::import(py, "fusewire.errors").map(Bound::unbind));
    let made = module.and_then(|module| module.bind(py).getattr(name)?.call1((message,)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// What cannot be asked for.
pub fn misuse(py: Python<'_>, message: impl AsRef<str>) -> PyErr {
    raise(py, "Misuse", message.as_ref())
}

/// What a call of the C interface on this thread said.
pub fn checked(py: Python<'_>, api: &Api, status: fusewire_status) -> PyResult<()> {
    match status {
        fusewire_status::FUSEWIRE_OK => Ok(()),
        _ => Err(Said::last(api).raise(py)),
    }
}

/// An error's fields: taken on the thread that it came to, raised where Python is held.
pub struct Said {
    status: fusewire_status,
    pub message: String,
    numbers: [i64; 3],
    words: [String; 2],
}

impl Said {
    pub fn last(api: &Api) -> Self {
        let words = |at: *const c_char| match at.is_null() {
            true => String::new(),
            // SAFETY: strings of an error end with zero bytes, and live until the thread's next call.
            false => unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned(),
        };
        // SAFETY: null, or valid until the thread's next call.
        match unsafe { (api.fusewire_last_error)().as_ref() } {
            Some(fusewire_error { status, message, rank, peer, channel, kernel, waited_for }) => Said {
                status: *status,
                message: words(*message),
                numbers: [*rank, *peer, *channel],
                words: [words(*kernel), words(*waited_for)],
            },
            None => Said {
                status: fusewire_status::FUSEWIRE_BUG,
                message: "an error without words".into(),
                numbers: [-1; 3],
                words: Default::default(),
            },
        }
    }

    pub fn raise(&self, py: Python<'_>) -> PyErr {
        let name = match self.status {
            fusewire_status::FUSEWIRE_MISUSE => "Misuse",
            fusewire_status::FUSEWIRE_FAULT => "Fault",
            fusewire_status::FUSEWIRE_PEER => "PeerError",
            fusewire_status::FUSEWIRE_LOST => "LostError",
            fusewire_status::FUSEWIRE_DEVICE => "DeviceError",
            _ => "Error",
        };
        let error = raise(py, name, &self.message);
        let value = error.value(py);
        let set = |name, number: i64| value.setattr(name, (number >= 0).then_some(number));
        let [rank, peer, channel] = self.numbers;
        let text = |name, words: &str| value.setattr(name, (!words.is_empty()).then_some(words));
        let fields = set("rank", rank)
            .and_then(|()| set("peer", peer))
            .and_then(|()| set("channel", channel))
            .and_then(|()| text("kernel", &self.words[0]))
            .and_then(|()| text("waited_for", &self.words[1]));
        fields.err().unwrap_or(error)
    }
}

/// Runs a call that may wait, without the interpreter's lock.
pub fn waiting(
    py: Python<'_>,
    api: &'static Api,
    call: impl FnOnce() -> fusewire_status + Send,
) -> PyResult<()> {
    let said = py.detach(|| match call() {
        fusewire_status::FUSEWIRE_OK => None,
        _ => Some(Said::last(api)),
    });
    said.map_or(Ok(()), |said| Err(said.raise(py)))
}
