//! Operations towards one peer.

use super::buffer::{Key, LocalBuffer, RemoteBuffer};
use super::queue::Queue;
use super::wait::Broken;
use super::wqe::{Head, MOST};
use crate::device::group::Group;
use crate::device::wait::Control;

/// A queue pair to the peer and the companion that counts its completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(all(feature = "host", not(target_arch = "nvptx64")), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Pair {
    /// Connected to the peer.
    pub main: Queue,
    /// Connected to this rank's own adapter.
    pub companion: Queue,
}

/// A peer as kernels see it. Plain data, passed by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(all(feature = "host", not(target_arch = "nvptx64")), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct IbgdaPeer {
    /// Address of `count` [`Pair`]s.
    pub pairs: u64,
    /// Queue pairs to the peer.
    pub count: u32,
    /// Key of 8 bytes at address 0 of their own region, where atomics leave the value before.
    pub sink: Key,
}

/// A place in a queue: the last entry of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Work {
    /// Index of the entry.
    pub index: u64,
}

impl IbgdaPeer {
    /// The peer through queue pair `queue` (modulo their number), with these control words.
    ///
    /// # Safety
    /// The peer's tables and queues and the control words are live as long as the endpoint is used.
    #[inline(always)]
    pub unsafe fn endpoint(&self, queue: u32, control: &Control) -> Endpoint {
        let at = self.pairs as *const Pair;
        Endpoint {
            // SAFETY: a live table of `count` pairs; only the place is taken.
            pair: unsafe { at.add((queue % self.count.max(1)) as usize) },
            sink: LocalBuffer { addr: 0, lkey: self.sink, reserved: 0 },
            control: *control,
        }
    }
}

/// One queue pair of a peer, as one thread or one group uses it. Operations that need order among them go through the same one.
///
/// Group forms are called by all threads of the group with the same arguments; what the group wrote before is what is sent. One entry
/// goes out for the group, not one for each thread: entries are what an adapter's rate is spent on. The [`Work`] that is returned is the
/// leader's; other threads get the same outcome, with a place that only [`Endpoint::wait_local_group`] takes.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    pair: *const Pair,
    sink: LocalBuffer,
    control: Control,
}

/// What an operation gives: where it is in the queue, or why nothing of it was posted.
pub type Posted = Result<Work, Broken>;

macro_rules! group_forms {
    ($($(#[$doc:meta])* $group:ident = $thread:ident($($arg:ident: $t:ty),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// As for the form of one thread, in every thread of the group.
        ///
        /// # Safety
        /// As for the form of one thread.
        #[inline(always)]
        #[allow(clippy::too_many_arguments)] // those of the form of one thread
        pub unsafe fn $group<G: Group>(&self, group: &G, $($arg: $t),*) -> Posted {
            // SAFETY: the caller's contract.
            together(group, || unsafe { self.$thread($($arg),*) })
        }
    )*};
}

/// The leader acts after all have arrived; everyone learns whether it worked.
#[inline(always)]
fn together<G: Group>(group: &G, act: impl FnOnce() -> Posted) -> Posted {
    group.sync();
    let mut outcome = Ok(Work { index: 0 });
    if group.leads() {
        outcome = act();
    }
    if group.any(outcome.is_err()) {
        return Err(outcome.err().unwrap_or(Broken::Elsewhere));
    }
    outcome
}

impl Endpoint {
    #[inline(always)]
    fn main(&self) -> &Queue {
        // SAFETY: live by the contract of `IbgdaPeer::endpoint`.
        unsafe { &(*self.pair).main }
    }

    #[inline(always)]
    fn companion(&self) -> &Queue {
        // SAFETY: live by the contract of `IbgdaPeer::endpoint`.
        unsafe { &(*self.pair).companion }
    }

    /// Writes `bytes` of `local` to `remote`. 0 bytes are an entry that does nothing.
    ///
    /// # Errors
    /// [`Broken`] if the queue has no room in time or is in error.
    ///
    /// # Safety
    /// Both ranges are registered; nobody changes the one before the work is done, or accesses the other before a later signal.
    #[inline(always)]
    pub unsafe fn put(&self, local: LocalBuffer, remote: RemoteBuffer, bytes: u64) -> Posted {
        // SAFETY: the caller's contract.
        unsafe { self.put_quietly(local, remote, bytes, true) }
    }

    /// As [`Endpoint::put`]; without `ring` the adapter learns of it with whatever is posted next.
    #[inline(always)]
    pub(super) unsafe fn put_quietly(
        &self,
        local: LocalBuffer,
        remote: RemoteBuffer,
        bytes: u64,
        ring: bool,
    ) -> Posted {
        // SAFETY: the caller's contract.
        unsafe {
            let (at, rest) = self.put_head(local, remote, bytes)?;
            let make = |_, head: Head| match rest {
                0 => head.nop(),
                rest => head.write(remote.at(at), local.at(at), rest),
            };
            Ok(Work { index: self.main().post::<1>(&self.control, ring, make)? })
        }
    }

    /// Posts all but the last entry of a write; gives what is left, 1 byte to [`MOST`] unless `bytes` is 0.
    #[inline(always)]
    unsafe fn put_head(
        &self,
        local: LocalBuffer,
        remote: RemoteBuffer,
        bytes: u64,
    ) -> Result<(u64, u32), Broken> {
        let mut at = 0;
        while bytes - at > MOST {
            let make = |_, head: Head| head.write(remote.at(at), local.at(at), MOST as u32);
            // SAFETY: the caller's contract.
            unsafe { self.main().post::<1>(&self.control, true, make)? };
            at += MOST;
        }
        Ok((at, (bytes - at) as u32))
    }

    /// Reads `bytes` of `remote` into `local`; there when the work is done.
    ///
    /// # Errors
    /// As for [`Endpoint::put`].
    ///
    /// # Safety
    /// Both ranges are registered; nobody writes the one, or accesses the other, before the work is done.
    #[inline(always)]
    pub unsafe fn get(&self, local: LocalBuffer, remote: RemoteBuffer, bytes: u64) -> Posted {
        let mut at = 0;
        loop {
            let part = (bytes - at).min(MOST) as u32;
            let make = |_, head: Head| match part {
                0 => head.nop(),
                part => head.read(remote.at(at), local.at(at), part),
            };
            // SAFETY: the caller's contract.
            let index = unsafe { self.main().post::<1>(&self.control, true, make)? };
            at += u64::from(part);
            if at >= bytes {
                return Ok(Work { index });
            }
        }
    }

    /// Writes `value`, 8 bytes, to `remote`, after everything posted here before. The entry carries the value: no memory is read.
    ///
    /// # Errors
    /// As for [`Endpoint::put`].
    ///
    /// # Safety
    /// `remote` is 8 registered, aligned bytes that no atomic operation of another adapter or processor meets.
    #[inline(always)]
    pub unsafe fn put_value(&self, remote: RemoteBuffer, value: u64) -> Posted {
        let payload = [value as u32, (value >> 32) as u32, 0, 0, 0, 0, 0];
        let make = |_, head: Head| head.write_inline(remote, payload, 8);
        // SAFETY: the caller's contract.
        Ok(Work { index: unsafe { self.main().post::<1>(&self.control, true, make)? } })
    }

    /// Puts `code` into the 8 bytes at `word` if they are 0.
    #[inline(always)]
    pub(super) unsafe fn raise(&self, word: RemoteBuffer, code: u64) -> Posted {
        let make = |_, head: Head| head.compare_swap(word, code, 0, self.sink);
        // SAFETY: the caller's contract.
        Ok(Work { index: unsafe { self.main().post::<1>(&self.control, true, make)? } })
    }

    /// As [`Endpoint::put`]; then adds `value` to `signal`, never seen before the data.
    ///
    /// # Errors
    /// As for [`Endpoint::put`].
    ///
    /// # Safety
    /// As for [`Endpoint::put`]; `signal` is 8 registered, aligned bytes.
    #[inline(always)]
    pub unsafe fn put_signal(
        &self,
        local: LocalBuffer,
        remote: RemoteBuffer,
        bytes: u64,
        signal: RemoteBuffer,
        value: u64,
    ) -> Posted {
        if bytes == 0 {
            // SAFETY: the caller's contract.
            return unsafe { self.signal_remote_with_fence(signal, value) };
        }
        // SAFETY: the caller's contract.
        unsafe {
            let (at, rest) = self.put_head(local, remote, bytes)?;
            let make = |k, head: Head| match k {
                0 => head.write(remote.at(at), local.at(at), rest),
                _ => Head { fence: true, ..head }.fetch_add(signal, value, self.sink),
            };
            Ok(Work { index: self.main().post::<2>(&self.control, true, make)? })
        }
    }

    /// Adds `value` to `signal`, in no order with writes posted before.
    ///
    /// # Errors
    /// As for [`Endpoint::put`].
    ///
    /// # Safety
    /// `signal` is 8 registered, aligned bytes.
    #[inline(always)]
    pub unsafe fn signal_remote(&self, signal: RemoteBuffer, value: u64) -> Posted {
        let make = |_, head: Head| head.fetch_add(signal, value, self.sink);
        // SAFETY: the caller's contract.
        Ok(Work { index: unsafe { self.main().post::<1>(&self.control, true, make)? } })
    }

    /// Adds `value` to `signal`, after everything posted here before.
    ///
    /// # Errors
    /// As for [`Endpoint::put`].
    ///
    /// # Safety
    /// As for [`Endpoint::signal_remote`].
    #[inline(always)]
    pub unsafe fn signal_remote_with_fence(&self, signal: RemoteBuffer, value: u64) -> Posted {
        let make = |_, head: Head| Head { fence: true, ..head }.fetch_add(signal, value, self.sink);
        // SAFETY: the caller's contract.
        Ok(Work { index: unsafe { self.main().post::<1>(&self.control, true, make)? } })
    }

    /// As [`Endpoint::put_signal`]; then, when both are done, adds `count` to `counter` of this rank.
    ///
    /// # Errors
    /// As for [`Endpoint::put`]. If it is the companion that has no room, data and signal are on their way and the counter stays.
    ///
    /// # Safety
    /// As for [`Endpoint::put_signal`]; `counter` is 8 registered, aligned bytes.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // data, signal and counter
    pub unsafe fn put_signal_counter_remote(
        &self,
        local: LocalBuffer,
        remote: RemoteBuffer,
        bytes: u64,
        signal: RemoteBuffer,
        value: u64,
        counter: LocalBuffer,
        count: u64,
    ) -> Posted {
        // SAFETY: the caller's contract.
        unsafe {
            let work = self.put_signal(local, remote, bytes, signal, value)?;
            self.count(work, counter, count)
        }
    }

    /// As [`Endpoint::signal_remote_with_fence`]; then, when it is done, adds `count` to `counter` of this rank.
    ///
    /// # Errors
    /// As for [`Endpoint::put_signal_counter_remote`].
    ///
    /// # Safety
    /// As for [`Endpoint::put_signal_counter_remote`].
    #[inline(always)]
    pub unsafe fn signal_counter_remote(
        &self,
        signal: RemoteBuffer,
        value: u64,
        counter: LocalBuffer,
        count: u64,
    ) -> Posted {
        // SAFETY: the caller's contract.
        unsafe {
            let work = self.signal_remote_with_fence(signal, value)?;
            self.count(work, counter, count)
        }
    }

    /// Adds `count` to `counter` of this rank once `work` is done, without any thread waiting: the companion waits for the completion,
    /// then adds through a connection to this rank's own adapter.
    ///
    /// # Errors
    /// As for [`Endpoint::put`].
    ///
    /// # Safety
    /// `work` is of this endpoint's queue; `counter` is 8 registered, aligned bytes.
    #[inline(always)]
    pub unsafe fn count(&self, work: Work, counter: LocalBuffer, count: u64) -> Posted {
        let cqn = self.main().cqn;
        let make = |k, head: Head| match k {
            0 => head.wait(cqn, work.index),
            _ => head.fetch_add(counter.looped_back(), count, self.sink),
        };
        // SAFETY: the caller's contract.
        unsafe { self.companion().post::<2>(&self.control, true, make)? };
        Ok(work)
    }

    /// Waits until `work` and everything posted here before is done: acknowledged by the peer's adapter, and sources free to change.
    ///
    /// # Errors
    /// [`Broken`], with the adapter's syndrome if it ended the work.
    ///
    /// # Safety
    /// `work` is of this endpoint's queue.
    #[inline(always)]
    pub unsafe fn wait_local(&self, work: Work) -> Result<(), Broken> {
        // SAFETY: the caller's contract.
        unsafe { self.main().wait(work.index, &self.control) }
    }

    /// As [`Endpoint::wait_local`], for at most `timeout_ns` nanoseconds.
    ///
    /// # Errors
    /// As for [`Endpoint::wait_local`].
    ///
    /// # Safety
    /// As for [`Endpoint::wait_local`].
    #[inline(always)]
    pub unsafe fn wait_local_within(&self, work: Work, timeout_ns: u64) -> Result<(), Broken> {
        let control = Control { deadline_ns: timeout_ns, ..self.control };
        // SAFETY: the caller's contract.
        unsafe { self.main().wait(work.index, &control) }
    }

    /// Waits until everything posted here before is done.
    ///
    /// # Errors
    /// As for [`Endpoint::wait_local`].
    ///
    /// # Safety
    /// None beyond that of the endpoint.
    #[inline(always)]
    pub unsafe fn fence(&self) -> Result<(), Broken> {
        // SAFETY: an entry that names no memory.
        unsafe {
            let index = self.main().post::<1>(&self.control, true, |_, head| head.nop())?;
            self.main().wait(index, &self.control)
        }
    }

    /// Sets `signal` at the peer to 0 after everything posted here before, and waits until that is done.
    ///
    /// # Errors
    /// As for [`Endpoint::put`] and [`Endpoint::wait_local`].
    ///
    /// # Safety
    /// `signal` is 8 registered, aligned bytes to which nobody adds meanwhile.
    #[inline(always)]
    pub unsafe fn reset_signal(&self, signal: RemoteBuffer) -> Posted {
        // SAFETY: the caller's contract.
        unsafe {
            self.fence()?;
            let work = self.put_value(signal, 0)?;
            self.wait_local(work)?;
            Ok(work)
        }
    }

    group_forms! {
        /// [`Endpoint::put`] by a group.
        put_group = put(local: LocalBuffer, remote: RemoteBuffer, bytes: u64);
        /// [`Endpoint::get`] by a group.
        get_group = get(local: LocalBuffer, remote: RemoteBuffer, bytes: u64);
        /// [`Endpoint::put_signal`] by a group: one addition for the whole group.
        put_signal_group = put_signal(local: LocalBuffer, remote: RemoteBuffer, bytes: u64, signal: RemoteBuffer, value: u64);
        /// [`Endpoint::signal_remote`] by a group: one addition for the whole group.
        signal_remote_group = signal_remote(signal: RemoteBuffer, value: u64);
        /// [`Endpoint::signal_remote_with_fence`] by a group: one addition for the whole group.
        signal_remote_with_fence_group = signal_remote_with_fence(signal: RemoteBuffer, value: u64);
        /// [`Endpoint::put_signal_counter_remote`] by a group: one addition each for the whole group.
        put_signal_counter_remote_group = put_signal_counter_remote(local: LocalBuffer, remote: RemoteBuffer, bytes: u64,
            signal: RemoteBuffer, value: u64, counter: LocalBuffer, count: u64);
        /// [`Endpoint::signal_counter_remote`] by a group: one addition each for the whole group.
        signal_counter_remote_group = signal_counter_remote(signal: RemoteBuffer, value: u64, counter: LocalBuffer, count: u64);
        /// [`Endpoint::reset_signal`] by a group.
        reset_signal_group = reset_signal(signal: RemoteBuffer);
    }

    /// [`Endpoint::wait_local`] by a group, for the leader's work.
    ///
    /// # Errors
    /// As for [`Endpoint::wait_local`], in every thread of the group.
    ///
    /// # Safety
    /// As for [`Endpoint::wait_local`].
    #[inline(always)]
    pub unsafe fn wait_local_group<G: Group>(&self, group: &G, work: Work) -> Result<(), Broken> {
        // SAFETY: the caller's contract.
        together(group, || unsafe { self.wait_local(work) }.map(|()| work)).map(|_| ())
    }

    /// [`Endpoint::fence`] by a group.
    ///
    /// # Errors
    /// As for [`Endpoint::fence`], in every thread of the group.
    ///
    /// # Safety
    /// As for [`Endpoint::fence`].
    #[inline(always)]
    pub unsafe fn fence_group<G: Group>(&self, group: &G) -> Result<(), Broken> {
        // SAFETY: the caller's contract.
        together(group, || unsafe { self.fence() }.map(|()| Work { index: 0 })).map(|_| ())
    }
}
