//! A pair of sockets with three threads.

mod threads;

use super::late::Late;
use super::memory::{Right, Table};
use super::protocol::{self as wire, Answer, Ask};
use crate::rdma::{Completion, Error, Local, Pair, PairOptions, Remote, Request, Result, Status, Work};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use threads::{send, serve, take_answers};

const TOKEN: usize = 16;

/// How long the peer may take to connect as well.
const MEETING: Duration = Duration::from_secs(10);

/// How long a message waits for a receive, for each retry that the sender has.
const RECEIVER_WAITS: Duration = Duration::from_millis(2);

/// For ever, as [`PairOptions::receiver_retries`].
const FOR_EVER: u8 = 7;

/// A posted request, with its inline bytes.
#[derive(Debug)]
struct Posted {
    id: u64,
    ask: Ask,
    /// What a write or message carries.
    from: Option<Local>,
    inline: Vec<u8>,
    /// Where the answer's bytes go.
    into: Option<Local>,
    fence: bool,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Posted>,
    /// Sent and not answered: id, and where the answer's bytes go.
    sent: VecDeque<(u64, Option<Local>)>,
    ended: Vec<Completion>,
    receives: VecDeque<(u64, Local)>,
    /// No request is carried out any more; the next one ends so.
    broken: Option<Status>,
    closing: bool,
}

impl State {
    fn reads_under_way(&self) -> bool {
        self.sent.iter().any(|(_, into)| into.is_some())
    }

    fn end(&mut self, id: u64, status: Status) {
        self.ended.push(Completion { id, status, receive: false, bytes: 0, immediate: None });
    }

    /// Ends the connection: the oldest request ends with `status`, or the next one posted.
    fn break_with(&mut self, status: Status) {
        if self.broken.is_some() {
            return;
        }
        let mut first = status;
        let ids: Vec<u64> =
            self.sent.drain(..).map(|s| s.0).chain(self.waiting.drain(..).map(|p| p.id)).collect();
        for id in ids {
            self.end(id, std::mem::replace(&mut first, Status::Flushed));
        }
        self.broken = Some(first);
        for (id, _) in std::mem::take(&mut self.receives) {
            let completion =
                Completion { id, status: Status::Flushed, receive: true, bytes: 0, immediate: None };
            self.ended.push(completion);
        }
    }
}

#[derive(Debug)]
struct Shared {
    table: Arc<Table>,
    late: bool,
    options: PairOptions,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn break_with(&self, status: Status) {
        self.lock().break_with(status);
        self.changed.notify_all();
    }
}

/// See the module above.
#[derive(Debug)]
pub struct SocketPair {
    shared: Arc<Shared>,
    token: [u8; TOKEN],
    listener: UnixListener,
    streams: Vec<UnixStream>,
    threads: Vec<JoinHandle<()>>,
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Call {
        call: "a Unix socket",
        adapter: "emulated".into(),
        doing: doing.into(),
        source,
    }
}

/// Where the pair with this token listens: a name that no file has.
fn address(token: &[u8; TOKEN]) -> io::Result<SocketAddr> {
    let name: String = token.iter().map(|b| format!("{b:02x}")).collect();
    SocketAddr::from_abstract_name(format!("fusewire-rdma-{name}"))
}

impl SocketPair {
    pub fn new(table: &Arc<Table>, late: bool, options: &PairOptions) -> Result<Self> {
        let mut token = [0; TOKEN];
        let random =
            |e: getrandom::Error| Error::misuse(format!("no random number for a socket's name: {e}"));
        getrandom::fill(&mut token).map_err(random)?;
        let listener = address(&token)
            .and_then(|a| UnixListener::bind_addr(&a))
            .map_err(failed("listening for the peer's pair"))?;
        let (table, options) = (Arc::clone(table), *options);
        let shared = Shared { table, late, options, state: Mutex::default(), changed: Condvar::new() };
        Ok(SocketPair { shared: Arc::new(shared), token, listener, streams: Vec::new(), threads: Vec::new() })
    }

    /// The peer's connection to this pair.
    fn accept(&self, peer: &[u8; TOKEN]) -> Result<(UnixStream, u8)> {
        let until = Instant::now() + MEETING;
        let doing = "waiting for the peer's pair";
        self.listener.set_nonblocking(true).map_err(failed(doing))?;
        loop {
            match self.listener.accept() {
                Ok((mut stream, _)) => {
                    let mut hello = [0; TOKEN + 1];
                    stream.set_nonblocking(false).map_err(failed(doing))?;
                    stream.set_read_timeout(Some(MEETING)).map_err(failed(doing))?;
                    // Whoever is not the peer is sent away; the token is the socket's name, which the whole host can see.
                    if is_ours(&stream) && stream.read_exact(&mut hello).is_ok() && hello[..TOKEN] == peer[..]
                    {
                        stream.set_read_timeout(None).map_err(failed(doing))?;
                        return Ok((stream, hello[TOKEN]));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(e) => return Err(failed(doing)(e)),
            }
        }
    }

    fn start(
        &mut self,
        name: &str,
        stream: &UnixStream,
        body: fn(&Shared, UnixStream, u8),
        retries: u8,
    ) -> Result<()> {
        let (shared, stream) =
            (Arc::clone(&self.shared), stream.try_clone().map_err(failed("starting a pair's thread"))?);
        let thread = std::thread::Builder::new().name(name.into()).stack_size(256 << 10);
        let thread = thread.spawn(move || body(&shared, stream, retries));
        self.threads.push(thread.map_err(failed("starting a pair's thread"))?);
        Ok(())
    }
}

/// Whether the other end is a process of this user.
fn is_ours(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

// SAFETY: as for its adapter.
unsafe impl Pair for SocketPair {
    fn endpoint(&self) -> Vec<u8> {
        self.token.to_vec()
    }

    fn connect(&mut self, peer: &[u8]) -> Result<()> {
        let peer: [u8; TOKEN] = peer.try_into().map_err(|_| {
            Error::misuse(
                "a peer's endpoint is not one of the emulated adapter: do all ranks use one fabric?",
            )
        })?;
        let doing = "connecting to the peer's pair";
        let mut out = address(&peer).and_then(|a| UnixStream::connect_addr(&a)).map_err(failed(doing))?;
        if !is_ours(&out) {
            return Err(Error::misuse("the peer's pair is of another user's process"));
        }
        let mut hello = self.token.to_vec();
        hello.push(self.shared.options.receiver_retries);
        out.write_all(&hello).map_err(failed(doing))?;
        let (into, retries) = self.accept(&peer)?;
        self.start("rdma send", &out, send, 0)?;
        self.start("rdma answers", &out, take_answers, 0)?;
        self.start("rdma serve", &into, serve, retries)?;
        self.streams = vec![out, into];
        Ok(())
    }

    unsafe fn post(&self, request: &Request<'_>) -> Result<bool> {
        let mut posted = Posted {
            id: request.id,
            ask: Ask::default(),
            from: None,
            inline: Vec::new(),
            into: None,
            fence: request.fence,
        };
        let to = |op: u32, remote: Remote, bytes: u32| Ask {
            op,
            bytes,
            address: remote.address,
            rkey: remote.rkey,
            ..Ask::default()
        };
        match request.work {
            Work::Write { from, to: place, immediate } => {
                let op = if immediate.is_some() { wire::WRITE_WITH_NUMBER } else { wire::WRITE };
                posted.ask = Ask { number: immediate.unwrap_or(0), ..to(op, place, from.bytes) };
                posted.from = Some(from);
            }
            Work::WriteInline { bytes, to: place } => {
                let most = self.shared.options.inline as usize;
                if bytes.len() > most {
                    let have = bytes.len();
                    return Err(Error::misuse(format!(
                        "{have} bytes inline in a request that carries up to {most}"
                    )));
                }
                posted.ask = to(wire::WRITE, place, bytes.len() as u32);
                posted.inline = bytes.to_vec();
            }
            Work::Read { to: place, from } => {
                posted.ask = to(wire::READ, from, place.bytes);
                posted.into = Some(place);
            }
            Work::Send { from } => {
                posted.ask = Ask { op: wire::SEND, bytes: from.bytes, ..Ask::default() };
                posted.from = Some(from);
            }
            Work::FetchAdd { at, add, old } => {
                posted.ask = Ask { a: add, ..to(wire::FETCH_ADD, at, 8) };
                posted.into = Some(Local { bytes: 8, ..old });
            }
            Work::CompareSwap { at, expected, new, old } => {
                posted.ask = Ask { a: expected, b: new, ..to(wire::COMPARE_SWAP, at, 8) };
                posted.into = Some(Local { bytes: 8, ..old });
            }
        }
        let mut state = self.shared.lock();
        if let Some(status) = state.broken {
            state.broken = Some(Status::Flushed);
            state.end(posted.id, status);
            return Ok(true);
        }
        if state.waiting.len() + state.sent.len() >= self.shared.options.send_depth as usize {
            return Ok(false);
        }
        state.waiting.push_back(posted);
        drop(state);
        self.shared.changed.notify_all();
        Ok(true)
    }

    unsafe fn post_receive(&self, id: u64, local: Local) -> Result<bool> {
        let mut state = self.shared.lock();
        if state.broken.is_some() {
            let completion =
                Completion { id, status: Status::Flushed, receive: true, bytes: 0, immediate: None };
            state.ended.push(completion);
            return Ok(true);
        }
        if state.receives.len() >= self.shared.options.receive_depth as usize {
            return Ok(false);
        }
        state.receives.push_back((id, local));
        drop(state);
        self.shared.changed.notify_all();
        Ok(true)
    }

    fn poll(&self, out: &mut Vec<Completion>) -> Result<()> {
        out.append(&mut self.shared.lock().ended);
        Ok(())
    }

    fn break_off(&self) {
        self.streams.iter().for_each(|s| drop(s.shutdown(Shutdown::Both)));
        self.shared.break_with(Status::Flushed);
    }
}

impl Drop for SocketPair {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.break_off();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
