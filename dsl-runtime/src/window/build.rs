//! The collective part of a window.

use super::WindowMemory;
use crate::buffer::Memory;
use crate::stream::lock;
use crate::{Error, Result};
use fusewire_device::window::{LinkKind, WindowPeer};
use fusewire_transports::host::Foreign;
use fusewire_transports::peers::{MappedPeers, Registration, RemoteRegion, Sharable, Table};
use std::sync::{Arc, Mutex};

/// What an exchange gave. Dropped after the window's own memory is let go of by every rank.
pub(super) struct Exchanged {
    pub peers: Table<WindowPeer>,
    pub data_key: u32,
    pub data_bytes: Vec<u64>,
    _inboxes: MappedPeers,
    data: Mutex<Option<MappedPeers>>,
    _registered: Vec<Registration>,
}

impl Exchanged {
    /// Unmaps the data of peers, where it belongs to others.
    pub(super) fn unmap_foreign(&self) {
        drop(lock(&self.data).take_if(|data| data.has_foreign()));
    }

    /// Whether some rank's data belongs to others.
    pub(super) fn has_foreign(&self) -> bool {
        lock(&self.data).as_ref().is_some_and(MappedPeers::has_foreign)
    }
}

impl WindowMemory {
    /// Maps, registers and exchanges; every rank does the same in the same order.
    pub(super) fn build(&self) -> Result<Exchanged> {
        let (peers, layout, world) = (&self.peers, self.layout, self.peers.world());
        peers.ready("a window over a `MultiPeerTransport`")?;
        world.agree(
            "window",
            &[
                ("signals", layout.signals.to_string()),
                ("barriers", layout.barriers.to_string()),
                ("counters", layout.counters.to_string()),
                ("a buffer", self.data.is_some().to_string()),
            ],
        )?;
        let missing = || Error::misuse("memory of a window is not sharable");
        let mut registered = Vec::new();
        let inboxes = peers.exchange_mapped(self.inbox.sharable().ok_or_else(missing)?)?;
        let mut adapters = vec![None; world.size()];
        let mut own_key = 0;
        if let Some(memory) = &self.adapter_inbox {
            let whole = memory.allocation(0);
            // SAFETY: the window holds the memory, which goes after its registrations.
            let registration = unsafe { peers.register(whole, whole.base, whole.bytes)? };
            own_key = registration.keys().map_or(0, |k| k.local);
            adapters = peers.exchange_registration(&registration)?;
            registered.push(registration);
        }
        let (mut data, mut remote, mut data_key) = (None, vec![None; world.size()], 0);
        if let Some((memory, bytes)) = &self.data {
            data = Some(peers.exchange_mapped(&sharable(memory, *bytes))?);
            let whole = memory.allocation(*bytes);
            // SAFETY: the window holds the memory, which goes after its registrations.
            let registration = unsafe { peers.register(whole, whole.base, whole.bytes)? };
            data_key = registration.keys().map_or(0, |k| k.local);
            remote = peers.exchange_registration(&registration)?;
            registered.push(registration);
        }
        let data_bytes: Vec<u64> = world.all_gather_as(&self.data.as_ref().map_or(0, |(_, bytes)| *bytes))?;
        let rdma = peers.topology().rdma_peers();
        let entry = |rank: usize| -> Result<WindowPeer> {
            let kind = peers.topology().kind(rank).unwrap_or(LinkKind::Own);
            let me = world.rank() as u32;
            let nothing = || Error::misuse(format!("rank {rank} exchanged no registered memory"));
            let region = |of: &[Option<RemoteRegion>]| of[rank].ok_or_else(nothing);
            let mut peer = WindowPeer { kind: kind as u32, ..WindowPeer::default() };
            let (own, theirs) = match kind {
                LinkKind::Own => return Ok(peer),
                LinkKind::Mapped => {
                    if let Some(data) = &data {
                        peer.data = data.address(rank)?;
                    }
                    (self.inbox.address(), inboxes.address(rank)?)
                }
                LinkKind::Rdma => {
                    let inbox = region(&adapters)?;
                    (peer.inbox_key, peer.counter_key) = (inbox.key, own_key);
                    peer.index = rdma.iter().position(|r| *r == rank).unwrap_or(0) as u32;
                    if data.is_some() {
                        let region = region(&remote)?;
                        (peer.data, peer.data_key) = (region.address, region.key);
                    }
                    (self.adapter_inbox.as_ref().map_or(0, |m| m.address()), inbox.address)
                }
            };
            peer.data_bytes = data_bytes[rank];
            (peer.signals_out, peer.signals_in) =
                (theirs + layout.signals_of(me), own + layout.signals_of(rank as u32));
            (peer.barriers_out, peer.barriers_in) =
                (theirs + layout.barriers_of(me), own + layout.barriers_of(rank as u32));
            peer.counters = own + layout.counters_of(rank as u32);
            Ok(peer)
        };
        let table = (0..world.size()).map(entry).collect::<Result<Vec<WindowPeer>>>()?;
        let peers = Table::new(peers.machine(), table)?;
        let data = Mutex::new(data);
        Ok(Exchanged { peers, data_key, data_bytes, _inboxes: inboxes, data, _registered: registered })
    }
}

/// A window's data as peers map it.
fn sharable(memory: &Arc<Memory>, bytes: u64) -> Arc<Sharable> {
    let foreign = || {
        // SAFETY: the window holds the memory, until every rank has unmapped it.
        Arc::new(Sharable::Foreign(unsafe { Foreign::new(memory.address(), bytes as usize) }))
    };
    memory.sharable().map_or_else(foreign, Arc::clone)
}
