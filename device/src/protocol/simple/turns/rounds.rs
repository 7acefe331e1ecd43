//! Several chunks in one stream.

use super::super::channel::HEADER;
use super::{Turn, Turns};

/// A stream of so many chunks: a turn of each after the other, round by round. Every turn is as long as the first, so that where it lies tells whose it is.
#[derive(Clone, Copy)]
pub(in super::super) struct Rounds {
    pub turns: Turns,
    /// Chunks.
    chunks: u32,
    /// Packs of each.
    packs: u32,
}

impl Rounds {
    /// Of one chunk: the stream is its own.
    #[inline(always)]
    pub fn one(each: Turns) -> Self {
        Rounds { turns: each, chunks: 1, packs: each.packs }
    }

    /// Of `chunks`, of which the stream of each would be `each`.
    #[inline(always)]
    pub fn of(each: Turns, chunks: u32) -> Self {
        let chunk = each.chunk.min(each.payload());
        let payload = each.payload().div_ceil(chunk) * chunk * u64::from(chunks);
        let turns = Turns { total: HEADER + payload, chunk, packs: (payload / 16) as u32, ..each };
        Rounds { turns, chunks, packs: each.packs }
    }

    /// The number of the chunk that a turn is of, and the turn's packs: the first of the share, how many, and where the first one's bytes are.
    #[inline(always)]
    pub fn packs(&self, turn: Turn) -> (u32, (usize, u32, u64)) {
        let (at, count, payload) = self.turns.packs(turn);
        let each = (self.turns.chunk / 16) as u32;
        let number = at as u32 / each;
        let first = number / self.chunks * each;
        (number % self.chunks, (first as usize, count.min(self.packs.saturating_sub(first)), payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn every_pack_of_every_chunk_is_in_one_turn() {
        for (packs, chunk, chunks) in
            (1..70).flat_map(|packs| [128, 384, 4096].map(|chunk| (packs, chunk, packs % 4 + 1)))
        {
            let total = super::super::stream_bytes(16 * u64::from(packs));
            let each = Turns { total, chunk, legs: 1, one: false, packs };
            let mut turn = each.first();
            let mut turns = 0;
            while !each.is_over(turn) {
                (turn, turns) = (each.after(turn), turns + 1);
            }
            for rounds in [Rounds::of(each, chunks), Rounds::one(each)] {
                let mut seen = vec![0; (packs * rounds.chunks) as usize];
                let (mut turn, mut count) = (rounds.turns.first(), 0);
                while !rounds.turns.is_over(turn) {
                    let (number, (first, some, at)) = rounds.packs(turn);
                    assert_eq!(number, count % rounds.chunks);
                    assert_eq!(at, turn.from.max(HEADER));
                    for pack in first..first + some as usize {
                        seen[pack * rounds.chunks as usize + number as usize] += 1;
                    }
                    (turn, count) = (rounds.turns.after(turn), count + 1);
                }
                assert_eq!(count, turns * rounds.chunks, "as many as of the chunks");
                assert!(seen.into_iter().all(|times| times == 1));
            }
        }
    }
}
