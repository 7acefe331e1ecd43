//! What travels in one piece: tiles, what staging hands over together, bulk copies.

use super::facts::Facts;
use fusewire_device::protocol::direct::bulk;
use fusewire_device::protocol::ll128 as line;
use fusewire_device::tile::transpose as tiles;

/// Packs of the rows that a tile has, in chunks of that shape; 0 where there are no tiles, or rows are not whole packs.
pub(super) fn tile_rows(facts: &Facts, shape: Option<(usize, usize)>) -> u64 {
    let lanes = facts.lanes;
    match shape {
        Some((_, cols)) if facts.transposed && cols.is_multiple_of(lanes) => {
            (cols / lanes) as u64 * u64::from(tiles::ROWS)
        }
        _ => 0,
    }
}

/// Tiles of chunks of that shape, where so many channels' lines can carry them one by one; 0 where there are none, rows are not whole
/// packs, or most of a tile would be empty.
pub(super) fn line_tiles(facts: &Facts, shape: Option<(usize, usize)>, channels: u32) -> u32 {
    let (Some((rows, cols)), lanes) = (shape, facts.lanes) else { return 0 };
    if !facts.transposed || !cols.is_multiple_of(lanes) {
        return 0;
    }
    let (packs, each) = (rows.saturating_mul(cols / lanes), (tiles::ROWS * tiles::ACROSS) as usize);
    let most = line::TILES as usize * channels as usize;
    // No more would fit, and 32 bits hold the tiles of so few.
    if packs > most * each {
        return 0;
    }
    let tiles = (facts.tiles)(rows as u64, cols as u64);
    if tiles as usize <= most && tiles as usize * each <= 2 * packs { tiles } else { 0 }
}

/// Bytes that travel together on a channel where nobody says: about `enough`, in whole turns of the threads that carry it (a block's but the leader's
/// warp), or in whole `tiles` of that many bytes, or halves, quarters.. of one; `most` at most.
pub(super) fn together(most: u64, enough: u64, threads: u32, unroll: u32, tiles: u64) -> u64 {
    let turn = 16 * u64::from(unroll) * u64::from(threads.saturating_sub(32).max(32));
    let mut part = tiles;
    while part > most && part.is_multiple_of(256) {
        part /= 2;
    }
    if part == 0 || part > most || !part.is_multiple_of(128) {
        part = turn;
    }
    match enough.max(part).min(most) / part * part {
        0 => most,
        whole => whole,
    }
}

/// Bytes of a bulk copy where nobody says: such that each of so many blocks has as many of a chunk.
pub(super) fn pieces(wire_bytes: u64, blocks: u32) -> u64 {
    let share = wire_bytes.div_ceil(u64::from(blocks)).max(1);
    share.div_ceil(share.div_ceil(bulk::MOST)).next_multiple_of(128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_as_many_pieces() {
        for (bytes, blocks) in (0..3000u64).flat_map(|k| [1, 7, 8, 12].map(|blocks| (k * k * 16, blocks))) {
            let piece = pieces(bytes, blocks);
            assert!(piece > 0 && piece.is_multiple_of(128) && piece <= bulk::MOST, "{bytes} {blocks}");
            // No more turns than shares of their own would take.
            let turns = bytes.div_ceil(piece).div_ceil(u64::from(blocks));
            assert!(turns <= bytes.div_ceil(u64::from(blocks)).div_ceil(bulk::MOST), "{bytes} {blocks}");
        }
        assert_eq!((pieces(2 << 20, 8), pieces(24 << 13, 8)), (16 << 10, 12 << 10));
    }

    #[test]
    fn what_travels_together_is_whole_and_fits() {
        for (shift, warps) in (8..22).flat_map(|shift| (1..17).map(move |warps| (shift, warps))) {
            for (unroll, tiles) in [1, 2, 4, 8].into_iter().flat_map(|u| (0..3000).map(move |t| (u, 16 * t)))
            {
                let most = 1u64 << shift;
                let bytes = together(most, tiles << shift >> 8, 32 * warps, unroll, tiles);
                assert!(
                    bytes > 0 && bytes <= most && bytes.is_multiple_of(128),
                    "{most} {warps} {unroll} {tiles}"
                );
            }
        }
    }

    #[test]
    fn what_travels_together_is_whole_turns_or_tiles() {
        let (quarter, share) = (256 << 10, 128 << 10);
        assert_eq!(together(quarter, share, 512, 8, 0), 2 * 480 * 8 * 16);
        assert_eq!(together(quarter, share, 64, 2, 0), 128 << 10);
        assert_eq!(together(quarter, share, 256, 8, 48 << 10), 96 << 10, "two tiles' rows");
        assert_eq!(together(quarter, share, 256, 8, 512 << 10), 256 << 10, "half of a tile's rows");
        assert_eq!(
            together(quarter, share, 256, 8, (512 << 10) + 128),
            4 * 224 * 8 * 16,
            "rows too long and odd"
        );
        assert_eq!(together(1024, share, 512, 8, 0), 1024, "less than a turn");
        assert_eq!([64, 96, 256].map(|kib| together(quarter, kib << 10, 64, 2, 0) >> 10), [64, 96, 256]);
    }
}
