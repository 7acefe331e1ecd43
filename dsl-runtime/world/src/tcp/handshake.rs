//! How a connection begins: see the parent module for the order.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::auth::{NONCE_LEN, Side, Token, Transcript, random};
use crate::Rank;
use crate::store::proto::{read_frame, write_frame};

/// Changes whenever what goes over a connection does.
pub(crate) const VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"FUSEWIRE";
const GREETING_LEN: usize = 8 + 2 + NONCE_LEN;
/// No frame of a handshake is longer.
const FRAME_LIMIT: usize = 512;

/// How long a connection may take to show who it is.
pub(crate) const HELLO_LIMIT: Duration = Duration::from_secs(5);

/// A rank's claim.
#[derive(Debug, Serialize, Deserialize)]
struct Claim {
    rank: u64,
    size: u64,
    pid: u32,
    proof: [u8; 32],
}

/// The store's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Welcome { proof: [u8; 32], host: Rank },
    Refused(Refusal),
}

/// Why a connection is not let in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("its token differs; give every rank of the job the same FUSEWIRE_TOKEN, or the same UniqueId")]
    Token,
    #[error(
        "the rank was started with a world size of {rank}, the store with {store}; start every rank with the same size"
    )]
    Size { store: u64, rank: u64 },
    #[error("rank {rank} is not below the world size {size}")]
    Rank { rank: u64, size: u64 },
    #[error("rank {rank} is here already ({holder}); give each process a rank of its own")]
    Duplicate { rank: u64, holder: String },
    #[error("rank {rank} was here and is lost; start the whole job again")]
    Gone { rank: u64 },
    #[error(
        "the rank speaks protocol version {rank}, the store version {store}; run the same build on every rank"
    )]
    Version { store: u16, rank: u16 },
}

/// Why a rank is not in, and whether trying again could help.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Perhaps not the store, or not yet: try again.
    Retry(String),
    /// Never.
    Refused(String),
}

/// Reads with one deadline for all that is read, so that a byte now and then does not keep a connection alive.
pub(crate) struct Timed<'a> {
    pub stream: &'a TcpStream,
    pub deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(buffer).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => e,
        })
    }
}

fn greeting(nonce: [u8; NONCE_LEN]) -> [u8; GREETING_LEN] {
    let mut bytes = [0; GREETING_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10..].copy_from_slice(&nonce);
    bytes
}

/// A rank that has shown the token.
#[derive(Debug)]
pub(crate) struct Admission {
    pub rank: Rank,
    pub pid: u32,
    transcript: Transcript,
}

impl Admission {
    pub fn welcome(&self, token: &Token, host: Rank) -> Answer {
        Answer::Welcome { proof: self.transcript.prove(Side::Store, token), host }
    }
}

/// The store's half up to the answer. `Ok(Err(..))`: a fusewire rank that is to be refused; `Err`: a stranger.
pub(crate) fn receive(
    stream: &TcpStream,
    token: &Token,
    size: usize,
    limit: Duration,
) -> io::Result<Result<Admission, Refusal>> {
    let mut timed = Timed { stream, deadline: Instant::now() + limit };
    let store_nonce = random().map_err(io::Error::other)?;
    let mut writer = stream;
    writer.write_all(&greeting(store_nonce))?;
    // Eight bytes first: a stranger is dropped for what it has sent, not waited for.
    let mut magic = [0; 8];
    timed.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a fusewire rank"));
    }
    let mut version = [0; 2];
    timed.read_exact(&mut version)?;
    let version = u16::from_le_bytes(version);
    if version != VERSION {
        return Ok(Err(Refusal::Version { store: VERSION, rank: version }));
    }
    let mut rank_nonce = [0; NONCE_LEN];
    timed.read_exact(&mut rank_nonce)?;
    let claim: Claim = read_frame(&mut timed, FRAME_LIMIT)?;
    let transcript = Transcript { version, store_nonce, rank_nonce, rank: claim.rank, size: claim.size };
    // First the token: nothing about the job is told to who does not know it.
    if !transcript.check(Side::Rank, token, &claim.proof) {
        return Ok(Err(Refusal::Token));
    }
    if claim.size != size as u64 {
        return Ok(Err(Refusal::Size { store: size as u64, rank: claim.size }));
    }
    if claim.rank >= size as u64 {
        return Ok(Err(Refusal::Rank { rank: claim.rank, size: claim.size }));
    }
    Ok(Ok(Admission { rank: claim.rank as Rank, pid: claim.pid, transcript }))
}

pub(crate) fn answer(stream: &TcpStream, answer: &Answer) -> io::Result<()> {
    let mut writer = stream;
    write_frame(&mut writer, answer)
}

/// The rank's half; returns the rank that holds the store.
///
/// `greeting_limit` bounds the wait for the greeting (behind the address may be something that never speaks);
/// from the claim on the store is known to be there, and `deadline` alone counts.
pub(crate) fn present(
    stream: &TcpStream,
    token: &Token,
    rank: Rank,
    size: usize,
    greeting_limit: Duration,
    deadline: Instant,
) -> Result<Rank, Failure> {
    let retry = |what: &str, e: io::Error| Failure::Retry(format!("{what} ({e})"));
    let mut timed = Timed { stream, deadline: deadline.min(Instant::now() + greeting_limit) };
    let mut hello = [0; GREETING_LEN];
    timed
        .read_exact(&mut hello)
        .map_err(|e| retry("connected, but nothing greeted like a fusewire store", e))?;
    if hello[..8] != MAGIC {
        let start = String::from_utf8_lossy(&hello[..8]).escape_debug().to_string();
        return Err(Failure::Retry(format!("something else listens there (it said \"{start}\")")));
    }
    let version = u16::from_le_bytes([hello[8], hello[9]]);
    let mut store_nonce = [0; NONCE_LEN];
    store_nonce.copy_from_slice(&hello[10..]);
    let rank_nonce = random().map_err(|e| Failure::Refused(e.to_string()))?;
    let transcript =
        Transcript { version: VERSION, store_nonce, rank_nonce, rank: rank as u64, size: size as u64 };
    let claim = Claim {
        rank: rank as u64,
        size: size as u64,
        pid: std::process::id(),
        proof: transcript.prove(Side::Rank, token),
    };
    let mut bytes = greeting(rank_nonce).to_vec();
    write_frame(&mut bytes, &claim).map_err(|e| retry("could not encode the claim", e))?;
    let mut writer = stream;
    writer.write_all(&bytes).map_err(|e| retry("could not answer the greeting", e))?;
    if version != VERSION {
        // Sent all the same, so that the store can name the difference too.
        return Err(Failure::Refused(Refusal::Version { store: version, rank: VERSION }.to_string()));
    }
    timed.deadline = deadline;
    let answer =
        read_frame(&mut timed, FRAME_LIMIT).map_err(|e| retry("the store hung up on the claim", e))?;
    match answer {
        Answer::Welcome { proof, host } if transcript.check(Side::Store, token, &proof) => Ok(host),
        Answer::Welcome { .. } => Err(Failure::Refused(
            "it let this rank in but does not know the token itself; something else poses as the store"
                .to_owned(),
        )),
        Answer::Refused(refusal) => Err(Failure::Refused(refusal.to_string())),
    }
}
