//! Checks of captures and graphs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use fusewire_driver::memory::{DeviceMemory, DeviceRegion};
use fusewire_driver::{CaptureMode, Error, Event, Stream, copy};

use crate::report::{Outcome, Report, ensure, pass};
use crate::{DEADLINE, Rig, read_words};

/// Words that the captured kernel works on.
const WORDS: u32 = 1024;

/// Runs them all.
pub fn checks(report: &mut Report, rig: &Rig) {
    for mode in [CaptureMode::ThreadLocal, CaptureMode::Global, CaptureMode::Relaxed] {
        report.check(&format!("capture ({mode:?}) and 1000 replays"), || replays(rig, mode));
    }
    report.check("a capture over two streams", || two_streams(rig));
    report.check("an error in a capture leaves the stream usable", || body_error(rig));
    report.check("a forbidden call invalidates the capture, with the reason", || invalidated(rig));
    report.check("an unjoined stream is named", || unjoined(rig));
    report.check("a panic in a capture ends it", || panics(rig));
    report.check("misuse in a capture leaves it valid", || misuse(rig));
    report.check("a drop in a capture leaves it valid", || drops(rig));
}

fn replays(rig: &Rig, mode: CaptureMode) -> Outcome {
    let memory = rig.words(&[0; WORDS as usize])?;
    let graph = rig.stream.capture(mode, |stream| {
        // SAFETY: the memory holds that many words and outlives all replays.
        unsafe {
            rig.queue_add_one(memory.ptr(), WORDS)?;
            rig.queue_add_one(memory.ptr(), WORDS)?;
            copy::memset_u32_async(stream, memory.ptr(), 5, 1)
        }
    })?;
    ensure(graph.node_count()? == 3, || format!("{:?} nodes", graph.node_count()))?;
    ensure(read_words(&memory, 1)? == [0], || "the capture ran its work".into())?;
    let mut exec = graph.instantiate()?;
    drop(graph);
    exec.keep(rig.module.clone());
    exec.upload(&rig.stream)?;
    let start = Instant::now();
    for _ in 0..1000 {
        // SAFETY: memory, module and stream outlive the wait below.
        unsafe { exec.launch(&rig.stream)? };
    }
    rig.wait()?;
    let each = start.elapsed() / 1000;
    let words = read_words(&memory, WORDS as usize)?;
    ensure(words[0] == 5 && words[1..].iter().all(|&word| word == 2000), || format!("{:?}", &words[..3]))?;
    pass(format!("{} nodes, {each:?} a replay", exec.node_count()))
}

fn two_streams(rig: &Rig) -> Outcome {
    let memory = rig.words(&[0; WORDS as usize])?;
    let (side, fork, join) =
        (Stream::new(&rig.context)?, Event::new(&rig.context)?, Event::new(&rig.context)?);
    let capture = rig.stream.begin_capture(CaptureMode::ThreadLocal)?;
    fork.record(&rig.stream)?;
    side.wait_event(&fork)?;
    ensure(side.is_capturing()?, || "the capture did not spread".into())?;
    // SAFETY: the memory holds a word and outlives the replay.
    unsafe { copy::memset_u32_async(&side, memory.ptr(), 11, 1)? };
    join.record(&side)?;
    rig.stream.wait_event(&join)?;
    // SAFETY: as above.
    unsafe { rig.queue_add_one(memory.ptr(), WORDS)? };
    let exec = capture.end()?.instantiate()?;
    // SAFETY: the memory outlives the wait.
    unsafe { exec.launch(&rig.stream)? };
    rig.wait()?;
    ensure(read_words(&memory, 2)? == [12, 1], || "wrong words".into())?;
    pass("forked and joined by events")
}

/// The stream takes plain work and a fresh capture.
fn usable(rig: &Rig) -> Result<(), Box<dyn std::error::Error>> {
    ensure(!rig.stream.is_capturing()?, || "the stream is still capturing".into())?;
    let memory = rig.words(&[0; WORDS as usize])?;
    // SAFETY: the memory holds that many words and outlives the waits.
    unsafe { rig.queue_add_one(memory.ptr(), WORDS)? };
    rig.wait()?;
    // SAFETY: as above.
    let graph = rig
        .stream
        .capture(CaptureMode::ThreadLocal, |_| unsafe { rig.queue_add_one(memory.ptr(), WORDS) })?;
    let exec = graph.instantiate()?;
    // SAFETY: as above.
    unsafe { exec.launch(&rig.stream)? };
    rig.wait()?;
    ensure(read_words(&memory, 1)? == [2], || "wrong words".into())
}

fn body_error(rig: &Rig) -> Outcome {
    let result =
        rig.stream.capture::<Box<dyn std::error::Error>>(CaptureMode::ThreadLocal, |_| Err("mine".into()));
    let error = result.err().ok_or("the capture passed")?;
    ensure(error.to_string() == "mine", || error.to_string())?;
    usable(rig)?;
    pass("the caller's own error comes back")
}

fn invalidated(rig: &Rig) -> Outcome {
    let mut inner = None;
    let result = rig.stream.capture::<Error>(CaptureMode::ThreadLocal, |_| {
        inner = DeviceMemory::new(&rig.context, 1 << 20).err();
        Ok(())
    });
    let Err(outer @ Error::Capture { .. }) = result else { return Err(format!("{result:?}").into()) };
    let inner = inner.ok_or("allocating in a capture was accepted")?;
    ensure(matches!(inner, Error::Capture { .. }), || inner.to_string())?;
    usable(rig)?;
    pass(format!("inside: {inner} / at the end: {outer}"))
}

fn unjoined(rig: &Rig) -> Outcome {
    let memory = rig.words(&[0])?;
    let (side, fork) = (Stream::new(&rig.context)?, Event::new(&rig.context)?);
    let result = rig.stream.capture::<Error>(CaptureMode::ThreadLocal, |stream| {
        fork.record(stream)?;
        side.wait_event(&fork)?;
        // SAFETY: the memory holds a word; the capture is thrown away.
        unsafe { copy::memset_u32_async(&side, memory.ptr(), 1, 1) }
    });
    let Err(error @ Error::Capture { .. }) = result else { return Err(format!("{result:?}").into()) };
    usable(rig)?;
    side.synchronize_deadline(DEADLINE)?;
    pass(error.to_string())
}

fn panics(rig: &Rig) -> Outcome {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        rig.stream
            .capture::<Error>(CaptureMode::ThreadLocal, |_| std::panic::resume_unwind(Box::new("quiet")))
    }));
    ensure(caught.is_err(), || "the panic was lost".into())?;
    usable(rig)?;
    drop(rig.stream.begin_capture(CaptureMode::ThreadLocal)?);
    usable(rig)?;
    pass("by the guard")
}

fn misuse(rig: &Rig) -> Outcome {
    let memory = rig.words(&[0; WORDS as usize])?;
    let mut refused = 0;
    let graph = rig.stream.capture::<Error>(CaptureMode::ThreadLocal, |stream| {
        let attempts = [
            stream.synchronize(),
            stream.synchronize_deadline(DEADLINE),
            stream.query().map(drop),
            stream.launch_host_fn(|| ()),
            stream.begin_capture(CaptureMode::ThreadLocal).map(drop),
        ];
        refused = attempts.iter().filter(|result| matches!(result, Err(Error::Misuse { .. }))).count();
        // SAFETY: the memory holds that many words and outlives the replay.
        unsafe { rig.queue_add_one(memory.ptr(), WORDS) }
    })?;
    ensure(refused == 5 && graph.node_count()? == 1, || format!("{refused} of 5 refused"))?;
    usable(rig)?;
    pass("5 calls refused, the capture went on")
}

fn drops(rig: &Rig) -> Outcome {
    let memory = rig.words(&[0; WORDS as usize])?;
    let (spare, event, stream) =
        (rig.words(&[1; 64])?, Event::new(&rig.context)?, Stream::new(&rig.context)?);
    let graph = rig.stream.capture::<Error>(CaptureMode::ThreadLocal, |_| {
        drop((spare, event, stream));
        // SAFETY: the memory holds that many words and outlives the replay.
        unsafe { rig.queue_add_one(memory.ptr(), WORDS) }
    })?;
    ensure(graph.node_count()? == 1, || format!("{:?} nodes", graph.node_count()))?;
    usable(rig)?;
    pass("memory, event and stream dropped inside")
}
