//! How the threads of a block share its peers.

use super::line;
use super::load::{Load, TILE_ROWS};
use crate::arch;
use crate::group::Block;
use crate::hooks::Hooks;
use crate::tile::{self, Team, WARP};

/// From so many packs a thread on, halves of a block send and receive at the same time.
const HALVES_FROM: u32 = 8;

/// The teams of a block.
#[derive(Clone, Copy)]
pub(super) struct Teams {
    count: u32,
    /// This thread's.
    index: u32,
    pub(super) team: Team,
}

impl Teams {
    /// A team gets a warp for every row, or where that is more threads than there are and hooks are taken four at a time, for every four;
    /// or for every tile. There are as many teams as there are threads for, up to one for each peer.
    #[inline(always)]
    pub(super) fn of<H: Hooks>(all: Team, peers: u32, load: &Load) -> Self {
        let Team { lane, lanes } = all;
        let warps = |rows_each: u32| 32 * load.rows().div_ceil(rows_each).max(1);
        let mut width = warps(if load.tiles > 0 { TILE_ROWS } else { 1 });
        if load.tiles == 0 && peers * width > lanes && <tile::FourOrOne<H> as tile::Unroll>::PACKS == 4 {
            width = warps(4);
        }
        let count = (lanes / width).min(peers);
        if count <= 1 {
            return Teams { count: 1, index: 0, team: all };
        }
        let team = Team { lane: lane % width, lanes: width };
        Teams { count, index: lane / width, team }
    }

    /// The same, worked out by now: before memory may be looked at.
    #[inline(always)]
    pub(super) fn now(self) -> Self {
        let now = |n: u32| arch::late(u64::from(n)) as u32;
        let Team { lane, lanes } = self.team;
        Teams {
            count: now(self.count),
            index: now(self.index),
            team: Team { lane: now(lane), lanes: now(lanes) },
        }
    }

    /// Who of this team sends, and who receives: all do both in turn, but where there is much to do (and tiles do not keep every warp busy
    /// for long), one half sends while the other takes what arrives; but not `in_place`, where all has been sent before anything is taken.
    #[inline(always)]
    pub(super) fn roles(&self, load: &Load, in_place: bool) -> [Option<Team>; 2] {
        let Team { lane, lanes } = self.team;
        let half = lanes / (2 * WARP) * WARP;
        if in_place
            || half == 0
            || self.count > 1
            || load.tiles > 0
            || load.rows() * line::ROW_PACKS <= HALVES_FROM * lanes
        {
            return [Some(self.team); 2];
        }
        if lane < half {
            [Some(Team { lane, lanes: half }), None]
        } else {
            [None, Some(Team { lane: lane - half, lanes: lanes - half })]
        }
    }

    /// Who sends where all peers get the same, of those that [`Teams::roles`] says: the whole block, or one of its halves.
    #[inline(always)]
    pub(super) fn once(&self, sends: Option<Team>) -> Option<Team> {
        if self.count > 1 { Some(Team::all(&Block)) } else { sends }
    }

    /// Calls `f` for each of `legs` legs that is this thread's team's; threads beyond the last team have none.
    #[inline(always)]
    pub(super) fn each_leg(&self, legs: u32, mut f: impl FnMut(u32)) {
        let end = legs + 1;
        let mut leg = if self.index < self.count { 1 + self.index } else { end };
        while leg < end {
            f(leg);
            leg += self.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_place_all_send_before_anybody_takes() {
        let team = Team { lane: 3, lanes: 64 };
        let (teams, load) = (Teams { count: 1, index: 0, team }, Load::of_packs(0, 10_000));
        let there = |in_place| teams.roles(&load, in_place).map(|role| role.map(|team| team.lanes));
        assert_eq!(there(false), [Some(32), None]);
        assert_eq!(there(true), [Some(64); 2]);
    }
}
