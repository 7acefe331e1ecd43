//! A connection on which every frame is authenticated, encrypted and in order: Noise, pattern `NNpsk0`, with the token
//! as the pre-shared key.
//!
//! ```text
//!  rank  → store  "FUSEWIRE", version, first Noise message
//!  store → rank   "FUSEWIRE", version, a status; where that is 0, the second Noise message
//! ```
//! From then on frames travel as records: a length of 2 bytes, then a Noise message, numbered by its place. The first
//! record of a frame begins with the frame's length; all but the last are full. A record that was changed, repeated,
//! left out or moved does not decrypt, and ends the connection. What comes before the second message proves nothing and
//! decides nothing.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use snow::{Builder, HandshakeState, StatelessTransportState};

use super::token::Token;
use crate::sync::after;

/// Changes whenever what goes over a connection does.
pub(crate) const VERSION: u16 = 2;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
const MAGIC: [u8; 8] = *b"FUSEWIRE";
pub(crate) const GREETING_LEN: usize = 10;
/// An ephemeral key and the tag of an empty payload: both messages of the pattern.
const MESSAGE_LEN: usize = 48;
const TAG_LEN: usize = 16;
/// The longest Noise message.
const RECORD_LEN: usize = 65_535;
const LENGTH_LEN: usize = 8;

/// The second Noise message follows.
const GO_ON: u8 = 0;
/// The rank's first message was not made with the store's token, or for another version.
const NOT_ACCEPTED: u8 = 1;

/// The slowest that a frame may come or go, beside its time limit.
const BYTES_PER_SECOND: usize = 8 << 20;

/// Reads and writes with one deadline for all of it, so that a byte now and then does not keep a connection alive.
pub(crate) struct Timed<'a> {
    pub stream: &'a TcpStream,
    /// `None`: no limit.
    pub deadline: Option<Instant>,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        let mut stream = self.stream;
        stream.read(buffer).map_err(timed_out)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        let mut stream = self.stream;
        stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the two sides of a session share: the keys of both directions.
pub(crate) type Keys = Arc<StatelessTransportState>;

/// The sending half.
pub(crate) struct Sender {
    stream: Arc<TcpStream>,
    keys: Keys,
    next: u64,
}

/// The receiving half.
pub(crate) struct Receiver {
    stream: Arc<TcpStream>,
    keys: Keys,
    next: u64,
}

impl Sender {
    /// Sends a frame within `limit` and what its length needs.
    pub fn send(&mut self, frame: &[u8], limit: Duration) -> io::Result<()> {
        let deadline = after(limit.saturating_add(allowance(frame.len())));
        let mut timed = Timed { stream: &self.stream, deadline: Some(deadline) };
        seal(&self.keys, &mut self.next, frame, &mut timed)
    }

    pub fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }
}

impl Receiver {
    /// Waits up to `silence` for a frame to begin, and as long, and what `longest` bytes need, for all of it.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end of the connection, `TimedOut`; `InvalidData` for what no peer sends that knows the
    /// keys, and for frames longer than `longest`.
    pub fn receive(&mut self, longest: usize, silence: Option<Duration>) -> io::Result<Vec<u8>> {
        let begin = silence.map(after);
        let whole = move || silence.map(|limit| after(limit.saturating_add(allowance(longest))));
        self.receive_by(longest, begin, whole)
    }

    /// As [`receive`](Self::receive), with one deadline.
    pub fn receive_until(&mut self, longest: usize, deadline: Instant) -> io::Result<Vec<u8>> {
        self.receive_by(longest, Some(deadline), || Some(deadline))
    }

    fn receive_by(
        &mut self,
        longest: usize,
        begin: Option<Instant>,
        whole: impl FnOnce() -> Option<Instant>,
    ) -> io::Result<Vec<u8>> {
        let mut timed = Timed { stream: &self.stream, deadline: begin };
        let mut first = [0];
        timed.read_exact(&mut first)?;
        timed.deadline = whole();
        open(&self.keys, &mut self.next, longest, &mut first.chain(timed))
    }

    pub fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }
}

fn allowance(bytes: usize) -> Duration {
    Duration::from_millis((bytes / (BYTES_PER_SECOND / 1000)) as u64)
}

/// Writes a frame as records from number `next` on.
pub(crate) fn seal(
    keys: &StatelessTransportState,
    next: &mut u64,
    frame: &[u8],
    to: &mut impl Write,
) -> io::Result<()> {
    let mut plain = Vec::with_capacity((frame.len() + LENGTH_LEN).min(RECORD_LEN - TAG_LEN));
    plain.extend((frame.len() as u64).to_le_bytes());
    let mut record = vec![0; 2 + plain.capacity() + TAG_LEN];
    let mut rest = frame;
    loop {
        let (chunk, later) = rest.split_at(rest.len().min(RECORD_LEN - TAG_LEN - plain.len()));
        plain.extend(chunk);
        let length = keys.write_message(*next, &plain, &mut record[2..]).map_err(io::Error::other)?;
        *next += 1;
        record[..2].copy_from_slice(&(length as u16).to_le_bytes());
        to.write_all(&record[..2 + length])?;
        plain.clear();
        rest = later;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// Reads the frame whose records begin with number `next`; refuses one longer than `longest` before it allocates for it.
pub(crate) fn open(
    keys: &StatelessTransportState,
    next: &mut u64,
    longest: usize,
    from: &mut impl Read,
) -> io::Result<Vec<u8>> {
    let mut frame = Vec::new();
    let mut total = None;
    let (mut record, mut plain) = (Vec::new(), Vec::new());
    loop {
        let mut length = [0; 2];
        from.read_exact(&mut length)?;
        record.resize(usize::from(u16::from_le_bytes(length)), 0);
        from.read_exact(&mut record)?;
        plain.resize(record.len(), 0);
        let length = keys.read_message(*next, &record, &mut plain).map_err(|_| {
            invalid("a record that was changed, repeated, left out or moved on its way".to_owned())
        })?;
        *next += 1;
        let mut chunk = &plain[..length];
        let total = match total {
            Some(total) => total,
            None => {
                let Some((announced, rest)) = chunk.split_first_chunk() else {
                    return Err(invalid("a frame without a length".to_owned()));
                };
                let announced = u64::from_le_bytes(*announced);
                if announced > longest as u64 {
                    return Err(invalid(format!(
                        "a frame of {announced} bytes, where {longest} are allowed"
                    )));
                }
                chunk = rest;
                frame.try_reserve_exact(announced as usize).map_err(io::Error::other)?;
                *total.insert(announced as usize)
            }
        };
        frame.extend_from_slice(chunk);
        let full = length == RECORD_LEN - TAG_LEN;
        match frame.len().cmp(&total) {
            std::cmp::Ordering::Equal => return Ok(frame),
            std::cmp::Ordering::Less if full => {}
            _ => return Err(invalid("a frame of another length than it announced".to_owned())),
        }
    }
}

pub(crate) fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn greeting() -> [u8; GREETING_LEN] {
    let mut bytes = [0; GREETING_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// The version in a greeting, if it is one.
fn version(greeting: &[u8; GREETING_LEN]) -> Option<u16> {
    (greeting[..8] == MAGIC).then(|| u16::from_le_bytes([greeting[8], greeting[9]]))
}

fn noise(token: &Token, initiator: bool) -> Result<HandshakeState, snow::Error> {
    let prologue = greeting();
    let builder = Builder::new(PATTERN.parse()?).psk(0, &token.0)?.prologue(&prologue)?;
    if initiator { builder.build_initiator() } else { builder.build_responder() }
}

fn halves(stream: Arc<TcpStream>, keys: HandshakeState) -> io::Result<(Sender, Receiver)> {
    let keys = Arc::new(keys.into_stateless_transport_mode().map_err(io::Error::other)?);
    let sender = Sender { stream: Arc::clone(&stream), keys: Arc::clone(&keys), next: 0 };
    Ok((sender, Receiver { stream, keys, next: 0 }))
}

/// What a rank learns when it calls; only an open session is proof of anything.
pub(crate) enum Call<S> {
    /// The other side knows the token.
    Open(S),
    /// What answers speaks another version.
    Version(u16),
    /// What answers says that the token is not its own.
    NotAccepted,
    /// What answers is no store; how it began.
    Stranger(Vec<u8>),
}

/// The rank's half of the handshake.
pub(crate) fn knock(
    stream: Arc<TcpStream>,
    token: &Token,
    deadline: Instant,
) -> io::Result<Call<(Sender, Receiver)>> {
    let called = call(&mut Timed { stream: &stream, deadline: Some(deadline) }, token)?;
    Ok(match called {
        Call::Open(keys) => Call::Open(halves(stream, keys)?),
        Call::Version(version) => Call::Version(version),
        Call::NotAccepted => Call::NotAccepted,
        Call::Stranger(start) => Call::Stranger(start),
    })
}

pub(crate) fn call(timed: &mut (impl Read + Write), token: &Token) -> io::Result<Call<HandshakeState>> {
    let mut noise_state = noise(token, true).map_err(io::Error::other)?;
    let mut hello = [0; GREETING_LEN + MESSAGE_LEN];
    hello[..GREETING_LEN].copy_from_slice(&greeting());
    noise_state.write_message(&[], &mut hello[GREETING_LEN..]).map_err(io::Error::other)?;
    timed.write_all(&hello)?;
    let mut answer = [0; GREETING_LEN];
    timed.read_exact(&mut answer)?;
    match version(&answer) {
        None => return Ok(Call::Stranger(answer.to_vec())),
        Some(VERSION) => {}
        Some(other) => return Ok(Call::Version(other)),
    }
    let mut status = [0];
    timed.read_exact(&mut status)?;
    if status[0] != GO_ON {
        return Ok(Call::NotAccepted);
    }
    let mut message = [0; MESSAGE_LEN];
    timed.read_exact(&mut message)?;
    if noise_state.read_message(&message, &mut [0; MESSAGE_LEN]).is_err() {
        return Ok(Call::NotAccepted);
    }
    Ok(Call::Open(noise_state))
}

/// The store's half. `proven` is called as soon as the rank has shown that it knows the token (or somebody repeats what
/// one said earlier: the session's first frame tells).
///
/// # Errors
/// A stranger, or a rank with another version or token, which has been told so.
pub(crate) fn answer(
    stream: Arc<TcpStream>,
    token: &Token,
    deadline: Instant,
    proven: impl FnOnce(),
) -> io::Result<(Sender, Receiver)> {
    let keys = respond(&mut Timed { stream: &stream, deadline: Some(deadline) }, token, proven)?;
    halves(stream, keys)
}

pub(crate) fn respond(
    timed: &mut (impl Read + Write),
    token: &Token,
    proven: impl FnOnce(),
) -> io::Result<HandshakeState> {
    // Eight bytes first: a stranger is dropped for what it has sent, not waited for.
    let mut theirs = [0; GREETING_LEN];
    timed.read_exact(&mut theirs[..8])?;
    if theirs[..8] != MAGIC {
        return Err(invalid("no greeting".to_owned()));
    }
    timed.read_exact(&mut theirs[8..])?;
    let mut reply = greeting().to_vec();
    if version(&theirs) != Some(VERSION) {
        reply.push(NOT_ACCEPTED);
        timed.write_all(&reply)?;
        return Err(invalid("another version".to_owned()));
    }
    let mut message = [0; MESSAGE_LEN];
    timed.read_exact(&mut message)?;
    let mut noise_state = noise(token, false).map_err(io::Error::other)?;
    if noise_state.read_message(&message, &mut [0; MESSAGE_LEN]).is_err() {
        reply.push(NOT_ACCEPTED);
        timed.write_all(&reply)?;
        return Err(invalid("another token".to_owned()));
    }
    proven();
    reply.push(GO_ON);
    noise_state.write_message(&[], &mut message).map_err(io::Error::other)?;
    reply.extend(message);
    timed.write_all(&reply)?;
    Ok(noise_state)
}

/// The keys of a session's two ends, the rank's and the store's.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn pair(token: &Token) -> (StatelessTransportState, StatelessTransportState) {
    let [mut rank, mut store] = [true, false].map(|first| noise(token, first).expect("the pattern is known"));
    let (mut message, mut none) = ([0; MESSAGE_LEN], [0; MESSAGE_LEN]);
    rank.write_message(&[], &mut message).expect("it is the rank's turn");
    store.read_message(&message, &mut none).expect("the token is one");
    store.write_message(&[], &mut message).expect("it is the store's turn");
    rank.read_message(&message, &mut none).expect("the token is one");
    let [rank, store] =
        [rank, store].map(|keys| keys.into_stateless_transport_mode().expect("the handshake is done"));
    (rank, store)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> (StatelessTransportState, StatelessTransportState) {
        pair(&Token::from_text("t"))
    }

    fn sealed(keys: &StatelessTransportState, next: &mut u64, frame: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        seal(keys, next, frame, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn frames_of_every_length_come_back() {
        let (rank, store) = keys();
        let (mut sent, mut received) = (0, 0);
        let full = RECORD_LEN - TAG_LEN;
        for length in [0, 1, full - 9, full - 8, full - 7, full, 2 * full - 8, 2 * full - 7, 300_000] {
            let frame: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let bytes = sealed(&rank, &mut sent, &frame);
            assert_eq!(open(&store, &mut received, length, &mut &bytes[..]).unwrap(), frame);
            assert_eq!(sent, received);
        }
    }

    #[test]
    fn a_long_frame_is_refused_before_it_is_read() {
        let (rank, store) = keys();
        let bytes = sealed(&rank, &mut 0, &[0; 1000]);
        let text = open(&store, &mut 0, 999, &mut &bytes[..]).unwrap_err().to_string();
        assert!(text.contains("1000 bytes, where 999 are allowed"), "{text}");
    }

    #[test]
    fn repeated_moved_and_reflected_records_do_not_open() {
        let (rank, store) = keys();
        let mut next = 0;
        let [first, second] = [b"one", b"two"].map(|frame| sealed(&rank, &mut next, frame));
        let mut at = 0;
        open(&store, &mut at, 9, &mut &first[..]).unwrap();
        assert!(open(&store, &mut at.clone(), 9, &mut &first[..]).is_err(), "repeated");
        assert!(open(&store, &mut 0, 9, &mut &second[..]).is_err(), "moved");
        assert!(open(&rank, &mut 0, 9, &mut &first[..]).is_err(), "reflected");
        assert_eq!(open(&store, &mut at, 9, &mut &second[..]).unwrap(), b"two");
    }

    #[test]
    fn tokens_and_versions_that_differ_make_no_session() {
        let mut rank = noise(&Token::from_text("a"), true).unwrap();
        let mut store = noise(&Token::from_text("b"), false).unwrap();
        let mut message = [0; MESSAGE_LEN];
        rank.write_message(&[], &mut message).unwrap();
        assert!(store.read_message(&message, &mut [0; MESSAGE_LEN]).is_err());
        let token = Token::from_text("b");
        let builder = Builder::new(PATTERN.parse().unwrap()).psk(0, &token.0).unwrap();
        let mut other = builder.prologue(b"FUSEWIRE\x09\0").unwrap().build_initiator().unwrap();
        other.write_message(&[], &mut message).unwrap();
        let mut store = noise(&Token::from_text("b"), false).unwrap();
        assert!(store.read_message(&message, &mut [0; MESSAGE_LEN]).is_err());
    }

    proptest! {
        #[test]
        fn a_flipped_bit_anywhere_is_noticed(length in 0usize..200_000, at in any::<prop::sample::Index>(), bit in 0u32..8) {
            let (rank, store) = keys();
            let mut bytes = sealed(&rank, &mut 0, &vec![7; length]);
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(open(&store, &mut 0, 1 << 20, &mut &bytes[..]).is_err());
        }

        #[test]
        fn a_cut_frame_is_an_error(length in 0usize..100_000, at in any::<prop::sample::Index>()) {
            let (rank, store) = keys();
            let bytes = sealed(&rank, &mut 0, &vec![7; length]);
            prop_assert!(open(&store, &mut 0, 1 << 20, &mut &bytes[..at.index(bytes.len())]).is_err());
        }
    }
}
