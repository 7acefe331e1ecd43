//! Completion queues.

use crate::Adapter;
use crate::error::{Error, Result};
use crate::sys::*;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As asked.
    Done,
    /// The own registration does not allow it (`LOC_PROT`, `LOC_LEN`; soft-RoCE says `LOC_QP_OP`).
    LocalAccess,
    /// The peer's does not: wrong key, past the end, or not permitted (`REM_ACCESS`).
    RemoteAccess,
    /// The peer refused the request as malformed (`REM_INV_REQ`).
    RemoteRefused,
    /// The peer does not answer any more (`RETRY_EXC`).
    Unreachable,
    /// The peer has posted no receive for so long that the retries are used up (`RNR_RETRY_EXC`).
    NotReceived,
    /// Not done because another request of the queue pair had failed before (`WR_FLUSH`).
    Flushed,
    /// Something else, by `ibv_wc_status`.
    Other(u32),
}

impl Status {
    /// The status with this `ibv_wc_status`.
    pub fn from_code(status: u32) -> Self {
        match status {
            0 => Status::Done,
            1 | 2 | 4 | 8 => Status::LocalAccess,
            5 => Status::Flushed,
            9 => Status::RemoteRefused,
            10 => Status::RemoteAccess,
            12 => Status::Unreachable,
            13 => Status::NotReceived,
            other => Status::Other(other),
        }
    }

    /// Its `ibv_wc_status`.
    pub fn code(self) -> u32 {
        match self {
            Status::Done => 0,
            Status::LocalAccess => 4,
            Status::Flushed => 5,
            Status::RemoteRefused => 9,
            Status::RemoteAccess => 10,
            Status::Unreachable => 12,
            Status::NotReceived => 13,
            Status::Other(code) => code,
        }
    }

    /// In words, with what to look at.
    pub fn describe(self) -> String {
        match self {
            Status::Done => "done".into(),
            Status::LocalAccess => "the local registration does not allow it: wrong lkey, or past its end".into(),
            Status::RemoteAccess => {
                "the peer's registration does not allow it: wrong rkey, past its end, or without that permission".into()
            }
            Status::RemoteRefused => "the peer refused it as malformed".into(),
            Status::Unreachable => "the peer does not answer: its process has ended, or the link is down".into(),
            Status::NotReceived => "the peer posted no receive for it".into(),
            Status::Flushed => "an earlier request of the same queue pair had failed".into(),
            Status::Other(status) => {
                let words = crate::library::verbs().map(|verbs| {
                    // SAFETY: the function gives a static string for any number.
                    unsafe { CStr::from_ptr((verbs.ibv_wc_status_str)(status)) }.to_string_lossy().into_owned()
                });
                format!("{} (ibv_wc_status {status})", words.unwrap_or_default())
            }
        }
    }
}

/// One finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What the request was given.
    pub id: u64,
    /// How it ended. If not [`Status::Done`], no other field counts.
    pub status: Status,
    /// Whether it is a receive.
    pub receive: bool,
    /// Bytes received.
    pub bytes: u32,
    /// The number that came with it.
    pub immediate: Option<u32>,
}

/// Where requests are reported when they have ended.
#[derive(Debug)]
pub struct CompletionQueue {
    adapter: Arc<Adapter>,
    queue: NonNull<ibv_cq>,
    poll: Poll,
}

// SAFETY: providers lock a completion queue.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue with room for `depth` reports: as many as can be outstanding on all pairs that report to it.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn new(adapter: &Arc<Adapter>, depth: u32) -> Result<Arc<Self>> {
        let (verbs, context) = (adapter.verbs(), adapter.as_raw_context());
        let depth = i32::try_from(depth.max(1)).unwrap_or(i32::MAX);
        // SAFETY: a live context, no completion channel.
        let queue =
            unsafe { (verbs.ibv_create_cq)(context, depth, std::ptr::null_mut(), std::ptr::null_mut(), 0) };
        let queue = NonNull::new(queue).ok_or_else(|| {
            Error::call("ibv_create_cq", adapter.name(), format!("making a queue of {depth} completions"))
        })?;
        // SAFETY: a live context, whose table was filled when it was opened.
        let poll = unsafe { (*context).ops.poll_cq };
        let queue = |poll| CompletionQueue { adapter: Arc::clone(adapter), queue, poll };
        match poll {
            Some(poll) => Ok(Arc::new(queue(poll))),
            None => Err(Error::Unsupported { adapter: adapter.name().into(), what: "polling" }),
        }
    }

    /// Takes what has ended since, up to 16 at a time; appends it.
    ///
    /// # Errors
    /// [`Error::Call`]: the queue overflowed, or the device is gone.
    pub fn poll(&self, out: &mut Vec<Completion>) -> Result<usize> {
        const MOST: usize = 16;
        // SAFETY: plain numbers, for which zero is a value.
        let mut reports: [ibv_wc; MOST] = unsafe { std::mem::zeroed() };
        // SAFETY: a live queue and room for as many reports as are asked for.
        let count = unsafe { (self.poll)(self.queue.as_ptr(), MOST as i32, reports.as_mut_ptr()) };
        if count < 0 {
            return Err(Error::call("ibv_poll_cq", self.adapter.name(), "looking for completions"));
        }
        out.extend(reports[..count as usize].iter().map(|report| Completion {
            id: report.wr_id,
            status: Status::from_code(report.status),
            receive: report.opcode & IBV_WC_RECV != 0,
            bytes: report.byte_len,
            immediate: (report.wc_flags & IBV_WC_WITH_IMM != 0).then(|| u32::from_be(report.imm_data)),
        }));
        Ok(count as usize)
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    pub(crate) fn raw(&self) -> *mut ibv_cq {
        self.queue.as_ptr()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: made in `new`, ended once; pairs that report here hold the queue.
        unsafe { (self.adapter.verbs().ibv_destroy_cq)(self.queue.as_ptr()) };
    }
}
