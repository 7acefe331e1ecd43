//! How bytes travel: what hosts say of each protocol.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// How bytes travel. What NCCL has too has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Protocol {
    /// Through rings of staging in the receiver's memory, with credits: any size.
    Simple,
    /// In 8-byte words, of which half is a flag: small chunks between GPUs whose path carries no whole lines (without NVLink), and of whole rows. Twice as
    /// many bytes travel.
    Ll,
    /// In 128-byte lines that carry their flags: small chunks, at a fraction of the latency.
    Ll128,
    /// Nowhere: of a rank alone in its world, on a GPU.
    Local,
    /// Straight into the peers' outputs ("zero copy"), if they are symmetric memory ([`Buffer::symmetric`](crate::Buffer::symmetric)) and the
    /// hooks have no `consume`. Nothing is staged, and no block receives.
    Direct,
    /// As `Direct`, by bulk copies through shared memory (the Tensor Memory Accelerator), which one thread of each block issues. It needs
    /// hooks that have no `produce` either, chunks of whole multiples of 16 bytes, and a GPU of compute capability 9.0 or later that gives
    /// a block 128 KiB of shared memory.
    Bulk,
    /// As `Direct`, by the copy engine, which keeps no multiprocessor busy: on GPUs, for hooks that have no `produce` either. The copies
    /// are queued behind the wait for the peers and run even if that wait fails. After a fault the contents of all ranks' outputs are
    /// unspecified, including the output of a rank that had not launched yet.
    Copy,
    /// Through staging twice ("two-shot"), for `all_reduce`, `broadcast` and `reduce`: each rank takes a part of a chunk, folds all contributions to it,
    /// and passes the result on. From three ranks on, a link carries fewer bytes than with the other protocols: about two chunks for an all-reduce, and one
    /// for a broadcast or a reduce. What is folded travels in the type that the fold's `result` names; without one in the output's type, or in the accumulator's if the
    /// module has a `consume`. By element or pack that is no narrower than the wire type. Whole rows go in two steps in an `all_reduce`. The bits are the same as with
    /// the other protocols.
    TwoShot,
    /// As `TwoShot`, but in LL128 lines: for all-reduces that are too long for one step by LL128 and too short for staging.
    Ll128TwoShot,
    /// Through staging within domains and across them, on a mesh ("hierarchical"), in one kernel: what crosses adapters goes to one rank of each other domain. Of `d` domains of `l`
    /// ranks, each adapter carries
    /// - of an all-reduce `(d - 1) / l` chunks, in three steps: a domain's ranks fold a part each of what they contribute, ranks of the same place in their domains exchange and fold
    ///   that, and the result is passed on within each domain;
    /// - of an all-gather `d - 1` chunks: a rank's chunk goes to its domain's ranks and to the ranks of its place in the others, which pass it on;
    /// - of a reduce-scatter `d - 1` chunks: a rank folds what its domain contributes to those of its place, who join that with what their own domains contribute;
    /// - of a broadcast and of a reduce `(d - 1) / l` chunks, if it is in the root's domain: of the root's chunk a part each, which its domain's ranks send to the ranks of their
    ///   place in the others, who pass it on; or back, with what each domain has folded of it.
    ///
    /// In one step an adapter carries `(d - 1) l` chunks, of a broadcast and a reduce the root's. What was folded crosses in the accumulator's type, so that the bits are the same as with the other protocols. Domains are of 2,
    /// 4, 8, .. consecutive ranks, and the order of a fold is a tree.
    Hierarchical,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 10] = [
        Protocol::Simple,
        Protocol::Ll,
        Protocol::Ll128,
        Protocol::Local,
        Protocol::Direct,
        Protocol::Bulk,
        Protocol::Copy,
        Protocol::TwoShot,
        Protocol::Ll128TwoShot,
        Protocol::Hierarchical,
    ];

    /// Its name on command lines and in tables: `ll128_two_shot`, say.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Simple => "simple",
            Protocol::Ll => "ll",
            Protocol::Ll128 => "ll128",
            Protocol::Local => "local",
            Protocol::Direct => "direct",
            Protocol::Bulk => "bulk",
            Protocol::Copy => "copy",
            Protocol::TwoShot => "two_shot",
            Protocol::Ll128TwoShot => "ll128_two_shot",
            Protocol::Hierarchical => "hierarchical",
        }
    }

    /// Whether bytes travel beside flags, through buffers of their own.
    pub(crate) fn flagged(self) -> bool {
        matches!(self, Protocol::Ll | Protocol::Ll128 | Protocol::Ll128TwoShot)
    }

    /// Whether what is folded is passed on.
    pub(crate) fn passes_on(self) -> bool {
        matches!(self, Protocol::TwoShot | Protocol::Hierarchical | Protocol::Ll128TwoShot)
    }

    /// Whether that goes through staging, in as much room as what is passed on takes.
    pub(super) fn restages(self) -> bool {
        matches!(self, Protocol::TwoShot | Protocol::Hierarchical)
    }

    /// Whether ranks write into their peers' outputs.
    pub(crate) fn stores(self) -> bool {
        matches!(self, Protocol::Direct | Protocol::Bulk | Protocol::Copy)
    }

    /// That of a number.
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        Protocol::ALL.into_iter().find(|protocol| *protocol as u8 == number)
    }

    /// As messages about launches say it.
    pub(super) const fn how(self) -> &'static str {
        match self {
            Protocol::Simple => "by Simple",
            Protocol::TwoShot => "in two steps",
            Protocol::Hierarchical => "by domains",
            Protocol::Ll => "by LL",
            Protocol::Ll128 => "by LL128",
            Protocol::Ll128TwoShot => "in two steps by LL128",
            Protocol::Local => "on a rank alone",
            Protocol::Direct => "straight into outputs",
            Protocol::Bulk => "by bulk copies",
            Protocol::Copy => "by the copy engine",
        }
    }

    /// What a kernel on CPU threads needs to have it.
    pub(super) const fn needs_on_host(self) -> &'static str {
        match self {
            Protocol::Simple
            | Protocol::TwoShot
            | Protocol::Hierarchical
            | Protocol::Local
            | Protocol::Copy => self.needs(),
            _ if cfg!(feature = "cpu-protocols") => self.needs(),
            _ => {
                "CPU threads go through staging; they have other protocols, which are slower there, in programs with fusewire's feature `cpu-protocols`"
            }
        }
    }

    /// What a kernel needs to have it.
    pub(super) const fn needs(self) -> &'static str {
        match self {
            Protocol::Simple => "every transport stages all-to-alls and sends",
            Protocol::TwoShot => {
                "two steps are for `all_reduce`, and of hooks by element or pack for `broadcast` and `reduce`, on transports with two channels or more that stage four lines of what is passed on, or four times the rows that travel together, in the room that their results take. By element or pack the result is no narrower than what crosses the wire"
            }
            Protocol::Ll128TwoShot => {
                "two steps by LL128 are for `all_reduce` between peers whose memory kernels store to, of hooks by element or pack whose result is no narrower than what crosses the wire"
            }
            Protocol::Hierarchical => {
                "steps by domains are for `all_gather`, `reduce_scatter`, `all_reduce`, `broadcast` and `reduce` of hooks by element or pack, on meshes with two channels or more that stage four lines of what crosses. Hooks fold nothing, or fold by a tree; then neither accumulator nor result is narrower than what crosses the wire"
            }
            Protocol::Ll => "LL needs peers' memory that kernels store to",
            Protocol::Ll128 => {
                "LL128 needs peers' memory that kernels store to, hooks by element or pack, and another schedule than `reduce`"
            }
            Protocol::Local => {
                "it is for a rank alone in its world, on GPUs that store to their peers' memory"
            }
            Protocol::Direct => {
                "stores into peers' outputs need their memory mapped, and hooks without `consume`"
            }
            Protocol::Bulk => {
                "bulk copies need peers' memory mapped, neither `produce` nor `consume`, and GPUs of compute capability 9.0 with 128 KiB of shared memory for a block"
            }
            Protocol::Copy => {
                "the copy engine needs peers' memory mapped, and neither `produce` nor `consume`"
            }
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Protocol {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name).ok_or_else(|| {
            Error::misuse(format!(
                "there is no protocol {name:?}; there are {}",
                Protocol::ALL.map(Protocol::name).join(", ")
            ))
        })
    }
}
