//! Who is let in, told through the private pieces; whole worlds are in the crate's `tests/`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::client::{Whereabouts, join};
use super::handshake::{Failure, present};
use super::server::host;
use super::session::VERSION;
use super::token::Token;
use crate::bootstrap::Bootstrap;
use crate::store::member::Member;
use crate::{Options, Result};

struct At(SocketAddr, Token);

impl Whereabouts for At {
    fn find(&mut self) -> Result<(Vec<SocketAddr>, Token), Failure> {
        Ok((vec![self.0], self.1.clone()))
    }
    fn describe(&self) -> String {
        self.0.to_string()
    }
}

fn options() -> Options {
    Options::default().with_timeout(Duration::from_secs(3))
}

fn store(size: usize) -> (Member, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (host(listener, Token::from_text("right"), 0, size, &options()).unwrap(), address)
}

fn knock(address: SocketAddr, token: &str, rank: usize, size: usize) -> Result<Member> {
    join(&mut At(address, Token::from_text(token)), rank, size, &options())
}

fn refusal(result: Result<Member>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn wrong_sizes_and_ranks_are_refused_by_name_and_at_once() {
    let (_store, address) = store(3);
    let started = Instant::now();
    let text = refusal(knock(address, "right", 1, 4));
    assert!(text.contains("world size of 4, the store with 3"), "{text}");
    let text = refusal(knock(address, "right", 7, 3));
    assert!(text.contains("rank 7 is not below the world size 3"), "{text}");
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_wrong_token_is_tried_until_the_deadline_and_named_then() {
    let (store, address) = store(2);
    let short = Options::default().with_timeout(Duration::from_millis(500));
    let started = Instant::now();
    let text = refusal(join(&mut At(address, Token::from_text("wrong")), 1, 2, &short));
    assert!(text.contains("does not have this rank's token; give every rank"), "{text}");
    assert!((300..1500).contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());
    // And where the store is gone by then.
    let hidden = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = hidden.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = hidden.accept().unwrap();
        stream.read_exact(&mut [0; 58]).unwrap();
        stream.write_all(&said(VERSION, 1)).unwrap();
    });
    let text = refusal(join(&mut At(address, Token::from_text("wrong")), 1, 2, &short));
    assert!(text.contains("refused") && text.contains("earlier, 127.0.0.1"), "{text}");
    drop(store);
}

/// What a store says first, with a status.
fn said(version: u16, status: u8) -> Vec<u8> {
    let mut bytes = b"FUSEWIRE".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.push(status);
    bytes
}

#[test]
fn a_rank_that_is_claimed_twice_is_told_to_everybody() {
    let (store, address) = store(3);
    let first = knock(address, "right", 1, 3).unwrap();
    let third = knock(address, "right", 2, 3).unwrap();
    let text = refusal(knock(address, "right", 1, 3));
    assert!(text.contains("rank 1 is here already (process"), "{text}");
    let deadline = Instant::now() + Duration::from_secs(2);
    for member in [&store, &first, &third] {
        let text = member.all_gather(b"", deadline).unwrap_err().to_string();
        assert!(text.contains("rank 1 is claimed twice, by process"), "{text}");
    }
    let text = refusal(knock(address, "right", 0, 3));
    assert!(text.contains("rank 0 is here already (the process of the store)"), "{text}");
}

#[test]
fn a_late_duplicate_does_not_disturb_a_formed_world() {
    let (store, address) = store(2);
    let other = knock(address, "right", 1, 2).unwrap();
    let deadline = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        scope.spawn(|| other.barrier(deadline).unwrap());
        store.barrier(deadline).unwrap();
    });
    assert!(refusal(knock(address, "right", 1, 2)).contains("here already"));
    std::thread::scope(|scope| {
        scope.spawn(|| other.barrier(deadline).unwrap());
        store.barrier(deadline).unwrap();
    });
}

#[test]
fn strangers_of_every_kind_keep_nobody_out() {
    let (store, address) = store(2);
    let mut strangers = Vec::new();
    // Ports are scanned, web clients err, lengths lie, and some say nothing, or one byte at a time.
    drop(TcpStream::connect(address).unwrap());
    for text in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0xff; 4096], &[0; 100], b"FUSEWIRE", b"F"] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(text).unwrap();
        strangers.push(stream);
    }
    let mut forger = TcpStream::connect(address).unwrap();
    let mut hello = b"FUSEWIRE".to_vec();
    hello.extend(VERSION.to_le_bytes());
    hello.extend([1; 48]);
    forger.write_all(&hello).unwrap();
    let mut answer = [0; 11];
    forger.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..], said(VERSION, 1));
    assert_eq!(forger.read(&mut [0; 8]).unwrap_or(0), 0, "it was hung up on");
    strangers.extend((0..300).map(|_| TcpStream::connect(address).unwrap()));
    // What this one says is right, as far as it gets.
    let mut slow = TcpStream::connect(address).unwrap();
    let dripping = std::thread::spawn(move || {
        let started = Instant::now();
        for byte in hello {
            if slow.write_all(&[byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        started.elapsed()
    });

    let started = Instant::now();
    let mut patient = options();
    patient.timeout = Duration::from_secs(9);
    let other = join(&mut At(address, Token::from_text("right")), 1, 2, &patient).unwrap();
    assert!(started.elapsed() < Duration::from_secs(6));
    let deadline = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(other.all_gather(b"b", deadline).unwrap(), [b"a", b"b"]));
        assert_eq!(store.all_gather(b"a", deadline).unwrap(), [b"a", b"b"]);
    });
    // 58 bytes in 5.8 s would have been whole; a hello has 3 s in this world.
    assert!(dripping.join().unwrap() < Duration::from_secs(4));
}

#[test]
fn another_version_is_named_on_both_sides() {
    let (_store, address) = store(2);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"FUSEWIRE").unwrap();
    stream.write_all(&9u16.to_le_bytes()).unwrap();
    let mut answer = [0; 11];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..], said(VERSION, 1));

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(&said(7, 0));
        }
    });
    let short = Options::default().with_timeout(Duration::from_millis(400));
    let text = refusal(join(&mut At(address, Token::from_text("right")), 1, 2, &short));
    assert!(text.contains(&format!("version 7, this rank version {VERSION}")), "{text}");
}

#[test]
fn a_rank_outlasts_impostors_until_the_store_is_there() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let impostor = std::thread::spawn(move || {
        for answer in
            [said(VERSION, 1), said(VERSION, 0), said(3, 0), [said(VERSION, 0), vec![0; 48]].concat()]
        {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 58]).unwrap();
            stream.write_all(&answer).unwrap();
        }
        host(listener, Token::from_text("right"), 0, 2, &options()).unwrap()
    });
    let other = knock(address, "right", 1, 2).unwrap();
    let store = impostor.join().unwrap();
    let deadline = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        scope.spawn(|| other.barrier(deadline).unwrap());
        store.barrier(deadline).unwrap();
    });
}

#[test]
fn who_is_not_a_store_is_described() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9 and more text to fill a whole greeting");
        let _ = stream.read(&mut [0; 64]);
    });
    let stream = TcpStream::connect(address).unwrap();
    let deadline = Instant::now() + Duration::from_secs(2);
    let failure = present(stream, &Token::from_text("x"), (1, 2), Duration::from_secs(2), deadline);
    let failure = failure.map(drop).unwrap_err();
    assert!(matches!(&failure, Failure::Retry(why) if why.contains("SSH-2.0-")), "{failure:?}");
}

#[test]
fn no_store_at_all_says_what_was_tried() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let short = Options::default().with_timeout(Duration::from_millis(400));
    let started = Instant::now();
    let error = join(&mut At(free, Token::from_text("x")), 1, 2, &short).map(drop).unwrap_err().to_string();
    assert!(started.elapsed() < Duration::from_secs(2));
    for part in ["rank 1 could not reach the store", &free.to_string(), "attempts", "refused"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_store_that_nobody_needs_stops_listening() {
    let (store, address) = store(3);
    let other = knock(address, "right", 1, 3).unwrap();
    // Rank 2 never comes, and need not be waited for.
    store.abort("for the test");
    other.leave();
    let started = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(started.elapsed() < Duration::from_secs(2));
        std::thread::sleep(Duration::from_millis(20));
    }
}
