//! The store over TCP: blocking sockets, a thread a connection on the rank that holds the store.
//!
//! Every connection is a [`session`]: what is not proven to come from a rank of the job, or from its store, is never
//! acted on. [`handshake`] is what the two say first in a session; [`strangers`] are the connections that have none.

pub(crate) mod client;
mod ends;
pub(crate) mod handshake;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod strangers;
pub(crate) mod token;

#[cfg(test)]
mod tests;
