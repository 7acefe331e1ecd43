//! Checks between devices of one process.

use std::os::fd::AsFd;

use fusewire_driver::memory::{
    DeviceRegion, Granularity, Mapping, PhysicalMemory, Reservation, SharedMemory,
};
use fusewire_driver::{Device, Error, PeerAttribute, copy};

use crate::report::{Outcome, Report, ensure, pass, skip};
use crate::{Rig, read_words};

/// Words in a shared memory.
const WORDS: u32 = 100_000;

/// Runs them all, the pairwise ones for each device and its successor.
pub fn checks(report: &mut Report, devices: &[Device]) {
    report.check("peer matrix", || matrix(devices));
    report.check("two mappings in one reservation", || mappings(&devices[0]));
    report.check("import of what is no memory fails", || {
        let file = std::fs::File::open("/dev/null")?;
        let error = PhysicalMemory::import_fd(file.as_fd(), 1 << 21).err().ok_or("/dev/null was imported")?;
        pass(error.to_string())
    });
    report.check("physical memory must fit the granularity", || {
        let result = PhysicalMemory::create(&devices[0], 12_345, false);
        ensure(matches!(result, Err(Error::Misuse { .. })), || format!("{result:?}"))?;
        pass(result.expect_err("checked above").to_string())
    });
    for (one, two) in pairs(devices) {
        let name = |what: &str| format!("{what}, {} and {}", one.ordinal(), two.ordinal());
        report.check(&name("memory shared by descriptor"), || by_descriptor(one, two));
        report.check(&name("memory granted at one address"), || granted(one, two));
        report.check(&name("copies between devices"), || copies(one, two));
        report.check(&name("peer access"), || peer_access(one, two));
    }
}

/// Each device and its successor; a lone device with itself.
pub fn pairs(devices: &[Device]) -> Vec<(&Device, &Device)> {
    let next = devices.iter().cycle().skip(1);
    devices.iter().zip(next).collect()
}

fn matrix(devices: &[Device]) -> Outcome {
    let mut rows = Vec::new();
    for one in devices {
        let mut row = String::new();
        for two in devices {
            if one == two {
                row.push('-');
            } else if one.can_access_peer(two)? {
                ensure(one.peer_attribute(two, PeerAttribute::Access)? == 1, || "they disagree".into())?;
                let atomics = one.peer_attribute(two, PeerAttribute::NativeAtomics)?;
                row.push(if atomics == 1 { 'A' } else { 'y' });
            } else {
                row.push('n');
            }
        }
        rows.push(row);
    }
    pass(format!("{} (A: access and native atomics, y: access, n: none)", rows.join(" ")))
}

fn reachable(one: &Device, two: &Device) -> Result<bool, Error> {
    Ok(one == two || (one.can_access_peer(two)? && two.can_access_peer(one)?))
}

fn mappings(device: &Device) -> Outcome {
    let rig = Rig::new(device)?;
    let granularity = Granularity::query(device, false)?;
    let step = granularity.round_up(1)?;
    let reservation = Reservation::new(3 * step, 0)?;
    let physical =
        [PhysicalMemory::create(device, step, false)?, PhysicalMemory::create(device, step, false)?];
    let low = Mapping::new(&reservation, 0, &physical[0], &[device])?;
    let high = Mapping::new(&reservation, step, &physical[1], &[device])?;
    ensure(Mapping::new(&reservation, 3 * step, &physical[0], &[]).is_err(), || "mapped outside".into())?;
    ensure(physical[0].export_fd().is_err(), || "private memory was exported".into())?;
    let base = reservation.ptr();
    drop((reservation, physical));
    let words = [7_u32; 64];
    // SAFETY: the words straddle the border of two adjacent live mappings; nothing else uses them.
    unsafe {
        copy::h2d(&rig.context, base.offset(step - 128), &words)?;
        rig.queue_add_one(base.offset(step - 128), 64)?;
    }
    rig.wait()?;
    let mut back = [0_u32; 64];
    // SAFETY: as above, and the kernel has ended.
    unsafe { copy::d2h(&rig.context, &mut back, base.offset(step - 128))? };
    drop((low, high));
    ensure(back == [8; 64], || format!("{:?}", &back[..4]))?;
    pass(format!("{granularity:?}"))
}

fn by_descriptor(one: &Device, two: &Device) -> Outcome {
    if !reachable(one, two)? {
        return skip("the devices cannot reach each other");
    }
    let (owner, peer) = (Rig::new(one)?, Rig::new(two)?);
    let bytes = WORDS as usize * 4;
    let memory = SharedMemory::create(&owner.context, bytes)?;
    ensure(read_words(&memory, WORDS as usize)?.iter().all(|&word| word == 0), || "not zero".into())?;
    let fd = memory.export_fd()?;
    let seen = SharedMemory::import(&peer.context, fd.as_fd(), bytes)?;
    drop(fd);
    ensure(seen.ptr() != memory.ptr(), || "two mappings share an address".into())?;
    ensure(seen.export_fd().is_err(), || "imported memory was exported again".into())?;
    // SAFETY: both addresses lead to that many words, used by one kernel at a time, alive until the waits.
    unsafe {
        peer.queue_add_one(seen.ptr(), WORDS)?;
        peer.wait()?;
        owner.queue_add_one(memory.ptr(), WORDS)?;
        owner.wait()?;
    }
    let third = memory.map_for(&peer.context)?;
    drop(memory);
    let words = read_words(&third, WORDS as usize)?;
    ensure(words.iter().all(|&word| word == 2), || format!("{:?}", &words[..4]))?;
    ensure(read_words(&seen, 1)? == [2], || "the import differs".into())?;
    pass(format!("{WORDS} words in {} bytes, used by both after the owner let go", third.mapped_bytes()))
}

fn granted(one: &Device, two: &Device) -> Outcome {
    if one == two {
        return skip("one device");
    }
    if !reachable(one, two)? {
        return skip("the devices cannot reach each other");
    }
    let (owner, peer) = (Rig::new(one)?, Rig::new(two)?);
    let memory = SharedMemory::create(&owner.context, 4096)?;
    memory.grant(two)?;
    // SAFETY: the address leads to 1024 words for both devices, alive until the wait.
    unsafe { peer.queue_add_one(memory.ptr(), 1024)? };
    peer.wait()?;
    ensure(read_words(&memory, 1024)? == [1; 1024], || "wrong words".into())?;
    pass("the peer's kernel uses the owner's address")
}

fn copies(one: &Device, two: &Device) -> Outcome {
    let (from, to) = (Rig::new(one)?, Rig::new(two)?);
    let words: Vec<u32> = (0..WORDS).collect();
    let bytes = words.len() * 4;
    let (source, target) = (from.words(&words)?, SharedMemory::create(&to.context, bytes)?);
    if one != two {
        target.grant(one)?;
    }
    // SAFETY: both hold that many bytes, are used by nothing else and outlive the waits.
    unsafe {
        copy::d2d_async(&from.stream, target.ptr(), source.ptr(), bytes)?;
        from.wait()?;
        ensure(read_words(&target, words.len())? == words, || "cuMemcpyDtoDAsync: wrong words".into())?;
    }
    pass(format!("{bytes} bytes"))
}

fn peer_access(one: &Device, two: &Device) -> Outcome {
    if one == two {
        return skip("one device");
    }
    if !reachable(one, two)? {
        return skip("the devices cannot reach each other");
    }
    let (owner, peer) = (Rig::new(one)?, Rig::new(two)?);
    let memory = SharedMemory::create(&owner.context, 256 * 4)?;
    memory.grant(two)?;
    memory.write(0, &[3_u32; 256])?;
    // SAFETY: the peer may reach the owner's memory, which holds 256 words and outlives the wait.
    unsafe { peer.queue_add_one(memory.ptr(), 256)? };
    peer.wait()?;
    ensure(read_words(&memory, 256)? == [4; 256], || "wrong words".into())?;
    // SAFETY: an event of one device, waited for by the other, orders the two kernels.
    unsafe {
        let event = fusewire_driver::Event::new(&owner.context)?;
        owner.queue_add_one(memory.ptr(), 256)?;
        event.record(&owner.stream)?;
        peer.stream.wait_event(&event)?;
        peer.queue_add_one(memory.ptr(), 256)?;
    }
    peer.wait()?;
    owner.wait()?;
    ensure(read_words(&memory, 256)? == [6; 256], || "wrong words after the event".into())?;
    ensure(event_of_other_context_is_refused(&owner, &peer)?, || "a foreign event was recorded".into())?;
    pass("ordered by an event")
}

fn event_of_other_context_is_refused(owner: &Rig, peer: &Rig) -> Result<bool, Error> {
    let event = fusewire_driver::Event::new(&owner.context)?;
    Ok(matches!(event.record(&peer.stream), Err(Error::Misuse { .. })))
}
