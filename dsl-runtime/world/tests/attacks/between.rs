//! Attacks by whoever sits between a rank and the store, and sees and changes all that goes by.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::attacker::{ANSWER_LEN, HELLO_LEN, connect};
use super::ports::free_port;
use super::{Rank, Setup};

/// Passes on what comes, both ways.
pub fn forward(a: TcpStream, b: TcpStream) {
    for (mut from, mut to) in [(a.try_clone().unwrap(), b.try_clone().unwrap()), (b, a)] {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}

/// What becomes of a record, given its number; an empty list holds it back.
type Change = Box<dyn FnMut(usize, Vec<u8>) -> Vec<Vec<u8>> + Send>;

fn records(mut from: TcpStream, mut to: TcpStream, skip: usize, mut change: Change) {
    std::thread::spawn(move || -> std::io::Result<()> {
        let mut start = vec![0; skip];
        from.read_exact(&mut start)?;
        to.write_all(&start)?;
        for number in 0.. {
            let mut record = vec![0; 2];
            from.read_exact(&mut record)?;
            record.resize(2 + usize::from(u16::from_le_bytes([record[0], record[1]])), 0);
            from.read_exact(&mut record[2..])?;
            for record in change(number, record) {
                to.write_all(&record)?;
            }
        }
        Ok(())
    });
}

/// Where a relay listens that changes what the store says to rank 1, or what rank 1 says to the store.
fn relay(store: u16, to_rank: Change, to_store: Change) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (rank, _) = listener.accept().unwrap();
        let store = connect(store);
        let again = |stream: &TcpStream| stream.try_clone().unwrap();
        records(again(&store), again(&rank), ANSWER_LEN, to_rank);
        records(rank, store, HELLO_LEN, to_store);
    });
    port
}

fn unchanged() -> Change {
    Box::new(|_, record| vec![record])
}

/// Two ranks at work with the relay between them, and how long they may take from the change on.
fn job(to_rank: Change, to_store: Change) -> (Rank, Rank) {
    let mut setup = Setup::new("all", 2);
    setup.silence = Duration::from_millis(1500);
    let port = free_port();
    let store = setup.start(0, port);
    let rank = setup.start(1, relay(port, to_rank, to_store));
    (store, rank)
}

/// From the tenth record on the job is at work.
const NTH: usize = 10;

fn changed(change: impl Fn() -> Change, why: &str) {
    let started = Instant::now();
    // What the store says: rank 1 notices, and the store sees it end.
    let (store, rank) = job(change(), unchanged());
    let text = rank.ends("lost 0");
    assert!(text.contains(why), "{text}");
    // Lost, or gone with a goodbye of its own.
    store.ends("l");
    // What rank 1 says: the store notices, and rank 1 sees it end.
    let (store, rank) = job(unchanged(), change());
    let text = store.ends("lost 1");
    assert!(text.contains(why), "{text}");
    rank.ends("l");
    assert!(started.elapsed() < Duration::from_secs(20));
}

const NOT_AUTHENTIC: &str = "a record that was changed, repeated, left out or moved on its way";

#[test]
fn a_flipped_bit_ends_the_connection() {
    changed(
        || {
            Box::new(|number, mut record| {
                if number == NTH {
                    record[7] ^= 0x10;
                }
                vec![record]
            })
        },
        NOT_AUTHENTIC,
    );
}

#[test]
fn a_record_that_comes_twice_ends_the_connection() {
    changed(
        || Box::new(|number, record| if number == NTH { vec![record.clone(), record] } else { vec![record] }),
        NOT_AUTHENTIC,
    );
}

#[test]
fn a_record_that_is_missing_ends_the_connection() {
    changed(|| Box::new(|number, record| if number == NTH { vec![] } else { vec![record] }), NOT_AUTHENTIC);
}

#[test]
fn records_in_another_order_end_the_connection() {
    changed(
        || {
            let mut held = None;
            Box::new(move |number, record| match number {
                NTH => {
                    held = Some(record);
                    vec![]
                }
                _ => [Some(record), held.take()].into_iter().flatten().collect(),
            })
        },
        NOT_AUTHENTIC,
    );
}

#[test]
fn a_record_of_another_connection_ends_the_connection() {
    // What the rank said itself, sent back to it.
    let last = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = std::sync::Arc::clone(&last);
    let to_store: Change = Box::new(move |_, record| {
        note.lock().unwrap().clone_from(&record);
        vec![record]
    });
    let to_rank: Change = Box::new(move |number, record| {
        vec![if number == NTH { last.lock().unwrap().clone() } else { record }]
    });
    let (store, rank) = job(to_rank, to_store);
    assert!(rank.ends("lost 0").contains(NOT_AUTHENTIC));
    store.ends("l");
}

#[test]
fn half_a_record_and_then_silence_ends_within_the_limit() {
    changed(
        || {
            Box::new(|number, mut record| match number {
                ..NTH => vec![record],
                NTH => {
                    record.truncate(9);
                    vec![record]
                }
                _ => vec![],
            })
        },
        "nothing whole was heard of it for 1.5 s",
    );
}
