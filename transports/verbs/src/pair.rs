//! Reliable-connected queue pairs.

mod options;

pub use options::PairOptions;

use crate::error::{Error, Result};
use crate::sys::*;
use crate::{Access, Adapter, CompletionQueue};
use serde::{Deserialize, Serialize};
use std::ptr::NonNull;
use std::sync::Arc;

/// What a peer has to know to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Number of the queue pair.
    pub number: u32,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The port's address.
    pub gid: [u8; 16],
    /// Number of the first packet from there: random, so that nobody who does not see the packets can put one between them.
    pub first_packet: u32,
    /// `ibv_mtu` of the port.
    pub mtu: u8,
    /// Reads and atomics that the peer may have under way here.
    pub reads: u8,
}

/// Bytes of registered memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Address of the first.
    pub address: u64,
    /// How many.
    pub bytes: u32,
    /// The registration's key.
    pub lkey: u32,
}

/// A place in registered memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// Its address there.
    pub address: u64,
    /// The registration's key.
    pub rkey: u32,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work<'a> {
    /// Writes local memory to the peer's; with a number, one of the peer's receives ends with it.
    Write {
        /// What.
        from: Local,
        /// Where to.
        to: Remote,
        /// The number that ends a receive.
        immediate: Option<u32>,
    },
    /// Writes bytes that are taken now.
    WriteInline {
        /// What; at most [`PairOptions::inline`] bytes.
        bytes: &'a [u8],
        /// Where to.
        to: Remote,
    },
    /// Reads the peer's memory.
    Read {
        /// Where to, and how much.
        to: Local,
        /// What.
        from: Remote,
    },
    /// Sends a message to the peer's next receive.
    Send {
        /// What.
        from: Local,
    },
    /// Adds to an 8-byte word of the peer's; the old value comes back.
    FetchAdd {
        /// The word, aligned.
        at: Remote,
        /// What is added.
        add: u64,
        /// Where the old value goes: 8 bytes.
        old: Local,
    },
    /// Stores `new` in an 8-byte word of the peer's if it holds `expected`; the old value comes back.
    CompareSwap {
        /// The word, aligned.
        at: Remote,
        /// What it should hold.
        expected: u64,
        /// What it is to hold.
        new: u64,
        /// Where the old value goes: 8 bytes.
        old: Local,
    },
}

/// A request of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request<'a> {
    /// Comes back with the completion.
    pub id: u64,
    /// What to do.
    pub work: Work<'a>,
    /// Begin only when all earlier reads and atomics of this pair have ended. Soft-RoCE never sends a fenced request again that was
    /// lost before a read or atomic behind it had ended: it waits for that one too, and reports nothing.
    pub fence: bool,
}

/// A reliable-connected queue pair: requests are carried out in order, each exactly once.
///
/// After a failure it is broken: what follows is reported as flushed.
#[derive(Debug)]
pub struct QueuePair {
    adapter: Arc<Adapter>,
    pair: NonNull<ibv_qp>,
    // Dropped after the pair.
    sends: Arc<CompletionQueue>,
    _receives: Arc<CompletionQueue>,
    options: PairOptions,
    first_packet: u32,
    post_send: PostSend,
    post_receive: PostReceive,
}

// SAFETY: providers lock a queue pair.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A pair that reports its requests to `sends` and its receives to `receives`.
    ///
    /// # Errors
    /// [`Error::Call`]: more than the adapter has.
    pub fn new(
        sends: &Arc<CompletionQueue>,
        receives: &Arc<CompletionQueue>,
        options: &PairOptions,
    ) -> Result<Self> {
        let adapter = sends.adapter();
        let most = adapter.limits().queue_depth;
        if options.send_depth.max(options.receive_depth) > most {
            return Err(Error::misuse(format!(
                "queues of {} and {} requests; RDMA adapter {} has up to {most}",
                options.send_depth,
                options.receive_depth,
                adapter.name()
            )));
        }
        let cap = ibv_qp_cap {
            max_send_wr: options.send_depth,
            max_recv_wr: options.receive_depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: options.inline,
        };
        let mut init = ibv_qp_init_attr {
            qp_context: std::ptr::null_mut(),
            send_cq: sends.raw(),
            recv_cq: receives.raw(),
            srq: std::ptr::null_mut(),
            cap,
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        let first_packet = first_packet(adapter.name())?;
        // SAFETY: a live protection domain and live queues of the same adapter.
        let pair = unsafe { (adapter.verbs().ibv_create_qp)(adapter.as_raw_domain(), &raw mut init) };
        let pair = NonNull::new(pair)
            .ok_or_else(|| Error::call("ibv_create_qp", adapter.name(), "making a queue pair"))?;
        // SAFETY: a live context, whose table was filled when it was opened.
        let ops = unsafe { &(*adapter.as_raw_context()).ops };
        let (Some(post_send), Some(post_receive)) = (ops.post_send, ops.post_recv) else {
            return Err(Error::Unsupported { adapter: adapter.name().into(), what: "queues" });
        };
        let pair = QueuePair {
            adapter: Arc::clone(adapter),
            pair,
            sends: Arc::clone(sends),
            _receives: Arc::clone(receives),
            options: *options,
            first_packet,
            post_send,
            post_receive,
        };
        pair.modify(
            ibv_qp_attr {
                qp_state: IBV_QPS_INIT,
                port_num: adapter.port().number,
                qp_access_flags: Access::ALL.flags() as u32,
                ..empty()
            },
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
            "initialising a queue pair",
        )?;
        Ok(pair)
    }

    /// What the peer needs to connect.
    pub fn endpoint(&self) -> Endpoint {
        let port = self.adapter.port();
        // SAFETY: a live pair, whose number never changes.
        let number = unsafe { (*self.pair.as_ptr()).qp_num };
        let limits = self.adapter.limits();
        Endpoint {
            number,
            lid: port.lid,
            gid: port.gid,
            first_packet: self.first_packet,
            mtu: limits.mtu,
            reads: limits.reads.1,
        }
    }

    /// Connects to the peer's pair, which must do the same. Receives may be posted before.
    ///
    /// # Errors
    /// [`Error::Call`]: no route to the peer, or connected already.
    pub fn connect(&self, peer: &Endpoint) -> Result<()> {
        let (port, limits) = (self.adapter.port(), self.adapter.limits());
        let mut address = empty().ah_attr;
        (address.dlid, address.port_num) = (peer.lid, port.number);
        if port.ethernet || peer.lid == 0 {
            address.is_global = 1;
            address.grh.dgid = ibv_gid { raw: peer.gid };
            address.grh.sgid_index = port.gid_index;
            address.grh.hop_limit = 64;
        }
        let receive = ibv_qp_attr {
            path_mtu: u32::from(peer.mtu.min(limits.mtu)),
            max_dest_rd_atomic: limits.reads.1,
            min_rnr_timer: self.options.receiver_timer,
            ah_attr: address,
            ..receiving_from(peer)
        };
        let doing = || format!("connecting to queue pair {:#x} at {}", peer.number, gid(&peer.gid));
        self.modify(
            receive,
            IBV_QP_STATE
                | IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER,
            &doing(),
        )?;
        let send = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            timeout: self.options.timeout,
            retry_cnt: self.options.retries,
            rnr_retry: self.options.receiver_retries,
            max_rd_atomic: limits.reads.0.min(peer.reads),
            sq_psn: self.first_packet,
            ..empty()
        };
        self.modify(
            send,
            IBV_QP_STATE
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC,
            &doing(),
        )
    }

    /// Breaks the pair: everything outstanding is reported as flushed, and the peer's next request fails.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn break_off(&self) -> Result<()> {
        self.modify(
            ibv_qp_attr { qp_state: IBV_QPS_ERR, ..empty() },
            IBV_QP_STATE,
            "breaking a queue pair off",
        )
    }

    fn modify(&self, mut attributes: ibv_qp_attr, mask: i32, doing: &str) -> Result<()> {
        // SAFETY: a live pair and attributes for what the mask names.
        let code =
            unsafe { (self.adapter.verbs().ibv_modify_qp)(self.pair.as_ptr(), &raw mut attributes, mask) };
        match code {
            0 => Ok(()),
            code => Err(Error::returned(code, "ibv_modify_qp", self.adapter.name(), doing)),
        }
    }

    /// Posts a request; its completion comes to the queue for sends. `false` if the queue is full: poll, then try again.
    ///
    /// The adapter checks addresses and keys, so a wrong one is an error completion and never an access elsewhere.
    ///
    /// # Errors
    /// [`Error::Misuse`] for more inline bytes than the pair has, [`Error::Call`] if the adapter refuses the request at once.
    ///
    /// # Safety
    /// Nobody accesses what the request writes, here or at the peer, or writes what it reads, until it is complete, but as agreed with
    /// whom the memory belongs to: a key opens all of its registration.
    pub unsafe fn post(&self, request: &Request<'_>) -> Result<bool> {
        // SAFETY: plain numbers and null pointers.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        wr.wr_id = request.id;
        wr.send_flags = IBV_SEND_SIGNALED | if request.fence { IBV_SEND_FENCE } else { 0 };
        let part = |local: Local| ibv_sge { addr: local.address, length: local.bytes, lkey: local.lkey };
        let plain = |remote: Remote| wr { rdma: rdma { remote_addr: remote.address, rkey: remote.rkey } };
        let mut sge = match request.work {
            Work::Write { from, to, immediate } => {
                wr.opcode = if immediate.is_some() { IBV_WR_RDMA_WRITE_WITH_IMM } else { IBV_WR_RDMA_WRITE };
                wr.imm_data = immediate.unwrap_or_default().to_be();
                wr.wr = plain(to);
                part(from)
            }
            Work::WriteInline { bytes, to } => {
                if bytes.len() > self.options.inline as usize {
                    let (have, most) = (bytes.len(), self.options.inline);
                    return Err(Error::misuse(format!(
                        "{have} bytes inline in a request that carries up to {most}"
                    )));
                }
                wr.opcode = IBV_WR_RDMA_WRITE;
                wr.send_flags |= IBV_SEND_INLINE;
                wr.wr = plain(to);
                ibv_sge { addr: bytes.as_ptr() as u64, length: bytes.len() as u32, lkey: 0 }
            }
            Work::Read { to, from } => {
                wr.opcode = IBV_WR_RDMA_READ;
                wr.wr = plain(from);
                part(to)
            }
            Work::Send { from } => {
                wr.opcode = IBV_WR_SEND;
                part(from)
            }
            Work::FetchAdd { at, add, old } => {
                wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
                wr.wr = sys_atomic(at, add, 0);
                part(Local { bytes: 8, ..old })
            }
            Work::CompareSwap { at, expected, new, old } => {
                wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
                wr.wr = sys_atomic(at, expected, new);
                part(Local { bytes: 8, ..old })
            }
        };
        (wr.sg_list, wr.num_sge) = (&raw mut sge, 1);
        let mut bad = std::ptr::null_mut();
        // SAFETY: a live pair; the request and its one part live through the call, which copies them (and inline bytes).
        let code = unsafe { (self.post_send)(self.pair.as_ptr(), &raw mut wr, &raw mut bad) };
        self.posted(code, "ibv_post_send")
    }

    /// Posts a receive; `false` if the queue is full. A `local` of no bytes takes only numbers.
    ///
    /// # Errors
    /// [`Error::Call`] if the adapter refuses it at once.
    ///
    /// # Safety
    /// Nobody accesses that memory until a message has arrived there.
    pub unsafe fn post_receive(&self, id: u64, local: Local) -> Result<bool> {
        let mut sge = ibv_sge { addr: local.address, length: local.bytes, lkey: local.lkey };
        let parts = i32::from(local.bytes > 0);
        let mut wr =
            ibv_recv_wr { wr_id: id, next: std::ptr::null_mut(), sg_list: &raw mut sge, num_sge: parts };
        let mut bad = std::ptr::null_mut();
        // SAFETY: a live pair; the request and its part live through the call, which copies them.
        let code = unsafe { (self.post_receive)(self.pair.as_ptr(), &raw mut wr, &raw mut bad) };
        self.posted(code, "ibv_post_recv")
    }

    fn posted(&self, code: i32, call: &'static str) -> Result<bool> {
        match code {
            0 => Ok(true),
            code if code == rustix::io::Errno::NOMEM.raw_os_error() => Ok(false),
            code => Err(Error::returned(code, call, self.adapter.name(), "posting a request")),
        }
    }

    /// Where its requests are reported.
    pub fn completions(&self) -> &Arc<CompletionQueue> {
        &self.sends
    }

    /// The `ibv_qp`, for what this crate does not offer. It lives as long as `self`.
    pub fn as_raw(&self) -> *mut ibv_qp {
        self.pair.as_ptr()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made in `new`, ended once.
        unsafe { (self.adapter.verbs().ibv_destroy_qp)(self.pair.as_ptr()) };
    }
}

fn sys_atomic(at: Remote, compare_add: u64, swap: u64) -> wr {
    wr { atomic: atomic { remote_addr: at.address, compare_add, swap, rkey: at.rkey } }
}

/// Packets are numbered by 24 bits.
const PACKETS: u32 = 1 << 24;

/// A number for a connection's first packet, anew for each queue pair.
///
/// # Errors
/// [`Error::Call`]: `adapter` finds no random source.
pub fn first_packet(adapter: &str) -> Result<u32> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|e| Error::Call {
        call: "getrandom",
        adapter: adapter.into(),
        doing: "drawing the number of a first packet".into(),
        source: std::io::Error::other(e.to_string()),
    })?;
    Ok(u32::from_le_bytes(bytes) % PACKETS)
}

/// Ready to receive what `peer` sends.
fn receiving_from(peer: &Endpoint) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: IBV_QPS_RTR,
        dest_qp_num: peer.number,
        rq_psn: peer.first_packet % PACKETS,
        ..empty()
    }
}

fn empty() -> ibv_qp_attr {
    // SAFETY: plain numbers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// A GID as people write it.
fn gid(raw: &[u8; 16]) -> std::net::Ipv6Addr {
    std::net::Ipv6Addr::from(*raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_packets_are_random_numbers_of_24_bits() {
        let drawn: Vec<u32> = (0..64).map(|_| first_packet("none").unwrap()).collect();
        assert!(drawn.iter().all(|&n| n < PACKETS));
        let distinct: std::collections::HashSet<_> = drawn.iter().collect();
        assert!(distinct.len() > 60, "{drawn:?}");
        // Every bit of them is drawn.
        assert_eq!(drawn.iter().fold(0, |all, n| all | n), PACKETS - 1);
        assert_eq!(drawn.iter().fold(PACKETS - 1, |all, n| all & n), 0);
    }

    #[test]
    fn a_pair_receives_from_the_first_packet_that_its_peer_named() {
        let peer = Endpoint { number: 7, lid: 0, gid: [0; 16], first_packet: 0xab_cdef, mtu: 5, reads: 1 };
        let attributes = receiving_from(&peer);
        assert_eq!((attributes.dest_qp_num, attributes.rq_psn), (7, 0xab_cdef));
        let wrong = Endpoint { first_packet: u32::MAX, ..peer };
        assert_eq!(receiving_from(&wrong).rq_psn, PACKETS - 1);
    }
}
