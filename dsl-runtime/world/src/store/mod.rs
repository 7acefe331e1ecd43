//! The store: where the ranks' bytes meet, in one process or on one rank of many.
//!
//! ```text
//!  rank ── Request ──▶ Hub { Router, a sink a rank } ── Event ──▶ Inbox of each rank
//! ```
//! [`router`] is the store's whole logic, without I/O. [`hub`] puts a lock around it and delivers; ranks of the same
//! process reach it directly, others over TCP (`crate::tcp`). [`inbox`] is where a rank waits. [`member`] makes a
//! [`Bootstrap`](crate::Bootstrap) of the two.

pub(crate) mod hub;
pub(crate) mod inbox;
pub(crate) mod member;
pub(crate) mod proto;
pub(crate) mod router;
