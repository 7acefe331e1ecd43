//! A pair of sockets with three threads.

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

/// Takes posted requests, gathers their bytes and sends them.
fn send(shared: &Shared, mut stream: UnixStream, _: u8) {
    let mut bytes = Vec::new();
    loop {
        let mut state = shared.lock();
        let posted = loop {
            if state.closing || state.broken.is_some() {
                return;
            }
            match state.waiting.front() {
                Some(next) if !(next.fence && state.reads_under_way()) => break state.waiting.pop_front(),
                _ => state = shared.wait(state),
            }
        };
        let Some(posted) = posted else { continue };
        state.sent.push_back((posted.id, posted.into));
        drop(state);
        bytes.clear();
        let gathered = match posted.from {
            None => {
                bytes.extend_from_slice(&posted.inline);
                Ok(())
            }
            Some(from) => {
                shared.table.load(from.lkey, from.address, from.bytes as usize, Right::Local, &mut bytes)
            }
        };
        if gathered.is_err() {
            return fail_locally(shared, posted.id);
        }
        if wire::send(&mut stream, &posted.ask, &bytes).is_err() {
            return shared.break_with(Status::Unreachable);
        }
    }
}

/// Ends the last request, whose own memory is not registered, after those before it.
fn fail_locally(shared: &Shared, id: u64) {
    let mut state = shared.lock();
    while state.sent.front().is_some_and(|(first, _)| *first != id) && state.broken.is_none() {
        state = shared.wait(state);
    }
    state.break_with(Status::LocalAccess);
    drop(state);
    shared.changed.notify_all();
}

/// Reads the answers to own requests.
fn take_answers(shared: &Shared, mut stream: UnixStream, _: u8) {
    let mut bytes = Vec::new();
    loop {
        let answer: Answer = match wire::receive(&mut stream) {
            Ok(answer) => answer,
            Err(_) => return shared.break_with(Status::Unreachable),
        };
        let status = Status::from_code(answer.status);
        if answer.bytes > wire::MESSAGE || wire::receive_bytes(&mut stream, answer.bytes, &mut bytes).is_err()
        {
            return shared.break_with(Status::Unreachable);
        }
        let mut state = shared.lock();
        if status != Status::Done {
            state.break_with(status);
        } else if let Some((id, into)) = state.sent.front().copied() {
            let stored = match into {
                Some(into) if bytes.len() == into.bytes as usize => {
                    shared.table.store(into.lkey, into.address, &bytes, Right::Local).is_ok()
                }
                Some(_) => false,
                None => true,
            };
            if stored {
                state.sent.pop_front();
                state.end(id, Status::Done);
            } else {
                state.break_with(Status::LocalAccess);
            }
        }
        drop(state);
        shared.changed.notify_all();
    }
}

/// Carries out the peer's requests.
fn serve(shared: &Shared, mut stream: UnixStream, retries: u8) {
    let (mut bytes, mut back) = (Vec::new(), Vec::new());
    let mut late = Late::new(&shared.table, shared.late);
    loop {
        if let Some(patience) = late.patience()
            && !wire::arrives(&stream, patience)
        {
            late.place();
        }
        let ask: Ask = match wire::receive(&mut stream) {
            Ok(ask) => ask,
            Err(_) => {
                // What a peer that is gone was told of still arrives; behind this pair's own end nothing does.
                if !shared.lock().closing {
                    late.place();
                }
                return shared.break_with(Status::Unreachable);
            }
        };
        back.clear();
        let status = if ask.bytes > wire::MESSAGE {
            Status::RemoteRefused
        } else if ask.carries() && wire::receive_bytes(&mut stream, ask.bytes, &mut bytes).is_err() {
            return shared.break_with(Status::Unreachable);
        } else {
            carry_out(shared, &mut late, &ask, &bytes, &mut back, retries)
        };
        if status != Status::Done {
            back.clear();
        }
        match status {
            Status::Done | Status::NotReceived => {}
            // As on an adapter: a request that is not allowed breaks the pair at both ends, at this one before the peer hears of it.
            _ => shared.break_with(Status::Flushed),
        }
        let answer = Answer { status: status.code(), bytes: back.len() as u32 };
        if wire::send(&mut stream, &answer, &back).is_err() {
            return shared.break_with(Status::Unreachable);
        }
    }
}

fn carry_out(
    shared: &Shared,
    late: &mut Late<'_>,
    ask: &Ask,
    bytes: &[u8],
    back: &mut Vec<u8>,
    retries: u8,
) -> Status {
    let table = &shared.table;
    let refused = |_| Status::RemoteAccess;
    if ask.op != wire::WRITE {
        late.place();
    }
    let outcome = match ask.op {
        wire::WRITE => late.write(ask.rkey, ask.address, bytes).map_err(refused),
        wire::WRITE_WITH_NUMBER => table
            .store(ask.rkey, ask.address, bytes, Right::Write)
            .map_err(refused)
            .and_then(|()| receive(shared, Some(ask.number), bytes, retries)),
        wire::READ => {
            table.load(ask.rkey, ask.address, ask.bytes as usize, Right::Read, back).map_err(refused)
        }
        wire::SEND => receive(shared, None, bytes, retries),
        wire::FETCH_ADD | wire::COMPARE_SWAP => {
            let change = |old: u64| match ask.op {
                wire::FETCH_ADD => Some(old.wrapping_add(ask.a)),
                _ => (old == ask.a).then_some(ask.b),
            };
            let old = table.modify(ask.rkey, ask.address, change).map_err(refused);
            old.map(|old| back.extend_from_slice(&old.to_ne_bytes()))
        }
        _ => Err(Status::RemoteRefused),
    };
    outcome.err().unwrap_or(Status::Done)
}

/// Ends the next receive with a message, or with a write's number.
fn receive(shared: &Shared, number: Option<u32>, bytes: &[u8], retries: u8) -> Result<(), Status> {
    let until = Instant::now() + RECEIVER_WAITS * u32::from(retries);
    let mut state = shared.lock();
    let (id, local) = loop {
        if state.closing || state.broken.is_some() {
            return Err(Status::Unreachable);
        }
        if let Some(next) = state.receives.pop_front() {
            break next;
        }
        let left = until.saturating_duration_since(Instant::now());
        state = match retries {
            FOR_EVER => shared.wait(state),
            _ if left.is_zero() => return Err(Status::NotReceived),
            _ => shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
        };
    };
    let message = number.is_none();
    let fits = !message
        || (bytes.len() <= local.bytes as usize
            && shared.table.store(local.lkey, local.address, bytes, Right::Local).is_ok());
    let status = if fits { Status::Done } else { Status::LocalAccess };
    let bytes = bytes.len() as u32;
    state.ended.push(Completion { id, status, receive: true, bytes, immediate: number });
    if fits { Ok(()) } else { Err(Status::RemoteRefused) }
}
