//! How a connection begins once its session is up: a rank says which it is, and the store lets it in or says why not.
//! Both are proven, so that a refusal is final.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::session::{Call, Receiver, Sender, VERSION, answer, invalid, knock};
use super::token::Token;
use crate::Rank;
use crate::store::proto::{decode, encode};
use crate::sync::after;
use crate::text::Printable;

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
}

/// The store's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Welcome { host: Rank },
    Refused(Refusal),
}

/// Why a rank that knows the token is not let in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "the rank was started with a world size of {rank}, the store with {store}; start every rank with the same size"
    )]
    Size { store: u64, rank: u64 },
    #[error("rank {rank} is not below the world size {size}")]
    Rank { rank: u64, size: u64 },
    #[error("rank {rank} is here already ({}); give each process a rank of its own", Printable(.holder))]
    Duplicate { rank: u64, holder: String },
    #[error("rank {rank} was here and is lost; start the whole job again")]
    Gone { rank: u64 },
}

/// Why a rank is not in, and whether trying again could help.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Perhaps not the store, or not yet: try again.
    Retry(String),
    /// What something says that may be the store and has not proven it: try again, but mention it.
    Told(String),
    /// Never: the store's own word.
    Refused(String),
    /// Never: this rank's own place to look is at fault.
    Unfit(crate::Error),
}

/// A rank that has shown the token.
pub(crate) struct Admission {
    pub rank: Rank,
    pub pid: u32,
    pub sender: Sender,
    pub receiver: Receiver,
}

/// The store's half up to the answer to the claim.
///
/// # Errors
/// A stranger, or a rank that has been refused.
pub(crate) fn receive(
    stream: Arc<TcpStream>,
    token: &Token,
    size: usize,
    limit: Duration,
    proven: impl FnOnce(),
) -> io::Result<Admission> {
    let deadline = after(limit);
    let (mut sender, mut receiver) = answer(stream, token, deadline, proven)?;
    let claim: Claim = decode(&receiver.receive_until(FRAME_LIMIT, deadline)?)?;
    let refusal = if claim.size != size as u64 {
        Refusal::Size { store: size as u64, rank: claim.size }
    } else if claim.rank >= size as u64 {
        Refusal::Rank { rank: claim.rank, size: claim.size }
    } else {
        return Ok(Admission { rank: claim.rank as Rank, pid: claim.pid, sender, receiver });
    };
    reply(&mut sender, &Answer::Refused(refusal))?;
    Err(invalid("a claim to another world".to_owned()))
}

pub(crate) fn reply(sender: &mut Sender, answer: &Answer) -> io::Result<()> {
    sender.send(&encode(answer)?, HELLO_LIMIT)
}

/// The rank's half; returns the rank that holds the store.
///
/// `patience` bounds the wait for the session (behind the address may be something that never speaks); from then on the
/// store is known to be there, and `deadline` alone counts.
pub(crate) fn present(
    stream: TcpStream,
    token: &Token,
    (rank, size): (Rank, usize),
    patience: Duration,
    deadline: Instant,
) -> Result<(Sender, Receiver, Rank), Failure> {
    let retry = |what: &str, e: io::Error| Failure::Retry(format!("{what} ({e})"));
    let called = knock(Arc::new(stream), token, deadline.min(after(patience)))
        .map_err(|e| retry("connected, but nothing greeted like a fusewire store", e))?;
    let (mut sender, mut receiver) = match called {
        Call::Open(session) => session,
        Call::Version(version) => {
            return Err(Failure::Told(format!(
                "what listens there speaks protocol version {version}, this rank version {VERSION}; run the same build \
                 on every rank"
            )));
        }
        Call::NotAccepted => {
            return Err(Failure::Told(
                "what listens there does not have this rank's token; give every rank of the job the same \
                 FUSEWIRE_TOKEN, or the same UniqueId (without one, ranks of a host need the same XDG_RUNTIME_DIR)"
                    .to_owned(),
            ));
        }
        Call::Stranger(start) => {
            let start = String::from_utf8_lossy(&start).into_owned();
            return Err(Failure::Retry(format!(
                "something else listens there (it said \"{}\")",
                Printable(&start)
            )));
        }
    };
    let claim = Claim { rank: rank as u64, size: size as u64, pid: std::process::id() };
    let answered = encode(&claim)
        .and_then(|claim| sender.send(&claim, HELLO_LIMIT))
        .and_then(|()| receiver.receive_until(FRAME_LIMIT, deadline))
        .and_then(|answer| decode::<Answer>(&answer));
    match answered.map_err(|e| retry("the store hung up on the claim", e))? {
        Answer::Welcome { host } if host < size => Ok((sender, receiver, host)),
        Answer::Welcome { host } => Err(Failure::Refused(format!(
            "it says that rank {host} holds it, in a world of {size}; run the same build on every rank"
        ))),
        Answer::Refused(refusal) => Err(Failure::Refused(refusal.to_string())),
    }
}
