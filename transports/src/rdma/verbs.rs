//! Real adapters.

use super::{
    Access, Adapter, Completion, Error, Filter, Local, Pair, PairOptions, Registration, Request, Result,
};
use fusewire_verbs as verbs;
use std::sync::Arc;

/// An adapter behind libibverbs.
#[derive(Debug)]
pub struct Verbs(Arc<verbs::Adapter>);

impl Verbs {
    /// The `nth` of the adapters that the filter lets through.
    ///
    /// # Errors
    /// No adapter, or one that cannot be opened.
    pub fn open(filter: &Filter, nth: usize) -> Result<Self> {
        verbs::Adapter::open(filter, nth).map(Verbs)
    }
}

// SAFETY: the verbs library's own promise.
unsafe impl Adapter for Verbs {
    fn name(&self) -> &str {
        self.0.name()
    }

    unsafe fn register(&self, start: *mut u8, bytes: usize, access: Access) -> Result<Box<dyn Registration>> {
        // SAFETY: the caller's contract.
        Ok(Box::new(unsafe { verbs::Memory::register(&self.0, start, bytes, access)? }))
    }

    fn pair(&self, options: &PairOptions) -> Result<Box<dyn Pair>> {
        let completions = verbs::CompletionQueue::new(&self.0, options.send_depth + options.receive_depth)?;
        Ok(Box::new(verbs::QueuePair::new(&completions, &completions, options)?))
    }
}

// SAFETY: the keys that the library gave for it.
unsafe impl Registration for verbs::Memory {
    fn start(&self) -> u64 {
        self.start()
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn lkey(&self) -> u32 {
        self.lkey()
    }

    fn rkey(&self) -> u32 {
        self.rkey()
    }
}

// SAFETY: the verbs library's own promise.
unsafe impl Pair for verbs::QueuePair {
    fn endpoint(&self) -> Vec<u8> {
        let e = self.endpoint();
        let mut bytes = Vec::with_capacity(32);
        bytes.extend(e.number.to_le_bytes());
        bytes.extend(e.lid.to_le_bytes());
        bytes.extend([e.mtu, e.reads]);
        bytes.extend(e.first_packet.to_le_bytes());
        bytes.extend(e.gid);
        bytes
    }

    fn connect(&mut self, peer: &[u8]) -> Result<()> {
        let unreadable =
            || Error::misuse("a peer's endpoint is not one of an RDMA adapter: do all ranks use one fabric?");
        let bytes: [u8; 28] = peer.try_into().map_err(|_| unreadable())?;
        let [n0, n1, n2, n3, l0, l1, mtu, reads, p0, p1, p2, p3, gid @ ..] = bytes;
        let (number, lid) = (u32::from_le_bytes([n0, n1, n2, n3]), u16::from_le_bytes([l0, l1]));
        let first_packet = u32::from_le_bytes([p0, p1, p2, p3]);
        verbs::QueuePair::connect(self, &verbs::Endpoint { number, lid, gid, first_packet, mtu, reads })
    }

    unsafe fn post(&self, request: &Request<'_>) -> Result<bool> {
        // SAFETY: the caller's contract.
        unsafe { self.post(request) }
    }

    unsafe fn post_receive(&self, id: u64, local: Local) -> Result<bool> {
        // SAFETY: the caller's contract.
        unsafe { self.post_receive(id, local) }
    }

    fn poll(&self, out: &mut Vec<Completion>) -> Result<()> {
        self.completions().poll(out).map(drop)
    }

    fn break_off(&self) {
        // It fails only where the pair or its device is gone already.
        let _ = verbs::QueuePair::break_off(self);
    }
}
