//! Where fields are: bits from the beginning of their structure, and widths, as `mlx5_ifc.h` of rdma-core counts them. What that
//! file lacks (`create_cq_in`, `cqc`, the commands to error and to reset, the offset of a work queue in its memory) is from the
//! `mlx5_prm.h` and `mlx5_ifc.h` of NVSHMEM's transports and of DOCA GPUNetIO, which agree.
#![allow(missing_docs)] // named and documented by those files

use super::Field;

macro_rules! fields {
    ($($module:ident: $(#[$doc:meta])* { $($name:ident: $at:expr, $bits:expr;)* })*) => {$(
        $(#[$doc])*
        pub mod $module {
            use super::Field;
            $(pub const $name: Field = Field::new(stringify!($name), $at, $bits);)*
        }
    )*};
}

/// Bits before the queue pair's context in commands and answers that carry one.
pub const QPC: u32 = 0xc0;
/// Bits before the completion queue's context in `create_cq_in`.
pub const CQC: u32 = 0x80;
/// Bits before the primary address path in a queue pair's context.
pub const PATH: u32 = 0xc0;
/// Bits before the capabilities in the answer to QUERY_HCA_CAP.
pub const CAPABILITIES: u32 = 0x80;
/// Bytes of commands and answers that carry no context, of those that do, and of the answer with capabilities.
pub const SHORT: usize = 0x80 / 8;
pub const LONG: usize = 0x880 / 8;
pub const CAPABILITIES_BYTES: usize = 0x8080 / 8;

fields! {
    command: /** What commands begin with. */ {
        OPCODE: 0x00, 16;
        OP_MOD: 0x30, 16;
        QPN: 0x48, 24;
    }
    answer: /** What answers begin with. */ {
        STATUS: 0x00, 8;
        SYNDROME: 0x20, 32;
        NUMBER: 0x48, 24;
    }
    create_cq: /** `create_cq_in`, beside its context. */ {
        CQ_UMEM_OFFSET: 0x280, 64;
        CQ_UMEM_ID: 0x2c0, 32;
        CQ_UMEM_VALID: 0x2e0, 1;
    }
    cqc: /** `cqc`. */ {
        DBR_UMEM_VALID: 0x06, 1;
        DBR_UMEM_ID: 0x20, 32;
        LOG_CQ_SIZE: 0x63, 5;
        UAR_PAGE: 0x68, 24;
        C_EQN: 0xb8, 8;
        DBR_ADDR: 0x1c0, 64;
    }
    create_qp: /** `create_qp_in`, beside its context. */ {
        WQ_UMEM_OFFSET: 0x800, 64;
        WQ_UMEM_ID: 0x840, 32;
        WQ_UMEM_VALID: 0x860, 1;
    }
    qpc: /** `qpc`. */ {
        STATE: 0x00, 4;
        PM_STATE: 0x13, 2;
        PD: 0x28, 24;
        MTU: 0x40, 3;
        LOG_MSG_MAX: 0x43, 5;
        LOG_SQ_SIZE: 0x51, 4;
        UAR_PAGE: 0x68, 24;
        REMOTE_QPN: 0xa8, 24;
        LOG_SRA_MAX: 0x388, 3;
        RETRY_COUNT: 0x38d, 3;
        RNR_RETRY: 0x390, 3;
        NEXT_SEND_PSN: 0x3c8, 24;
        CQN_SND: 0x3e8, 24;
        LOG_RRA_MAX: 0x488, 3;
        ATOMIC_MODE: 0x48c, 4;
        RRE: 0x490, 1;
        RWE: 0x491, 1;
        RAE: 0x492, 1;
        CD_MASTER: 0x49f, 1;
        MIN_RNR_NAK: 0x4a3, 5;
        NEXT_RCV_PSN: 0x4a8, 24;
        CQN_RCV: 0x4e8, 24;
        DBR_ADDR: 0x500, 64;
        RQ_TYPE: 0x565, 3;
        DBR_UMEM_VALID: 0x683, 1;
        DBR_UMEM_ID: 0x720, 32;
    }
    path: /** `ads`. */ {
        GRH: 0x28, 1;
        RLID: 0x30, 16;
        ACK_TIMEOUT: 0x40, 5;
        SRC_ADDR_INDEX: 0x48, 8;
        HOP_LIMIT: 0x58, 8;
        TCLASS: 0x64, 8;
        DSCP: 0x10a, 6;
        UDP_SPORT: 0x110, 16;
        ETH_PRIO: 0x121, 3;
        SL: 0x124, 4;
        VHCA_PORT_NUM: 0x128, 8;
    }
    capability: /** `cmd_hca_cap`. */ {
        LOG_MAX_QP_SZ: 0x88, 8;
        LOG_MAX_CQ_SZ: 0xc8, 8;
        ATOMIC: 0x21e, 1;
        CD: 0x22c, 1;
        RC: 0x23f, 1;
    }
}

/// Bits before the remote GID and the remote MAC in an address path; both are rows of bytes.
pub const RGID: u32 = 0x80;
pub const RMAC: u32 = 0x130;
