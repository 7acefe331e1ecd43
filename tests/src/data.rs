//! Values from a seed: the same on every rank, element by element, so that no rank needs another's buffers.

use fusewire::device::element::Element;

/// The seed of this run: `FUSEWIRE_TEST_SEED`, or the clock's.
pub fn seed() -> u64 {
    let given = std::env::var("FUSEWIRE_TEST_SEED").ok();
    match given.map(|text| (text.trim().parse(), text)) {
        Some((Ok(seed), _)) => seed,
        Some((Err(_), text)) => panic!("FUSEWIRE_TEST_SEED=`{text}` is not a number"),
        None => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            mix(now.map_or(0, |d| d.as_nanos() as u64)) >> 32
        }
    }
}

/// SplitMix64's output function: a bijection that looks random.
pub fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream that a seed begins.
    pub fn new(seed: u64) -> Self {
        Rng(mix(seed))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// A number from `low` to `high`, both included.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + (self.bits() % (high - low + 1) as u64) as usize
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.within(0, values.len() - 1)]
    }
}

/// The data of one call, of all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Data(u64);

impl Data {
    /// Data for a seed and something that tells calls apart.
    pub fn new(seed: u64, call: u64) -> Self {
        Data(mix(seed ^ mix(call)))
    }

    /// Random bits for element `i` of `rank`.
    #[inline]
    pub fn bits(self, rank: usize, i: usize) -> u64 {
        mix(self.0 ^ (rank as u64) << 48 ^ i as u64)
    }

    /// Element `i` of `rank`: any bit pattern, NaN included.
    #[inline]
    pub fn any<T: Element>(self, rank: usize, i: usize) -> T {
        T::from_bits64(self.bits(rank, i))
    }

    /// A small whole number, so that sums of a few are exact in any order.
    #[inline]
    pub fn small(self, rank: usize, i: usize) -> f32 {
        (self.bits(rank, i) % 2001) as f32 - 1000.0
    }

    /// A number below `limit`.
    #[inline]
    pub fn below(self, rank: usize, i: usize, limit: usize) -> usize {
        (self.bits(rank, i) % limit as u64) as usize
    }

    /// All `n` elements of `rank`.
    pub fn all<T: Element>(self, rank: usize, n: usize) -> Vec<T> {
        make(n, |i| self.any(rank, i))
    }
}

/// `n` values from `f`, by as many threads as that is worth.
pub fn make<T: Element>(n: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let mut values = vec![T::default(); n];
    fill(&mut values, &f);
    values
}

/// Compiled for each type of elements, and not for each call.
fn fill<T: Element>(values: &mut [T], f: &(dyn Fn(usize) -> T + Sync)) {
    let (threads, each) = shares(values.len());
    let part = |k: usize, part: &mut [T]| part.iter_mut().enumerate().for_each(|(i, v)| *v = f(k * each + i));
    if threads == 1 {
        return part(0, values);
    }
    std::thread::scope(|scope| {
        for (k, values) in values.chunks_mut(each).enumerate() {
            scope.spawn(move || part(k, values));
        }
    });
}

/// How many threads share `n` elements, and how many each takes.
pub(crate) fn shares(n: usize) -> (usize, usize) {
    let most = std::thread::available_parallelism().map_or(1, usize::from).min(16);
    let threads = (n >> 18).clamp(1, most);
    (threads, n.div_ceil(threads).max(1))
}
