//! The operations, from the crate's own sources, over the words of `device`.

#[path = "../../src/ibgda/buffer.rs"]
mod buffer;
#[path = "../../src/ibgda/endpoint.rs"]
mod endpoint;
#[path = "../../src/ibgda/queue.rs"]
mod queue;
#[path = "../../src/ibgda/wait.rs"]
mod wait;
#[path = "../../src/ibgda/wqe.rs"]
pub mod wqe;
pub use buffer::{Key, LocalBuffer, RemoteBuffer};
pub use endpoint::{Endpoint, IbgdaPeer, Pair};
pub use queue::{Queue, QueueState, state_bytes};
pub use wait::{Broken, Compare, wait_signal};
