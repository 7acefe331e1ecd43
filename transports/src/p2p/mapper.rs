//! Transports by peer.

use super::copy_based::MOST_SLOTS;
use super::wires::Wires;
use super::{CopyBased, Error, Mode, P2pHostTransport, Registrations, Result, Shared, ZeroCopy};
use crate::rdma::{Adapter, Fabric, PairOptions, Remote};
use fusewire_world::{Teardown, World};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Geometry of transports; equal on all ranks.
#[derive(Clone, Debug)]
pub struct MapperOptions {
    /// Which adapter.
    pub fabric: Fabric,
    /// Queue pairs to each peer: 1 to 16.
    pub channels: usize,
    /// Copy-based: bytes of a slot, a multiple of 8.
    pub chunk_bytes: usize,
    /// Copy-based: slots in each direction, 1 to 8.
    pub pipeline_depth: usize,
    /// Patience of queue pairs.
    pub pairs: PairOptions,
}

impl Default for MapperOptions {
    /// A real adapter, 2 channels, 8 slots of 64 KiB.
    fn default() -> Self {
        MapperOptions {
            fabric: Fabric::Verbs,
            channels: 2,
            chunk_bytes: 64 << 10,
            pipeline_depth: MOST_SLOTS,
            pairs: PairOptions::default(),
        }
    }
}

/// An adapter, and a transport to each peer that was asked for.
///
/// Dropping it waits until every rank drops its own: nobody's queue pairs and memory go while a peer may use them.
#[derive(Debug)]
pub struct Mapper {
    // In the order in which they end: connections, registrations, the adapter.
    transports: Mutex<HashMap<usize, (Mode, Arc<Shared>)>>,
    registrations: Arc<Registrations>,
    adapter: Arc<dyn Adapter>,
    options: MapperOptions,
    world: World,
    teardown: Option<Teardown>,
}

/// What two ranks tell each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Card {
    error: Option<String>,
    copies: bool,
    geometry: [usize; 3],
    endpoints: Vec<Vec<u8>>,
    memory: Remote,
}

impl Mapper {
    /// Opens an adapter. Collective, like the end of the value.
    ///
    /// # Errors
    /// [`Error::Rdma`] without an adapter, with what to do; [`Error::Misuse`] with the reason on the other ranks, and for options
    /// that cannot be.
    pub fn new(world: &World, options: &MapperOptions) -> Result<Self> {
        let MapperOptions { channels, chunk_bytes, pipeline_depth, .. } = *options;
        if !(1..=16).contains(&channels) || !(1..=MOST_SLOTS).contains(&pipeline_depth) {
            return Err(Error::misuse(format!(
                "{channels} channels and {pipeline_depth} slots; there are 1 to 16 and 1 to {MOST_SLOTS}"
            )));
        }
        if chunk_bytes == 0 || !chunk_bytes.is_multiple_of(8) || chunk_bytes > 1 << 30 {
            return Err(Error::misuse(format!("chunks of {chunk_bytes} bytes; a multiple of 8 up to 1 GiB")));
        }
        let opened = options.fabric.open(world.local_rank());
        let errors: Vec<Option<String>> =
            world.all_gather_as(&opened.as_ref().err().map(ToString::to_string))?;
        let adapter = opened?;
        if let Some((rank, why)) = errors.into_iter().enumerate().find_map(|(r, e)| Some((r, e?))) {
            return Err(Error::misuse(format!("rank {rank} has no adapter to use: {why}")));
        }
        Ok(Mapper {
            transports: Mutex::default(),
            registrations: Arc::new(Registrations::new(Arc::clone(&adapter))),
            adapter,
            options: options.clone(),
            world: world.clone(),
            teardown: Some(world.name_teardown()?),
        })
    }

    /// The transport to a peer: made at the first call, with the peer, which calls it too; the same object ever after.
    ///
    /// # Errors
    /// [`Error::ModeMismatch`] if it exists in another mode, here or there; [`Error::Misuse`] for a peer that cannot be, or ranks with
    /// other options; [`Error::World`] if the peer does not call; [`Error::Rdma`].
    pub fn p2p_transport(&self, peer: usize, mode: Mode) -> Result<Arc<Shared>> {
        // Held throughout: two threads that ask at once get one transport.
        let mut transports = self.transports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((have, transport)) = transports.get(&peer) {
            return match *have == mode {
                true => Ok(Arc::clone(transport)),
                false => Err(Error::ModeMismatch { peer, have: *have, asked: mode }),
            };
        }
        if peer >= self.world.size() || peer == self.world.rank() {
            let (me, size) = (self.world.rank(), self.world.size());
            return Err(Error::misuse(format!(
                "a transport from rank {me} to rank {peer} in a world of {size}"
            )));
        }
        let transport = Arc::new(Shared::new(self.connect(peer, mode)?));
        transports.insert(peer, (mode, Arc::clone(&transport)));
        Ok(transport)
    }

    fn connect(&self, peer: usize, mode: Mode) -> Result<Box<dyn P2pHostTransport>> {
        let MapperOptions { channels, chunk_bytes, pipeline_depth, pairs, .. } = &self.options;
        let (adapter, me) = (&*self.adapter, self.world.rank());
        let two = self.world.subgroup(&[me.min(peer), me.max(peer)])?;
        let make = || -> Result<_> {
            let wires = Wires::new(adapter, peer, *channels, pairs)?;
            Ok((wires, CopyBased::memory(adapter, *pipeline_depth, *chunk_bytes)?))
        };
        let made = make();
        let none = Remote { address: 0, rkey: 0 };
        let (endpoints, memory) = made.as_ref().map_or((Vec::new(), none), |(wires, memory)| {
            let registration = memory.registration();
            (wires.endpoints(), Remote { address: registration.start(), rkey: registration.rkey() })
        });
        let card = Card {
            error: made.as_ref().err().map(ToString::to_string),
            copies: mode == Mode::CopyBased,
            geometry: [*channels, *chunk_bytes, *pipeline_depth],
            endpoints,
            memory,
        };
        let mut cards: Vec<Card> = two.all_gather_as(&card)?;
        let theirs = cards.swap_remove(usize::from(me < peer));
        let (mut wires, memory) = made?;
        let have = if theirs.copies { Mode::CopyBased } else { Mode::ZeroCopy };
        if have != mode {
            return Err(Error::ModeMismatch { peer, have, asked: mode });
        }
        if let Some(why) = theirs.error {
            return Err(Error::misuse(format!("rank {peer} cannot connect: {why}")));
        }
        if theirs.geometry != card.geometry {
            return Err(Error::misuse(format!(
                "rank {peer} has channels, chunk bytes and slots {:?} where rank {me} has {:?}",
                theirs.geometry, card.geometry
            )));
        }
        wires.connect(&theirs.endpoints)?;
        two.barrier()?;
        Ok(match mode {
            Mode::ZeroCopy => Box::new(ZeroCopy::new(wires, Arc::clone(&self.registrations))),
            Mode::CopyBased => {
                Box::new(CopyBased::new(wires, memory, *pipeline_depth, *chunk_bytes, theirs.memory))
            }
        })
    }

    /// The registrations of buffers.
    pub fn registrations(&self) -> &Registrations {
        &self.registrations
    }

    /// The adapter's name.
    pub fn adapter(&self) -> &str {
        self.adapter.name()
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        // Lost ranks are not waited for.
        let name = self.teardown.take();
        if !name.is_some_and(|name| self.world.teardown(name)) {
            // Peers may still write.
            std::mem::forget(std::mem::take(
                &mut *self.transports.lock().unwrap_or_else(PoisonError::into_inner),
            ));
            std::mem::forget((Arc::clone(&self.registrations), Arc::clone(&self.adapter)));
        }
    }
}
