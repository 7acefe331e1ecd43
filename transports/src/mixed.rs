//! Windows whose peers are reached in different ways.

use crate::ibgda::{Broken, Endpoint, IbgdaPeer, LocalBuffer, RemoteBuffer, Work};
use fusewire_device::group::Group;
use fusewire_device::window::{Add, Links, LocalMemory, Rdma, Refused, RemoteMemory, Route, Transfer};

/// Any mix of links: a window's operations look at each peer's kind.
#[derive(Clone, Copy, Debug)]
pub struct Mixed;

// SAFETY: nothing is left out.
unsafe impl Links for Mixed {
    const MAPPED: bool = true;
    const RDMA: bool = true;
    type Adapter = QueuePairs;
}

/// Every peer is reached by an adapter.
#[derive(Clone, Copy, Debug)]
pub struct AllRdma;

// SAFETY: the host half checks it before each launch.
unsafe impl Links for AllRdma {
    const MAPPED: bool = false;
    const RDMA: bool = true;
    type Adapter = QueuePairs;
}

/// Queue pairs to every peer that the adapter reaches, for windows.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueuePairs {
    /// Address of a table of [`IbgdaPeer`]s, by index among the adapter's peers; 0 without an adapter.
    pub peers: u64,
}

impl QueuePairs {
    /// One queue pair for each block and peer, as far as there are so many, so that what a block posts keeps its order.
    ///
    /// # Safety
    /// As for [`IbgdaPeer::endpoint`]; the route's peer is in the table.
    #[inline(always)]
    unsafe fn endpoint(&self, route: &Route) -> Endpoint {
        // SAFETY: the caller's contract.
        unsafe {
            let peer = (self.peers as *const IbgdaPeer).add(route.peer as usize).read();
            peer.endpoint(route.block, &route.control)
        }
    }
}

#[inline(always)]
fn local(memory: LocalMemory) -> LocalBuffer {
    LocalBuffer::new(memory.address, memory.key)
}

#[inline(always)]
fn remote(memory: RemoteMemory) -> RemoteBuffer {
    RemoteBuffer::new(memory.address, memory.key)
}

#[inline(always)]
fn said(posted: Result<Work, Broken>) -> Result<(), Refused> {
    match posted {
        Ok(_) => Ok(()),
        Err(Broken::Expired) => Err(Refused::Expired),
        Err(Broken::Aborted | Broken::Elsewhere) => Err(Refused::Stopped),
        Err(Broken::Adapter { syndrome, entry }) => {
            Err(Refused::Adapter { syndrome: u64::from(syndrome), entry })
        }
    }
}

// SAFETY: a route is one queue pair, on which entries take effect in order, atomics after a fence of the adapter.
unsafe impl Rdma for QueuePairs {
    #[inline(always)]
    unsafe fn put<G: Group>(&self, group: &G, route: Route, t: Transfer) -> Result<(), Refused> {
        // SAFETY: the caller's contract; tables and control words are live as long as kernels run.
        said(unsafe { self.endpoint(&route).put_group(group, local(t.from), remote(t.to), t.from.bytes) })
    }

    #[inline(always)]
    unsafe fn signal<G: Group>(&self, group: &G, route: Route, signal: Add) -> Result<(), Refused> {
        let word = remote(signal.word);
        // SAFETY: as above.
        said(unsafe { self.endpoint(&route).signal_remote_with_fence_group(group, word, signal.value) })
    }

    #[inline(always)]
    unsafe fn put_signal<G: Group>(
        &self,
        group: &G,
        route: Route,
        t: Transfer,
        signal: Add,
    ) -> Result<(), Refused> {
        let word = remote(signal.word);
        // SAFETY: as above.
        said(unsafe {
            let endpoint = self.endpoint(&route);
            endpoint.put_signal_group(group, local(t.from), remote(t.to), t.from.bytes, word, signal.value)
        })
    }

    #[inline(always)]
    unsafe fn complete<G: Group>(&self, group: &G, route: Route) -> Result<(), Refused> {
        // SAFETY: as above.
        said(unsafe { self.endpoint(&route).fence_group(group) }.map(|()| Work { index: 0 }))
    }

    #[inline(always)]
    unsafe fn put_signal_counter<G: Group>(
        &self,
        group: &G,
        route: Route,
        t: Transfer,
        signal: Add,
        counter: LocalMemory,
    ) -> Result<(), Refused> {
        let (from, to, word) = (local(t.from), remote(t.to), remote(signal.word));
        // SAFETY: as above.
        said(unsafe {
            let endpoint = self.endpoint(&route);
            let bytes = t.from.bytes;
            endpoint.put_signal_counter_remote_group(
                group,
                from,
                to,
                bytes,
                word,
                signal.value,
                local(counter),
                1,
            )
        })
    }
}
