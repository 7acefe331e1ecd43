//! Device half: commands to the proxy.

use super::ring::{BOUNCE, Command, GET, PUT, PUT_BOUNCED, SIGNAL, SLOT, Slot, WRITE};
use fusewire_device::arch;
use fusewire_device::atomic::{self, Acquire, Device, Modify, Relaxed, Release, System};
use fusewire_device::group::Group;
use fusewire_device::mapped::{LINE, Layout};
use fusewire_device::ops::{ChannelState, Get, Line, Ops, Put, SignalState};
use fusewire_device::wait::{About, Control, LOOK_NS, expire, operation};

/// Device operations of [`HostIb`](super).
///
/// Staging, lines and heap are host memory, registered with the adapter. Words that kernels change by atomics, and their channels'
/// state, are in memory of the machine that runs them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HostIbOps {
    /// Layout of every rank's region.
    pub(crate) layout: Layout,
    /// This rank.
    pub(crate) rank: u32,
    /// Slots of the ring; a power of two.
    pub(crate) slots: u32,
    /// Address of abort word and channel states, at their offsets in the layout; behind them the next ticket, and how many slots were
    /// seen to be free again.
    pub(crate) control: u64,
    /// Address of this rank's region, which peers write.
    pub(crate) region: u64,
    /// Address of what is registered for this rank's own requests: outgoing staging, then bounce memory.
    pub(crate) local: u64,
    /// Address of the ring.
    pub(crate) ring: u64,
    /// Address of the number of slots that are free again, counted from the first ticket.
    pub(crate) retired: u64,
    /// Address of this rank's abort record.
    pub(crate) record: u64,
    /// How long a command may wait for a slot, or a read for its data, in nanoseconds.
    pub(crate) deadline_ns: u64,
}

impl HostIbOps {
    /// Bytes of control memory.
    pub const fn control_bytes(layout: &Layout) -> u64 {
        layout.control_bytes() + LINE
    }

    /// Offset of the bounce memory in the local memory: behind the rings of all peers.
    pub const fn bounce(layout: &Layout) -> u64 {
        layout.world as u64 * layout.channels as u64 * layout.window
    }

    /// Offset of an outgoing ring in the local memory.
    #[inline(always)]
    const fn outgoing_at(&self, peer: u32, channel: u32) -> u64 {
        (peer as u64 * self.layout.channels as u64 + channel as u64) * self.layout.window
    }

    /// The next ticket, then the number of free slots as last seen.
    #[inline(always)]
    const fn head(&self) -> *mut u64 {
        (self.control + self.layout.control_bytes()) as *mut u64
    }

    /// Waits until the word at `at` has reached `target`; `false` if the kernel is aborted, by this wait too.
    ///
    /// # Safety
    /// `at` is a live word that the proxy raises.
    #[inline(always)]
    unsafe fn until(&self, at: *const u64, target: u64, about: About) -> bool {
        let (mut start, mut look, mut turn) = (0, 0, 0u32);
        loop {
            // SAFETY: the caller's contract.
            let seen = unsafe { atomic::load::<System, Acquire, u64>(at) };
            if seen.wrapping_sub(target) as i64 >= 0 {
                return true;
            }
            arch::relax(turn);
            turn = turn.saturating_add(1);
            let now = arch::now_ns();
            if start == 0 {
                (start, look) = (now, now);
            }
            if now.wrapping_sub(look) >= LOOK_NS {
                look = now;
                let abort = self.control + self.layout.abort();
                // SAFETY: this rank's live abort word.
                if unsafe { atomic::load::<System, Relaxed, u64>(abort as *const u64) } != 0 {
                    return false;
                }
                let age = now.wrapping_sub(start);
                if age >= self.deadline_ns {
                    let control = Control { abort, record: self.record, deadline_ns: self.deadline_ns };
                    // SAFETY: live words of this rank.
                    unsafe { expire(self, &control, about, target, seen, age) };
                    return false;
                }
            }
        }
    }

    /// A ticket, once its slot is free; `None` if the kernel is aborted. One thread calls.
    #[inline(always)]
    fn ticket(&self, peer: u32, channel: u32) -> Option<u64> {
        // SAFETY: live words in memory of this machine, changed by its kernels alone while they run.
        let (ticket, seen) = unsafe {
            (
                <u64 as Modify<Device, Relaxed>>::fetch_add(self.head(), 1),
                atomic::load::<Device, Relaxed, u64>(self.head().add(1)),
            )
        };
        let floor = (ticket + 1).wrapping_sub(u64::from(self.slots));
        if seen.wrapping_sub(floor) as i64 >= 0 {
            return Some(ticket);
        }
        let about = About { peer, channel, operation: operation::POST };
        // SAFETY: the proxy's live word.
        if !unsafe { self.until(self.retired as *const u64, floor, about) } {
            return None;
        }
        // The word is in host memory, far from a GPU: remember what it was at least.
        // SAFETY: as above; a smaller value written over a larger one only costs another look.
        unsafe { atomic::store::<Device, Relaxed, u64>(self.head().add(1), floor) };
        Some(ticket)
    }

    #[inline(always)]
    const fn slot(&self, ticket: u64) -> *mut Slot {
        (self.ring + (ticket & (self.slots as u64 - 1)) * SLOT) as *mut Slot
    }

    /// Hands a command over. What this thread stored or has observed before is visible to the proxy.
    #[inline(always)]
    fn hand_over(&self, ticket: u64, command: Command) {
        let slot = self.slot(ticket);
        // SAFETY: a live slot that belongs to this ticket alone until it is retired.
        unsafe {
            (&raw mut (*slot).command).write_volatile(command);
            atomic::store::<System, Release, u64>(&raw mut (*slot).turn, ticket + 1);
        }
    }

    #[inline(always)]
    fn post(&self, command: Command) -> Option<u64> {
        let ticket = self.ticket(command.peer, command.channel)?;
        self.hand_over(ticket, command);
        Some(ticket)
    }

    /// Offset in this rank's region, if all bytes are in it.
    #[inline(always)]
    const fn within_region(&self, at: u64, bytes: u64) -> Option<u64> {
        let offset = at.wrapping_sub(self.region);
        if offset < self.layout.total() && bytes <= self.layout.total() - offset {
            Some(offset)
        } else {
            None
        }
    }

    #[inline(always)]
    const fn command(op: u32, peer: u32, from: u64, to: u64, bytes: u64) -> Command {
        Command { op, peer, from, to, bytes, value: 0, channel: 0, reserved: 0 }
    }
}

// SAFETY: the host half lays out, zeroes and registers the memory, and ends it after every rank is done. A signal is a command behind
// those of the flushes and puts before it, and the proxy posts commands to a peer in order on one queue pair.
unsafe impl Ops for HostIbOps {
    const NAME: &'static str = "host_ib";

    #[inline(always)]
    fn rank(&self) -> u32 {
        self.rank
    }
    #[inline(always)]
    fn world(&self) -> u32 {
        self.layout.world
    }
    #[inline(always)]
    fn channels(&self) -> u32 {
        self.layout.channels
    }
    #[inline(always)]
    fn signals(&self) -> u32 {
        self.layout.signals
    }
    #[inline(always)]
    fn window(&self) -> u64 {
        self.layout.window
    }
    #[inline(always)]
    fn heap_bytes(&self) -> u64 {
        self.layout.heap
    }
    #[inline(always)]
    fn heap(&self) -> *mut u8 {
        (self.region + self.layout.heap()) as *mut u8
    }
    #[inline(always)]
    fn outgoing(&self, peer: u32, channel: u32) -> *mut u8 {
        (self.local + self.outgoing_at(peer, channel)) as *mut u8
    }
    #[inline(always)]
    fn incoming(&self, peer: u32, channel: u32) -> *const u8 {
        (self.region + self.layout.staging(peer, channel)) as *const u8
    }
    #[inline(always)]
    fn line(&self, peer: u32, line: Line) -> *const u64 {
        (self.region + self.layout.line(peer, line)) as *const u64
    }
    #[inline(always)]
    fn state(&self, peer: u32, channel: u32) -> *mut ChannelState {
        (self.control + self.layout.state(peer, channel)) as *mut ChannelState
    }
    #[inline(always)]
    fn signal_state(&self, peer: u32, id: u32) -> *mut SignalState {
        (self.control + self.layout.signal_state(peer, id)) as *mut SignalState
    }

    /// One write, or two where the bytes go around the ring's end.
    #[inline(always)]
    unsafe fn flush<G: Group>(&self, group: &G, peer: u32, channel: u32, from: u64, to: u64) {
        if !group.leads() {
            return;
        }
        let (own, theirs) = (self.outgoing_at(peer, channel), self.layout.staging(self.rank, channel));
        let mut from = from;
        while from != to {
            let at = from & (self.layout.window - 1);
            let left = to.wrapping_sub(from);
            let bytes = if left < self.layout.window - at { left } else { self.layout.window - at };
            let command = Command { channel, ..Self::command(WRITE, peer, own + at, theirs + at, bytes) };
            if self.post(command).is_none() {
                return;
            }
            from = from.wrapping_add(bytes);
        }
    }

    #[inline(always)]
    unsafe fn signal<G: Group>(&self, group: &G, peer: u32, line: Line, value: u64) {
        if group.leads() {
            let to = self.layout.line(self.rank, line);
            // Given up on: what waits for it is told by the abort.
            let _ =
                self.post(Command { value, channel: line.number(), ..Self::command(SIGNAL, peer, 0, to, 8) });
        }
    }

    /// Nothing: the proxy sees this rank's record and tells the peers.
    #[inline(always)]
    fn raise_abort(&self, _peer: u32, _code: u64) {}
}

impl Put for HostIbOps {
    /// From this rank's own heap in one request; from other memory in pieces, each by one thread, through bounce memory. To this rank
    /// itself by stores.
    #[inline(always)]
    unsafe fn put<G: Group>(&self, group: &G, peer: u32, to: u64, from: *const u8, bytes: u64) {
        if peer == self.rank {
            // SAFETY: the caller's contract.
            unsafe { share(group, self.heap().add(to as usize), from, bytes) };
            return;
        }
        let to = self.layout.heap() + to;
        if let Some(own) = self.within_region(from as u64, bytes) {
            // Other threads may have stored what is put.
            group.sync();
            if group.leads() {
                let _ = self.post(Self::command(PUT, peer, own, to, bytes));
            }
            return;
        }
        let mut at = BOUNCE * u64::from(group.lane());
        while at < bytes {
            let piece = if bytes - at < BOUNCE { bytes - at } else { BOUNCE };
            let Some(ticket) = self.ticket(peer, 0) else { return };
            let place = Self::bounce(&self.layout) + (ticket & (self.slots as u64 - 1)) * BOUNCE;
            // SAFETY: in range by the caller's contract; the slot's piece of bounce memory is this ticket's.
            unsafe { copy((self.local + place) as *mut u8, from.add(at as usize), piece) };
            self.hand_over(ticket, Self::command(PUT_BOUNCED, peer, place, to + at, piece));
            at += BOUNCE * u64::from(group.lanes());
        }
    }
}

impl Get for HostIbOps {
    /// Into this rank's own heap, which is what schedules do; memory that no adapter reaches is refused by the proxy. From this rank
    /// itself by stores.
    #[inline(always)]
    unsafe fn get<G: Group>(&self, group: &G, peer: u32, from: u64, to: *mut u8, bytes: u64) {
        if peer == self.rank {
            // SAFETY: the caller's contract.
            unsafe { share(group, to, self.heap().add(from as usize), bytes) };
        } else if group.leads() && bytes > 0 {
            let own = self.within_region(to as u64, bytes).unwrap_or(u64::MAX);
            let command = Self::command(GET, peer, own, self.layout.heap() + from, bytes);
            if let Some(ticket) = self.post(command) {
                let about = About { peer, channel: 0, operation: operation::GET };
                // SAFETY: a live slot of the ring, which is not used again before the read is done.
                let _ = unsafe { self.until(&raw const (*self.slot(ticket)).done, ticket + 1, about) };
            }
        }
    }
}

/// Copies by all threads of the group, a piece at a time each.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
unsafe fn share<G: Group>(group: &G, to: *mut u8, from: *const u8, bytes: u64) {
    const PIECE: u64 = 256;
    let mut at = PIECE * u64::from(group.lane());
    while at < bytes {
        let piece = if bytes - at < PIECE { bytes - at } else { PIECE };
        // SAFETY: in range by the caller's contract.
        unsafe { copy(to.add(at as usize), from.add(at as usize), piece) };
        at += PIECE * u64::from(group.lanes());
    }
}

/// Copies by one thread: 16 bytes at a time where both ends are aligned, else single bytes.
///
/// # Safety
/// Both ranges are valid, do not overlap, and nobody else accesses them meanwhile.
#[inline(always)]
unsafe fn copy(to: *mut u8, from: *const u8, bytes: u64) {
    let wide = if (to as u64 | from as u64).is_multiple_of(16) { bytes & !15 } else { 0 };
    let mut i = 0;
    while i < wide {
        // SAFETY: in range by the caller's contract, aligned by the test above.
        unsafe { arch::store_16(to.add(i as usize), arch::load_16(from.add(i as usize))) };
        i += 16;
    }
    while i < bytes {
        // SAFETY: in range by the caller's contract.
        unsafe { to.add(i as usize).write(from.add(i as usize).read()) };
        i += 1;
    }
}

#[cfg(all(test, feature = "host", not(target_arch = "nvptx64")))]
mod tests {
    use super::super::memory::Memory;
    use super::*;
    use crate::host::{Machine, Options};
    use fusewire_device::group::Thread;
    use std::mem::offset_of;
    use std::sync::atomic::Ordering;

    /// Behind a turn stands its command, whenever somebody looks: in one slot, written over and over.
    #[test]
    fn a_command_stands_in_its_slot_before_its_turn() {
        const TURNS: u64 = 1 << 24;
        let layout = Options::per_peer(4096).channels(1).signals(1).heap(4096).layout(2).unwrap();
        let memory = Memory::new(&Machine::Host, layout, 1).unwrap();
        let ops = memory.ops(0, 0);
        // Always room.
        memory.retired().store(TURNS, Ordering::Relaxed);
        let word = |at: usize| memory.commands.word(at as u64);
        let turn = word(offset_of!(Slot, turn));
        let value = word(offset_of!(Slot, command) + offset_of!(Command, value));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                // SAFETY: the line only grows; nobody carries it out.
                (1..=TURNS).for_each(|turn| unsafe { ops.signal(&Thread, 1, Line::User(0), turn) });
            });
            let mut seen = 0;
            while seen < TURNS {
                seen = turn.load(Ordering::Acquire);
                // A later command may stand there already, an older one may not.
                let value = value.load(Ordering::Relaxed);
                assert!(value >= seen, "the command of turn {value} behind turn {seen}");
            }
        });
    }
}
