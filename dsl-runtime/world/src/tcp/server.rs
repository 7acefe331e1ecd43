//! The store's side of the connections.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::ends::{FRAME_SLACK, spawn, why_lost};
use super::handshake::{Admission, Answer, HELLO_LIMIT, Refusal, receive, reply};
use super::session::{Receiver, Timed};
use super::strangers::{Place, Strangers};
use super::token::Token;
use crate::store::hub::{Hub, Occupied, Register, Remote, Sink};
use crate::store::member::Member;
use crate::store::proto::{Request, decode};
use crate::sync::after;
use crate::{Error, Options, Rank, Result};

/// Connections that have not shown yet which rank they are, beyond two for each rank.
const STRANGERS: usize = 128;

/// How long one that was not let in may take to hang up.
const PARTING_LIMIT: Duration = Duration::from_millis(200);

struct Server {
    hub: Arc<Hub>,
    token: Token,
    host: Rank,
    options: Options,
    strangers: Arc<Strangers>,
}

/// Serves the store to the other ranks from threads of this process, and joins it as `rank`.
pub(crate) fn host(
    listener: TcpListener,
    token: Token,
    rank: Rank,
    size: usize,
    options: &Options,
) -> Result<Member> {
    let hub = Arc::new(Hub::new(size, options.max_message));
    let member = Member::local(&hub, rank)?;
    let strangers = Strangers::new(size.saturating_mul(2).saturating_add(STRANGERS));
    let server = Arc::new(Server { hub, token, host: rank, options: options.clone(), strangers });
    // A connection that is gone before it is accepted must not hold the accepting thread.
    listener.set_nonblocking(true).map_err(|e| threads(e, "a listener that does not block"))?;
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

impl Server {
    fn accept(self: &Arc<Self>, listener: &TcpListener, stopped: &UnixStream) {
        loop {
            let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
            let _ = poll(&mut fds, None);
            if !fds[1].revents().is_empty() {
                return;
            }
            if self.strangers.are_too_many() {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            match listener.accept() {
                Ok((stream, from)) => self.greet(stream, from),
                // Out of descriptors, or a connection that was gone again: neither may spin or end the store.
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn greet(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let stream = Arc::new(stream);
        let place = self.strangers.enter(&stream, from.ip());
        let server = Arc::clone(self);
        // Where there is no thread, the place is given up with the closure.
        let _ = spawn("fusewire-store-conn", move || server.serve(&stream, from, place));
    }

    fn serve(&self, stream: &Arc<TcpStream>, from: SocketAddr, place: Place) {
        match self.admit(stream, from, &place) {
            Some((rank, receiver)) => {
                drop(place);
                self.listen(rank, receiver);
            }
            None => part(stream),
        }
    }

    fn admit(&self, stream: &Arc<TcpStream>, from: SocketAddr, place: &Place) -> Option<(Rank, Receiver)> {
        let limit = HELLO_LIMIT.min(self.options.timeout);
        stream.set_nodelay(true).ok()?;
        let admission =
            receive(Arc::clone(stream), &self.token, self.hub.size(), limit, || place.proven()).ok()?;
        let Admission { rank, pid, sender, receiver } = admission;
        let who = format!("process {pid} at {}", from.ip().to_canonical());
        let mut sender = Some(sender);
        let registered = self.hub.register(rank, &who, || {
            let mut sender = sender.take().ok_or(io::ErrorKind::BrokenPipe)?;
            reply(&mut sender, &Answer::Welcome { host: self.host })?;
            Ok(Sink::Tcp(Remote::new(sender, who.clone(), self.options.silence)))
        });
        let refusal = match registered {
            Register::Admitted => return Some((rank, receiver)),
            Register::Occupied(Occupied::By(holder)) => Refusal::Duplicate { rank: rank as u64, holder },
            Register::Occupied(Occupied::Gone) => Refusal::Gone { rank: rank as u64 },
            Register::Failed => return None,
        };
        reply(&mut sender?, &Answer::Refused(refusal)).ok()?;
        None
    }

    fn listen(&self, rank: Rank, mut receiver: Receiver) {
        let longest = self.options.max_message.saturating_add(FRAME_SLACK);
        let silence = self.options.silence;
        let error = loop {
            match receiver.receive(longest, silence).and_then(|frame| decode::<Request>(&frame)) {
                Ok(request) => {
                    let leaves = matches!(request, Request::Leave);
                    self.hub.handle(rank, request);
                    if leaves {
                        let _ = receiver.stream().shutdown(Shutdown::Both);
                        return;
                    }
                }
                Err(error) => break error,
            }
        };
        self.hub.lost(rank, &why_lost(&error, silence));
    }
}

/// Ends a connection so that what was said last arrives: with something unread the system would discard it.
fn part(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let mut timed = Timed { stream, deadline: Some(after(PARTING_LIMIT)) };
    let _ = io::copy(&mut (&mut timed).take(4096), &mut io::sink());
    let _ = stream.shutdown(Shutdown::Both);
}
