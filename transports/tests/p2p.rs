//! Transports of chunks between host programs, and algorithms over the mock.
//!
//! What upstream's tests of its host transports ask, and where that is asked here. `cargo xtask test` runs this program in the VM
//! as well, over real verbs.
//!
//! | torchcomms | here |
//! |---|---|
//! | `HostTransportParamTest.RoundTrip` | `round_trips_in_both_modes_over_all_channels`, one way |
//! | `HostTransportParamTest.BidirectionalRoundTrip` | the same, both ways |
//! | `HostTransportRecvWrapTest.RecvWrapAroundNoStranding` | `staging_wraps_around_many_times` |
//! | `MapperHasGetP2pTransport`, `GetZcTransportCachesPerPeer`, `GetCbTransportCachesPerPeer` | `a_peer_has_one_transport` |
//! | `DifferentPeersGetDifferentTransports` | `a_peer_has_one_transport` |
//! | `ModeMismatchAborts` | `another_mode_is_refused`: an error where upstream aborts |
//! | `CbCacheClearedBeforeGpeTeardown` | `Mapper`'s order of fields and its collective end, which every test here goes through |
//! | `MockP2pHostTransport` | `mock`, and the tests of [`exchange`] over it |

use fusewire_transports::p2p::mock::{self, Call, Mock, MockOptions};
use fusewire_transports::p2p::*;
use fusewire_transports::rdma::{Fabric, Status};
use fusewire_world::{Job, World};
use proptest::prelude::*;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

fn real() -> bool {
    std::env::var("FUSEWIRE_TEST_VERBS").is_ok_and(|v| v == "1")
}

/// Over real adapters where `FUSEWIRE_TEST_VERBS` is 1, as in the VM; else over the emulation.
fn options() -> MapperOptions {
    let fabric = if real() { Fabric::Verbs } else { Fabric::Emulated };
    MapperOptions { fabric, chunk_bytes: 4096, pipeline_depth: 4, ..MapperOptions::default() }
}

fn ranks<T: Send + 'static>(n: usize, body: impl Fn(&World) -> T + Send + Sync + 'static) -> Vec<T> {
    World::threads(n, move |world| body(&world)).expect("every rank's body returns")
}

/// A pattern whose length no chunk is a multiple of, again and again: made and compared by whole runs, which counts in the VM.
fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    let run = (0..4093usize).map(|i| (seed.wrapping_mul(0x9e37_79b9) ^ (i * 31) ^ (i >> 8)) as u8);
    let run: Vec<u8> = run.collect();
    let mut all = Vec::with_capacity(bytes + run.len());
    while all.len() < bytes {
        all.extend_from_slice(&run);
    }
    all.truncate(bytes);
    all
}

fn transfer(bytes: usize, seed: Option<usize>) -> Transfer {
    let buffer = HostBuffer::new(bytes).unwrap();
    buffer.write(0, &seed.map_or(vec![0xee; bytes], |seed| pattern(seed, bytes))).unwrap();
    Transfer { buffer, bytes }
}

fn holds(transfer: &Transfer, seed: usize) -> bool {
    transfer.buffer.to_vec()[..transfer.bytes] == pattern(seed, transfer.bytes)
}

#[test]
fn round_trips_in_both_modes_over_all_channels() {
    for mode in [Mode::ZeroCopy, Mode::CopyBased] {
        for channels in [1, 2, 4] {
            ranks(2, move |world| {
                let mapper =
                    Mapper::new(world, &MapperOptions { channels, chunk_bytes: 64 << 10, ..options() })
                        .unwrap();
                let (me, peer) = (world.rank(), 1 - world.rank());
                let transport = mapper.p2p_transport(peer, mode).unwrap();
                // The VM takes a quarter of a minute for 8 MiB in every way.
                let most = if real() && channels < 4 { 1 << 20 } else { 8 << 20 };
                for bytes in [4, 4097, 100_000, most] {
                    let (out, back) = (transfer(bytes, Some(bytes + me)), transfer(bytes, None));
                    let mut guard = transport.lock().unwrap();
                    // There, then back.
                    let (first, then) = ((Some(&out), None), (None, Some(&back)));
                    for (send, receive) in if me == 0 { [first, then] } else { [then, first] } {
                        exchange(&mut *guard, send, receive, LIMIT).unwrap();
                    }
                    assert!(holds(&back, bytes + peer), "{mode:?}, {channels} channels, {bytes} bytes");
                    // Both at once.
                    let both = transfer(bytes, None);
                    exchange(&mut *guard, Some(&out), Some(&both), LIMIT).unwrap();
                    assert!(
                        holds(&both, bytes + peer),
                        "{mode:?}, {channels} channels, {bytes} bytes, both ways"
                    );
                }
            });
        }
    }
}

#[test]
fn staging_wraps_around_many_times() {
    ranks(2, |world| {
        let small = MapperOptions { channels: 4, chunk_bytes: 64, pipeline_depth: 3, ..options() };
        let mapper = Mapper::new(world, &small).unwrap();
        let (me, peer) = (world.rank(), 1 - world.rank());
        let transport = mapper.p2p_transport(peer, Mode::CopyBased).unwrap();
        let (out, back) = (transfer(64 * 400 + 5, Some(me)), transfer(64 * 400 + 5, None));
        exchange(&mut *transport.lock().unwrap(), Some(&out), Some(&back), LIMIT).unwrap();
        assert!(holds(&back, peer));
    });
}

#[test]
fn a_peer_has_one_transport() {
    ranks(3, |world| {
        let mapper = Mapper::new(world, &options()).unwrap();
        let me = world.rank();
        // Pairs in an order that no rank waits in vain for: by the sum of their ranks.
        let mut made = Vec::new();
        for sum in 1..=3usize {
            let Some(peer) = sum.checked_sub(me).filter(|p| *p < 3 && *p != me) else { continue };
            let mode = if sum == 2 { Mode::ZeroCopy } else { Mode::CopyBased };
            let transport = mapper.p2p_transport(peer, mode).unwrap();
            let guard = transport.lock().unwrap();
            assert_eq!((guard.peer(), guard.mode()), (peer, mode));
            drop(guard);
            assert!(Arc::ptr_eq(&transport, &mapper.p2p_transport(peer, mode).unwrap()));
            made.push(transport);
        }
        assert!(made.len() == 2 && !Arc::ptr_eq(&made[0], &made[1]));
        for peer in [me, 3, usize::MAX] {
            assert!(matches!(mapper.p2p_transport(peer, Mode::ZeroCopy), Err(Error::Misuse { .. })));
        }
    });
}

#[test]
fn another_mode_is_refused() {
    ranks(2, |world| {
        let mapper = Mapper::new(world, &options()).unwrap();
        let peer = 1 - world.rank();
        // First over the ranks, then in time.
        let mode = if peer == 0 { Mode::ZeroCopy } else { Mode::CopyBased };
        let across = mapper.p2p_transport(peer, mode);
        assert!(
            matches!(&across, Err(Error::ModeMismatch { asked, have, .. }) if *asked == mode && *have != mode)
        );
        mapper.p2p_transport(peer, Mode::ZeroCopy).unwrap();
        let error = mapper.p2p_transport(peer, Mode::CopyBased).unwrap_err();
        assert!(matches!(error, Error::ModeMismatch { have: Mode::ZeroCopy, .. }), "{error}");
        let wrong =
            |options: MapperOptions| matches!(Mapper::new(world, &options), Err(Error::Misuse { .. }));
        assert!(wrong(MapperOptions { channels: 0, ..options() }));
        assert!(wrong(MapperOptions { pipeline_depth: 9, ..options() }));
        assert!(wrong(MapperOptions { chunk_bytes: 12, ..options() }));
    });
}

#[test]
fn control_messages_keep_their_order_and_size() {
    ranks(2, |world| {
        let mapper = Mapper::new(world, &options()).unwrap();
        let transport = mapper.p2p_transport(1 - world.rank(), Mode::ZeroCopy).unwrap();
        let mut guard = transport.lock().unwrap();
        // More than there are receives and frames for.
        let payload = |k: usize| vec![k as u8; k % (CTRL_BYTES + 1)];
        let sent: Vec<_> = (0..500).map(|k| guard.send_ctrl(16 + k as u32, &payload(k)).unwrap()).collect();
        for k in 0..500 {
            let request = guard.recv_ctrl().unwrap();
            let message = guard.wait_ctrl(&request, LIMIT).unwrap();
            assert_eq!(message, CtrlMessage { kind: 16 + k as u32, payload: payload(k) });
        }
        for request in &sent {
            guard.wait_ctrl(request, LIMIT).unwrap();
        }
        assert!(matches!(guard.send_ctrl(16, &[0; CTRL_BYTES + 1]), Err(Error::Misuse { .. })));
        let odd = CtrlMessage { kind: 99, payload: vec![1] };
        // SAFETY: refused.
        let refused = unsafe { guard.import_remote(&odd) };
        assert!(matches!(refused, Err(Error::Unexpected { kind: 99, bytes: 1, .. })));
    });
}

struct Doubling(usize);

impl SendHooks for Doubling {
    fn prepare(&mut self, chunk: &ChunkContext, staging: &mut [u8]) {
        staging.fill(2 * chunk.round as u8 + chunk.slot as u8);
    }
    fn is_ready(&mut self, _: &ChunkContext, _: &mut [u8]) -> bool {
        self.0 += 1;
        self.0 > 3
    }
}

struct Adding(HostBuffer, usize);

impl RecvHooks for Adding {
    fn process(&mut self, chunk: &ChunkContext, staging: &[u8]) {
        let mut sum = [0; 1];
        self.0.read(chunk.slot, &mut sum).unwrap();
        assert!(staging.iter().all(|b| *b == staging[0]));
        self.0.write(chunk.slot, &[sum[0].wrapping_add(staging[0])]).unwrap();
    }
    fn is_done(&mut self, _: &ChunkContext, _: &[u8]) -> bool {
        self.1 += 1;
        self.1 > 2
    }
}

#[test]
fn hooks_make_and_take_the_bytes() {
    ranks(2, |world| {
        let mapper = Mapper::new(world, &options()).unwrap();
        let transport = mapper.p2p_transport(1 - world.rank(), Mode::CopyBased).unwrap();
        let mut guard = transport.lock().unwrap();
        let sums = HostBuffer::new(4).unwrap();
        for round in 0..10 {
            let mut requests = Vec::new();
            for slot in 0..4 {
                let (bytes, channel) = (100 + slot, slot % 2);
                let hooks: Option<Box<dyn RecvHooks>> = Some(Box::new(Adding(sums.clone(), 0)));
                let chunk = RecvChunk { bytes, channel, slot, round, hooks, ..RecvChunk::default() };
                requests.push(guard.recv_chunk(chunk).unwrap());
                assert!(!guard.ready_for_recv(channel, slot).unwrap());
                let hooks: Option<Box<dyn SendHooks>> = Some(Box::new(Doubling(0)));
                let chunk = SendChunk { bytes, channel, slot, round, hooks, ..SendChunk::default() };
                requests.push(guard.send_chunk(chunk).unwrap());
            }
            for request in requests {
                guard.wait_chunk(&request, LIMIT).unwrap();
            }
        }
        let want: Vec<u8> = (0..4).map(|slot| (0..10).map(|round| 2 * round + slot).sum()).collect();
        assert_eq!(sums.to_vec()[..4], want);
    });
}

#[test]
fn what_cannot_be_is_refused() {
    ranks(2, |world| {
        let mapper = Mapper::new(world, &options()).unwrap();
        let copy = mapper.p2p_transport(1 - world.rank(), Mode::CopyBased).unwrap();
        let mut guard = copy.lock().unwrap();
        assert!(matches!(copy.lock(), Err(Error::Misuse { .. })), "the guard twice in one thread");
        let buffer = Some(HostBuffer::new(4096).unwrap());
        let mut refused = |chunk| assert!(matches!(guard.send_chunk(chunk), Err(Error::Misuse { .. })));
        let good = || SendChunk { buffer: buffer.clone(), bytes: 8, ..SendChunk::default() };
        refused(SendChunk { channel: 9, ..good() });
        refused(SendChunk { slot: 4, ..good() });
        refused(SendChunk { bytes: 0, ..good() });
        refused(SendChunk { bytes: 5000, ..good() });
        refused(SendChunk { offset: 4090, ..good() });
        refused(SendChunk { buffer: None, ..good() });
    });
}

/// Bytes past the end of what was exported, and a wrong key: the adapter refuses, the error names the peer, and stays.
#[test]
fn wrong_writes_fail_with_the_peers_name() {
    for wrong_key in [false, true] {
        ranks(2, move |world| {
            let mapper = Mapper::new(world, &options()).unwrap();
            let (me, peer) = (world.rank(), 1 - world.rank());
            let transport = mapper.p2p_transport(peer, Mode::ZeroCopy).unwrap();
            let mut guard = transport.lock().unwrap();
            let buffer = HostBuffer::new(8192).unwrap();
            if me == 1 {
                let message = guard.export_recv_buf(&buffer).unwrap();
                guard.send_ctrl(message.kind, &message.payload).unwrap();
            } else {
                let request = guard.recv_ctrl().unwrap();
                let message = guard.wait_ctrl(&request, LIMIT).unwrap();
                // SAFETY: the peer's own message.
                let remote = unsafe { guard.import_remote(&message) }.unwrap();
                let RemoteBuffer::ZeroCopy(theirs) = remote else { panic!("a zero-copy export") };
                let rkey = if wrong_key { theirs.rkey() ^ 0x100 } else { theirs.rkey() };
                let (at, far) = (theirs.address() + theirs.bytes() - 4096, 2 * theirs.bytes());
                // SAFETY: refused by the adapter: past the end, or by a key of nothing.
                let to = Some(RemoteBuffer::ZeroCopy(unsafe { Exported::new(at, rkey, far) }));
                let chunk =
                    SendChunk { buffer: Some(buffer.clone()), bytes: 8192, to, ..SendChunk::default() };
                let request = guard.send_chunk(chunk).unwrap();
                let error = guard.wait_chunk(&request, LIMIT).unwrap_err();
                assert!(matches!(error, Error::Failed { peer: 1, what: "a chunk", .. }), "{error}");
                assert!(error.to_string().contains("rkey"), "{error}");
                assert!(matches!(guard.send_ctrl(16, &[]), Err(Error::Failed { .. })));
            }
            drop(guard);
            world.barrier().unwrap();
        });
    }
}

/// A receiver that never asks: the sender's waits end by their deadline, with what they waited for.
#[test]
fn waits_have_deadlines() {
    ranks(2, |world| {
        let mapper = Mapper::new(world, &options()).unwrap();
        let transport = mapper.p2p_transport(1 - world.rank(), Mode::CopyBased).unwrap();
        if world.rank() == 0 {
            let mut guard = transport.lock().unwrap();
            let out = transfer(64 << 10, Some(1));
            let short = Duration::from_millis(200);
            let nothing = exchange(&mut *guard, Some(&out), None, short);
            assert!(
                matches!(nothing, Err(Error::Timeout { peer: 1, what: "a control message", .. })),
                "{nothing:?}"
            );
            // The first round of a slot needs no receiver; the second does.
            let chunk = || SendChunk { buffer: Some(out.buffer.clone()), bytes: 64, ..SendChunk::default() };
            let first = guard.send_chunk(chunk()).unwrap();
            guard.wait_chunk(&first, LIMIT).unwrap();
            let second = guard.send_chunk(chunk()).unwrap();
            let error = guard.wait_chunk(&second, short).unwrap_err();
            assert!(matches!(error, Error::Timeout { what: "a chunk to be taken", .. }), "{error}");
        }
        world.barrier().unwrap();
    });
}

fn kill_oneself() {
    use rustix::process::{Signal, getpid, kill_process};
    kill_process(getpid(), Signal::KILL).unwrap();
}

/// A receive expires and a send fails when the peer's process is gone, each in time and with the peer's name. The emulation notices
/// it before anything is sent.
#[test]
fn a_killed_peer_is_named_in_time() {
    use std::os::unix::process::ExitStatusExt;
    if !fusewire_world::launched() {
        let job = Job::start(2, |_| {
            let mut again = Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", "a_killed_peer_is_named_in_time"]);
            again
        });
        let failed = job.unwrap().wait().unwrap();
        assert!(matches!(&failed[..], [(1, status)] if status.signal() == Some(9)), "{failed:?}");
        return;
    }
    let world = World::from_env().unwrap();
    let mapper = Mapper::new(&world, &options()).unwrap();
    let transport = mapper.p2p_transport(1 - world.rank(), Mode::CopyBased).unwrap();
    world.barrier().unwrap();
    if world.rank() == 1 {
        kill_oneself();
    }
    let start = Instant::now();
    while world.lost().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(5), "nobody noticed that rank 1 died");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (start, mut guard) = (Instant::now(), transport.lock().unwrap());
    let buffer = || Some(HostBuffer::new(64).unwrap());
    let request =
        guard.recv_chunk(RecvChunk { buffer: buffer(), bytes: 64, ..RecvChunk::default() }).unwrap();
    let error = guard.wait_chunk(&request, Duration::from_millis(200)).unwrap_err();
    match error {
        Error::Timeout { peer: 1, what: "a chunk", .. } => {}
        Error::Failed { peer: 1, .. } if !real() => {}
        other => panic!("{other}"),
    }
    let sent = guard.send_chunk(SendChunk { buffer: buffer(), bytes: 64, ..SendChunk::default() });
    let error = sent.and_then(|request| guard.wait_chunk(&request, LIMIT)).unwrap_err();
    let Error::Failed { peer: 1, status, .. } = error else { panic!("{error}") };
    assert!(status == Status::Unreachable || !real(), "{status:?}");
    assert!(start.elapsed() < Duration::from_secs(5), "it took {:?}", start.elapsed());
}

#[test]
fn buffers_are_registered_once() {
    ranks(1, |world| {
        let mapper = Mapper::new(world, &options()).unwrap();
        let (a, b) = (HostBuffer::new(100).unwrap(), HostBuffer::from_vec(vec![1; 100]));
        let first = mapper.registrations().of(&a).unwrap();
        let again = mapper.registrations().of(&a.clone()).unwrap();
        assert!(Arc::ptr_eq(&first, &again) && first.registration().rkey() == again.registration().rkey());
        drop(mapper.registrations().of(&b).unwrap());
        assert_eq!(mapper.registrations().trim(), Counts { hits: 1, misses: 2, ended: 0 });
        // Not while somebody has the buffer, or the registration.
        drop((b, a, again));
        assert_eq!(mapper.registrations().trim(), Counts { hits: 1, misses: 2, ended: 1 });
        drop(first);
        assert_eq!(mapper.registrations().trim(), Counts { hits: 1, misses: 2, ended: 2 });
    });
}

/// Runs `exchange` on both ends of a mock, a thread each; both ends, and what they returned.
fn over_mock(options: &MockOptions, bytes: usize, limit: Duration) -> [(Mock, Result<()>, Transfer); 2] {
    let (a, b) = mock::pair(options);
    let run = |mut end: Mock, seed: usize| {
        let (out, back) = (transfer(bytes, Some(seed)), transfer(bytes, None));
        let result = exchange(&mut end, Some(&out), Some(&back), limit);
        (end, result, back)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(b, 1));
        let one = run(a, 0);
        [one, other.join().unwrap()]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn exchange_moves_every_byte_over_the_mock(
        zero_copy: bool, channels in 1usize..5, depth in 1usize..9, chunk in 1usize..40, latency in 0usize..8, bytes in 1usize..600,
    ) {
        let mode = if zero_copy { Mode::ZeroCopy } else { Mode::CopyBased };
        let options =
            MockOptions { mode, channels, chunk_bytes: chunk, pipeline_depth: depth, latency, fail_after: None };
        let [(one, a, from_b), (_, b, from_a)] = over_mock(&options, bytes, LIMIT);
        prop_assert!(a.is_ok() && b.is_ok(), "{a:?} {b:?}");
        prop_assert!(holds(&from_b, 1) && holds(&from_a, 0));
        // Its contract: never more chunks begun between two calls of `progress` than there are channels in both directions.
        let most = one.calls.split(|c| *c == Call::Progress).map(<[Call]>::len).max().unwrap_or(0);
        prop_assert!(most <= 2 * channels + 2, "{most} calls in a row");
    }

    #[test]
    fn chunks_cover_a_transfer(chunk in 1usize..100, total in 0usize..5000) {
        let (mock, _) = mock::pair(&MockOptions { chunk_bytes: chunk, ..MockOptions::default() });
        let mut next = 0;
        for index in 0..mock.total_chunks(total) {
            let range = mock.chunk_range(total, index);
            prop_assert!(range.start == next && !range.is_empty() && range.len() <= chunk);
            next = range.end;
        }
        prop_assert_eq!(next, total);
        prop_assert!(mock.chunk_range(total, mock.total_chunks(total)).is_empty());
    }
}

#[test]
fn exchange_passes_failures_on() {
    let options = MockOptions { fail_after: Some(3), ..MockOptions::default() };
    let [(_, a, _), (_, b, _)] = over_mock(&options, 500, Duration::from_millis(500));
    assert!(matches!(a, Err(Error::Failed { peer: 1, .. })), "{a:?}");
    assert!(matches!(b, Err(Error::Failed { peer: 0, .. })), "{b:?}");
}
