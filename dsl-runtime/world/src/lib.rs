//! How ranks meet.
//!
//! A [`World`] is this process's (or thread's) place among the ranks of a job, and the set-up traffic between them:
//! small collectives with deadlines, agreement on what must be equal, file descriptors for shared memory, and news of
//! ranks that die. Payload never goes this way; transports use it to find each other.
//!
//! ```
//! use fusewire_world::World;
//!
//! let sums = World::threads(4, |world| {
//!     let ranks: Vec<usize> = world.all_gather_as(&world.rank())?;
//!     Ok::<usize, fusewire_world::Error>(ranks.iter().sum())
//! })?;
//! assert!(sums.into_iter().all(|sum| sum.is_ok_and(|s| s == 6)));
//! # Ok::<(), fusewire_world::Error>(())
//! ```
//!
//! # Ways to meet
//! | call | ranks are |
//! |---|---|
//! | [`World::threads`] | threads of one process |
//! | [`World::from_env`] | processes under torchrun, Open MPI or Slurm, or with `FUSEWIRE_RANK` and so on set |
//! | [`World::connect`] | processes that were handed a [`UniqueId`] in any way |
//! | [`World::with_bootstrap`] | whatever the caller's own [`Bootstrap`] reaches |
//! | [`World::single`] | just this one |
//!
//! [`Job`] starts the ranks of one host as processes.
//!
//! # Environment
//! | variable | meaning |
//! |---|---|
//! | `FUSEWIRE_RANK`, `FUSEWIRE_WORLD_SIZE` | this rank and the number of ranks; they come before any launcher's |
//! | `FUSEWIRE_LOCAL_RANK` | optional: the rank among those of its host |
//! | `FUSEWIRE_ADDR` | `host:port` of rank 0's store; comes before what a launcher says |
//! | `FUSEWIRE_PORT` | the port alone, where the launcher gives the host |
//! | `FUSEWIRE_FILE` | a file that all ranks can reach (a shared directory), through which they meet: rank 0 writes it, with a secret of its own, for its user alone |
//! | `FUSEWIRE_LISTEN` | the address of its host on which rank 0 listens with `FUSEWIRE_FILE`; otherwise the one that the default route uses, and no other |
//! | `FUSEWIRE_TOKEN` | the job's secret, 16 characters or more, the same on every rank |
//! | `FUSEWIRE_HOST_ID` | overrides which ranks are taken to share memory |
//!
//! Under torchrun the store listens on `MASTER_PORT + 1`, since `MASTER_PORT` belongs to torch's own store.
//!
//! # Who may join
//! Ranks and store show each other that they know the job's secret before anything else they say counts, and every frame
//! between them is encrypted, authenticated and in order ([Noise](https://noiseprotocol.org), `NNpsk0`). The secret is in the
//! [`UniqueId`] or the `FUSEWIRE_FILE`; where ranks meet at an address it is `FUSEWIRE_TOKEN`:
//!
//! ```text
//! export FUSEWIRE_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
//! torchrun ..                    (on several nodes: export the same value on each)
//! srun --export=ALL ..
//! mpirun -x FUSEWIRE_TOKEN ..
//! ```
//! Without it only a loopback address will do (`localhost`, `127.0.0.1`, `::1`): then the secret is in a file that only this
//! user can read, which the first rank makes in `$XDG_RUNTIME_DIR/fusewire` (or `fusewire-UID` in the temporary
//! directory). Other users of the host cannot join; other processes of the same user can, as they could trace it.
//!
//! # When ranks die
//! A rank whose connection closes without a goodbye is known to all the others within a moment: [`World::lost`],
//! [`World::on_lost`], and collectives that need it fail with [`PeerError::Lost`] instead of running into their
//! deadline. A rank that is alive but silent (stopped, cut off) is noticed after [`Options::silence`]. Dropping the
//! last clone of a `World` is the goodbye. The rank that holds the store (rank 0, or the one that made the
//! [`UniqueId`]) should outlive the others: end with [`World::teardown_barrier`].
//!
//! # What this does not do
//! A rank that was let in is trusted to be of the job: it can end it, though not exhaust the others
//! ([`Options::max_message`]). Linux only: file descriptors go over abstract Unix sockets.

#![forbid(unsafe_code)]

mod bootstrap;
mod env;
mod error;
mod fds;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod host;
mod id;
mod job;
mod list;
mod options;
mod store;
mod sync;
mod tcp;
mod text;
mod wire;
mod world;

pub use bootstrap::{Bootstrap, LostCallback, NoticeCallback};
pub use env::{Launch, Launcher};
pub use error::{DifferingField, Disagreement, EnvError, Error, Fabric, Misuse, PeerError, Result, Timeout};
pub use id::UniqueId;
pub use job::{Job, launched};
pub use options::Options;
pub use world::{Kind, Teardown, World};

/// A rank's number, from 0 to one below the world's size.
pub type Rank = usize;
