//! The store's side of the connections.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::auth::Token;
use super::handshake::{Answer, HELLO_LIMIT, Refusal, answer, receive};
use crate::store::hub::{Hub, Occupied, Register, Sink};
use crate::store::member::Member;
use crate::store::proto::{Request, read_frame};
use crate::{Error, Options, Rank, Result};

/// A peer that takes longer than this to take in what it is sent is given up: others wait behind it.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Room for a request's fields beside its payload.
pub(crate) const FRAME_SLACK: usize = 64 << 10;

/// Connections that have not shown the token yet, beyond two for each rank; more are hung up on at once.
const STRANGERS: usize = 32;

struct Server {
    hub: Arc<Hub>,
    token: Token,
    host: Rank,
    options: Options,
    strangers: AtomicUsize,
}

/// Serves the store to the other ranks from threads of this process, and joins it as `rank`.
pub(crate) fn host(
    listener: TcpListener,
    token: Token,
    rank: Rank,
    size: usize,
    options: &Options,
) -> Result<Member> {
    let hub = Arc::new(Hub::new(size));
    let member = Member::local(&hub, rank, options.max_message)?;
    let server =
        Arc::new(Server { hub, token, host: rank, options: options.clone(), strangers: AtomicUsize::new(0) });
    let (stop, stopped) = UnixStream::pair().map_err(|e| threads(e, "a socket pair"))?;
    let accepting = Arc::clone(&server);
    spawn("fusewire-store", move || accepting.accept(&listener, &stopped))
        .map_err(|e| threads(e, "a thread"))?;
    let beating = server;
    spawn("fusewire-beat", move || {
        let beat = beating.options.heartbeat.max(Duration::from_millis(10));
        while !beating.hub.wait_until_empty(beat) {
            beating.hub.ping();
        }
        // Closing it ends the accepting thread.
        drop(stop);
    })
    .map_err(|e| threads(e, "a thread"))?;
    Ok(member)
}

fn threads(error: io::Error, what: &str) -> Error {
    Error::fabric(format!("the store could not get {what}"), error, "raise the process's limits")
}

pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(256 << 10).spawn(body).map(drop)
}

impl Server {
    fn accept(self: &Arc<Self>, listener: &TcpListener, stopped: &UnixStream) {
        loop {
            let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
            let _ = poll(&mut fds, None);
            if !fds[1].revents().is_empty() {
                return;
            }
            match listener.accept() {
                Ok((stream, from)) => self.greet(stream, from),
                // Out of descriptors, or a connection that was gone again: neither may spin or end the store.
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn greet(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) {
        if self.strangers.fetch_add(1, Ordering::Relaxed) >= STRANGERS + 2 * self.hub.size() {
            self.strangers.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let server = Arc::clone(self);
        let spawned = spawn("fusewire-store-conn", move || server.serve(stream, from));
        if spawned.is_err() {
            self.strangers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn serve(&self, stream: TcpStream, from: SocketAddr) {
        let admitted = self.admit(&stream, from);
        self.strangers.fetch_sub(1, Ordering::Relaxed);
        match admitted {
            Some(rank) => self.listen(rank, stream),
            None => {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    fn admit(&self, stream: &TcpStream, from: SocketAddr) -> Option<Rank> {
        let limit = HELLO_LIMIT.min(self.options.timeout);
        stream.set_nodelay(true).ok()?;
        stream.set_write_timeout(Some(WRITE_LIMIT)).ok()?;
        let refuse = |refusal| {
            let _ = answer(stream, &Answer::Refused(refusal));
            None
        };
        let admission = match receive(stream, &self.token, self.hub.size(), limit).ok()? {
            Ok(admission) => admission,
            Err(refusal) => return refuse(refusal),
        };
        let rank = admission.rank;
        let who = format!("process {} at {}", admission.pid, from.ip());
        let registered = self.hub.register(rank, &who, || {
            let sink = Sink::Tcp { stream: stream.try_clone()?, who: who.clone() };
            answer(stream, &admission.welcome(&self.token, self.host))?;
            Ok(sink)
        });
        match registered {
            Register::Admitted => Some(rank),
            Register::Occupied(Occupied::By(holder)) => {
                refuse(Refusal::Duplicate { rank: rank as u64, holder })
            }
            Register::Occupied(Occupied::Gone) => refuse(Refusal::Gone { rank: rank as u64 }),
            Register::Failed => None,
        }
    }

    fn listen(&self, rank: Rank, mut stream: TcpStream) {
        let limit = self.options.max_message.saturating_add(FRAME_SLACK);
        let mut read = || {
            stream.set_read_timeout(self.options.silence)?;
            read_frame::<Request>(&mut stream, limit)
        };
        let error = loop {
            match read() {
                Ok(request) => {
                    let leaves = matches!(request, Request::Leave);
                    self.hub.handle(rank, request);
                    if leaves {
                        let _ = stream.shutdown(Shutdown::Both);
                        return;
                    }
                }
                Err(error) => break error,
            }
        };
        self.hub.lost(rank, &why_lost(&error, self.options.silence));
    }
}

/// What the end of a connection says about the rank at its other end.
pub(crate) fn why_lost(error: &io::Error, silence: Option<Duration>) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "its connection closed without a goodbye".to_owned(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("nothing was heard of it for {:.1} s", silence.unwrap_or_default().as_secs_f64())
        }
        io::ErrorKind::InvalidData => format!("it sent {error}"),
        _ => format!("its connection broke ({error})"),
    }
}
