//! Attacks by programs that do not know the token.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::attacker::{ANSWER_LEN, Attacker, HELLO_LEN, VERSION, connect, greeting, token};
use super::ports::free_port;
use super::{Setup, hung_up};

/// Runs `attack` again and again on a few threads until dropped.
struct Flood(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Flood {
    fn start(threads: usize, attack: impl Fn() + Clone + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let spawn = |_| {
            let (stop, attack) = (Arc::clone(&stop), attack.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    attack();
                }
            })
        };
        let threads = (0..threads).map(spawn).collect();
        Self(stop, threads)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

fn works(setup: &Setup, port: u16) {
    let (store, rank) = (setup.start(0, port), setup.start(1, port));
    rank.ends("ended well");
    store.ends("ended well");
}

#[test]
fn who_knows_address_and_job_id_cannot_join() {
    let setup = Setup::new("pair", 2);
    let port = free_port();
    let dir = tempfile::tempdir().unwrap();
    let start = |rank: &str| {
        setup.start_with(&[
            ("RANK", rank),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &(port - 1).to_string()),
            ("TORCHELASTIC_RUN_ID", "none"),
            ("TORCHELASTIC_RESTART_COUNT", "0"),
            ("XDG_RUNTIME_DIR", dir.path().to_str().unwrap()),
        ])
    };
    let store = start("0");
    let job = format!("torchrun/none/0/127.0.0.1/{}", port - 1);
    for text in
        [format!("job/{job}"), format!("loopback//{job}"), format!("secret/{job}"), "secret/".to_owned()]
    {
        assert!(Attacker::session(port, token(&text)).is_none(), "{text}");
    }
    start("1").ends("ended well");
    store.ends("ended well");
}

#[test]
fn without_a_token_other_hosts_are_not_met() {
    let setup = Setup::new("pair", 2);
    for rank in ["0", "1"] {
        let rank = setup.start_with(&[
            ("RANK", rank),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "192.0.2.1"),
            ("MASTER_PORT", "29500"),
        ]);
        rank.ends("no token");
    }
}

#[test]
fn idle_connections_keep_no_rank_out() {
    let setup = Setup::new("pair", 2);
    let port = free_port();
    let store = setup.start(0, port);
    // Opens again whatever is hung up on, and keeps more than the store has places.
    let mut held = Vec::new();
    held.resize_with(400, || connect(port));
    let held = Arc::new(std::sync::Mutex::new(held));
    let flood = Flood::start(1, move || {
        for stream in held.lock().unwrap().iter_mut() {
            stream.set_nonblocking(true).unwrap();
            if matches!(stream.read(&mut [0]), Ok(0))
                && let Ok(again) = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            {
                *stream = again;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    });
    setup.start(1, port).ends("ended well");
    store.ends("ended well");
    drop(flood);
}

#[test]
fn a_flood_of_wrong_tokens_keeps_no_rank_out() {
    let setup = Setup::new("pair", 2);
    let port = free_port();
    let flood = Flood::start(2, move || {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
            std::thread::sleep(Duration::from_millis(10));
            return;
        };
        let _ = stream.write_all(&[greeting(VERSION), vec![7; 48]].concat());
        let _ = stream.read(&mut [0; ANSWER_LEN]);
    });
    works(&setup, port);
    drop(flood);
}

#[test]
fn a_hello_that_is_said_again_gets_nobody_in() {
    let setup = Setup::new("pair", 2);
    let (port, relay) = (free_port(), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let store = setup.start(0, port);
    let rank = setup.start(1, relay.local_addr().unwrap().port());
    // What the rank says in its hello and its first record.
    let (mut rank_side, _) = relay.accept().unwrap();
    let mut store_side = connect(port);
    let (mut hello, mut answer, mut claim) = ([0; HELLO_LEN], [0; ANSWER_LEN], [0; 64]);
    rank_side.read_exact(&mut hello).unwrap();
    store_side.write_all(&hello).unwrap();
    store_side.read_exact(&mut answer).unwrap();
    rank_side.write_all(&answer).unwrap();
    let length = rank_side.read(&mut claim).unwrap();
    store_side.write_all(&claim[..length]).unwrap();
    super::between::forward(rank_side, store_side);

    let mut again = connect(port);
    again.write_all(&hello).unwrap();
    again.read_exact(&mut answer).unwrap();
    assert_eq!(answer[10], 0, "the token was shown");
    again.write_all(&claim[..length]).unwrap();
    assert!(hung_up(&again, Duration::from_secs(3)));
    rank.ends("ended well");
    store.ends("ended well");
}

#[test]
fn a_byte_now_and_then_is_no_handshake() {
    let mut setup = Setup::new("pair", 2);
    let port = free_port();
    let store = setup.start(0, port);
    let slow = std::thread::spawn(move || {
        let mut stream = connect(port);
        let started = Instant::now();
        for byte in [greeting(VERSION), vec![7; 48]].concat() {
            if stream.write_all(&[byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        started.elapsed()
    });
    setup.start(1, port).ends("ended well");
    store.ends("ended well");
    assert!(slow.join().unwrap() < Duration::from_millis(5700), "a hello has 5 s");

    // And from the other side: a store that never comes to its point.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                for byte in [greeting(VERSION), vec![0; 1000]].concat() {
                    if stream.write_all(&[byte]).is_err() {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
        }
    });
    setup.timeout = Duration::from_secs(2);
    let started = Instant::now();
    setup.start(1, port).ends("fabric");
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// Listens where the store should, and says `answer` to whoever comes.
fn impostor(answer: Vec<u8>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; HELLO_LEN]);
            let _ = stream.write_all(&answer);
        }
    });
    port
}

#[test]
fn whoever_has_the_port_first_is_retried_until_the_deadline() {
    let mut setup = Setup::new("pair", 2);
    setup.timeout = Duration::from_millis(1500);
    let said = |version, status: u8, rest: &[u8]| [greeting(version), vec![status], rest.to_vec()].concat();
    let coloured = b"\x1b[31mprocess 1\x1b[0m\r\n";
    for (answer, expected) in [
        (said(VERSION, 1, coloured), "does not have this rank's token"),
        (said(VERSION, 0, &[0x1b; 200]), "does not have this rank's token"),
        (said(77, 0, coloured), "speaks protocol version 77"),
        (coloured.to_vec(), "something else listens there (it said \"\\u{1b}[31mproce"),
    ] {
        let started = Instant::now();
        let text = setup.start(1, impostor(answer)).ends("fabric");
        assert!(text.contains(expected), "{text}");
        let taken = started.elapsed();
        assert!(taken > Duration::from_millis(1000) && taken < Duration::from_secs(5), "{taken:?}");
    }
}

#[test]
fn refusals_before_the_store_is_there_do_not_count() {
    let setup = Setup::new("pair", 2);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let rank = setup.start(1, port);
    let deadline = Instant::now() + Duration::from_millis(800);
    let mut refused = 0;
    listener.set_nonblocking(true).unwrap();
    while Instant::now() < deadline || refused == 0 {
        if let Ok((mut stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            let _ = stream.read(&mut [0; HELLO_LEN]);
            let _ = stream.write_all(&[greeting(VERSION), vec![1]].concat());
            refused += 1;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(listener);
    let store = setup.start(0, port);
    rank.ends("ended well");
    store.ends("ended well");
}
