//! Order between streams: the second waits on the device for an event of the first. The event is recorded when the second stream comes,
//! never between launches of one stream, which would keep the next kernel from being set up while the one before it runs.

use crate::event::Event;
use crate::residency::Ledger;
use crate::stream::{Kind, Queue, lock};
use crate::uses::HANDED;
use crate::{Error, Result, Stream};
use fusewire_transports::host::{Launching, Link};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};

/// The event that was recorded last on a stream for others to wait for. Its lock is held while that is done, and while a capture begins or
/// ends: an event is in no capture. Nothing else of a stream is locked under it.
#[derive(Default)]
pub(crate) struct Marks(Mutex<Option<Mark>>);

pub(crate) struct Mark {
    event: Event,
    /// It is behind the uses of memory up to this number.
    number: u64,
}

impl Marks {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Mark>> {
        lock(&self.0)
    }
}

impl Queue {
    /// Lets what is queued from here on run behind `before`'s use of memory with this number, without waiting for it here. `what` both
    /// use.
    ///
    /// # Errors
    /// [`Error::Misuse`] if `before` is capturing or was given up; the driver's.
    pub(crate) fn follow(self: &Arc<Self>, before: &Queue, number: u64, what: &str) -> Result<()> {
        let number = before.last_of(number);
        if before.is_past(number) {
            return Ok(());
        }
        before.not_given_up()?;
        let last = before.marks.lock();
        if last.as_ref().is_some_and(|mark| mark.number >= number) {
            return self.wait_for(last);
        }
        drop(last);
        let Kind::Cuda(stream) = &self.kind else { return self.wait_for(before.mark(what)?) };
        // What is on the GPU is counted as this stream's from here on: nobody is admitted to either meanwhile.
        Ledger::of(stream.context())?.join(self, before, || self.wait_for(before.mark(what)?))
    }

    /// The number of a use: of memory that was handed to a stream which nobody has any more, the last one, behind which its event was recorded.
    pub(crate) fn last_of(&self, number: u64) -> u64 {
        match number {
            HANDED if self.has_no_handle() => self.last_use(),
            number => number,
        }
    }

    fn wait_for(&self, mark: MutexGuard<'_, Option<Mark>>) -> Result<()> {
        mark.as_ref().map_or(Ok(()), |mark| mark.event.hold(self))?;
        self.set_behind();
        Ok(())
    }

    /// Records an event behind everything that is queued.
    fn mark(&self, what: &str) -> Result<MutexGuard<'_, Option<Mark>>> {
        let mut last = self.marks.lock();
        self.refuse_capture(what)?;
        // Numbered once they were queued: those up to here are before the event.
        let number = self.last_use();
        let event = Event::mark(self, last.take().map(|mark| mark.event))?;
        *last = Some(Mark { event, number });
        Ok(last)
    }

    /// Waits here for the use of memory with this number, and for no more than there is an event for.
    ///
    /// # Errors
    /// As for [`Queue::follow`].
    pub(crate) fn wait_use(&self, number: u64, what: &str) -> Result<()> {
        let number = self.last_of(number);
        if self.is_past(number) {
            return Ok(());
        }
        self.refuse_capture(what)?;
        self.not_given_up()?;
        let mark = self.marks.lock().as_ref().map(|mark| (mark.event.clone(), mark.number));
        match mark {
            Some((event, marked)) if marked >= number => {
                event.wait()?;
                self.passed(marked);
                Ok(())
            }
            _ => self.wait_idle(),
        }
    }

    /// Waits by an event for what was queued, where the stream itself may be gone.
    pub(crate) fn wait_mark(&self) -> fusewire_transports::host::Result<()> {
        let _ = self.reached(self.last_use());
        let event = self.marks.lock().as_ref().map(|mark| mark.event.clone());
        event.map_or(Ok(()), |event| Ok(event.wait()?))
    }

    /// Whether the device has got behind the use of memory with this number.
    pub(crate) fn reached(&self, number: u64) -> Result<bool> {
        // Nothing is recorded on a stream that is past it: it may be gone.
        if self.is_past(self.last_of(number)) {
            return Ok(true);
        }
        self.event_behind(number)?.map_or(Ok(true), |event| event.has_happened())
    }

    /// An event behind the use of memory with this number, which is recorded if there is none. It stays there.
    pub(crate) fn event_behind(&self, number: u64) -> Result<Option<Event>> {
        let number = self.last_of(number);
        let mut mark = self.marks.lock();
        if mark.as_ref().is_none_or(|mark| mark.number < number) {
            drop(mark);
            mark = self.mark("stream")?;
        }
        Ok(mark.as_ref().map(|mark| mark.event.clone()))
    }

    fn refuse_capture(&self, what: &str) -> Result<()> {
        match self.is_capturing() {
            true => Err(Error::misuse(format!(
                "a stream that used this {what} before is capturing, so that it cannot be waited for: end the capture first, or synchronize \
                 the stream before it begins"
            ))),
            false => Ok(()),
        }
    }
}

impl Stream {
    /// Before a kernel that uses these links is queued, of which the lowest number comes first.
    pub(crate) fn touch_all<'t>(&'t self, links: &'t [Used]) -> Result<impl Sized + 't> {
        let mut turns = links.iter().map(|used| self.touch(used));
        // Mostly there is one: no allocation for it.
        let first = turns.next().transpose()?;
        Ok((first, turns.collect::<Result<Vec<_>>>()?))
    }

    /// Before a kernel on a link is queued: two streams' kernels on one link would break its channels, so this stream's come behind the
    /// other's. The guard is for the time until the kernel is queued; a capture needs none.
    fn touch<'t>(&'t self, used: &'t Used) -> Result<Option<Turn<'t>>> {
        if self.is_capturing() {
            self.captured(|c| match c.links.iter_mut().find(|l| Arc::ptr_eq(&l.link, &used.link)) {
                Some(known) => known.told |= used.told,
                None => c.links.push(used.clone()),
            });
            return Ok(None);
        }
        let (link, queue) = (&used.link, self.queue());
        let alone = link.launching();
        link.not_closed()?;
        let mut before = None;
        if !link.was_last(Arc::as_ptr(queue).cast()) {
            before = link.last_use().and_then(|(last, number)| Some((downcast(last)?, number)));
            if let Some((last, number)) = &before {
                queue.follow(last, *number, "transport")?;
            }
        }
        Ok(Some(Turn { queue, used, _alone: alone, _before: before.map(|(last, _)| last) }))
    }

    /// Takes over what `other` has not reported yet of kernels that can have spoilt its use of memory with this number: the results are
    /// used here. `other` reports it as well. Whoever waits for this stream behind its use `last` has waited for those kernels.
    pub(crate) fn answer_for(&self, other: &Queue, number: u64, last: u64) {
        let theirs: Vec<_> = {
            let links = lock(&other.links);
            links.iter().filter(|due| due.first <= number).map(|due| Arc::clone(&due.link)).collect()
        };
        theirs.iter().for_each(|link| self.queue().answer(link, last));
    }
}

/// The stream that a link knows.
fn downcast(last: Arc<dyn fusewire_transports::host::Queue>) -> Option<Arc<Queue>> {
    let last: Arc<dyn Any + Send + Sync> = last;
    last.downcast().ok()
}

/// A link that kernels use.
#[derive(Clone)]
pub(crate) struct Used {
    pub(crate) link: Arc<Link>,
    /// It is told of their faults: the transport's own, and not one that is a part of it.
    pub(crate) told: bool,
}

impl Used {
    /// What kernels on a transport use, in the order in which turns are taken.
    pub(crate) fn by(link: &Arc<Link>) -> Vec<Used> {
        let all = link.with_joined().into_iter();
        all.map(|part| Used { told: Arc::ptr_eq(&part, link), link: part }).collect()
    }
}

/// The right to queue kernels on a link. It ends before the claims of the launch; from then on the stream is the link's last, and their
/// faults are the stream's to report: whoever synchronizes it before has not waited for them.
pub(crate) struct Turn<'t> {
    queue: &'t Arc<Queue>,
    used: &'t Used,
    _alone: Launching<'t>,
    /// The last stream, of which this may be the last end, which can wait for peers: they may wait for what is queued here.
    _before: Option<Arc<Queue>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let number = self.queue.last_use() + 1;
        self.used.link.set_last_use(Arc::downgrade(self.queue) as _, number);
        if self.used.told {
            self.queue.answer(&self.used.link, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Transport};
    use fusewire_transports::Shm;
    use fusewire_world::World;

    fn marked(stream: &Stream) -> Option<u64> {
        stream.queue().marks.lock().as_ref().map(|mark| mark.number)
    }

    #[test]
    fn an_event_is_recorded_when_a_second_stream_comes_and_not_before() {
        let world = World::single().unwrap();
        let shm = Shm::rendezvous(&world, 1 << 16).unwrap();
        let (device, used) = (Device::host(), Used::by(shm.link()));
        let [first, second, third] = [(); 3].map(|()| device.stream().unwrap());
        let [mut x, mut y, mut z] = [(); 3].map(|()| device.buffer::<u32>(4).unwrap());
        let launch = |stream: &Stream, on: &mut crate::Buffer<u32>| {
            let _claims =
                crate::uses::Claims::of(stream, [(on.memory(), crate::uses::Access::Write)]).unwrap();
            drop(stream.touch_all(&used).unwrap());
        };
        (0..100).for_each(|_| launch(&first, &mut x));
        assert_eq!(marked(&first), None);
        // For its buffer and its transport one.
        launch(&second, &mut x);
        assert_eq!((marked(&first), marked(&second)), (Some(100), None));
        x.fill_bytes(&second, 1).unwrap();
        assert_eq!(marked(&second), None);
        // Of what is queued later on the first, nothing is waited for.
        y.fill_bytes(&first, 2).unwrap();
        launch(&second, &mut x);
        assert_eq!(marked(&first), Some(100));
        z.copy_from(&third, &y).unwrap();
        assert_eq!((marked(&first), marked(&second), marked(&third)), (Some(101), None, None));
        // What the host has waited for, no stream waits for.
        second.synchronize().unwrap();
        launch(&first, &mut x);
        assert_eq!(marked(&second), None);
    }

    #[test]
    fn a_refused_launch_knows_the_last_stream_the_next_time() {
        let world = World::single().unwrap();
        let shm = Shm::rendezvous(&world, 1 << 16).unwrap();
        let used = Used::by(shm.link());
        let [before, stream] = [(); 2].map(|()| Device::host().stream().unwrap());
        drop(before.touch_all(&used).unwrap());
        let capturing = before.capture(|| {
            for _ in 0..2 {
                let text = stream.touch_all(&used).err().unwrap().to_string();
                assert!(
                    text.contains("used this transport before") && text.contains("end the capture"),
                    "{text}"
                );
            }
            Ok(())
        });
        capturing.unwrap();
        drop(stream.touch_all(&used).unwrap());
        assert!(shm.link().was_last(Arc::as_ptr(stream.queue()).cast()));
        assert!(marked(&before).is_some());
    }

    #[test]
    fn a_stream_that_was_given_up_is_not_followed() {
        let (device, stuck) = (Device::host(), Device::host().stream().unwrap());
        let mut x = device.buffer::<u32>(4).unwrap();
        let go = Arc::new(std::sync::Barrier::new(2));
        let waits = Arc::clone(&go);
        x.fill_bytes(&stuck, 1).unwrap();
        stuck.push(Arc::new(move |_| {
            waits.wait();
        }));
        x.fill_bytes(&stuck, 2).unwrap();
        assert!(stuck.synchronize_within(std::time::Duration::from_millis(1)).is_err());
        let stream = device.stream().unwrap();
        let text = x.fill_bytes(&stream, 3).unwrap_err().to_string();
        assert!(text.contains("gave it up"), "{text}");
        go.wait();
        stuck.synchronize().unwrap();
        x.fill_bytes(&stream, 3).unwrap();
        assert_eq!(x.read(&stream).unwrap(), [0x0303_0303; 4]);
    }
}
