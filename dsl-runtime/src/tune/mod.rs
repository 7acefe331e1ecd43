//! Which configuration is best: a table by key, and the sweep that writes it.
//!
//! A launch is cut by what the caller says, then by the row of a [`Table`] for its [`Key`], then by an analytic default; its
//! [`Plan`](crate::schedule::Plan) tells which. A row that does not fit a launch (fewer channels at the rendezvous than when it was
//! tuned, say) is left out. Ranks compare their tables when a kernel is prepared, since they must cut alike.

mod journal;
mod key;
mod program;
mod space;
mod sweep;
mod table;
mod tuned;

pub use journal::Journal;
pub use key::{ANY, COPIES, Config, Key, Layout, bucket};
pub use program::{Message, Session, Settings, main};
pub use space::Space;
pub use sweep::{Progress, Tunable, sweep};
pub use table::{Entry, Table, VARIABLE};
pub(crate) use tuned::Tuned;
