//! Commands of the firmware, byte by byte.
//!
//! Each is a row of big-endian bit fields: [`layout`] says where they are, [`Command`] puts values there and refuses those that do
//! not fit. What goes into which command follows NVSHMEM's `ibgda.cpp` and DOCA GPUNetIO's `doca_verbs_qp.cpp` and
//! `doca_verbs_cq.cpp`, which have run on adapters.

mod field;
pub mod layout;
#[cfg(test)]
mod tests;

pub use field::{Command, Field};

use crate::settings::Settings;
use fusewire_nic::{Kind, Result};
use layout::{
    CAPABILITIES, CAPABILITIES_BYTES, CQC, LONG, PATH, QPC, RGID, RMAC, SHORT, capability, command, cqc,
    create_cq, create_qp, path, qpc,
};

/// Opcodes.
mod opcode {
    pub const QUERY_HCA_CAP: u64 = 0x100;
    pub const CREATE_CQ: u64 = 0x400;
    pub const CREATE_QP: u64 = 0x500;
    pub const RST2INIT_QP: u64 = 0x502;
    pub const INIT2RTR_QP: u64 = 0x503;
    pub const RTR2RTS_QP: u64 = 0x504;
    pub const QP_2ERR: u64 = 0x507;
    pub const QP_2RST: u64 = 0x50a;
    pub const QUERY_QP: u64 = 0x50b;
}

/// `op_mod` of QUERY_HCA_CAP: general capabilities (0), current values (1).
const GENERAL_CURRENT: u64 = 1;
/// Path migration has nothing to do.
const MIGRATED: u64 = 3;
/// No receive queue.
const ZERO_SIZE_RQ: u64 = 3;
/// Atomics are those of the InfiniBand specification: fetch-and-add and compare-and-swap of 8 bytes.
const IB_SPEC: u64 = 1;
/// Messages of up to 1 GiB.
const LOG_MSG_MAX: u64 = 30;

/// Where a queue is: registered memory and offsets of ring and record in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Number of the registration.
    pub umem: u32,
    /// Bytes before the ring.
    pub ring: u64,
    /// Bytes before the doorbell record.
    pub record: u64,
    /// Logarithm of the entries.
    pub log: u32,
    /// Number of the doorbell's page.
    pub page: u32,
}

/// How a queue pair reaches another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Number of the other queue pair.
    pub remote: u32,
    /// Number of the first packet that comes from it.
    pub first_packet: u32,
    /// `ibv_mtu`: 1 is 256 bytes, 5 is 4096.
    pub mtu: u8,
    /// By what.
    pub link: Link,
}

/// Addressing of the two link layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// InfiniBand: by LID, and by GID if the other end is in another subnet.
    InfiniBand {
        /// Local identifier of the other port.
        lid: u16,
        /// The other port's GID and the index of the own one.
        grh: Option<([u8; 16], u8)>,
    },
    /// RoCE v2: by GID, which is an IP address.
    Ethernet {
        /// The other port's GID.
        gid: [u8; 16],
        /// Index of the own one.
        index: u8,
        /// Of the next hop.
        mac: [u8; 6],
        /// What switches spread flows by.
        source: u16,
    },
}

/// Asks what the adapter can do.
pub fn query_capabilities() -> Result<Command> {
    let fields = [(command::OPCODE, opcode::QUERY_HCA_CAP), (command::OP_MOD, GENERAL_CURRENT)];
    Command::new("QUERY_HCA_CAP", SHORT, CAPABILITIES_BYTES, &fields)
}

/// What matters of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Reliable connections.
    pub connections: bool,
    /// Atomics.
    pub atomics: bool,
    /// Entries that wait for a completion queue ("cross channel").
    pub waits: bool,
    /// Logarithm of the most 64-byte blocks of a send queue.
    pub log_queue: u32,
    /// Logarithm of the most entries of a completion queue.
    pub log_completions: u32,
}

impl Capabilities {
    /// Reads them; `None` if the answer is too short.
    pub fn read(answer: &[u8]) -> Option<Capabilities> {
        let get = |field: Field| field.of(CAPABILITIES).get(answer);
        Some(Capabilities {
            connections: get(capability::RC)? == 1,
            atomics: get(capability::ATOMIC)? == 1,
            waits: get(capability::CD)? == 1,
            log_queue: get(capability::LOG_MAX_QP_SZ)? as u32,
            log_completions: get(capability::LOG_MAX_CQ_SZ)? as u32,
        })
    }
}

/// Makes a completion queue of 64-byte entries.
pub fn create_cq(at: &Ring, event_queue: u32) -> Result<Command> {
    let fields = [
        (command::OPCODE, opcode::CREATE_CQ),
        (cqc::DBR_UMEM_VALID.of(CQC), 1),
        (cqc::DBR_UMEM_ID.of(CQC), at.umem.into()),
        (cqc::LOG_CQ_SIZE.of(CQC), at.log.into()),
        (cqc::UAR_PAGE.of(CQC), at.page.into()),
        (cqc::C_EQN.of(CQC), event_queue.into()),
        (cqc::DBR_ADDR.of(CQC), at.record),
        (create_cq::CQ_UMEM_OFFSET, at.ring),
        (create_cq::CQ_UMEM_ID, at.umem.into()),
        (create_cq::CQ_UMEM_VALID, 1),
    ];
    Command::new("CREATE_CQ", LONG, SHORT, &fields)
}

/// Makes a queue pair of a reliable connection, without a receive queue. It may wait for other completion queues if it is a
/// companion.
pub fn create_qp(kind: Kind, at: &Ring, domain: u32, completions: u32) -> Result<Command> {
    let fields = [
        (command::OPCODE, opcode::CREATE_QP),
        (qpc::PM_STATE.of(QPC), MIGRATED),
        (qpc::PD.of(QPC), domain.into()),
        (qpc::LOG_SQ_SIZE.of(QPC), at.log.into()),
        (qpc::UAR_PAGE.of(QPC), at.page.into()),
        (qpc::CQN_SND.of(QPC), completions.into()),
        (qpc::CD_MASTER.of(QPC), (kind == Kind::Companion).into()),
        // Never used, but a number that exists.
        (qpc::CQN_RCV.of(QPC), completions.into()),
        (qpc::DBR_ADDR.of(QPC), at.record),
        (qpc::RQ_TYPE.of(QPC), ZERO_SIZE_RQ),
        (qpc::DBR_UMEM_VALID.of(QPC), 1),
        (qpc::DBR_UMEM_ID.of(QPC), at.umem.into()),
        (create_qp::WQ_UMEM_OFFSET, at.ring),
        (create_qp::WQ_UMEM_ID, at.umem.into()),
        (create_qp::WQ_UMEM_VALID, 1),
    ];
    Command::new("CREATE_QP", LONG, SHORT, &fields)
}

/// From reset: the port, and what peers may do.
pub fn rst2init(number: u32, port: u8) -> Result<Command> {
    let fields = [
        (command::OPCODE, opcode::RST2INIT_QP),
        (command::QPN, number.into()),
        (qpc::PM_STATE.of(QPC), MIGRATED),
        (qpc::ATOMIC_MODE.of(QPC), IB_SPEC),
        (qpc::RRE.of(QPC), 1),
        (qpc::RWE.of(QPC), 1),
        (qpc::RAE.of(QPC), 1),
        (path::VHCA_PORT_NUM.of(QPC + PATH), port.into()),
    ];
    Command::new("RST2INIT_QP", LONG, SHORT, &fields)
}

/// To ready-to-receive: the other end, and the way there. `log_reads` is the logarithm of the reads and atomics that it answers at once.
pub fn init2rtr(number: u32, way: &Path, log_reads: u32, settings: &Settings) -> Result<Command> {
    let on = QPC + PATH;
    let mut fields = vec![
        (command::OPCODE, opcode::INIT2RTR_QP),
        (command::QPN, number.into()),
        (qpc::MTU.of(QPC), way.mtu.into()),
        (qpc::LOG_MSG_MAX.of(QPC), LOG_MSG_MAX),
        (qpc::REMOTE_QPN.of(QPC), way.remote.into()),
        (qpc::NEXT_RCV_PSN.of(QPC), way.first_packet.into()),
        (qpc::LOG_RRA_MAX.of(QPC), log_reads.into()),
        (qpc::MIN_RNR_NAK.of(QPC), settings.min_rnr_timer.into()),
    ];
    let global = |fields: &mut Vec<_>, index: u8| {
        fields.push((path::SRC_ADDR_INDEX.of(on), u64::from(index)));
        fields.push((path::HOP_LIMIT.of(on), settings.hop_limit.into()));
    };
    let class = u64::from(settings.traffic_class);
    match way.link {
        Link::InfiniBand { lid, grh } => {
            fields.push((path::RLID.of(on), lid.into()));
            fields.push((path::SL.of(on), settings.service_level.into()));
            fields.push((path::TCLASS.of(on), class));
            if let Some((_, index)) = grh {
                fields.push((path::GRH.of(on), 1));
                global(&mut fields, index);
            }
        }
        Link::Ethernet { index, source, .. } => {
            global(&mut fields, index);
            fields.push((path::ETH_PRIO.of(on), settings.service_level.into()));
            fields.push((path::DSCP.of(on), class >> 2));
            fields.push((path::UDP_SPORT.of(on), source.into()));
        }
    }
    let command = Command::new("INIT2RTR_QP", LONG, SHORT, &fields)?;
    Ok(match way.link {
        Link::InfiniBand { grh: None, .. } => command,
        Link::InfiniBand { grh: Some((gid, _)), .. } => command.with((on + RGID) / 8, &gid),
        Link::Ethernet { gid, mac, .. } => command.with((on + RGID) / 8, &gid).with((on + RMAC) / 8, &mac),
    })
}

/// To ready-to-send: what is done about loss. `log_reads` is the logarithm of the reads and atomics that are under way at once;
/// `first_packet` is the number of the first packet that is sent.
pub fn rtr2rts(number: u32, first_packet: u32, log_reads: u32, settings: &Settings) -> Result<Command> {
    let fields = [
        (command::OPCODE, opcode::RTR2RTS_QP),
        (command::QPN, number.into()),
        (qpc::NEXT_SEND_PSN.of(QPC), first_packet.into()),
        (qpc::LOG_SRA_MAX.of(QPC), log_reads.into()),
        (qpc::RETRY_COUNT.of(QPC), settings.retry_count.into()),
        (qpc::RNR_RETRY.of(QPC), settings.rnr_retry.into()),
        (path::ACK_TIMEOUT.of(QPC + PATH), settings.timeout.into()),
    ];
    Command::new("RTR2RTS_QP", LONG, SHORT, &fields)
}

/// Ends a queue pair's work: what is posted is flushed.
pub fn to_error(number: u32) -> Result<Command> {
    let fields = [(command::OPCODE, opcode::QP_2ERR), (command::QPN, number.into())];
    Command::new("QP_2ERR", SHORT, SHORT, &fields)
}

/// Empties a queue pair.
pub fn to_reset(number: u32) -> Result<Command> {
    let fields = [(command::OPCODE, opcode::QP_2RST), (command::QPN, number.into())];
    Command::new("QP_2RST", SHORT, SHORT, &fields)
}

/// Asks for a queue pair's state.
pub fn query_qp(number: u32) -> Result<Command> {
    let fields = [(command::OPCODE, opcode::QUERY_QP), (command::QPN, number.into())];
    Command::new("QUERY_QP", SHORT, LONG, &fields)
}

/// A queue pair's state, as numbered in `qpc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Just made, or emptied.
    Reset,
    /// Ready to send.
    Ready,
    /// Everything is flushed.
    Error,
    /// One on the way, or draining.
    Other(u8),
}

impl State {
    /// From the answer to [`query_qp`]; `None` if it is too short.
    pub fn read(answer: &[u8]) -> Option<State> {
        Some(match qpc::STATE.of(QPC).get(answer)? {
            0 => State::Reset,
            3 => State::Ready,
            6 => State::Error,
            other => State::Other(other as u8),
        })
    }
}
