//! The adapter over a driver that records what it is asked and can refuse any of it.

mod recorder;

use crate::adapter::Mlx5;
use crate::driver::{Bytes, Driver, Handle, Page, PageKind, Registered};
use crate::error::misuse;
use crate::path::Port;
use crate::place::{INVALID, Offsets};
use crate::prm::{Command, layout::*};
use crate::settings::Settings;
use fusewire_nic::{Address, Block, Error, Kind, Memory, Nic, QueuePair, QueueRequest, QueueSource, Result};
use recorder::*;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[test]
fn a_queue_pair_is_made_where_it_says() {
    let (recorder, adapter, source) = adapter(false);
    assert_eq!(recorder.calls(), ["QUERY_HCA_CAP", "domain", "event queue", "page Dedicated"]);
    let queue = adapter.create_queue(&request(Kind::Companion, 128), &source).unwrap();
    assert_eq!(recorder.calls(), ["pin 20480", "CREATE_CQ", "CREATE_QP"]);
    let offsets = Offsets::new(128);
    let base = queue.sq - offsets.sq;
    assert!(base.is_multiple_of(8) && base > KERNELS);
    assert_eq!(queue.sq_record, base + 4);
    assert_eq!((queue.cq, queue.cq_record), (base + offsets.cq, base + 128));
    assert_eq!((queue.doorbell, queue.depth, queue.kind), (8, 128, Kind::Companion));
    let commands = recorder.with(|r| r.commands.clone());
    let get = |k: usize, field: crate::prm::Field| field.get(&commands[k].bytes).unwrap();
    for (k, field, value) in [
        (0, create_cq::CQ_UMEM_OFFSET, queue.cq - base),
        (0, cqc::DBR_ADDR.of(CQC), queue.cq_record - base),
        (0, cqc::LOG_CQ_SIZE.of(CQC), 7),
        (0, cqc::C_EQN.of(CQC), 5),
        (0, cqc::UAR_PAGE.of(CQC), 0xd0),
        (1, create_qp::WQ_UMEM_OFFSET, queue.sq - base),
        (1, create_qp::WQ_UMEM_ID, 0x77),
        // The adapter counts from the receive queue's record, which comes first.
        (1, qpc::DBR_ADDR.of(QPC), queue.sq_record - 4 - base),
        (1, qpc::CQN_SND.of(QPC), queue.cq_number.into()),
        (1, qpc::LOG_SQ_SIZE.of(QPC), 7),
        (1, qpc::PD.of(QPC), 0xbeef),
        (1, qpc::CD_MASTER.of(QPC), 1),
    ] {
        assert_eq!(get(k, field), value, "{field:?}");
    }
    // Empty, to kernels as to the adapter.
    assert_eq!(word(queue.sq_record).load(Ordering::Relaxed), 0);
    for entry in 0..128 {
        let last = word(queue.cq + 64 * entry + 60).load(Ordering::Relaxed);
        assert_eq!(u32::from_be(last), INVALID);
    }
    adapter.destroy(&queue);
    assert_eq!(recorder.calls(), ["destroy", "destroy", "unpin"]);
    drop(adapter);
    assert_eq!(recorder.calls(), ["free page"]);
    assert!(recorder.with(|r| r.live.is_empty()));
}

#[test]
fn responders_have_what_a_page_holds() {
    let (recorder, adapter, source) = adapter(false);
    let queue = adapter.create_queue(&request(Kind::Responder, 2), &source).unwrap();
    assert_eq!(queue.depth, 2);
    let log = recorder.with(|r| qpc::LOG_SQ_SIZE.of(QPC).get(&r.commands[1].bytes));
    assert_eq!(log, Some(6));
    assert_eq!(recorder.calls()[4], "pin 12288");
}

#[test]
fn depths_are_checked() {
    let (_, adapter, source) = adapter(false);
    for depth in [0, 1, 3, 1000, 65_536] {
        let error = adapter.create_queue(&request(Kind::Main, depth), &source).unwrap_err().to_string();
        assert!(error.contains("a power of two from 2 to 32768"), "{depth}: {error}");
    }
}

#[test]
fn connections_go_through_all_states() {
    for (ethernet, first) in [(false, None), (true, Some("mac from 3"))] {
        let (recorder, adapter, source) = adapter(ethernet);
        let main = adapter.create_queue(&request(Kind::Main, 64), &source).unwrap();
        let companion = adapter.create_queue(&request(Kind::Companion, 64), &source).unwrap();
        let responder = adapter.create_queue(&request(Kind::Responder, 2), &source).unwrap();
        let own = adapter.address(&main).unwrap();
        assert_eq!((own.number, own.mtu, own.lid == 0), (main.number, 4096, ethernet));
        let ready = ["RST2INIT_QP", "INIT2RTR_QP", "RTR2RTS_QP"];
        let steps: Vec<&str> = first.into_iter().chain(ready).collect();
        recorder.calls();
        let others = [&companion, &responder].map(|queue| adapter.address(queue).unwrap().first_packet);
        assert!(others.iter().any(|&first| first != own.first_packet), "each is drawn: {others:?}");
        let remote = Address { number: 0xabcd, first_packet: 0x12_3456, mtu: 1024, ..own };
        adapter.connect(&main, Some(1), &remote).unwrap();
        assert_eq!(recorder.calls(), steps);
        recorder.with(|r| {
            let to = &r.commands[r.commands.len() - 2];
            assert_eq!(qpc::REMOTE_QPN.of(QPC).get(&to.bytes), Some(0xabcd));
            assert_eq!(qpc::NEXT_RCV_PSN.of(QPC).get(&to.bytes), Some(0x12_3456));
            assert_eq!(qpc::MTU.of(QPC).get(&to.bytes), Some(3));
            // What a peer reads here at once, and what is read from it at once.
            assert_eq!(qpc::LOG_RRA_MAX.of(QPC).get(&to.bytes), Some(4));
            let last = &r.commands[r.commands.len() - 1];
            assert_eq!(qpc::LOG_SRA_MAX.of(QPC).get(&last.bytes), Some(3));
            assert_eq!(qpc::NEXT_SEND_PSN.of(QPC).get(&last.bytes), Some(own.first_packet.into()));
            assert_eq!(path::ACK_TIMEOUT.of(QPC + PATH).get(&last.bytes), Some(20));
        });
        // Once more: from the beginning.
        adapter.connect(&main, Some(1), &remote).unwrap();
        let again: Vec<&str> = first.into_iter().chain(["QP_2RST"]).chain(ready).collect();
        assert_eq!(recorder.calls(), again);
        // The loop of a companion.
        adapter.connect(&companion, None, &adapter.address(&responder).unwrap()).unwrap();
        adapter.connect(&responder, None, &adapter.address(&companion).unwrap()).unwrap();
        assert_eq!(recorder.calls(), [steps.as_slice(), &steps].concat());
        let error = adapter.connect(&companion, Some(1), &remote).unwrap_err().to_string();
        assert!(error.contains("connected to their own adapter"), "{error}");
    }
}

#[test]
fn a_lost_peer_ends_its_queue_pairs_alone() {
    let (recorder, adapter, source) = adapter(false);
    let queues: Vec<QueuePair> =
        (0..3).map(|_| adapter.create_queue(&request(Kind::Main, 64), &source).unwrap()).collect();
    let remote = Address { number: 0x99, ..adapter.address(&queues[0]).unwrap() };
    adapter.connect(&queues[0], Some(1), &remote).unwrap();
    adapter.connect(&queues[1], Some(2), &remote).unwrap();
    recorder.calls();
    adapter.lost(1);
    assert_eq!(recorder.calls(), ["QP_2ERR"]);
    let named = recorder.with(|r| command::QPN.get(&r.commands[r.commands.len() - 1].bytes));
    assert_eq!(named, Some(queues[0].number.into()));
    adapter.lost(7);
    assert!(recorder.calls().is_empty());
}

#[test]
fn draining_waits_for_the_last_completion() {
    let (recorder, adapter, source) = adapter(false);
    let queue = adapter.create_queue(&request(Kind::Main, 4), &source).unwrap();
    let drained = || adapter.drain(&queue, Duration::from_millis(2));
    drained().unwrap();
    post(&queue, 2);
    complete(&queue, 0, 0);
    recorder.with(|r| r.state = 3);
    let error = drained().unwrap_err().to_string();
    assert!(error.contains("still had entries in flight") && error.contains("Ready"), "{error}");
    complete(&queue, 1, 0);
    drained().unwrap();
    // Where indices wrap at 16 bits, an older completion at the same place does not count.
    for (posted, before) in [(65_535u64, 65_530u64), (65_536, 65_531), (65_537, 65_532), (131_072, 131_067)] {
        (before.saturating_sub(4)..=before).for_each(|index| complete(&queue, index, 0));
        post(&queue, posted);
        assert!(drained().is_err(), "{posted}");
        // An error is a completion.
        (before + 1..posted).for_each(|index| complete(&queue, index, 13));
        drained().unwrap();
    }
}

#[test]
fn what_was_used_is_not_emptied_in_place() {
    let (recorder, adapter, source) = adapter(false);
    let queue = adapter.create_queue(&request(Kind::Main, 4), &source).unwrap();
    assert!(adapter.reset(&queue).is_err_and(|e| e.to_string().contains("to be connected before")));
    adapter.connect(&queue, Some(1), &adapter.address(&queue).unwrap()).unwrap();
    recorder.calls();
    adapter.reset(&queue).unwrap();
    assert_eq!(recorder.calls(), ["QP_2RST", "RST2INIT_QP", "INIT2RTR_QP", "RTR2RTS_QP"]);
    post(&queue, 1);
    complete(&queue, 0, 0);
    let error = adapter.reset(&queue).unwrap_err().to_string();
    assert!(error.contains("make the transport anew"), "{error}");
    // All 16 bits of the record are 0 again, and yet it was used.
    post(&queue, 65_536);
    assert!(adapter.reset(&queue).is_err());
    assert!(recorder.calls().is_empty());
}

#[test]
fn regions_are_named_as_asked() {
    let (recorder, adapter, _) = adapter(false);
    recorder.calls();
    let mut memory = vec![0u64; 1024];
    let host = NonNull::from(memory.as_mut_slice()).cast::<u8>();
    let start = (host.as_ptr() as u64).next_multiple_of(4096);
    let at =
        |addr, bytes| Memory { addr, bytes, host: NonNull::new(start as *mut u8), file: None, dmabuf: None };
    // SAFETY: never reached: the driver only records.
    let region = unsafe { adapter.register(&at(KERNELS + start, 4096)) }.unwrap();
    assert_eq!((region.addr, region.bytes, region.lkey), (KERNELS + start, 4096, region.rkey));
    // SAFETY: as above.
    let sink = unsafe { adapter.register_zero_based(&at(KERNELS + start, 8)) }.unwrap();
    assert_eq!((sink.addr, sink.bytes), (0, 8));
    let expected = [format!("register host 4096 at {:#x}", KERNELS + start), "register host 8 at 0x0".into()];
    assert_eq!(recorder.calls(), expected);
    let share = adapter.share(&region).unwrap();
    assert_eq!((share.remote.addr, share.remote.rkey), (region.addr, region.rkey));
    assert!(share.file.is_none() && adapter.port().unwrap().is_none());
    // SAFETY: as above.
    let error = unsafe { adapter.register(&at(KERNELS + start + 8, 8)) }.unwrap_err().to_string();
    assert!(error.contains("both must agree within a page"), "{error}");
    // SAFETY: as above.
    assert!(unsafe { adapter.register(&at(KERNELS, 0)) }.is_err());
    let nowhere = Memory { host: None, ..at(KERNELS, 8) };
    // SAFETY: as above.
    let error = unsafe { adapter.register(&nowhere) }.unwrap_err().to_string();
    assert!(error.contains("the GPU's context"), "{error}");
    adapter.deregister(&region).unwrap();
    assert!(adapter.deregister(&region).is_err() && adapter.share(&region).is_err());
    recorder.calls();
    drop(adapter);
    assert_eq!(recorder.calls(), ["deregister", "free page"]);
}

#[test]
fn dma_bufs_come_first_and_from_their_offset() {
    let (recorder, adapter, _) = adapter(false);
    recorder.calls();
    let file = std::fs::File::open("/dev/null").unwrap();
    let fd = std::os::fd::AsFd::as_fd(&file);
    let memory = Memory { addr: KERNELS, bytes: 64, host: None, file: None, dmabuf: Some((fd, 0x3000)) };
    // SAFETY: never reached: the driver only records.
    unsafe { adapter.register(&memory) }.unwrap();
    assert_eq!(recorder.calls(), [format!("register dma-buf 0x3000+64 at {KERNELS:#x}")]);
}

#[test]
fn doorbells_fall_back() {
    let recorder = Recorder::default();
    recorder.with(|r| r.refuse_dedicated = true);
    let adapter = open(&recorder, false).unwrap();
    assert_eq!(recorder.calls()[3..], ["page Dedicated", "page NonCached"]);
    drop(adapter);
}

#[test]
fn an_adapter_that_cannot_wait_is_refused() {
    let recorder = Recorder::default();
    recorder.with(|r| r.without_waits = true);
    let error = open(&recorder, false).unwrap_err();
    assert!(matches!(&error, Error::NoAdapter { why } if why.contains("cross channel")), "{error}");
}

#[test]
fn a_smaller_mtu_may_be_set() {
    let (recorder, source) = (Recorder::default(), Source(Mutex::default()));
    for (most, mtu) in [(1024, 1024), (4096, 2048)] {
        let settings = Settings { mtu: most, ..Settings::default() };
        let port = Port { mtu: 4, ..port(false) };
        let adapter = Mlx5::over(Box::new(recorder.clone()), port, settings, None).unwrap();
        let queue = adapter.create_queue(&request(Kind::Main, 4), &source).unwrap();
        assert_eq!(adapter.address(&queue).unwrap().mtu, mtu);
    }
}

#[test]
fn settings_are_checked_first() {
    let recorder = Recorder::default();
    let settings = Settings { retry_count: 9, ..Settings::default() };
    assert!(Mlx5::over(Box::new(recorder.clone()), port(false), settings, None).is_err());
    let settings = Settings { queues: crate::Queues::Gpu, ..Settings::default() };
    let error = Mlx5::over(Box::new(recorder.clone()), port(false), settings, None).unwrap_err().to_string();
    assert!(error.contains("open the adapter with its context"), "{error}");
    assert!(recorder.calls().is_empty());
}

/// Whatever is refused on the way, everything made before is ended, once.
#[test]
fn nothing_is_left_behind_by_a_failure() {
    let mut failures = 0;
    for after in 0.. {
        let recorder = Recorder::default();
        recorder.with(|r| r.fail_after = Some(after));
        let all = || -> Result<()> {
            let source = Source(Mutex::default());
            let adapter = open(&recorder, true)?;
            let queue = adapter.create_queue(&request(Kind::Main, 16), &source)?;
            adapter.connect(&queue, Some(1), &Address { number: 9, ..adapter.address(&queue)? })?;
            let memory = source.take(4096)?;
            let host = memory.host.map(|h| (h.as_ptr() as u64).next_multiple_of(4096) as *mut u8);
            let region =
                Memory { addr: 0, bytes: 8, host: host.and_then(NonNull::new), file: None, dmabuf: None };
            // SAFETY: never reached: the driver only records.
            unsafe { adapter.register(&region) }?;
            Ok(())
        };
        let ended = all();
        assert!(recorder.with(|r| r.live.is_empty()), "after {after}: {:?}", recorder.calls());
        match ended {
            Ok(()) if recorder.with(|r| r.fail_after.is_some()) => break,
            // A doorbell of the next kind.
            Ok(()) => failures += 1,
            Err(error) => {
                failures += 1;
                assert!(error.to_string().contains("refused"), "{error}");
            }
        }
    }
    assert_eq!(failures, 12);
}

#[test]
fn a_stranger_s_queue_pair_is_refused() {
    let (_, adapter, source) = adapter(false);
    let queue = adapter.create_queue(&request(Kind::Main, 4), &source).unwrap();
    let other = QueuePair { cq_number: queue.cq_number + 1, ..queue };
    assert!(adapter.address(&other).is_err_and(|e| e.to_string().contains("mlx5_0 has no queue pair")));
    adapter.destroy(&queue);
    assert!(adapter.drain(&queue, Duration::ZERO).is_err());
    // Twice is no harm.
    adapter.destroy(&queue);
}
