//! Between processes descriptors travel as `SCM_RIGHTS` over Unix sockets.
//!
//! Each rank listens on an abstract name of random letters, told to the others at set-up with a random token. A
//! parcel is one packet: a header and up to [`PER_PARCEL`] descriptors. Sending does not wait for the receiver: the
//! kernel keeps the parcel in the listener's queue, so no thread is needed.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with, sockopt,
};

use super::{Exchange, ExchangeKey, Received};
use crate::sync::lock;
use crate::tcp::token::random;
use crate::{Error, Rank, Result};

/// The kernel takes 253 descriptors in one message.
const PER_PARCEL: usize = 250;
const TOKEN_LEN: usize = 16;
/// Token, sender, group, number of the exchange, descriptors in all.
const HEADER_LEN: usize = TOKEN_LEN + 4 * 8;
/// How often a waiting rank looks whether a peer is lost.
const LOOK: Duration = Duration::from_millis(50);
/// How long a connection may take to send a parcel.
const PARCEL_LIMIT: Duration = Duration::from_secs(1);
/// The most exchanges that this rank has not begun, of which parcels in one rank's name are kept.
const MOST_WAITING: usize = 1024;
const ADVICE: &str = "see that the ranks of a host share its network namespace and its user";

/// Where a rank receives.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Address {
    name: String,
    token: [u8; TOKEN_LEN],
}

pub(crate) struct Mailbox {
    listener: OwnedFd,
    address: Address,
    /// What has come for exchanges that this rank has not begun yet, with how many there will be in all.
    arrived: Mutex<HashMap<(ExchangeKey, Rank), Parcel>>,
    /// One exchange receives at a time; what it finds for others it puts down.
    receiving: Mutex<()>,
}

#[derive(Default)]
struct Parcel {
    fds: Vec<OwnedFd>,
    total: usize,
}

impl Mailbox {
    pub fn new() -> Result<Self> {
        let broken = |what: &'static str| move |e: Errno| Error::fabric(what, e, ADVICE);
        let name: [u8; 16] = random()?;
        let name = name.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let address = Address { name: format!("fusewire-{name}"), token: random()? };
        let listener = seqpacket(SocketFlags::NONBLOCK).map_err(broken("making a Unix socket"))?;
        bind(&listener, &address.unix().map_err(broken("naming a Unix socket"))?)
            .map_err(broken("naming a Unix socket"))?;
        listen(&listener, 4096).map_err(broken("listening on a Unix socket"))?;
        Ok(Self { listener, address, arrived: Mutex::default(), receiving: Mutex::default() })
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// `addresses`: by place in [`Exchange::locals`].
    pub fn exchange(
        &self,
        exchange: &Exchange<'_>,
        addresses: &[&Address],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Received> {
        let started = Instant::now();
        let mut to_send: Vec<(Rank, &Address, &[BorrowedFd<'_>])> = Vec::new();
        for (&rank, &address) in
            exchange.locals.iter().zip(addresses).filter(|(rank, _)| **rank != exchange.me)
        {
            if fds.is_empty() {
                to_send.push((rank, address, fds));
            }
            to_send.extend(fds.chunks(PER_PARCEL).map(|chunk| (rank, address, chunk)));
        }
        let header = self.header(exchange, fds.len());
        let mut to_send = to_send.into_iter().peekable();
        loop {
            // Sending and receiving in turns: the kernel bounds how many descriptors may be under way.
            let mut stuck = false;
            while let Some(&(rank, address, chunk)) = to_send.peek() {
                if !send(address, &header, chunk)
                    .map_err(|e| Error::fabric(format!("sending descriptors to rank {rank}"), e, ADVICE))?
                {
                    stuck = true;
                    break;
                }
                to_send.next();
            }
            self.receive_all()?;
            let missing = self.missing(exchange);
            if missing.is_empty() && to_send.peek().is_none() {
                return self.collect(exchange, fds);
            }
            let unsent = to_send.peek().map(|(rank, ..)| *rank);
            if (exchange.check)(&missing).is_err() {
                // What a rank sent before it went is in the queue by now.
                self.receive_all()?;
                (exchange.check)(&self.missing(exchange))?;
            }
            (exchange.check)(unsent.as_slice())?;
            let left = exchange.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let missing =
                    if missing.is_empty() { to_send.map(|(rank, ..)| rank).collect() } else { missing };
                return Err(Error::timeout("exchange_fds", started.elapsed(), missing));
            }
            self.poll(left.min(if stuck { Duration::from_millis(5) } else { LOOK }));
        }
    }

    /// The header but for the token, which is the receiver's.
    fn header(&self, exchange: &Exchange<'_>, total: usize) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        let fields = [exchange.me as u64, exchange.key.0, exchange.key.1, total as u64];
        for (place, field) in header[TOKEN_LEN..].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        header
    }

    fn missing(&self, exchange: &Exchange<'_>) -> Vec<Rank> {
        let arrived = lock(&self.arrived);
        let complete = |rank| arrived.get(&(exchange.key, rank)).is_some_and(|p| p.fds.len() >= p.total);
        exchange.locals.iter().copied().filter(|&rank| rank != exchange.me && !complete(rank)).collect()
    }

    fn collect(&self, exchange: &Exchange<'_>, own: &[BorrowedFd<'_>]) -> Result<Received> {
        let mut arrived = lock(&self.arrived);
        // What came too late for exchanges that failed.
        let (group, nth) = exchange.key;
        arrived.retain(|((other, n), _), _| *other != group || *n >= nth);
        let take = |&rank: &Rank| {
            if rank == exchange.me {
                own.iter().map(|fd| fd.try_clone_to_owned()).collect::<Result<Vec<_>, _>>().map_err(|e| {
                    Error::fabric(
                        "duplicating file descriptors",
                        e,
                        "raise the limit on open files (`ulimit -n`)",
                    )
                })
            } else {
                Ok(arrived.remove(&(exchange.key, rank)).unwrap_or_default().fds)
            }
        };
        exchange.locals.iter().map(take).collect()
    }

    fn poll(&self, limit: Duration) {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        let _ = poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&limit));
    }

    /// Takes in every parcel that waits.
    fn receive_all(&self) -> Result<()> {
        let _one = lock(&self.receiving);
        loop {
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(connection) => self.receive(connection)?,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(Error::fabric("accepting file descriptors", error, ADVICE)),
            }
        }
    }

    fn receive(&self, connection: OwnedFd) -> Result<()> {
        // Anybody of this network namespace can connect; only this user's processes are listened to.
        let ours = is_ours(&connection);
        let patient =
            sockopt::set_socket_timeout(&connection, sockopt::Timeout::Recv, Some(PARCEL_LIMIT)).is_ok();
        if !ours || !patient {
            return Ok(());
        }
        let mut header = [0; HEADER_LEN];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PER_PARCEL))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut header)];
        let Ok(message) = recvmsg(&connection, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) else {
            return Ok(());
        };
        let mut fds = Vec::new();
        for item in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = item {
                fds.extend(rights);
            }
        }
        let Some(header) = read_header(&header[..message.bytes.min(HEADER_LEN)], &self.address.token) else {
            return Ok(());
        };
        if message.flags.contains(ReturnFlags::CTRUNC) {
            let full = std::io::Error::from(Errno::MFILE);
            return Err(Error::fabric(
                "taking in file descriptors",
                full,
                "raise the limit on open files (`ulimit -n`)",
            ));
        }
        let mut arrived = lock(&self.arrived);
        let place = (header.key, header.from);
        let waiting = || arrived.keys().filter(|(_, from)| *from == header.from).count();
        if !arrived.contains_key(&place) && waiting() >= MOST_WAITING {
            // The exchange that it is of ends with the deadline, and names its sender.
            return Ok(());
        }
        let parcel = arrived.entry(place).or_default();
        parcel.total = header.total;
        parcel.fds.append(&mut fds);
        Ok(())
    }
}

/// What a parcel says of itself.
pub(crate) struct Header {
    from: Rank,
    key: ExchangeKey,
    total: usize,
}

/// The header of a parcel that is meant for who has `token`.
pub(crate) fn read_header(bytes: &[u8], token: &[u8; TOKEN_LEN]) -> Option<Header> {
    let (theirs, fields) = bytes.split_first_chunk::<TOKEN_LEN>()?;
    if bytes.len() != HEADER_LEN || !same(theirs, token) {
        return None;
    }
    let mut fields = fields.chunks_exact(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(chunk);
        u64::from_le_bytes(bytes)
    });
    let mut next = || fields.next().unwrap_or_default();
    Some(Header { from: next() as Rank, key: (next(), next()), total: next() as usize })
}

impl Address {
    fn unix(&self) -> Result<SocketAddrUnix, Errno> {
        SocketAddrUnix::new_abstract_name(self.name.as_bytes())
    }
}

fn seqpacket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)
}

/// Whether the other end of a connection is a process of this user.
fn is_ours(connection: &OwnedFd) -> bool {
    sockopt::socket_peercred(connection).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// False where the kernel's queues are full: receive something, then try again.
fn send(to: &Address, header: &[u8; HEADER_LEN], fds: &[BorrowedFd<'_>]) -> Result<bool, Errno> {
    let socket = seqpacket(SocketFlags::NONBLOCK)?;
    match connect(&socket, &to.unix()?) {
        Ok(()) => {}
        // Nobody listens: that rank is ending, and the store will soon say how.
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNREFUSED) => return Ok(false),
        Err(error) => return Err(error),
    }
    // Whoever took the name of a rank that ended gets no descriptor.
    if !is_ours(&socket) {
        return Err(Errno::PERM);
    }
    let mut header = *header;
    header[..TOKEN_LEN].copy_from_slice(&to.token);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PER_PARCEL))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    match sendmsg(socket.as_fd(), &[IoSlice::new(&header)], &mut ancillary, SendFlags::NOSIGNAL) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::TOOMANYREFS | Errno::INTR | Errno::NOBUFS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// In constant time.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parcels_that_nobody_asked_for_are_bounded() {
        let mailbox = Mailbox::new().unwrap();
        let mut header = [0; HEADER_LEN];
        for nth in 0..2 * MOST_WAITING as u64 {
            header[TOKEN_LEN + 16..TOKEN_LEN + 24].copy_from_slice(&nth.to_le_bytes());
            while !send(&mailbox.address, &header, &[]).unwrap() {
                mailbox.receive_all().unwrap();
            }
        }
        mailbox.receive_all().unwrap();
        assert_eq!(lock(&mailbox.arrived).len(), MOST_WAITING);
        // What is not meant for this mailbox is not kept.
        header[TOKEN_LEN] = 1;
        let other = Address { token: [1; TOKEN_LEN], ..mailbox.address.clone() };
        assert!(send(&other, &header, &[]).unwrap());
        mailbox.receive_all().unwrap();
        assert_eq!(lock(&mailbox.arrived).len(), MOST_WAITING);
    }
}
