//! Everything that reads bytes which another process, another rank or a person wrote: a target for each.
//!
//! A target takes any bytes and panics where what it calls breaks a promise. `cargo xtask fuzz` looks for such bytes;
//! `tests/corpus.rs` runs what was found so far, and is part of `cargo test`.

use fusewire::driver::ptx;
use fusewire::nic::emulated::decode::{Action, decode};
use fusewire::tune::{Layout, Message, Table};
use fusewire_world::{UniqueId, fuzzing};

/// A target's name, which is that of its corpus, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("frames", fuzzing::frames),
    ("router", fuzzing::router),
    ("handshake", fuzzing::handshake),
    ("descriptors", descriptors),
    ("ptx", part_ptx),
    ("tuning", tuning),
    ("environment", fuzzing::environment),
    ("work_queue", work_queue),
];

/// What ranks tell each other of themselves, their queues and their memory.
fn descriptors(data: &[u8]) {
    fuzzing::descriptors(data);
    let _ = postcard::from_bytes::<fusewire::nic::Address>(data);
    let _ = postcard::from_bytes::<fusewire_verbs::Endpoint>(data);
    let _ = UniqueId::from_bytes(data);
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(id) = text.parse::<UniqueId>()
    {
        assert_eq!(id.to_string().parse::<UniqueId>().ok(), Some(id));
    }
}

/// Bytes are the names of two entries, a line each, and then PTX.
fn part_ptx(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.splitn(3, '\n');
    let (Some(one), Some(two), Some(ptx)) = (lines.next(), lines.next(), lines.next()) else { return };
    for entries in [&[one][..], &[one, two]] {
        let part = ptx::part(ptx, entries);
        // What is left are lines of the text, in its order; and taking part of a part changes nothing.
        let mut rest = ptx.split_inclusive('\n');
        assert!(
            part.split_inclusive('\n').all(|line| rest.any(|other| other == line)),
            "{part:?} of {ptx:?}"
        );
        assert_eq!(ptx::part(&part, entries), part, "of {ptx:?}");
    }
    for major in [8, 9] {
        let raised = ptx::raised(ptx, major);
        assert_eq!(raised.matches('\n').count(), ptx.matches('\n').count());
    }
}

fn tuning(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Table::parse(text, "a file") {
        Ok(table) => {
            let again = Table::parse(&table.to_text(), "itself").expect("a table reads what it wrote");
            assert_eq!(again.to_text(), table.to_text());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    for line in text.lines() {
        if let Some(message) = Message::read(line) {
            assert_eq!(Message::read(&message.to_line()), Some(message));
        }
        if let Ok(layout) = line.parse::<Layout>() {
            assert_eq!(layout.to_string().parse(), Ok(layout));
        }
    }
}

/// Bytes are a queue's number, an index and entries of 64 bytes.
fn work_queue(data: &[u8]) {
    const GIB: u32 = 1 << 30;
    let Some((number, rest)) = data.split_first_chunk() else { return };
    let Some((index, mut rest)) = rest.split_first_chunk() else { return };
    let (number, mut index) = (u32::from_le_bytes(*number) >> 8, u16::from_le_bytes(*index));
    while let Some((block, more)) = rest.split_first_chunk::<64>() {
        if let Ok(decoded) = decode(block, number, index) {
            let fits = match decoded.action {
                Action::Inline(_, _, bytes) => (1..=28).contains(&bytes),
                Action::Write(_, local) | Action::Read(_, local) => (1..=GIB).contains(&local.bytes),
                Action::CompareSwap { old, .. } | Action::FetchAdd(_, _, old) => old.bytes == 8,
                _ => decoded.is_silent(),
            };
            assert!(fits, "{decoded:?}");
        }
        (rest, index) = (more, index.wrapping_add(1));
    }
}
