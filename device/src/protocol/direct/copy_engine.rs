//! The kernels around the copy engine's work.

use super::handshake::{Channel, Lanes};
use crate::group::Block;
use crate::launch::{BEHIND, Grid, Params, Unpack};
use crate::ops::Direct;
use crate::protocol::Protocol;
use crate::schedule::{Member, Schedule};
use crate::wait::{Armed, Flow};

/// The protocol, as a type: what stands before and behind ([`BEHIND`]) the copy engine's part, *ready* and *complete* with every peer.
/// Grid: one block.
///
/// Between the two launches the stream copies every chunk into its peer's output.
#[derive(Debug)]
pub struct CopyEngine;

// SAFETY: copies stand between the kernel that has seen that peers are ready and the one that says *complete*.
unsafe impl<O: Direct> Protocol<O> for CopyEngine {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        let (ops, shape) = (&params.ops, &params.shape);
        let channel = Channel::of::<H>(ops, shape, 0);
        let mut lanes = Lanes::of(&params.schedule, Member::of(ops));
        // SAFETY: the caller's contract.
        let armed = unsafe { Armed::new(&Block, params.control, ops.rank(), grid.block) };
        if shape.flags & BEHIND == 0 {
            lanes.begin(&channel);
            let watch = armed.looked();
            return lanes.await_ready(&channel, &watch);
        }
        lanes.ask(&channel);
        let watch = armed.looked();
        watch.enter(&Block)?;
        lanes.name(&channel);
        lanes.close(&channel, &watch, None)
    }
}
