//! What each hook must give, written without any of fusewire: element by element from the generator of the inputs.

/// Input element `i` of `rank`: a number that tells both, exact in `f32`.
pub fn input(rank: usize, i: usize) -> f32 {
    let mut x = (i as u64) ^ ((rank as u64 + 1) << 40);
    x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x >> 40) as i32 - (1 << 23)) as f32 / 16.0
}

/// What ranks contribute, added up as a tree over their numbers: split behind the largest power of two that is less.
pub fn tree(ranks: std::ops::Range<usize>, of: &impl Fn(usize) -> f32) -> f32 {
    if ranks.len() == 1 {
        return of(ranks.start);
    }
    let middle = ranks.start + (1 << (ranks.len() - 1).ilog2());
    tree(ranks.start..middle, of) + tree(middle..ranks.end, of)
}

/// What stands in the accumulator before.
pub fn before(rank: usize, i: usize) -> f32 {
    input(rank + 1000, i)
}

/// The index list of `gather`: a permutation of the whole input (`len` must not be a multiple of 1,000,003).
pub fn index(len: usize, i: usize) -> u32 {
    ((i as u64 * 1_000_003 + 12_345) % len as u64) as u32
}

/// A matrix shape for a chunk of `elements`: as square as powers of two allow.
pub fn shape(elements: usize) -> (usize, usize) {
    let mut rows = 1;
    while elements.is_multiple_of(rows * 2) && rows * rows * 4 <= elements {
        rows *= 2;
    }
    (rows, elements / rows)
}

/// Output element `i` of `rank` after an all-to-all of chunks of `chunk` elements over `world` ranks.
pub fn output(hook: &str, rank: usize, world: usize, chunk: usize, scale: f32, i: usize) -> f32 {
    let (peer, pos) = (i / chunk, i % chunk);
    let own = rank * chunk;
    match hook {
        "copy" => input(peer, own + pos),
        "transpose" => {
            let (rows, cols) = shape(chunk);
            input(peer, own + (pos % rows) * cols + pos / rows)
        }
        "scale_add" => before(rank, i) + input(peer, own + pos) * scale,
        "gather" => input(peer, index(chunk * world, own + pos) as usize),
        other => panic!("no reference for `{other}`"),
    }
}

/// `f(0), f(1), ..` by all cores.
pub fn parallel<T: Clone + Default + Send>(len: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let mut values = vec![T::default(); len];
    let part = len.div_ceil(cores()).max(1);
    std::thread::scope(|scope| {
        for (k, values) in values.chunks_mut(part).enumerate() {
            let f = &f;
            scope.spawn(move || values.iter_mut().enumerate().for_each(|(i, v)| *v = f(k * part + i)));
        }
    });
    values
}

/// Whether all bits are equal; by all cores.
pub fn same_bits(got: &[f32], want: &[f32]) -> bool {
    let part = got.len().div_ceil(cores()).max(1);
    let equal = |(a, b): (&[f32], &[f32])| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
    got.len() == want.len()
        && std::thread::scope(|scope| {
            let parts = got.chunks(part).zip(want.chunks(part));
            let threads: Vec<_> = parts.map(|pair| scope.spawn(move || equal(pair))).collect();
            threads.into_iter().all(|thread| thread.join().unwrap_or(false))
        })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(16)
}
