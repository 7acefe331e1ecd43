//! The store over TCP: blocking sockets, a thread a connection on the rank that holds the store.
//!
//! A connection starts with fixed bytes, so that strangers and other versions are told apart before anything is
//! parsed, and then shows in both directions that it knows the token, which is never sent:
//! ```text
//!  store  → rank   "FUSEWIRE", version, nonce
//!  rank   → store  "FUSEWIRE", version, nonce, then a frame: rank, world size, HMAC-SHA256 over all of it
//!  store  → rank   a frame: welcome with an HMAC over all of it, or why not
//! ```
//! This keeps strangers out; it does not encrypt. What follows are plain frames.

pub(crate) mod auth;
pub(crate) mod client;
pub(crate) mod handshake;
pub(crate) mod server;

#[cfg(test)]
mod tests;
