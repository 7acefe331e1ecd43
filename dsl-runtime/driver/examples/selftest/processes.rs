//! Checks that need a second process: memory passed over a socket, and an error that loses the context.

use std::error::Error;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fusewire_driver::memory::{DeviceRegion, SharedMemory};
use fusewire_driver::{Device, DevicePtr, Driver};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::peers::pairs;
use crate::report::{Outcome, Report, ensure, pass, skip};
use crate::{Rig, read_words};

/// The argument that makes this program the importing child; a device and a count of words follow.
pub const IMPORT: &str = "--child-import";
/// The argument that makes this program the child that loses its context.
pub const FAULT: &str = "--child-fault";

/// Words in the shared memory.
const WORDS: u32 = 50_000;
/// How long a child may take, its start included.
const CHILD: Duration = Duration::from_secs(60);

/// Runs them all.
pub fn checks(report: &mut Report, devices: &[Device]) {
    for (one, two) in pairs(devices) {
        let name = format!("memory passed to a process, {} to {}", one.ordinal(), two.ordinal());
        report.check(&name, || export(one, two));
    }
    report.check("a sticky error is told as such", || {
        let mut child = Command::new(std::env::current_exe()?).arg(FAULT).stdout(Stdio::piped()).spawn()?;
        let status = wait(&mut child)?;
        let mut text = String::new();
        child.stdout.take().ok_or("no output")?.read_to_string(&mut text)?;
        ensure(status.success(), || format!("the child ended with {status}: {text}"))?;
        pass(text.trim())
    });
}

fn export(one: &Device, two: &Device) -> Outcome {
    if one != two && !two.can_access_peer(one)? {
        return skip("the devices cannot reach each other");
    }
    let rig = Rig::new(one)?;
    let memory = SharedMemory::create(&rig.context, WORDS as usize * 4)?;
    memory.write(0, &(0..WORDS).collect::<Vec<_>>())?;
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(CHILD))?;
    let mut child = Command::new(std::env::current_exe()?)
        .args([IMPORT, &two.ordinal().to_string(), &WORDS.to_string()])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    send_fd(&ours, memory.export_fd()?.as_fd())?;
    let answered = (&ours).read_exact(&mut [0]);
    // The child holds its mapping until it reads end-of-file.
    drop(ours);
    let status = wait(&mut child)?;
    answered?;
    ensure(status.success(), || format!("the child ended with {status}"))?;
    let words = read_words(&memory, WORDS as usize)?;
    ensure(words.iter().enumerate().all(|(at, &word)| word as usize == at + 1), || {
        format!("{:?}", &words[..4])
    })?;
    pass("the other process read our words and its kernel wrote them")
}

/// The child: takes a descriptor from standard input, checks the words, adds 1 to each, and answers.
pub fn import(ordinal: &str, count: &str) -> i32 {
    let body = || -> Result<(), Box<dyn Error>> {
        let (ordinal, count): (usize, u32) = (ordinal.parse()?, count.parse()?);
        let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        socket.set_read_timeout(Some(CHILD))?;
        let fd = receive_fd(&socket)?;
        let rig = Rig::new(&Driver::load()?.device(ordinal)?)?;
        let memory = SharedMemory::import(&rig.context, fd.as_fd(), count as usize * 4)?;
        drop(fd);
        let words = read_words(&memory, count as usize)?;
        ensure(words.iter().copied().eq(0..count), || format!("the child sees {:?}", &words[..4]))?;
        // SAFETY: the memory holds that many words, and the parent uses them only after the answer.
        unsafe { rig.queue_add_one(memory.ptr(), count)? };
        rig.wait()?;
        socket.write_all(&[1])?;
        ensure(socket.read(&mut [0])? == 0, || "the parent said something unexpected".into())
    };
    code_of(body())
}

/// The child that makes its kernel write to a bad address.
pub fn fault() -> i32 {
    let body = || -> Result<(), Box<dyn Error>> {
        let rig = Rig::new(&Driver::load()?.device(0)?)?;
        // SAFETY: the contract of launching is broken on purpose: the address is not mapped, which the device
        // detects, and this process has nothing else to lose.
        unsafe { rig.queue_add_one(DevicePtr::new(0x1000), 1)? };
        let error = rig.wait().err().ok_or("a store to a bad address passed")?;
        ensure(error.is_sticky(), || format!("not sticky: {error}"))?;
        let again = rig.context.synchronize().err().ok_or("the context recovered")?;
        ensure(again.is_sticky(), || format!("not sticky the second time: {again}"))?;
        println!("{error}");
        Ok(())
    };
    code_of(body())
}

fn code_of(result: Result<(), Box<dyn Error>>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("child: {error}");
            1
        }
    }
}

/// Waits for a child, and ends it at the deadline.
fn wait(child: &mut Child) -> Result<ExitStatus, Box<dyn Error>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > CHILD {
            child.kill()?;
            child.wait()?;
            return Err(format!("the child took longer than {CHILD:?}").into());
        }
        sleep(Duration::from_millis(5));
    }
}

fn send_fd(socket: &UnixStream, fd: BorrowedFd<'_>) -> Result<(), Box<dyn Error>> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    ensure(control.push(SendAncillaryMessage::ScmRights(&fds)), || "no room for a descriptor".into())?;
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive_fd(socket: &UnixStream) -> Result<OwnedFd, Box<dyn Error>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fd = fds.next().and_then(|mut fds| fds.next());
    fd.ok_or_else(|| "no descriptor arrived".into())
}
