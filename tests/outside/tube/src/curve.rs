//! What several hooks use.

use base::STEPS;
use fusewire::device::element::Float;
use fusewire::device::row::{AtRow, Row};

/// `x` rounded down to eighths.
#[inline]
pub fn step(x: f32) -> f32 {
    (x * STEPS as f32) as i32 as f32 / STEPS as f32
}

/// What can be held between two bounds.
pub trait Bounded: Copy + PartialOrd {
    /// The value on the other side of zero.
    fn opposite(self) -> Self;
}

impl Bounded for f32 {
    #[inline]
    fn opposite(self) -> f32 {
        -self
    }
}

impl Bounded for i32 {
    #[inline]
    fn opposite(self) -> i32 {
        -self
    }
}

/// `x`, or where it is farther from zero than `most`, that bound.
#[inline]
pub fn within<T: Bounded>(x: T, most: T) -> T {
    if x > most {
        most
    } else if x < most.opposite() {
        most.opposite()
    } else {
        x
    }
}

/// The polynomial with these coefficients at `x`, that of the highest power last.
#[inline]
pub fn polynomial<const N: usize>(coefficients: &[f32; N], x: f32) -> f32 {
    const { assert!(N > 0, "a polynomial has a coefficient") };
    let mut value = coefficients[N - 1];
    for k in (0..N - 1).rev() {
        value = value * x + coefficients[k];
    }
    value
}

/// A row of any length less the mean of its elements, at either end of a wire.
#[inline]
pub fn centred<const N: usize, const S: usize>(
    ctx: &impl AtRow<N, S>,
    row: &Row<f32, N, S>,
) -> Row<f32, N, S> {
    let mean = row.sum(ctx) / N as f32;
    row.map(|x| x - mean)
}

/// A row scaled so that its greatest element is `most`, of whatever hooks have rows of.
#[inline]
pub fn scaled_to<T: Float, const N: usize, const S: usize>(
    ctx: &impl AtRow<N, S>,
    row: &Row<T, N, S>,
    most: f32,
) -> Row<f32, N, S> {
    let row = row.to_f32();
    let factor = most / row.max(ctx);
    row.map(|x| x * factor)
}

fusewire::device::plain! {
    /// What is added to each value.
    pub struct Bias {
        /// Where it is added.
        pub place: Place,
        /// How much.
        pub value: f32,
    }
}

fusewire::device::plain! {
    /// An end of a wire.
    #[derive(PartialEq)]
    pub enum Place {
        /// Before a value is sent.
        Sender,
        /// After it has arrived.
        Receiver,
    }
}

impl Bias {
    /// `x` as it is at `place`.
    #[inline]
    pub fn at(&self, place: Place, x: f32) -> f32 {
        if self.place == place { x + self.value } else { x }
    }
}

/// A fold of this crate's: what is farthest from zero.
pub struct Farthest;

impl fusewire::device::fold::Fold<f32> for Farthest {
    type Acc = f32;
    fn lift(value: f32) -> f32 {
        value
    }
    fn fold(left: f32, right: f32) -> f32 {
        if right.abs() > left.abs() { right } else { left }
    }
}
