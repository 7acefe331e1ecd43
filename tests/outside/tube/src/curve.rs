//! What several hooks use.

use base::STEPS;

/// `x` rounded down to eighths.
#[inline]
pub fn step(x: f32) -> f32 {
    (x * STEPS as f32) as i32 as f32 / STEPS as f32
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
