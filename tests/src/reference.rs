//! What hooks should compute, written again without them: chunk by chunk, element by element, in plain Rust.

/// All-to-all over a world: element `pos` of the chunk from `peer`, at `rank`, where `chunk` elements go to each rank and
/// `sent(rank, index)` is a rank's flat input.
pub fn all_to_all<T>(rank: usize, chunk: usize, index: usize, sent: impl Fn(usize, usize) -> T) -> T {
    let (peer, pos) = (index / chunk, index % chunk);
    sent(peer, rank * chunk + pos)
}

/// Element `pos` of the transpose of a row-major matrix of `rows` x `cols`.
pub fn transposed<T>(rows: usize, cols: usize, pos: usize, matrix: impl Fn(usize) -> T) -> T {
    // The transpose has `cols` rows of `rows` elements.
    let (row, col) = (pos / rows, pos % rows);
    matrix(col * cols + row)
}

/// The value of a code of a small float: `E` exponent bits, `M` mantissa bits, without infinities or NaN.
pub fn small_float<const E: i32, const M: i32>(code: u32) -> f64 {
    let mantissa = f64::from(code & ((1 << M) - 1));
    let exponent = ((code >> M) & ((1 << E) - 1)) as i32;
    let bias = (1 << (E - 1)) - 1;
    let scale = f64::from(power_of_two(exponent.max(1) - bias - M));
    (mantissa + if exponent > 0 { f64::from(1u32 << M) } else { 0.0 }) * scale
}

/// Two to the power of `exponent`, a normal number. Tests are compiled without optimisation, and `powi` is slow then.
pub fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// The code of the small float nearest to `value`: the even one of two, and beyond `greatest` that one.
pub fn to_small_float<const E: i32, const M: i32>(value: f32, greatest: u32) -> u32 {
    let magnitude = f64::from(value.abs());
    let off = |code: u32| (small_float::<E, M>(code) - magnitude).abs();
    // Codes without a sign are in the order of their values.
    let (mut below, mut above) = (0, greatest);
    while above - below > 1 {
        let middle = below.midpoint(above);
        *(if small_float::<E, M>(middle) <= magnitude { &mut below } else { &mut above }) = middle;
    }
    let up = off(above) < off(below) || off(above) == off(below) && above & 1 == 0;
    (if up { above } else { below }) | u32::from(value.is_sign_negative()) << (E + M)
}

/// `value` rounded to e4m3.
pub fn through_e4m3(value: f32) -> f32 {
    let code = to_small_float::<4, 3>(value, 0x7e);
    (small_float::<4, 3>(code & 0x7f) as f32).copysign(value)
}

/// The bits of `value` rounded to bfloat16: the nearer of its two neighbours, the even one of two.
pub fn to_bf16(value: f32) -> u16 {
    let (below, above) = (value.to_bits() >> 16, (value.to_bits() >> 16) + 1);
    let off = |code: u32| (f64::from(f32::from_bits(code << 16)) - f64::from(value)).abs();
    let up = off(above) < off(below) || (off(above) == off(below) && above & 1 == 0);
    (if up { above } else { below }) as u16
}

/// One link of a chain.
pub fn link(old: u32, value: u32) -> u32 {
    old.wrapping_mul(0x0100_0193).wrapping_add(value)
}

/// The fold of what ranks `from..to` contribute, by the tree of its definition: split behind the largest power of two that is less.
pub fn tree<A>(from: usize, to: usize, of: &impl Fn(usize) -> A, fold: &impl Fn(A, A) -> A) -> A {
    if to - from == 1 {
        return of(from);
    }
    let left = 1 << (to - from - 1).ilog2();
    fold(tree(from, from + left, of, fold), tree(from + left, to, of, fold))
}

/// A sum of f32 in that tree, rounded to bfloat16 once: its bits.
pub fn rounded_sum(ranks: usize, of: &impl Fn(usize) -> f32) -> u16 {
    to_bf16(tree(0, ranks, of, &|a, b| a + b))
}

/// What `linked_in_place` makes of two contributions.
pub fn linked(left: u32, right: u32) -> u32 {
    left.rotate_left(9) ^ right.wrapping_mul(0x9e37_79b1)
}

/// How all elements of a row are folded, as `fusewire::device::row` documents it.
#[derive(Debug)]
pub struct RowTree<A, F> {
    /// Elements of the row.
    pub cols: usize,
    /// What a lane without elements has.
    pub nothing: A,
    /// What two are folded to.
    pub f: F,
}

impl<A: Copy, F: Fn(A, A) -> A> RowTree<A, F> {
    /// The fold of a row whose element `col` is `element(col)`.
    pub fn of(&self, element: impl Fn(usize) -> A) -> A {
        let lanes = self.cols.div_ceil(32).next_power_of_two().clamp(32, 256);
        let of_lane = |lane: usize| {
            let octets = (lane..self.cols / 8).step_by(lanes);
            let octets = octets.map(|k| self.balanced(8 * k, 8 * k + 8, &element));
            octets.reduce(&self.f).unwrap_or(self.nothing)
        };
        self.balanced(0, lanes, &of_lane)
    }

    /// What stands before each element of a row: octets from left to right, 32 of them at a time by the tree of Hillis and Steele, and before
    /// them what came before.
    pub fn before(&self, element: impl Fn(usize) -> A) -> Vec<A> {
        let (f, mut all, mut out) = (&self.f, self.nothing, Vec::new());
        for first in (0..self.cols / 8).step_by(32) {
            let total = |octet: usize| match first + octet {
                k if k < self.cols / 8 => {
                    (8 * k + 1..8 * k + 8).fold(element(8 * k), |sum, i| f(sum, element(i)))
                }
                _ => self.nothing,
            };
            let totals: Vec<A> = (0..32).map(total).collect();
            let total = |octet: usize| totals[octet];
            for octet in 0..(self.cols / 8 - first).min(32) {
                let below = if octet > 0 { self.steps(octet - 1, 32, &total) } else { self.nothing };
                let (before, start) = (f(all, below), 8 * (first + octet));
                out.push(before);
                let mut up_to = element(start);
                for i in start + 1..start + 8 {
                    out.push(f(before, up_to));
                    up_to = f(up_to, element(i));
                }
            }
            all = f(all, self.steps(31, 32, &total));
        }
        out
    }

    /// The fold of octets up to `octet` behind the step of less than `distance`.
    fn steps(&self, octet: usize, distance: usize, total: &impl Fn(usize) -> A) -> A {
        if distance == 1 {
            return total(octet);
        }
        let step = distance / 2;
        let own = self.steps(octet, step, total);
        if octet >= step { (self.f)(self.steps(octet - step, step, total), own) } else { own }
    }

    fn balanced(&self, from: usize, to: usize, of: &impl Fn(usize) -> A) -> A {
        if to - from == 1 {
            return of(from);
        }
        let middle = (from + to) / 2;
        (self.f)(self.balanced(from, middle, of), self.balanced(middle, to, of))
    }
}
