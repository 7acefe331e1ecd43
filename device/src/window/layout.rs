//! Where a window's words are.

use crate::mapped::LINE;

/// What a window is made of; equal on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct WindowLayout {
    /// Ranks.
    pub world: u32,
    /// Signals from each peer.
    pub signals: u32,
    /// Barriers.
    pub barriers: u32,
    /// Counters to each peer.
    pub counters: u32,
}

/// Offsets in an inbox, in bytes. A rank has two of them: one that peers store to, one that adapters write.
impl WindowLayout {
    /// The first signal of `writer`; one line each.
    #[inline(always)]
    pub const fn signals_of(&self, writer: u32) -> u64 {
        LINE * writer as u64 * self.signals as u64
    }

    /// The first barrier of `writer`; one line each.
    #[inline(always)]
    pub const fn barriers_of(&self, writer: u32) -> u64 {
        self.signals_of(self.world) + LINE * writer as u64 * self.barriers as u64
    }

    /// The first counter of operations to `peer`; one line each.
    #[inline(always)]
    pub const fn counters_of(&self, peer: u32) -> u64 {
        self.barriers_of(self.world) + LINE * peer as u64 * self.counters as u64
    }

    /// Bytes of an inbox.
    pub const fn inbox_bytes(&self) -> u64 {
        self.counters_of(self.world)
    }
}

/// Offsets among the epochs, in bytes.
impl WindowLayout {
    /// Arrivals of `peer` that barriers have waited for, one word each barrier.
    #[inline(always)]
    pub const fn awaited_barrier(&self, peer: u32, id: u32) -> u64 {
        8 * (peer as u64 * self.barriers as u64 + id as u64)
    }

    /// Signals of `peer` that were taken, one word each signal.
    #[inline(always)]
    pub const fn taken(&self, peer: u32, id: u32) -> u64 {
        self.awaited_barrier(self.world, 0) + 8 * (peer as u64 * self.signals as u64 + id as u64)
    }

    /// Signals of all peers together that were taken, one word each signal.
    #[inline(always)]
    pub const fn taken_of_all(&self, id: u32) -> u64 {
        self.taken(self.world, id)
    }

    /// Blocks that have arrived at a barrier of the whole grid, and beside it the barriers passed.
    #[inline(always)]
    pub const fn grid_gate(&self, id: u32) -> u64 {
        self.taken(self.world + 1, 0) + 16 * id as u64
    }

    /// Bytes of epochs.
    pub const fn epoch_bytes(&self) -> u64 {
        self.grid_gate(self.barriers)
    }
}

/// A peer as a window's kernels see it: addresses worked out beforehand.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct WindowPeer {
    /// See [`LinkKind`](super::LinkKind).
    pub kind: u32,
    /// Number of the peer among those of its kind.
    pub index: u32,
    /// This rank's first signal in the peer's inbox.
    pub signals_out: u64,
    /// This rank's first barrier in the peer's inbox.
    pub barriers_out: u64,
    /// The peer's first signal in this rank's inbox.
    pub signals_in: u64,
    /// The peer's first barrier in this rank's inbox.
    pub barriers_in: u64,
    /// First counter of operations to the peer.
    pub counters: u64,
    /// The peer's data.
    pub data: u64,
    /// Bytes of it.
    pub data_bytes: u64,
    /// Key of the peer's inbox, if an adapter writes it.
    pub inbox_key: u32,
    /// Key of the peer's data.
    pub data_key: u32,
    /// This rank's key of its own counters.
    pub counter_key: u32,
    /// Not used; zero.
    pub reserved: u32,
}

#[cfg(test)]
mod tests {
    use super::WindowLayout;
    use crate::mapped::LINE;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn no_two_words_share_a_line(world in 1u32..9, signals in 0u32..70, barriers in 0u32..20, counters in 0u32..9) {
            let layout = WindowLayout { world, signals, barriers, counters };
            let mut seen = HashSet::new();
            for peer in 0..world {
                let of = |first: u64, count: u32| (0..u64::from(count)).map(move |id| first + LINE * id);
                let words = of(layout.signals_of(peer), signals)
                    .chain(of(layout.barriers_of(peer), barriers))
                    .chain(of(layout.counters_of(peer), counters));
                for at in words {
                    prop_assert!(at % LINE == 0 && at + LINE <= layout.inbox_bytes());
                    prop_assert!(seen.insert(at));
                }
            }
            prop_assert_eq!(seen.len() as u64 * LINE, layout.inbox_bytes());
        }

        #[test]
        fn no_two_epochs_share_a_word(world in 1u32..9, signals in 0u32..70, barriers in 0u32..20) {
            let layout = WindowLayout { world, signals, barriers, counters: 0 };
            let mut seen = HashSet::new();
            for id in 0..barriers {
                for peer in 0..world {
                    prop_assert!(seen.insert(layout.awaited_barrier(peer, id)));
                }
                prop_assert!(seen.insert(layout.grid_gate(id)) && seen.insert(layout.grid_gate(id) + 8));
            }
            for id in 0..signals {
                for peer in 0..world {
                    prop_assert!(seen.insert(layout.taken(peer, id)));
                }
                prop_assert!(seen.insert(layout.taken_of_all(id)));
            }
            prop_assert!(seen.iter().all(|at| at + 8 <= layout.epoch_bytes()));
            prop_assert_eq!(seen.len() as u64 * 8, layout.epoch_bytes());
        }
    }
}
