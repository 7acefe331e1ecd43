//! Targets of `cargo xtask fuzz` in this crate: bytes go in, and broken promises panic.

use std::io::{self, Read, Write};

use crate::error::EnvError;
use crate::fds::sockets::{Address, read_header};
use crate::store::proto::{Event, Request, decode, encode};
use crate::store::router::Router;
use crate::tcp::session;
use crate::tcp::token::Token;
use crate::text::Printable;
use crate::wire::Bytes;
use crate::world::PeerInfo;
use crate::{Error, Launch};

/// Frames of both directions.
pub fn frames(data: &[u8]) {
    if let Ok(request) = decode::<Request>(data) {
        let again = decode::<Request>(&encode(&request).expect("what was read can be written"));
        assert_eq!(again.ok(), Some(request));
    }
    if let Ok(event) = decode::<Event>(data) {
        let again = decode::<Event>(&encode(&event).expect("what was read can be written"));
        assert_eq!(again.ok(), Some(event));
    }
}

/// The number of ranks less one, then rank and request in turn; a rank of 128 and more is lost.
pub fn router(data: &[u8]) {
    let Some((&size, mut rest)) = data.split_first() else { return };
    let size = 1 + usize::from(size % 8);
    let mut router = Router::new(size, 1 << 10);
    let mut put_out = vec![false; size];
    while let Some((&who, more)) = rest.split_first() {
        let rank = usize::from(who % 128) % size;
        let mut out = Vec::new();
        if who >= 128 {
            router.lost(rank, "for the test", &mut out);
            put_out[rank] = true;
            rest = more;
        } else {
            let Ok((request, more)) = postcard::take_from_bytes::<Request>(more) else { return };
            let handled = router.handle(rank, request, &mut out);
            assert!(handled.is_ok() || out.is_empty());
            if handled.is_err() {
                router.lost(rank, "for the test", &mut out);
                put_out[rank] = true;
            }
            rest = more;
        }
        for outgoing in &out {
            assert!(outgoing.to.iter().all(|&to| to < size), "{outgoing:?}");
            if let Event::Gathered { parts, .. } = &outgoing.event {
                assert_eq!(parts.0.len(), outgoing.to.len());
                assert!(outgoing.to.iter().all(|&to| !put_out[to]), "{outgoing:?}");
            }
        }
        router.assert_bounds();
    }
}

/// What comes is given bytes; what is said is kept.
struct Pipe<'a> {
    comes: &'a [u8],
    said: Vec<u8>,
}

impl Read for Pipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.comes.read(buffer)
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.said.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Changes `bytes` as a script of pairs says: a place, and what to add to the byte there.
fn changed(mut bytes: Vec<u8>, script: &[u8]) -> Vec<u8> {
    for change in script.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(place) {
            *byte = byte.wrapping_add(change[2]);
        }
    }
    bytes
}

/// By the first byte: bytes to a store, bytes to a rank, a changed hello, or changed records of a session.
pub fn handshake(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else { return };
    let token = Token([7; 32]);
    let pipe = |comes| Pipe { comes, said: Vec::new() };
    match kind % 4 {
        // Another token: the fuzzer finds the hellos of this one, and says them again.
        0 => {
            let other = Token([8; 32]);
            assert!(session::respond(&mut pipe(data), &other, || ()).is_err(), "nobody knows the token");
        }
        1 => {
            let entered = session::call(&mut pipe(data), &token);
            assert!(!matches!(entered, Ok(session::Call::Open(_))), "nobody knows the token");
        }
        2 => {
            let mut rank = pipe(&[]);
            let _ = session::call(&mut rank, &token);
            let hello = changed(rank.said.clone(), data);
            let entered = session::respond(&mut pipe(&hello), &token, || ());
            assert_eq!(entered.is_ok(), hello == rank.said);
        }
        _ => {
            let (rank, store) = session::pair(&token);
            let (lengths, script) = data.split_at(data.len().min(4));
            let frames: Vec<Vec<u8>> = lengths.iter().map(|&n| vec![n; usize::from(n) * 300]).collect();
            let (mut sent, mut bytes) = (0, Vec::new());
            for frame in &frames {
                session::seal(&rank, &mut sent, frame, &mut bytes).expect("memory takes all");
            }
            let changed = changed(bytes.clone(), script);
            let (mut received, mut rest) = (0, &changed[..]);
            for frame in &frames {
                match session::open(&store, &mut received, 1 << 20, &mut rest) {
                    Ok(opened) => assert_eq!(opened, *frame, "only what was said, and in its order"),
                    Err(_) => return assert_ne!(changed, bytes),
                }
            }
        }
    }
}

/// Parcels of file descriptors, and what ranks tell when they meet and agree.
pub fn descriptors(data: &[u8]) {
    let _ = read_header(data, &[0; 16]);
    let _ = postcard::from_bytes::<Address>(data);
    let _ = postcard::from_bytes::<(String, Bytes)>(data);
    let _ = postcard::from_bytes::<(String, Vec<(String, String)>)>(data);
    let _ = postcard::from_bytes::<(u64, u64, u64)>(data);
    if let Ok(info) = postcard::from_bytes::<PeerInfo>(data) {
        let shown = Printable(info.hostname()).to_string();
        assert!(!shown.contains(char::is_control));
    }
}

/// Lines of `NAME=value`.
pub fn environment(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let find = |name: &str| {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
        // Variables hold no line ends; here, `\r` stands for one to see what becomes of control characters.
        text.split('\n').find_map(value)
    };
    match Launch::read(&find) {
        Ok(launch) => {
            assert!(launch.rank() < launch.size());
            assert!(!launch.to_string().is_empty());
        }
        Err(Error::Env(error @ EnvError::Invalid { .. })) => {
            assert!(!error.to_string().contains(char::is_control), "{error:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
