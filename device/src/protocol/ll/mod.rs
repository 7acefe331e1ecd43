//! LL: words of 8 bytes, each of which is 4 of data and a flag of 4. No fence, no staging, no flag's own flight.
//!
//! Twice as many bytes travel as by [`ll128`](super::ll128), which rests on lines of 128 bytes that arrive whole. A word of 8 bytes arrives whole on every
//! path between GPUs, and each is one thread's. So LL serves pairs of GPUs without NVLink, and whole [rows](crate::row), of which the threads of a
//! team hold parts that are no lines.
//!
//! A block stores what it sends. Then each of its threads waits for some of what it receives, whoever will take that; and when all threads have met, hooks
//! load it again and take it. Nothing is taken unless all of the block's share is there, and the header says that both ends make the same call.
//!
//! Buffers are used in turn, and two sets of channels are credited as LL128's are: see `buffer`.

mod buffer;
mod end;

pub use buffer::{BUFFERS, PACKS, REFRESH};

use super::{Protocol, Share, Site, arguments, armed, whole_call};
use crate::group::{Block, Group};
use crate::launch::{Grid, Params, Unpack};
use crate::ops::{ChannelState, Direct};
use crate::protocol::ll128::leave;
use crate::schedule::{Member, Schedule, has_own};
use crate::wait::Flow;
use end::End;

/// The protocol, as a type.
///
/// Grid as by [`Ll128`](super::Ll128). A share has at most [`PACKS`] packs.
#[derive(Debug)]
pub struct Ll;

/// What a block does.
#[derive(Clone, Copy)]
struct Role {
    /// The share that it works.
    part: u32,
    sends: bool,
    takes: bool,
}

impl Role {
    /// That of block `block`, or the number that it has among those of the self copy.
    #[inline(always)]
    fn of<S: Schedule>(schedule: &S, me: Member, channels: u32, block: u32) -> Result<Self, u32> {
        let [sends, receives] = [schedule.sends(me), schedule.receives(me)];
        if S::MUTUAL {
            let within = S::ONCE || S::FOLDS || sends > 0 && block < channels;
            let part = if within { block } else { block - if sends > 0 { channels } else { 0 } };
            return if within { Ok(Role { part, sends: true, takes: true }) } else { Err(part) };
        }
        let produces = if S::ONCE { has_own(schedule, me) } else { sends > 0 };
        let senders = if produces { channels } else { 0 };
        // What is folded is received, and be it from nobody else.
        let takes = if S::FOLDS { has_own(schedule, me) } else { receives > 0 };
        let takers = if takes { channels } else { 0 };
        if block < senders {
            Ok(Role { part: block, sends: true, takes: false })
        } else if block < senders + takers {
            Ok(Role { part: block - senders, sends: false, takes: true })
        } else {
            Err(block - senders - takers)
        }
    }
}

// SAFETY: words are stored into buffers whose last reader is done (`buffer`), each by one thread.
unsafe impl<O: Direct> Protocol<O> for Ll {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        let (ops, shape, schedule) = (&params.ops, &params.shape, &params.schedule);
        // SAFETY: the caller's contract.
        let armed = unsafe { armed::<O, S, H>(grid, params) };
        // Hooks may panic from here on, and warps meet.
        Block.sync();
        // SAFETY: the caller's contract.
        let args = unsafe { arguments::<H>(&params.raw) };
        let site = Site::of(grid, params);
        let me = site.me;
        let watch = armed.looked();
        let args = args.now(watch.behind());
        let Role { part, sends, takes } = match Role::of(schedule, me, shape.channels, grid.block) {
            Ok(role) => role,
            Err(part) if S::OWN => return site.self_copy::<S, H>(schedule, &watch, part, args),
            Err(_) => return Ok(()),
        };
        let channel = if S::MUTUAL { part } else { ops.ll_channels() + part };
        let share = Share::of::<H>(shape.elements, shape.share, part);
        // Of schedules that are not mutual each peer has counts of its own.
        let state = |peer| ops.ll_state(if S::MUTUAL { me.rank } else { peer }, channel);
        // SAFETY: live state of this end, written last by the previous kernel on this channel.
        let number = |peer| unsafe { count::<S>(state(peer), sends).read_volatile() } + 1;
        let all = if S::MUTUAL { number(me.rank) } else { 0 };
        let end = End {
            site: &site,
            schedule,
            watch: &watch,
            channel,
            part,
            share,
            call: whole_call::<H>(shape),
            number: |peer| if S::MUTUAL { all } else { number(peer) },
        };
        if sends {
            // SAFETY: each block works its own end of its own channel.
            unsafe {
                if const { !S::MUTUAL } {
                    end.credit()?;
                }
                end.send::<H>(args);
            }
        }
        // In place, what is taken is stored where others of the block may still read what they send.
        watch.enter(&Block)?;
        if takes {
            // SAFETY: as above.
            unsafe {
                end.arrived()?;
                if S::FOLDS { end.fold::<H>(args) } else { end.take::<H>(args) }
            }
        }
        leave(ops, &watch, true)?;
        if Block.leads() {
            // SAFETY: as above; all threads have read the counts before the sync above.
            unsafe { end.done(|peer, number| count::<S>(state(peer), sends).write_volatile(number), takes) };
        }
        Ok(())
    }
}

/// Calls so far of a channel's end.
///
/// # Safety
/// `state` is live.
#[inline(always)]
unsafe fn count<S: Schedule>(state: *mut ChannelState, sends: bool) -> *mut u64 {
    // SAFETY: the caller's contract.
    unsafe { if S::MUTUAL || sends { &raw mut (*state).sent } else { &raw mut (*state).received } }
}
