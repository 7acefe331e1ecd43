//! The kernels around the copy engine's work.

use super::handshake::{Channel, Lanes};
use crate::group::{Block, Group};
use crate::ops::Direct;
use crate::schedule::{Grid, Params, Unpack};
use crate::wait::{Fault, Flow, Watch};

/// What stands before (`shape.phase` 0) and behind (1) the copy engine's part of an all-to-all: *go* and *done* with every peer.
/// Grid: one block.
///
/// # Safety
/// As for [`crate::schedule::sendrecv`]; between the two launches the stream copies every chunk into its peer's output.
#[inline(always)]
pub unsafe fn all_to_all_copy<O: Direct, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (ops, shape) = (&params.ops, &params.shape);
    let channel = Channel::of::<H>(ops, shape, 0);
    let mut lanes = Lanes::of(&channel);
    // SAFETY: the caller's contract.
    let watch = unsafe { Watch::armed(&Block, params.control, ops.rank(), grid.block) };
    if shape.phase == 0 {
        lanes.begin(&channel);
        // SAFETY: the caller's contract; positions were asked for behind what precedes the kernel.
        let watch = unsafe { watch.looked() };
        return lanes.await_go(&channel, &watch);
    }
    lanes.ask(&channel);
    // SAFETY: as above.
    let watch = unsafe { watch.looked() };
    watch.enter(&Block)?;
    lanes.name(&channel);
    lanes.close(&channel, &watch, None)
}

/// What stands before (`shape.phase` 0) and behind (1) the copy engine's part of a [`crate::schedule::sendrecv`] with both peers. Grid: one block.
///
/// # Safety
/// As for [`all_to_all_copy`].
#[inline(always)]
pub unsafe fn sendrecv_copy<O: Direct, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (ops, shape) = (&params.ops, &params.shape);
    let channel = Channel::of::<H>(ops, shape, 0);
    // SAFETY: the caller's contract.
    let watch = unsafe { Watch::begin_all(&Block, params.control, ops.rank(), grid.block) };
    let mut ends = channel.ends(shape.send_peer, shape.recv_peer);
    if shape.phase == 0 {
        let mut fault = Fault::NONE;
        if Block.leads() {
            channel.say_go(&mut ends);
            fault = channel.await_go(&watch, &mut ends);
        }
        return channel.settle(&watch, (ends.to, fault));
    }
    watch.enter(&Block)?;
    channel.name(&mut ends);
    channel.close(&watch, &ends)
}
