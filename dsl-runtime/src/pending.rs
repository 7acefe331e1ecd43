//! How many kernels a stream has queued on a GPU that ranks of one process share.
//!
//! A context takes about a thousand kernels that have not begun. From there on a launch waits inside the driver, where it keeps all other
//! threads' launches out: those of the ranks it waits for. So where ranks share a context, each stream has its part of the thousand, and who
//! launches more waits here.

use crate::Result;
use fusewire_driver as cuda;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Kernels that the streams of all ranks have queued together, if each has one stream that is full.
const ROOM: u32 = 768;
/// A mark is set behind so many kernels.
const STEP: u32 = 16;
/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_micros(20);

/// What a stream has queued.
#[derive(Default)]
pub(crate) struct Pending(Mutex<State>);

#[derive(Default)]
struct State {
    /// Behind how many kernels since the mark before.
    marks: VecDeque<(cuda::Event, u32)>,
    /// Kernels behind the last mark.
    unmarked: u32,
}

impl Pending {
    /// Queues `kernels` kernels by `launch`, when there is room for them. As many as there is room for are always let through.
    pub(crate) fn launch(
        &self,
        stream: &cuda::Stream,
        kernels: u32,
        launch: impl FnOnce() -> cuda::Result<()>,
    ) -> Result<()> {
        let Some((_, ranks)) = stream.context().place() else { return Ok(launch()?) };
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the launch: what was queued has not failed.
        state.mark(stream)?;
        loop {
            while let Some((mark, _)) = state.marks.front()
                && mark.query()?
            {
                state.marks.pop_front();
            }
            if fits(state.queued(), kernels, ranks) {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        launch()?;
        state.unmarked += kernels;
        Ok(())
    }
}

impl State {
    /// Sets a mark behind what the stream has, if there are enough kernels without one.
    fn mark(&mut self, stream: &cuda::Stream) -> Result<()> {
        if self.unmarked >= STEP {
            let mark = cuda::Event::new(stream.context())?;
            mark.record(stream)?;
            self.marks.push_back((mark, std::mem::take(&mut self.unmarked)));
        }
        Ok(())
    }

    fn queued(&self) -> u32 {
        self.unmarked + self.marks.iter().map(|(_, kernels)| kernels).sum::<u32>()
    }
}

/// Whether a stream of one of so many ranks, with so many kernels queued, may have more.
fn fits(queued: u32, kernels: u32, ranks: u32) -> bool {
    // What no mark stands behind cannot be waited for.
    queued < STEP || queued.saturating_add(kernels) <= (ROOM / ranks.max(1)).max(2 * STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_all_ranks_have_room_together() {
        for ranks in 1..=16 {
            let most = (0..=ROOM).rev().find(|queued| fits(*queued, 1, ranks)).unwrap() + 1;
            assert!(most * ranks <= ROOM && most >= 2 * STEP, "{ranks} ranks: {most}");
        }
        // A graph larger than all room goes alone.
        assert!(fits(0, 5000, 8) && fits(STEP - 1, 5000, 8) && !fits(STEP, 5000, 8));
    }
}
