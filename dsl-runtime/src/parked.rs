//! What was dropped while streams use it. Nobody waits in a `Drop`: it is parked, and goes when they have got behind those uses.
//!
//! On CPU threads operations hold what they use, so that only streams end later: on their own thread. Work on a GPU holds nothing. What
//! it uses is parked with an event behind each use, and looked for, without waiting, by whoever allocates, drops or synchronizes.

use crate::event::Event;
use crate::foreign::Owner;
use crate::machine::on_stream;
use crate::stream::{Kind, Queue, lock};
use crate::{Device, Error, Result};
use fusewire_driver as cuda;
use fusewire_transports::host::{Machine, Options};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

static PARKED: Mutex<Vec<Parked>> = Mutex::new(Vec::new());
/// All of them, also those that somebody looks at.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_micros(50);

struct Parked {
    uses: Vec<Use>,
    owner: Owner,
}

/// A use of memory by a stream.
struct Use {
    queue: Arc<Queue>,
    number: u64,
    /// Recorded behind it; not while the stream is capturing.
    event: Option<Event>,
}

impl Use {
    /// Whether the stream has got behind it; `false` while that cannot be told. `busy`: streams that have not got behind an earlier use.
    fn is_over(&mut self, busy: &mut Vec<*const Queue>) -> bool {
        let Use { queue, number, event } = self;
        if queue.is_past(queue.last_of(*number)) {
            return true;
        }
        let at = Arc::as_ptr(queue);
        if event.is_some() && busy.contains(&at) {
            return false;
        }
        let over = queue.quietly(|| {
            if event.is_none() {
                if queue.notice().is_err() || queue.is_capturing() {
                    return Ok(false);
                }
                // Not of somebody else's stream, which may be gone later: then the event stands for it.
                if queue.foreign.is_none() && queue.is_idle() {
                    return Ok(true);
                }
                *event = queue.event_behind(*number)?;
            }
            event.as_ref().map_or(Ok(true), Event::has_happened)
        });
        // Not noted on the stream: others may queue work there that has no number, with what was handed to it.
        if matches!(over, Ok(false)) {
            busy.push(at);
        }
        // A device that failed runs nothing any more.
        over.unwrap_or_else(|error| !error.is_misuse())
    }
}

impl Parked {
    /// Each use is asked about, so that events are recorded as soon as can be.
    fn is_over(&mut self, busy: &mut Vec<*const Queue>) -> bool {
        self.uses.iter_mut().map(|one| one.is_over(busy)).filter(|over| !over).count() == 0
    }

    /// It goes; not on this thread, which does something else, if it may be the last end of a link that waits for peers.
    fn end(self) {
        let ends = |one: &Use| self.owner.is::<Ended>() || one.queue.retired.load(Ordering::Acquire);
        let waits = |one: &Use| ends(one) && lock(&one.queue.links).iter().any(|due| due.link.waits_to_end());
        match self.uses.iter().any(waits) {
            true => drop_apart(self),
            false => drop(self),
        }
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Drops an owner of memory behind its uses: now, if they are over.
pub(crate) fn drop_later(uses: Vec<(Arc<Queue>, u64)>, owner: Owner) {
    let uses = uses.into_iter().map(|(queue, number)| Use { queue, number, event: None });
    let mut parked = Parked { uses: uses.collect(), owner };
    match parked.is_over(&mut Vec::new()) {
        true => drop(parked),
        false => {
            COUNT.fetch_add(1, Ordering::AcqRel);
            lock(&PARKED).push(parked);
        }
    }
    settle();
}

/// Drops what no stream and no graph uses any more. Called with no lock and no claim.
pub(crate) fn settle() {
    drop(cuda::foreign::let_go());
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    // Without the lock: what is dropped may come here again.
    let (mut all, mut busy) = (std::mem::take(&mut *lock(&PARKED)), Vec::new());
    let over: Vec<_> = all.extract_if(.., |parked| parked.is_over(&mut busy)).collect();
    lock(&PARKED).append(&mut all);
    over.into_iter().for_each(Parked::end);
}

/// Drops, on a thread of its own, what may wait for peers.
pub(crate) fn drop_apart(what: impl Send + 'static) {
    let _ = std::thread::Builder::new().name("end".into()).spawn(move || drop(what));
}

/// Waits until something that is parked goes, as long as kernels wait for peers. `false` if there is nothing, or it takes longer.
pub(crate) fn wait_for_one() -> bool {
    let (before, start) = (COUNT.load(Ordering::Acquire), Instant::now());
    let limit = if before > 0 { Options::default().deadline } else { Duration::ZERO };
    loop {
        settle();
        let gone = COUNT.load(Ordering::Acquire) < before;
        if gone || start.elapsed() >= limit {
            return gone;
        }
        std::thread::sleep(PAUSE);
    }
}

/// What `make` makes; where it is `short` of something, it is tried again whenever something that was parked has gone.
pub(crate) fn with_room<T>(short: impl Fn(&Error) -> bool, make: impl Fn() -> Result<T>) -> Result<T> {
    settle();
    loop {
        match make() {
            Err(error) if short(&error) && wait_for_one() => {}
            made => return made,
        }
    }
}

/// Waits for what is parked while a GPU has no room for so many bytes: before an allocation of all ranks, which none tries again.
pub(crate) fn make_room(device: &Device, bytes: usize) {
    settle();
    let Machine::Cuda(context) = &device.0 else { return };
    while context.memory_info().is_ok_and(|(free, _)| free < bytes as u64) && wait_for_one() {}
}

/// A stream that nobody has any more, when all that it had has run.
struct Ended(Arc<Queue>);

impl Drop for Ended {
    fn drop(&mut self) {
        // Results may outlive the stream: whoever uses them is told of a fault. No link goes under the lock: its last end waits for peers.
        let sound = || lock(&self.0.links).extract_if(.., |due| !due.link.is_aborted()).collect::<Vec<_>>();
        let done = self.0.quietly(sound);
        // The stream's thread ends: whoever waits for it is not to wait for peers.
        if on_stream() && done.iter().any(|due| due.link.waits_to_end()) {
            drop_apart(done);
        }
    }
}

impl Queue {
    /// The last handle is going: what is queued runs, and nobody waits for it. From here on somebody else's stream may be destroyed.
    pub(crate) fn retire(self: &Arc<Self>) {
        let ended = Ended(Arc::clone(self));
        match &self.kind {
            Kind::Host(worker) if worker.is_idle() => drop(ended),
            Kind::Host(worker) => worker.drop_behind(ended),
            Kind::Cuda(_) => {
                // Behind what has no number, too.
                drop_later(vec![(Arc::clone(self), self.next_use())], Box::new(ended));
                self.retired.store(true, Ordering::Release);
            }
        }
    }

    /// Asks the driver something, also while another library has forbidden what might wait, as in captures of its own.
    fn quietly<R>(&self, ask: impl FnOnce() -> R) -> R {
        match &self.kind {
            Kind::Host(_) => ask(),
            Kind::Cuda(_) => cuda::relaxed(ask),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;
    use std::sync::{Barrier, Weak};

    /// A stream that is busy until somebody comes to the barrier.
    fn busy() -> (Stream, Arc<Barrier>) {
        let (stream, go) = (Device::host().stream().unwrap(), Arc::new(Barrier::new(2)));
        let waits = Arc::clone(&go);
        stream.push(Arc::new(move |_| {
            waits.wait();
        }));
        (stream, go)
    }

    fn soon_gone<T>(what: &Weak<T>) {
        let start = Instant::now();
        while what.strong_count() > 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "it is kept");
            std::thread::sleep(PAUSE);
        }
    }

    #[test]
    fn what_goes_while_it_runs_waits_for_nothing_and_is_given_back() {
        let (stream, go) = busy();
        let [mut from, mut to] = [(); 2].map(|()| Device::host().buffer::<u32>(4).unwrap());
        from.fill_bytes(&stream, 1).unwrap();
        to.copy_from(&stream, &from).unwrap();
        let (queue, memory) = (Arc::downgrade(stream.queue()), Arc::downgrade(from.memory()));
        drop(stream.clone());
        drop(stream);
        drop(from);
        assert!(queue.strong_count() > 0 && memory.strong_count() > 0);
        std::thread::scope(|scope| {
            // Whoever reads the result waits for the stream that is gone.
            let read = scope.spawn(|| to.read(&Device::host().stream().unwrap()).unwrap());
            std::thread::sleep(Duration::from_millis(5));
            assert!(!read.is_finished());
            go.wait();
            assert_eq!(read.join().unwrap(), [0x0101_0101; 4]);
        });
        soon_gone(&memory);
        drop(to);
        soon_gone(&queue);
    }

    #[test]
    fn a_graph_goes_while_it_runs() {
        let (stream, go) = busy();
        let mut buffer = Device::host().buffer::<u32>(4).unwrap();
        let memory = Arc::downgrade(buffer.memory());
        let graph = stream.capture(|| buffer.fill_bytes(&stream, 1)).unwrap();
        graph.launch(&stream).unwrap();
        drop((graph, buffer, stream));
        assert!(memory.strong_count() > 0);
        go.wait();
        soon_gone(&memory);
    }

    #[test]
    fn a_stream_that_was_given_up_goes_and_so_does_one_that_an_operation_has() {
        let (stream, go) = busy();
        let own = stream.clone();
        stream.push(Arc::new(move |_| {
            let _ = &own;
        }));
        assert!(stream.synchronize_within(Duration::from_millis(1)).is_err());
        let queue = Arc::downgrade(stream.queue());
        drop(stream);
        go.wait();
        soon_gone(&queue);
    }

    /// As memory of a GPU does, which operations do not hold. All in one: others of this process are not to park anything meanwhile.
    #[test]
    fn what_is_parked_goes_behind_all_of_its_uses() {
        assert!(!wait_for_one(), "there is nothing");
        let streams = [busy(), busy()];
        let mut buffers = [(); 2].map(|()| Device::host().buffer::<u8>(4).unwrap());
        let mut owners = Vec::new();
        // Two that wait for the first stream, one that waits for both.
        for several in [false, false, true] {
            for ((stream, _), buffer) in streams.iter().zip(&mut buffers) {
                buffer.fill_bytes(stream, 1).unwrap();
            }
            let users = buffers.iter().take(1 + usize::from(several)).flat_map(|b| b.memory().uses().users());
            let owner = Arc::new(());
            owners.push(Arc::downgrade(&owner));
            drop_later(users.collect(), Box::new(owner));
        }
        settle();
        let left = |owners: &[Weak<()>]| owners.iter().filter(|owner| owner.strong_count() > 0).count();
        assert_eq!((left(&owners), COUNT.load(Ordering::Acquire)), (3, 3));
        let (first, second) = (&streams[0], &streams[1]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                first.1.wait();
            });
            // Who is short of memory waits, and tries again.
            let full = Error::misuse("no room");
            let make = || if left(&owners[..2]) > 0 { Err(Error::misuse("no room")) } else { Ok(()) };
            with_room(|error| error.to_string() == full.to_string(), make).unwrap();
        });
        first.0.synchronize().unwrap();
        assert_eq!(left(&owners), 1);
        second.1.wait();
        second.0.synchronize().unwrap();
        assert_eq!((left(&owners), COUNT.load(Ordering::Acquire)), (0, 0));
    }
}
