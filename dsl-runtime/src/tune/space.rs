//! What can be tried.

use super::key::Config;
use crate::schedule::{Agreed, LaunchOptions, Pattern, Protocol};
use crate::{Error, Result};
use fusewire_device::protocol::direct::bulk;
use serde::{Deserialize, Serialize};

/// Configurations of one protocol to try: around a start, along five axes. Each value fits the launch when the rest is as in `start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// What the launcher decides by itself for this protocol.
    pub start: Config,
    /// Channels to each peer.
    pub channels: Vec<u32>,
    /// Blocks for the rank's own chunk.
    pub self_copy: Vec<u32>,
    /// Threads of a block.
    pub threads: Vec<u32>,
    /// Simple: bytes that travel together. Bulk: bytes of a copy.
    pub chunk: Vec<usize>,
    /// Packs in flight.
    pub unroll: Vec<u32>,
}

impl Space {
    /// The neighbours of `base` along axis `axis` (of [`Space::AXES`]).
    pub(crate) fn along(&self, axis: usize, base: Config) -> Vec<Config> {
        match axis {
            0 => self.channels.iter().map(|&channels| Config { channels, ..base }).collect(),
            1 => self.self_copy.iter().map(|&self_copy| Config { self_copy, ..base }).collect(),
            2 => self.threads.iter().map(|&threads| Config { threads, ..base }).collect(),
            3 => self.chunk.iter().map(|&chunk| Config { chunk: Some(chunk), ..base }).collect(),
            _ => self.unroll.iter().map(|&unroll| Config { unroll, ..base }).collect(),
        }
    }

    pub(crate) const AXES: usize = 5;

    /// Measurements that a search along each axis in turn takes: the start, and every value that is not the start's.
    pub(crate) fn steps(&self) -> usize {
        let others = |axis| self.along(axis, self.start).into_iter().filter(|c| *c != self.start).count();
        1 + (0..Self::AXES).map(others).sum::<usize>()
    }
}

impl Agreed {
    /// What can be tried, the default's own protocol first. What `options` say of the cut is not looked at.
    pub(crate) fn spaces(
        &self,
        elements: usize,
        options: &LaunchOptions,
        pattern: Pattern,
        symmetric: bool,
    ) -> Result<Vec<Space>> {
        let cut = |options: &LaunchOptions| self.cut(elements, options, pattern, symmetric);
        let open = options.open();
        let default = cut(&open)?;
        let others = self.protocols().into_iter().filter(|p| *p != default.protocol);
        let mut spaces = Vec::new();
        for protocol in std::iter::once(default.protocol).chain(others) {
            let plan = match cut(&open.clone().protocol(protocol)) {
                Ok(_) if protocol == default.protocol => default,
                Ok(plan) => plan,
                // This protocol cannot carry the chunk.
                Err(Error::Misuse { .. }) => continue,
                Err(other) => return Err(other),
            };
            let mut start = Config::from(&plan);
            // A rank alone stages nothing, whatever travels together.
            if pattern.peers == 0 && !self.on_host() {
                start.chunk = None;
            }
            let fits = |config: &Config| cut(&config.options(&open)).is_ok();
            let layout = self.link.layout();
            // A channel with less than a line has nothing to do; on the host blocks are threads of few cores.
            let lines = (plan.wire_bytes / 128).max(1);
            let most = if self.on_host() { lines.min(self.device().processors()) } else { lines };
            let channels = (0..12).flat_map(|k| [1u32 << k, 3 << k]).filter(|c| *c as usize <= most);
            let mut channels: Vec<u32> = channels.chain([start.channels]).collect();
            channels.sort_unstable();
            channels.dedup();
            channels.retain(|&channels| fits(&Config { channels, ..start }));
            let mut self_copy = vec![start.self_copy];
            if start.self_copy > 0 && !self.on_host() {
                self_copy.extend([1, 2, 4, 8, 16].into_iter().filter(|d| *d != start.self_copy));
            }
            self_copy.retain(|&self_copy| fits(&Config { self_copy, ..start }));
            let bulk = protocol == Protocol::Bulk;
            let mut threads = match bulk {
                _ if self.on_host() => vec![start.threads],
                // One warp copies.
                true if pattern.own => vec![layout.world.next_multiple_of(32), 256, 512],
                true => vec![start.threads],
                false => vec![64, 128, 256, 512],
            };
            threads.retain(|&threads| fits(&Config { threads, ..start }));
            let (most, halvings) = if bulk { (bulk::MOST, 0..=2) } else { (layout.window, 2..=6) };
            let mut chunk: Vec<usize> = start.chunk.map_or(vec![], |_| {
                halvings.map(|halvings| most as usize >> halvings).filter(|c| *c >= 1024).collect()
            });
            chunk.retain(|&chunk| fits(&Config { chunk: Some(chunk), ..start }));
            let unroll = self.unrolls(protocol);
            spaces.push(Space { start, channels, self_copy, threads, chunk, unroll });
        }
        Ok(spaces)
    }
}
