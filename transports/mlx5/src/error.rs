//! Errors of the seam, made from what this crate meets.

use fusewire_nic::Error;
use std::io;

pub(crate) fn misuse(what: impl Into<String>) -> Error {
    Error::Misuse { what: what.into() }
}

pub(crate) fn system(what: impl Into<String>, source: io::Error) -> Error {
    Error::System { what: what.into(), source }
}

/// A call that said no by `errno`.
pub(crate) fn last(what: impl Into<String>) -> Error {
    system(what, io::Error::last_os_error())
}

pub(crate) fn no_adapter(why: impl Into<String>) -> Error {
    Error::NoAdapter { why: why.into() }
}

/// What the verbs layer says.
pub(crate) fn from_verbs(error: fusewire_verbs::Error) -> Error {
    let text = error.to_string();
    if error.is_no_adapter() {
        return no_adapter(text.strip_prefix("no RDMA adapter: ").unwrap_or(&text));
    }
    match error {
        fusewire_verbs::Error::Call { call, adapter, doing, source } => {
            system(format!("{call} on RDMA adapter {adapter} while {doing}"), source)
        }
        _ => misuse(text),
    }
}

/// What the CUDA driver says.
pub(crate) fn from_cuda(error: fusewire_driver::Error) -> Error {
    misuse(error.to_string())
}
