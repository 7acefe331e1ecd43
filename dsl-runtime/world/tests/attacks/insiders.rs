//! Attacks by a rank that was let in.

use std::io::Write;
use std::time::Duration;

use super::attacker::{Attacker, Blob, Request, world};
use super::ports::free_port;
use super::{Rank, Setup};

/// Ranks 0 and 1 of a job of three, and the third, which has met them.
fn job(role: &'static str, hostname: &str) -> (Rank, Rank, Attacker) {
    job_within(role, hostname, Duration::from_secs(8))
}

fn job_within(role: &'static str, hostname: &str, silence: Duration) -> (Rank, Rank, Attacker) {
    let mut setup = Setup::new(role, 3);
    setup.silence = silence;
    let port = free_port();
    let (mut store, mut rank) = (setup.start(0, port), setup.start(1, port));
    let attacker = Attacker::join(port, 2, 3, hostname);
    store.says("joined");
    rank.says("joined");
    (store, rank, attacker)
}

/// Both hear that the third rank was put out, and why.
fn put_out(store: Rank, rank: Rank, why: &str) {
    for rank in [store, rank] {
        let text = rank.ends("lost 2");
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn a_member_that_is_named_many_times_puts_out_who_named_it() {
    for (members, why) in [
        (vec![1; 60_000], "named rank 1 twice"),
        (vec![1; 7_000_000], "unreadable frame"),
        (vec![1, 2, 77], "named rank 77"),
    ] {
        let (store, rank, mut attacker) = job("all", "h");
        attacker.drain();
        attacker.send(&Request::Done { op: (1, 1), members });
        put_out(store, rank, why);
    }
}

#[test]
fn thousands_of_collectives_that_nobody_joins_put_out_who_began_them() {
    let (store, rank, mut attacker) = job("all", "h");
    attacker.drain();
    for n in 0..5000 {
        attacker.send(&Request::Gather { op: (9, n), members: vec![1, 2], part: Blob(vec![7; 100]) });
    }
    put_out(store, rank, "1025 collectives");
}

#[test]
fn megabytes_that_nobody_takes_put_out_who_left_them() {
    let (store, rank, mut attacker) = job("all", "h");
    attacker.drain();
    for n in 0..8 {
        attacker.send(&Request::Gather { op: (9, n), members: vec![1, 2], part: Blob(vec![7; 8 << 20]) });
    }
    put_out(store, rank, "bytes that other ranks have not joined");
}

#[test]
fn messages_that_nobody_receives_are_bounded() {
    for (count, bytes) in [(20_000, 0), (12, 8 << 20)] {
        let (store, rank, mut attacker) = job("all", "h");
        attacker.drain();
        for tag in 0..count {
            attacker.send(&Request::Send { to: 1, tag, bytes: Blob(vec![7; bytes]) });
        }
        assert!(rank.ends("lost 2").contains("that this rank has not received"));
        drop(attacker);
        // The one or the other.
        store.ends("l");
    }
}

#[test]
fn a_length_that_was_never_meant_puts_out_who_announced_it() {
    for announced in [u64::MAX, 1 << 40, 9 << 20] {
        let (store, rank, mut attacker) = job("all", "h");
        let record = attacker.record(&[&announced.to_le_bytes()[..], &[0; 100]].concat());
        attacker.stream.write_all(&record).unwrap();
        put_out(store, rank, "bytes, where");
    }
}

#[test]
fn frames_that_do_not_keep_their_length_put_out_who_sent_them() {
    for (announced, sent) in [(10u64, 11usize), (100, 50), (0, 1)] {
        let (store, rank, mut attacker) = job("all", "h");
        let record = attacker.record(&[&announced.to_le_bytes()[..], &vec![0; sent]].concat());
        attacker.stream.write_all(&record).unwrap();
        put_out(store, rank, "another length than it announced");
    }
}

#[test]
fn a_byte_now_and_then_is_no_frame() {
    let (store, rank, mut attacker) = job_within("all", "h", Duration::from_millis(1500));
    let record = attacker.record(&[&1000u64.to_le_bytes()[..], &[0; 1000]].concat());
    std::thread::spawn(move || {
        for byte in record {
            if attacker.stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    put_out(store, rank, "nothing whole was heard of it for 1.5 s");
}

#[test]
fn a_rank_that_takes_nothing_in_holds_the_others_up_for_a_while_only() {
    let (store, rank, mut attacker) = job("all", "h");
    // To itself, without reading: the store stands before a full socket.
    std::thread::spawn(move || {
        for tag in 0..40 {
            let frame = Request::Send { to: 2, tag, bytes: Blob(vec![7; 1 << 20]) };
            if attacker.try_send(&postcard::to_stdvec(&frame).unwrap()).is_err() {
                return;
            }
        }
        std::thread::sleep(Duration::from_secs(20));
    });
    put_out(store, rank, "could not be written to");
}

#[test]
fn a_part_that_is_given_twice_puts_out_who_gave_it() {
    let (store, rank, mut attacker) = job("all", "h");
    for _ in 0..2 {
        attacker.send(&Request::Gather { op: (world(3), 7), members: vec![], part: Blob(vec![]) });
    }
    put_out(store, rank, "gave its part of a collective twice");
}

#[test]
fn control_characters_in_a_host_name_are_not_passed_on() {
    let (mut store, rank, _attacker) = job("pair", "\x1b]0;owned\x07\x1b[31mnode\u{202e}\r\n");
    let name = store.says("host of 2: ");
    assert_eq!(name, "\\u{1b}]0;owned\\u{7}\\u{1b}[31mnode\\u{202e}\\r\\n");
    rank.ends("ended well");
    store.ends("ended well");
}

#[test]
fn another_groups_name_under_a_list_of_ones_own_disturbs_nobody() {
    let (store, rank, mut attacker) = job("pair", "h");
    // The pair's own collectives, before they come to them, with members of the attacker's choice.
    let pair = world(2);
    attacker.drain();
    for nth in 5..20 {
        attacker.send(&Request::Gather { op: (pair, nth), members: vec![0, 2], part: Blob(vec![]) });
        attacker.send(&Request::GiveUp { op: (pair, nth) });
    }
    rank.ends("ended well");
    store.ends("ended well");
}
