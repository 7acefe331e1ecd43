//! A rank's side of its connection to the store.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::ends::{FRAME_SLACK, spawn, why_lost};
use super::handshake::{Failure, HELLO_LIMIT, present};
use super::session::{Receiver, Sender};
use super::token::Token;
use crate::error::PeerError;
use crate::store::inbox::Inbox;
use crate::store::member::{Link, Member};
use crate::store::proto::{Event, Request, decode, encode};
use crate::sync::{after, lock};
use crate::text::Printable;
use crate::{Error, Options, Rank, Result};

/// One attempt to reach one address.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long to wait for a greeting at a place that may be outdated.
const STALE_LIMIT: Duration = Duration::from_secs(1);
/// A store that does not take a request for this long is out of reach.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// How long a goodbye may take: sent, and the store has hung up.
const GOODBYE_LIMIT: Duration = Duration::from_millis(500);

/// Where to look for the store: asked anew before each attempt, since the answer may change (a file is rewritten, a
/// name begins to resolve).
pub(crate) trait Whereabouts {
    /// # Errors
    /// [`Failure::Retry`] where another answer may come.
    fn find(&mut self) -> Result<(Vec<SocketAddr>, Token), Failure>;
    /// For the message: where this looks.
    fn describe(&self) -> String;
    /// True where a refusal may come of an outdated answer.
    fn may_be_stale(&self) -> bool {
        false
    }
}

/// The write half of a connection; a thread of its own reads.
pub(crate) struct Connection {
    sender: Arc<Mutex<Sender>>,
    stream: Arc<TcpStream>,
    inbox: Arc<Inbox>,
    host: Rank,
}

/// Finds the store and joins it, with retries until the deadline.
pub(crate) fn join(
    place: &mut dyn Whereabouts,
    rank: Rank,
    size: usize,
    options: &Options,
) -> Result<Member> {
    let started = Instant::now();
    let deadline = after(options.timeout);
    let mut pause = FIRST_PAUSE;
    let mut last = "nothing was tried".to_owned();
    let mut told: Option<String> = None;
    let mut attempts = 0u32;
    loop {
        match place.find() {
            Err(Failure::Retry(why) | Failure::Told(why) | Failure::Refused(why)) => last = why,
            Err(Failure::Unfit(error)) => return Err(error),
            Ok((addresses, token)) => {
                for address in addresses {
                    attempts += 1;
                    let patience = if place.may_be_stale() { STALE_LIMIT } else { HELLO_LIMIT };
                    match attempt(address, &token, (rank, size), patience, deadline) {
                        Ok(session) => return start(session, rank, size, options),
                        Err(Failure::Refused(reason)) if !place.may_be_stale() => {
                            return Err(
                                PeerError::Refused { address: address.to_string(), rank, reason }.into()
                            );
                        }
                        Err(Failure::Refused(why) | Failure::Told(why)) => {
                            last = format!("{address}: {why}");
                            told = Some(last.clone());
                        }
                        Err(Failure::Retry(why)) => last = format!("{address}: {why}"),
                        Err(Failure::Unfit(error)) => return Err(error),
                    }
                }
            }
        }
        if Instant::now() + pause >= deadline {
            let what = format!(
                "rank {rank} could not reach the store at {} in {:.1} s and {attempts} attempts",
                place.describe(),
                started.elapsed().as_secs_f64()
            );
            if let Some(told) = told.filter(|told| *told != last) {
                last = format!("{last}; earlier, {told}");
            }
            let advice = "see that the rank which holds the store is running, that its address and port are right \
                          and open, and that every rank is given the same ones";
            return Err(Error::fabric(what, std::io::Error::other(last), advice));
        }
        // Ranks that start together do not knock together.
        std::thread::sleep(pause + Duration::from_millis(rank as u64 % 16));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn attempt(
    address: SocketAddr,
    token: &Token,
    who: (Rank, usize),
    patience: Duration,
    deadline: Instant,
) -> Result<(Sender, Receiver, Rank), Failure> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let retry = |e: std::io::Error| Failure::Retry(e.to_string());
    let stream = TcpStream::connect_timeout(&address, left.min(CONNECT_LIMIT)).map_err(retry)?;
    stream.set_nodelay(true).map_err(retry)?;
    present(stream, token, who, patience, deadline)
}

fn start(
    (sender, receiver, host): (Sender, Receiver, Rank),
    rank: Rank,
    size: usize,
    options: &Options,
) -> Result<Member> {
    let advice = "raise the process's limits";
    let broken = |e| Error::fabric("setting up the connection to the store", e, advice);
    let inbox = Arc::new(Inbox::new(rank, size, options.max_message));
    let stream = Arc::clone(sender.stream());
    let sender = Arc::new(Mutex::new(sender));

    let longest = options.max_message.saturating_add(64).saturating_mul(size).saturating_add(FRAME_SLACK);
    let (to, silence) = (Arc::clone(&inbox), options.silence);
    spawn("fusewire-rank", move || read(receiver, &to, host, longest, silence)).map_err(broken)?;

    let (beats, watched, beat) = (Arc::clone(&sender), Arc::clone(&inbox), options.heartbeat);
    spawn("fusewire-beat", move || {
        let beat = beat.max(Duration::from_millis(10));
        let over = |state: &mut crate::store::inbox::State| state.closed().is_some().then_some(());
        while watched.wait(after(beat), over).is_none() {
            // What fails here shows where the connection is read.
            let _ = encode(&Request::Ping).and_then(|ping| lock(&beats).send(&ping, WRITE_LIMIT));
        }
    })
    .map_err(broken)?;

    let connection = Connection { sender, stream, inbox: Arc::clone(&inbox), host };
    Ok(Member::new(rank, size, options.max_message, Link::Tcp(connection), inbox))
}

fn read(mut receiver: Receiver, inbox: &Inbox, host: Rank, longest: usize, silence: Option<Duration>) {
    loop {
        match receiver.receive(longest, silence).and_then(|frame| decode::<Event>(&frame)) {
            Ok(Event::Lost { rank, why }) => {
                inbox.deliver(Event::Lost { rank, why: Printable(&why).to_string() });
            }
            Ok(event) => inbox.deliver(event),
            Err(error) => {
                inbox.hung_up(host, &why_lost(&error, silence));
                let _ = receiver.stream().shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

impl Connection {
    pub fn post(&self, request: &Request) -> Result<()> {
        let bytes = encode(request)
            .map_err(|e| Error::fabric("encoding a request to the store", e, "report this"))?;
        let written = lock(&self.sender).send(&bytes, WRITE_LIMIT);
        written.map_err(|error| {
            self.inbox.close(self.host, &why_lost(&error, Some(WRITE_LIMIT)));
            // Part of a record may be out: nothing can follow it.
            self.abort();
            // What the store said last may explain more than that it cannot be written to.
            self.inbox
                .with(|state| state.closed().cloned())
                .unwrap_or_else(|| Error::peer_lost(self.host, "it holds the store and cannot be written to"))
        })
    }

    /// Says goodbye and waits a little for the store to hang up: a process that ends right after must not have its
    /// last words discarded with its unread ones.
    pub fn leave(&self) {
        let sent = encode(&Request::Leave).and_then(|bytes| {
            lock(&self.sender).send(&bytes, WRITE_LIMIT)?;
            self.stream.shutdown(Shutdown::Write)
        });
        if sent.is_ok() {
            self.inbox.wait(after(GOODBYE_LIMIT), |state| state.hung_up().then_some(()));
        }
    }

    pub fn abort(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
