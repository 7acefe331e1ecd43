//! Checks on one device.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fusewire_driver::memory::{DeviceMemory, DeviceRegion, PinnedMemory};
use fusewire_driver::{
    DeviceAttribute, Error, Event, Function, JitOptions, LaunchConfig, Module, Params, Stream, WaitCondition,
    copy, launch,
};

use crate::report::{Outcome, Report, ensure, pass, skip};
use crate::{DEADLINE, Rig, kernels, read_words};

/// Nanoseconds after which the spinning kernel gives up by itself.
const SPIN_LIMIT: u64 = 10_000_000_000;

/// Runs them all.
pub fn checks(report: &mut Report, rig: &Rig) {
    report.check("device facts", || facts(rig));
    report.check("memory info and priorities", || {
        let (free, total) = rig.context.memory_info()?;
        let priorities = rig.context.priority_range()?;
        ensure(free > 0 && free <= total, || format!("{free} of {total} bytes free"))?;
        let urgent = Stream::with_priority(&rig.context, priorities.greatest)?;
        ensure(urgent.query()?, || "a new stream has work".into())?;
        pass(format!("{} of {} MiB free, {priorities:?}", free >> 20, total >> 20))
    });
    report.check("synchronous copies and sets", || synchronous_copies(rig));
    report.check("queued copies and sets", || queued_copies(rig));
    report.check("out-of-range access is refused", || {
        let memory = DeviceMemory::new(&rig.context, 64)?;
        ensure(memory.write(60, &[1_u64]).is_err() && memory.at(usize::MAX, 2).is_err(), || {
            "accepted".into()
        })?;
        pass("64 bytes stay 64 bytes")
    });
    report.check("too large an allocation", || match DeviceMemory::new(&rig.context, 1 << 50) {
        Err(error @ Error::OutOfMemory { free: Some(_), .. }) => pass(error.to_string()),
        other => Err(format!("{other:?}").into()),
    });
    report.check("pinned memory", || pinned(rig));
    report.check("module, global variable and missing names", || module(rig));
    report.check("broken PTX gives the compiler's log", || {
        match Module::load_ptx(&rig.context, kernels::BROKEN_PTX, &JitOptions::default()) {
            Err(Error::Jit { log, code, .. }) => {
                ensure(log.contains("line 6"), || format!("the log does not name line 6: {log}"))?;
                pass(format!("{}; {}", code.name(), log.lines().next().unwrap_or_default()))
            }
            other => Err(format!("{other:?}").into()),
        }
    });
    report.check("attributes, parameters and occupancy", || occupancy(rig));
    report.check("wrong launches are refused", || wrong_launches(rig));
    report.check("launch adds 1", || {
        let words: Vec<u32> = (0..100_000).collect();
        let memory = rig.words(&words)?;
        // SAFETY: the memory holds that many words and outlives the wait.
        unsafe { rig.queue_add_one(memory.ptr(), 100_000)? };
        rig.wait()?;
        let right = read_words(&memory, words.len())?.iter().zip(&words).all(|(new, old)| *new == old + 1);
        ensure(right, || "wrong words".into())?;
        pass("100000 words")
    });
    report.check("dynamic shared memory beyond the default", || dynamic_shared(rig));
    report.check("cooperative and programmatic launches", || attributes(rig));
    report.check("cluster launch", || cluster(rig));
    report.check("events tell order and time", || events(rig));
    report.check("a deadline passes and nothing is killed", || deadline(rig));
    report.check("host function", || host_function(rig));
    report.check("stream memory operations", || value_ops(rig));
}

fn facts(rig: &Rig) -> Outcome {
    let device = rig.context.device();
    let (major, minor) = device.compute_capability();
    ensure(device.uuid() != [0; 16] && device.sm_count() > 0 && major > 0, || format!("{device:?}"))?;
    pass(format!(
        "sm_{major}{minor}, {} SMs, {} MiB, {} B shared opt-in, PCI {}, VMM {}, posix fd {}, L2 {} MiB",
        device.sm_count(),
        device.total_memory() >> 20,
        device.max_shared_per_block_optin(),
        device.pci_bus_id(),
        device.supports_vmm(),
        device.supports_posix_fd(),
        device.attribute(DeviceAttribute::L2CacheSize)? >> 20,
    ))
}

fn synchronous_copies(rig: &Rig) -> Outcome {
    let words: Vec<u32> = (0..5000).collect();
    let (one, two) = (rig.words(&words)?, DeviceMemory::new(&rig.context, 20_000)?);
    // SAFETY: both hold 20000 bytes and no work uses them.
    unsafe { copy::d2d(&rig.context, two.ptr(), one.ptr(), 20_000)? };
    ensure(read_words(&two, 5000)? == words, || "the copy differs".into())?;
    two.fill(0xab)?;
    ensure(read_words(&two, 5000)?.iter().all(|&word| word == 0xabab_abab), || "the set differs".into())?;
    let mut part = [0_u32; 3];
    one.read(40, &mut part)?;
    ensure(part == [10, 11, 12], || format!("{part:?} at word 10"))?;
    pass("there, across and back")
}

fn queued_copies(rig: &Rig) -> Outcome {
    let words: Vec<u32> = (0..5000).rev().collect();
    let mut back = vec![0_u32; 5000];
    let (one, two) = (DeviceMemory::new(&rig.context, 20_000)?, DeviceMemory::new(&rig.context, 20_000)?);
    // SAFETY: all sides hold 20000 bytes, live until the wait below and are used by nothing else.
    unsafe {
        copy::h2d_async(&rig.stream, one.ptr(), &words)?;
        copy::d2d_async(&rig.stream, two.ptr(), one.ptr(), 20_000)?;
        copy::memset_u8_async(&rig.stream, two.ptr(), 1, 4)?;
        copy::memset_u32_async(&rig.stream, two.ptr().offset(4), 99, 2)?;
        copy::d2h_async(&rig.stream, &mut back, two.ptr())?;
    }
    rig.wait()?;
    ensure(back[..3] == [0x0101_0101, 99, 99] && back[3..] == words[3..], || format!("{:?}", &back[..5]))?;
    pass("in stream order")
}

fn pinned(rig: &Rig) -> Outcome {
    let mut pinned = PinnedMemory::new(&rig.context, 4096)?;
    // SAFETY: no kernel uses the memory yet.
    let slice = unsafe { pinned.as_mut_slice() };
    ensure(slice.iter().all(|&byte| byte == 0), || "not zero at first".into())?;
    slice[..4].copy_from_slice(&41_u32.to_ne_bytes());
    // SAFETY: the memory holds 1024 words and outlives the wait.
    unsafe { rig.queue_add_one(pinned.device_ptr(), 1024)? };
    rig.wait()?;
    let first = pinned.atomic_u64(0)?.load(Ordering::Acquire);
    ensure(first == (1 << 32) + 42, || format!("{first:#x}"))?;
    ensure(pinned.atomic_u64(4).is_err() && pinned.atomic_u64(4096).is_err(), || {
        "a bad offset passed".into()
    })?;
    pass("a kernel and the host see each other's words")
}

fn module(rig: &Rig) -> Outcome {
    let (address, bytes) = rig.module.global("mailbox")?;
    let mut value = [0_u64];
    // SAFETY: the variable holds 8 bytes and no kernel uses it.
    unsafe { copy::d2h(&rig.context, &mut value, address)? };
    ensure(bytes == 8 && value == [7], || format!("{bytes} bytes, {value:?}"))?;
    let missing = rig.module.function("nothing").expect_err("there is no such kernel");
    ensure(missing.code().is_some_and(|code| code.name() == "CUDA_ERROR_NOT_FOUND"), || missing.to_string())?;
    // SAFETY: what is no image at all is refused before the driver sees it.
    let garbage = unsafe { Module::load_cubin(&rig.context, &[0; 128]) };
    ensure(matches!(garbage, Err(Error::Misuse { .. })), || format!("{garbage:?}"))?;
    let options =
        JitOptions { optimization_level: 0, line_info: true, verbose: true, max_registers: Some(32) };
    let plain = Module::load_ptx(&rig.context, kernels::PTX, &options)?;
    pass(format!("{missing}; {} bytes of verbose log", plain.jit_log().len()))
}

fn occupancy(rig: &Rig) -> Outcome {
    let (kernel, device) = (&rig.add_one, rig.context.device());
    let attributes = kernel.attributes();
    ensure(attributes.registers > 0 && attributes.max_threads_per_block >= 128, || {
        format!("{attributes:?}")
    })?;
    ensure(kernel.parameter_sizes() == Some(&[8, 4]), || format!("{:?}", kernel.parameter_sizes()))?;
    let per_sm = kernel.max_active_blocks_per_sm(1024, 0)?;
    let resident = kernel.max_resident_blocks(1024, 0)?;
    ensure(per_sm > 0 && resident == per_sm * device.sm_count(), || format!("{per_sm}, {resident}"))?;
    ensure(kernel.max_active_blocks_per_sm(0, 0).is_err(), || "no threads were accepted".into())?;
    pass(format!("{attributes:?}; {per_sm} blocks of 1024 an SM, {resident} in all"))
}

fn wrong_launches(rig: &Rig) -> Outcome {
    let good = Params::new().with(0_u64).with(0_u32);
    let attempt = |config: LaunchConfig, params: &Params| {
        // SAFETY: with a count of 0 the kernel touches no memory, should a launch get through.
        unsafe { launch(&rig.add_one, &config, &rig.stream, params) }
    };
    let bad = [
        attempt(LaunchConfig::new(1, 32), &Params::new().with(0_u64)),
        attempt(LaunchConfig::new(1, 32), &Params::new().with(0_u64).with(0_u64)),
        attempt(LaunchConfig::new(0, 32), &good),
        attempt(LaunchConfig::new(1, 4096), &good),
    ];
    for result in &bad {
        ensure(matches!(result, Err(Error::Misuse { .. })), || format!("{result:?}"))?;
    }
    let big = attempt(LaunchConfig::new(1, 32).dynamic_shared(1 << 24), &good);
    ensure(big.is_err(), || "16 MiB of shared memory were accepted".into())?;
    attempt(LaunchConfig::new(1, 32), &good)?;
    rig.wait()?;
    pass(bad[0].as_ref().expect_err("checked above").to_string())
}

fn dynamic_shared(rig: &Rig) -> Outcome {
    let kernel: Function = rig.module.function("through_shared")?;
    let most = rig.context.device().max_shared_per_block_optin();
    ensure(kernel.set_max_dynamic_shared(most + 1).is_err(), || "too much was accepted".into())?;
    kernel.set_max_dynamic_shared(most)?;
    ensure(kernel.max_dynamic_shared()? == most, || "the limit did not change".into())?;
    let out = rig.words(&[0])?;
    let params = Params::new().with(out.ptr()).with(most - 4);
    // SAFETY: the kernel writes one word to `out` and one within the shared memory asked for.
    unsafe { launch(&kernel, &LaunchConfig::new(1, 1).dynamic_shared(most), &rig.stream, &params)? };
    rig.wait()?;
    ensure(read_words(&out, 1)? == [42], || "wrong word".into())?;
    pass(format!("{most} bytes"))
}

fn attributes(rig: &Rig) -> Outcome {
    let memory = rig.words(&[0; 256])?;
    let params = Params::new().with(memory.ptr()).with(256_u32);
    let plain = LaunchConfig::new(2, 128);
    let mut configs = vec![plain.cooperative(true)];
    if rig.context.device().compute_capability() >= (9, 0) {
        configs.push(plain.programmatic_serialization(true));
    }
    for config in &configs {
        // SAFETY: the memory holds 256 words and outlives the wait.
        unsafe { launch(&rig.add_one, config, &rig.stream, &params)? };
        rig.wait()?;
    }
    let words = read_words(&memory, 256)?;
    ensure(words.iter().all(|&word| word as usize == configs.len()), || format!("{:?}", &words[..4]))?;
    let most = rig.add_one.max_resident_blocks(1024, 0)?;
    let config = LaunchConfig::new(most + 1, 1024).cooperative(true);
    // SAFETY: with a count of 0 the kernel touches no memory.
    let large = unsafe { launch(&rig.add_one, &config, &rig.stream, &Params::new().with(0_u64).with(0_u32)) };
    let error = large.err().ok_or("a cooperative grid that does not fit was accepted")?;
    pass(format!("{} launches; {error}", configs.len()))
}

fn cluster(rig: &Rig) -> Outcome {
    let device = rig.context.device();
    if device.compute_capability() < (9, 0) || device.attribute(DeviceAttribute::ClusterLaunch)? == 0 {
        return skip("the device has no clusters");
    }
    let module = Module::load_ptx(&rig.context, kernels::CLUSTER_PTX, &JitOptions::default())?;
    let kernel = module.function("cluster_rank")?;
    let out = rig.words(&[9; 8])?;
    let config = LaunchConfig::new(8, 32).cluster(4);
    // SAFETY: the kernel writes one word for each of 8 blocks, and the module outlives the wait.
    unsafe { launch(&kernel, &config, &rig.stream, &Params::new().with(out.ptr()))? };
    rig.wait()?;
    let ranks = read_words(&out, 8)?;
    ensure(ranks == [0, 1, 2, 3, 0, 1, 2, 3], || format!("{ranks:?}"))?;
    pass(format!("{ranks:?}"))
}

fn events(rig: &Rig) -> Outcome {
    let (start, end) = (Event::with_timing(&rig.context)?, Event::with_timing(&rig.context)?);
    let (untimed, other) = (Event::new(&rig.context)?, Stream::new(&rig.context)?);
    let memory = rig.words(&vec![0; 1 << 20])?;
    start.record(&rig.stream)?;
    // SAFETY: the memory holds that many words and outlives the waits.
    unsafe { rig.queue_add_one(memory.ptr(), 1 << 20)? };
    untimed.record(&rig.stream)?;
    other.wait_event(&untimed)?;
    end.record(&other)?;
    end.synchronize_deadline(DEADLINE)?;
    end.synchronize()?;
    ensure(start.query()? && untimed.query()?, || "an earlier event is not reached".into())?;
    let elapsed = end.elapsed_ms_since(&start)?;
    ensure(elapsed > 0.0 && elapsed < 10_000.0, || format!("{elapsed} ms"))?;
    ensure(end.elapsed_ms_since(&untimed).is_err(), || "an untimed event told the time".into())?;
    pass(format!("{elapsed:.3} ms across two streams"))
}

fn deadline(rig: &Rig) -> Outcome {
    let kernel = rig.module.function("spin")?;
    let flag = PinnedMemory::new(&rig.context, 8)?;
    let params = Params::new().with(flag.device_ptr()).with(SPIN_LIMIT);
    // SAFETY: the kernel reads the flag only, ends by itself after the limit, and is waited for below.
    unsafe { launch(&kernel, &LaunchConfig::new(1, 1), &rig.stream, &params)? };
    let first = rig.stream.synchronize_deadline(Duration::from_millis(50));
    let busy = !rig.stream.query()?;
    flag.atomic_u64(0)?.store(1, Ordering::Release);
    let start = Instant::now();
    rig.stream.synchronize_deadline(Duration::from_secs(15))?;
    let Err(error @ Error::Timeout { .. }) = first else { return Err(format!("{first:?}").into()) };
    ensure(busy, || "the kernel did not go on running".into())?;
    pass(format!("{error}; it ended {:?} after its flag", start.elapsed()))
}

fn host_function(rig: &Rig) -> Outcome {
    let (sender, receiver) = mpsc::channel();
    let runs = Arc::new(AtomicU32::new(0));
    let counter = runs.clone();
    rig.stream.launch_host_fn(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        let _ = sender.send(());
    })?;
    receiver.recv_timeout(DEADLINE)?;
    rig.wait()?;
    ensure(runs.load(Ordering::Relaxed) == 1, || "it did not run once".into())?;
    pass("ran once")
}

fn value_ops(rig: &Rig) -> Outcome {
    let memory = rig.words(&[0; 4])?;
    let other = Stream::new(&rig.context)?;
    // SAFETY: both addresses are 8-aligned in memory that outlives the waits; the second stream ends the wait
    // of the first.
    let queued = unsafe {
        rig.stream
            .wait_value_u64(memory.ptr(), 5, WaitCondition::GreaterOrEqual)
            .and_then(|()| rig.stream.write_value_u64(memory.ptr().offset(8), 77))
    };
    if let Err(Error::Unsupported { what }) = &queued {
        return skip(what.clone());
    }
    queued?;
    ensure(!rig.stream.query()?, || "the stream did not wait".into())?;
    // SAFETY: as above.
    unsafe { other.write_value_u64(memory.ptr(), 6)? };
    rig.wait()?;
    other.synchronize_deadline(DEADLINE)?;
    let mut values = [0_u64; 2];
    memory.read(0, &mut values)?;
    ensure(values == [6, 77], || format!("{values:?}"))?;
    // SAFETY: an unaligned address is refused.
    ensure(unsafe { other.write_value_u64(memory.ptr().offset(4), 0) }.is_err(), || "unaligned".into())?;
    pass("one stream waits for the other's store")
}
