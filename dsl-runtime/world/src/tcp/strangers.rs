//! Connections that have not shown yet which rank they are.

use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::sync::lock;

/// At most so many are kept. When one more comes, the oldest goes of the address that has the most, before those who
/// have shown the token: whoever fills the list evicts itself.
pub(crate) struct Strangers {
    most: usize,
    list: Mutex<List>,
    /// Threads that serve strangers; those of evicted ones end within moments.
    serving: AtomicUsize,
}

#[derive(Default)]
struct List {
    next: u64,
    /// Oldest first.
    waiting: Vec<Stranger>,
}

struct Stranger {
    number: u64,
    stream: Arc<TcpStream>,
    from: IpAddr,
    proven: bool,
}

/// A place in the list, given up when dropped.
pub(crate) struct Place {
    list: Arc<Strangers>,
    number: u64,
}

impl Strangers {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), list: Mutex::default(), serving: AtomicUsize::new(0) })
    }

    /// True when so many connections are being ended that no other should be taken on.
    pub fn are_too_many(&self) -> bool {
        self.serving.load(Ordering::Acquire) >= 2 * self.most
    }

    /// Notes a connection, and hangs up on another one if there are too many.
    pub fn enter(self: &Arc<Self>, stream: &Arc<TcpStream>, from: IpAddr) -> Place {
        self.serving.fetch_add(1, Ordering::AcqRel);
        let mut list = lock(&self.list);
        if list.waiting.len() >= self.most {
            let evicted = list.victim();
            let evicted = list.waiting.remove(evicted);
            let _ = evicted.stream.shutdown(Shutdown::Both);
        }
        list.next += 1;
        let number = list.next;
        let from = from.to_canonical();
        list.waiting.push(Stranger { number, stream: Arc::clone(stream), from, proven: false });
        Place { list: Arc::clone(self), number }
    }
}

impl List {
    /// The place of the one to hang up on; the list is not empty.
    fn victim(&self) -> usize {
        let unproven = self.waiting.iter().any(|one| !one.proven);
        let candidates = || self.waiting.iter().enumerate().filter(|(_, one)| one.proven != unproven);
        let of = |address| candidates().filter(|(_, one)| one.from == address).count();
        // The first of the largest: `max_by_key` gives the last.
        candidates().rev().max_by_key(|(_, one)| of(one.from)).map_or(0, |(place, _)| place)
    }
}

impl Place {
    /// This one has shown that it knows the token.
    pub fn proven(&self) {
        let mut list = lock(&self.list.list);
        if let Some(one) = list.waiting.iter_mut().find(|one| one.number == self.number) {
            one.proven = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.list.list).waiting.retain(|one| one.number != self.number);
        self.list.serving.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn connection() -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Arc::new(listener.accept().unwrap().0), ours)
    }

    fn ended(mut stream: &TcpStream) -> bool {
        stream.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
        matches!(stream.read(&mut [0]), Ok(0))
    }

    #[test]
    fn the_oldest_of_the_fullest_address_goes_and_the_proven_go_last() {
        let strangers = Strangers::new(4);
        let address = |n: u8| IpAddr::from([10, 0, 0, n]);
        let connections: Vec<_> = (0..6).map(|_| connection()).collect();
        let from = [1, 2, 2, 1, 1, 1];
        let mut places = Vec::new();
        for (n, ((stream, _), from)) in connections.iter().zip(from).enumerate() {
            places.push(strangers.enter(stream, address(from)));
            if n == 0 {
                places[0].proven();
            }
        }
        // The fifth finds 2 twice and 1 once beside the proven one; the sixth finds 1 twice and 2 once.
        let gone: Vec<bool> = connections.iter().map(|(_, ours)| ended(ours)).collect();
        assert_eq!(gone, [false, true, false, true, false, false]);
        drop(places);
        assert!(lock(&strangers.list).waiting.is_empty() && !strangers.are_too_many());
    }
}
