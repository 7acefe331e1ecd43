//! The driver that records what it is asked, and what a GPU and an adapter do beside it.

use super::*;

/// What a driver was asked.
#[derive(Default)]
pub(super) struct Record {
    pub calls: Vec<String>,
    pub commands: Vec<Command>,
    pub live: BTreeSet<usize>,
    pub next: usize,
    /// Fails the call that comes after so many.
    pub fail_after: Option<usize>,
    pub fallible: usize,
    pub without_waits: bool,
    pub refuse_dedicated: bool,
    /// State that QUERY_QP answers.
    pub state: u32,
}

#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Record>>);

impl Recorder {
    pub fn with<T>(&self, act: impl FnOnce(&mut Record) -> T) -> T {
        // A failed assertion says enough; what ends the adapter after it goes on.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn ask(&self, call: impl Into<String>) -> Result<()> {
        let call = call.into();
        self.with(|r| {
            r.fallible += 1;
            let fails = r.fail_after.is_some_and(|n| r.fallible > n);
            r.fail_after = if fails { None } else { r.fail_after };
            r.calls.push(call.clone());
            if fails { Err(misuse(format!("{call} refused"))) } else { Ok(()) }
        })
    }

    pub fn handle(&self) -> Handle {
        self.with(|r| {
            r.next += 1;
            assert!(r.live.insert(r.next));
            Handle(r.next)
        })
    }

    pub fn end(&self, handle: Handle, call: &str) {
        self.with(|r| {
            assert!(r.live.remove(&handle.0), "{call}: ended twice");
            r.calls.push(call.into());
        });
    }

    /// The calls since the last look.
    pub fn calls(&self) -> Vec<String> {
        self.with(|r| std::mem::take(&mut r.calls))
    }
}

pub(super) fn answer_of(command: &Command, number: u32) -> Vec<u8> {
    let mut answer = vec![0; command.answer];
    answer[8..12].copy_from_slice(&number.to_be_bytes());
    answer
}

impl Driver for Recorder {
    fn general(&self, command: &Command) -> Result<Vec<u8>> {
        self.ask(command.name)?;
        let mut answer = vec![0; command.answer];
        // 15 and 22 as logarithms of depths; atomics, cross channel, reliable connections.
        let cross = if self.with(|r| r.without_waits) { 0 } else { 8 };
        for (at, byte) in [(0x21, 15), (0x29, 22), (0x53, 2), (0x55, cross), (0x57, 1)] {
            answer[at] = byte;
        }
        Ok(answer)
    }

    fn create(&self, command: &Command) -> Result<(Handle, Vec<u8>)> {
        self.ask(command.name)?;
        let handle = self.handle();
        self.with(|r| r.commands.push(command.clone()));
        let number = if command.name == "CREATE_CQ" { 0x1000 } else { 0x40 } + handle.0 as u32;
        Ok((handle, answer_of(command, number)))
    }

    fn modify(&self, object: &Handle, command: &Command) -> Result<Vec<u8>> {
        self.ask(command.name)?;
        self.with(|r| {
            assert!(r.live.contains(&object.0));
            r.commands.push(command.clone());
        });
        Ok(answer_of(command, 0))
    }

    fn query(&self, _: &Handle, command: &Command) -> Result<Vec<u8>> {
        self.ask(command.name)?;
        let mut answer = vec![0; command.answer];
        answer[0x18] = self.with(|r| r.state as u8) << 4;
        Ok(answer)
    }

    fn destroy(&self, object: Handle) -> Result<()> {
        self.end(object, "destroy");
        Ok(())
    }

    unsafe fn pin(&self, bytes: Bytes<'_>) -> Result<(Handle, u32)> {
        let Bytes::Host(_, size) = bytes else { panic!("no GPU here") };
        self.ask(format!("pin {size}"))?;
        Ok((self.handle(), 0x77))
    }

    fn unpin(&self, memory: Handle) -> Result<()> {
        self.end(memory, "unpin");
        Ok(())
    }

    fn page(&self, kind: PageKind) -> Result<Page> {
        self.ask(format!("page {kind:?}"))?;
        if kind == PageKind::Dedicated && self.with(|r| r.refuse_dedicated) {
            return Err(misuse("no dedicated pages"));
        }
        Ok(Page {
            handle: self.handle(),
            number: 0xd0,
            doorbell: NonNull::without_provenance(8.try_into().unwrap()),
        })
    }

    fn free_page(&self, page: Handle) {
        self.end(page, "free page");
    }

    fn domain(&self) -> Result<u32> {
        self.ask("domain").map(|()| 0xbeef)
    }

    fn event_queue(&self) -> Result<u32> {
        self.ask("event queue").map(|()| 5)
    }

    unsafe fn register(&self, bytes: Bytes<'_>, address: u64) -> Result<Registered> {
        let size = match bytes {
            Bytes::Host(_, size) => format!("host {size}"),
            Bytes::DmaBuf(_, offset, size) => format!("dma-buf {offset:#x}+{size}"),
        };
        self.ask(format!("register {size} at {address:#x}"))?;
        let handle = self.handle();
        let key = 0x9000 + handle.0 as u32;
        Ok(Registered { handle, lkey: key, rkey: key })
    }

    fn deregister(&self, region: Handle) -> Result<()> {
        self.end(region, "deregister");
        Ok(())
    }

    fn mac(&self, _: [u8; 16], index: u8, _: u8) -> Result<[u8; 6]> {
        self.ask(format!("mac from {index}")).map(|()| [1, 2, 3, 4, 5, 6])
    }
}

/// Host memory for queues, known to kernels by other addresses.
pub(super) struct Source(pub Mutex<Vec<Vec<u64>>>);

pub(super) const KERNELS: u64 = 0x7000_0000_0000;

// SAFETY: zeroed memory of its own, each part given once.
unsafe impl QueueSource for Source {
    fn take(&self, bytes: u64) -> Result<Block> {
        let mut memory = vec![u64::MAX; bytes as usize / 8];
        let host = NonNull::from(memory.as_mut_slice()).cast();
        self.0.lock().unwrap().push(memory);
        Ok(Block { addr: KERNELS + host.as_ptr() as u64, host: Some(host), bytes })
    }
}

pub(super) fn port(ethernet: bool) -> Port {
    Port {
        adapter: "mlx5_0".into(),
        number: 1,
        lid: if ethernet { 0 } else { 7 },
        gid: [0xfe; 16],
        index: 3,
        ethernet,
        mtu: 5,
        log_reads: (3, 4),
    }
}

pub(super) fn open(recorder: &Recorder, ethernet: bool) -> Result<Mlx5> {
    Mlx5::over(Box::new(recorder.clone()), port(ethernet), Settings::default(), None)
}

pub(super) fn adapter(ethernet: bool) -> (Recorder, Mlx5, Source) {
    let recorder = Recorder::default();
    let adapter = open(&recorder, ethernet).unwrap();
    (recorder, adapter, Source(Mutex::default()))
}

pub(super) fn request(kind: Kind, depth: u32) -> QueueRequest {
    QueueRequest { kind, depth }
}

/// The word at `at`, an address for kernels.
pub(super) fn word(at: u64) -> &'static AtomicU32 {
    // SAFETY: in the memory of a `Source`, which outlives the use in a test.
    unsafe { AtomicU32::from_ptr((at - KERNELS) as *mut u32) }
}

/// As an adapter reports entry `index`.
pub(super) fn complete(queue: &QueuePair, index: u64, opcode: u32) {
    let place = index & u64::from(queue.depth - 1);
    let owner = u32::from(index & u64::from(queue.depth) != 0);
    let last = (index as u32 & 0xffff) << 16 | opcode << 4 | owner;
    word(queue.cq + 64 * place + 60).store(last.to_be(), Ordering::Release);
}

pub(super) fn post(queue: &QueuePair, posted: u64) {
    word(queue.sq_record).store((posted as u32 & 0xffff).to_be(), Ordering::Release);
}
