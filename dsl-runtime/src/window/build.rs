//! The collective part of a window.

use super::WindowMemory;
use crate::{Error, Result};
use fusewire_device::window::{LinkKind, WindowPeer};
use fusewire_transports::peers::{MappedPeers, Registration, RemoteRegion, Table};

/// What an exchange gave. Dropped after the window's own memory is let go of by every rank.
pub(super) struct Exchanged {
    pub peers: Table<WindowPeer>,
    pub data_key: u32,
    pub data_bytes: Vec<u64>,
    _mapped: Vec<MappedPeers>,
    _registered: Vec<Registration>,
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
        if let Some((memory, _)) = &self.data {
            data = Some(peers.exchange_mapped(memory.sharable().ok_or_else(missing)?)?);
            let whole = memory.allocation(0);
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
        let mapped = [Some(inboxes), data].into_iter().flatten().collect();
        Ok(Exchanged { peers, data_key, data_bytes, _mapped: mapped, _registered: registered })
    }
}
