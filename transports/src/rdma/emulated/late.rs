//! Writes whose bytes are not in memory yet although they are acknowledged.

use super::memory::{Refused, Right, Table};
use std::collections::VecDeque;
use std::time::Duration;

/// Most of them at once: a peer that goes on writing sees its first ones placed.
const MOST: usize = 8;

/// What a pair has received and not placed. Placed in order, before the pair carries out anything but a write, and not after its end.
#[derive(Debug)]
pub struct Late<'t> {
    table: &'t Table,
    waiting: VecDeque<(u32, u64, Vec<u8>)>,
    /// Draws so far; `None` places all at once.
    draws: Option<u64>,
}

impl<'t> Late<'t> {
    pub fn new(table: &'t Table, late: bool) -> Self {
        Late { table, waiting: VecDeque::new(), draws: late.then_some(0) }
    }

    fn draw(&mut self) -> u64 {
        let Some(draws) = &mut self.draws else { return 0 };
        *draws += 1;
        draws.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59
    }

    /// Takes a write, which can be acknowledged then.
    pub fn write(&mut self, key: u32, at: u64, bytes: &[u8]) -> Result<(), Refused> {
        if self.waiting.is_empty() && self.draw() < 16 {
            return self.table.store(key, at, bytes, Right::Write);
        }
        self.table.check(key, at, bytes.len(), Right::Write)?;
        if self.waiting.len() == MOST {
            self.place_oldest();
        }
        self.waiting.push_back((key, at, bytes.to_vec()));
        Ok(())
    }

    /// How long the pair may wait for another request before it places what there is; `None` if there is nothing.
    pub fn patience(&mut self) -> Option<Duration> {
        let long = !self.waiting.is_empty() && self.draw() < 2;
        (!self.waiting.is_empty()).then(|| Duration::from_micros(if long { 2000 } else { 30 }))
    }

    /// Places all.
    pub fn place(&mut self) {
        while self.place_oldest() {}
    }

    fn place_oldest(&mut self) -> bool {
        let Some((key, at, bytes)) = self.waiting.pop_front() else { return false };
        // Memory whose registration has ended meanwhile is left alone.
        let _ = self.table.store(key, at, &bytes, Right::Write);
        true
    }
}
