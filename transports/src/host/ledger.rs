//! What each rank of the host launched last: a wait that expired is told with what the peer did instead.

use fusewire_device::wait::AbortRecord;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A rank's last launch on a transport, as its host noted it before the kernel was queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// How many launches there were since the rendezvous or the last `renew`. Replays of a graph count as one each.
    pub number: u64,
    /// Path of the kernel's module; empty for a graph.
    pub kernel: String,
    /// Schedule.
    pub schedule: String,
    /// How bytes travel, if the host knows.
    pub protocol: String,
    /// Elements of one peer's chunk, where the host knows.
    pub elements: Option<u64>,
    /// How chunks are cut, where the host knows.
    pub cut: Cut,
    /// Whether the rank has let its end of the transport go.
    pub left: bool,
}

/// [`Launched::schedule`] of a kernel that is a schedule of its own.
pub const OWN_SCHEDULE: &str = "a schedule of its own";

/// How a launch cuts its chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Channels to each peer; of a schedule of the user's own, its blocks; 0 where there are none.
    pub parts: u64,
    /// Elements of a row, where a chunk has a shape; else 0.
    pub cols: u64,
    /// Packs of 16 bytes that each chunk begins with and that go by LL128 before the rest; else 0.
    pub first: u64,
}

impl fmt::Display for Launched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Launched { number, kernel, schedule, protocol, elements, cut, .. } = self;
        write!(f, "number {number}, ")?;
        match kernel.as_str() {
            "" => write!(f, "{schedule}")?,
            _ => write!(f, "`{kernel}`, {schedule}")?,
        }
        match elements {
            None => {}
            Some(1) => write!(f, " of 1 element to a peer")?,
            Some(n) => write!(f, " of {n} elements to a peer")?,
        }
        if !protocol.is_empty() {
            write!(f, ", {protocol}")?;
        }
        match (cut.parts, elements) {
            (0, _) => Ok(()),
            (1, Some(_)) => write!(f, " over 1 channel"),
            (n, Some(_)) => write!(f, " over {n} channels"),
            (1, None) => write!(f, ", 1 block"),
            (n, None) => write!(f, ", {n} blocks"),
        }?;
        match cut.first {
            0 => {}
            packs => write!(f, " behind {} bytes by LL128", 16 * packs)?,
        }
        match cut.cols {
            0 => Ok(()),
            cols => write!(f, ", rows of {cols} elements"),
        }
    }
}

/// Bytes of a rank's notes on its page of the board, behind the record.
pub(crate) const BYTES: usize = 8 * WORDS;
const _: () = assert!(AT >= size_of::<AbortRecord>() && AT.is_multiple_of(8));
/// Where they begin.
pub(crate) const AT: usize = 1024;

const WORDS: usize = TEXT + KERNEL + 2 * HOW;
/// Odd while the rank writes the rest.
const VERSION: usize = 0;
const NUMBER: usize = 1;
const LEFT: usize = 2;
/// One more than they are; 0 if nobody knows.
const ELEMENTS: usize = 3;
const PARTS: usize = 4;
const COLS: usize = 5;
const FIRST: usize = 6;
const TEXT: usize = 7;
/// Words of the kernel's path, the end of it if it is long, then of schedule and protocol each; zeroes follow.
const KERNEL: usize = 16;
const HOW: usize = 4;

/// A rank's notes. One host writes them, under its board's lock; the hosts of others read.
#[derive(Clone, Copy)]
pub(crate) struct Notes<'a>(pub(crate) &'a [AtomicU64]);

impl Notes<'_> {
    fn word(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }

    fn set(&self, index: usize, value: u64) {
        self.0[index].store(value, Ordering::Relaxed);
    }

    /// Lets `body` change the words; readers that meet it look again.
    fn write(&self, body: impl FnOnce()) {
        let version = self.word(VERSION);
        self.set(VERSION, version | 1);
        fence(Ordering::Release);
        body();
        self.0[VERSION].store((version | 1) + 1, Ordering::Release);
    }

    /// Notes one more launch.
    pub(crate) fn launched(&self, kernel: &str, how: [&str; 2], elements: Option<u64>, cut: Cut) {
        self.write(|| {
            self.set(NUMBER, self.word(NUMBER) + 1);
            self.set(ELEMENTS, elements.map_or(0, |n| n.saturating_add(1)));
            self.set(PARTS, cut.parts);
            self.set(COLS, cut.cols);
            self.set(FIRST, cut.first);
            let from = (kernel.len().saturating_sub(8 * KERNEL)..).find(|at| kernel.is_char_boundary(*at));
            let kernel = &kernel[from.unwrap_or(kernel.len())..];
            self.text(TEXT, KERNEL, kernel.bytes());
            self.text(TEXT + KERNEL, HOW, how[0].bytes());
            self.text(TEXT + KERNEL + HOW, HOW, how[1].bytes());
        });
    }

    /// Notes that this rank launches nothing any more.
    pub(crate) fn left(&self) {
        self.write(|| self.set(LEFT, 1));
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.write(|| (NUMBER..WORDS).for_each(|index| self.set(index, 0)));
    }

    fn text(&self, at: usize, words: usize, bytes: impl Iterator<Item = u8>) {
        let mut bytes = bytes.fuse();
        for index in at..at + words {
            self.set(index, u64::from_le_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0))));
        }
    }

    /// What stands there; `None` if it is written all the while.
    pub(crate) fn read(&self) -> Option<Launched> {
        for _ in 0..1000 {
            let before = self.0[VERSION].load(Ordering::Acquire);
            let words: [u64; WORDS] = std::array::from_fn(|index| self.word(index));
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && before == self.word(VERSION) {
                return Some(Launched {
                    number: words[NUMBER],
                    kernel: string(&words[TEXT..TEXT + KERNEL]),
                    schedule: string(&words[TEXT + KERNEL..][..HOW]),
                    protocol: string(&words[TEXT + KERNEL + HOW..]),
                    elements: words[ELEMENTS].checked_sub(1),
                    cut: Cut { parts: words[PARTS], cols: words[COLS], first: words[FIRST] },
                    left: words[LEFT] != 0,
                });
            }
            std::thread::yield_now();
        }
        None
    }
}

fn string(words: &[u64]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

/// What the launches of `rank`, which gave up, and of `peer` say about it: a sentence behind a space, or nothing. The peer did not come
/// in time (`late`), or came with something else.
pub(crate) fn compared(rank: usize, own: &Launched, peer: usize, theirs: &Launched, late: bool) -> String {
    if late && theirs.left && theirs.number < own.number {
        return format!(
            " Rank {peer} let its transport go after {} of the {} launches that rank {rank} has made: its function returned there, or an \
             error or a panic ended it.",
            theirs.number, own.number
        );
    }
    let text = |launched: &Launched| match launched.number {
        0 => "nothing on this transport".to_owned(),
        _ => launched.to_string(),
    };
    match text(own) == text(theirs) {
        true if !late || own.number == 0 => String::new(),
        true => format!(
            " Both launched the same last ({own}): rank {peer} is slower, waits for something else, or has ended it without this."
        ),
        false => format!(" Rank {rank} launched last: {}; rank {peer}: {}.", text(own), text(theirs)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn words() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn notes_say_what_was_launched_last() {
        let words = words();
        let notes = Notes(&words);
        assert_eq!(notes.read().map(|l| (l.number, l.left)), Some((0, false)));
        let long = format!("{}é::double_add", "x".repeat(300));
        let cut = |parts| Cut { parts, ..Cut::default() };
        notes.launched(&long, ["all_to_all", "by LL128"], Some(12), cut(8));
        notes.launched(&long, ["all_to_all", "by LL128"], Some(12), cut(8));
        let launched = notes.read().unwrap();
        assert!(long.ends_with(&launched.kernel) && launched.kernel.len() >= 8 * KERNEL - 3);
        notes.launched("my::kernel", ["sendrecv", "by LL128"], Some(u64::MAX - 1), cut(1));
        let text = "number 3, `my::kernel`, sendrecv of 18446744073709551614 elements to a peer, by LL128 over 1 channel";
        assert_eq!(notes.read().unwrap().to_string(), text);
        let all = Cut { parts: 3, cols: 160, first: 8 };
        notes.launched("k", ["all_to_all", ""], Some(2), all);
        let text = "number 4, `k`, all_to_all of 2 elements to a peer over 3 channels behind 128 bytes by LL128, rows of 160 elements";
        assert_eq!(notes.read().unwrap().to_string(), text);
        notes.launched("", ["a replayed graph", ""], None, Cut::default());
        notes.left();
        let launched = notes.read().unwrap();
        assert_eq!((launched.to_string().as_str(), launched.left), ("number 5, a replayed graph", true));
        notes.clear();
        assert_eq!(notes.read().map(|l| (l.number, l.left, l.kernel)), Some((0, false, String::new())));
    }

    #[test]
    fn whoever_reads_meanwhile_gets_one_launch() {
        let words = Arc::new(words());
        let writer = Arc::clone(&words);
        let stop = Arc::new(AtomicU64::new(0));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let names = ["one", "another::kernel::with::a::name::of::several::words"];
            let mut number = 0;
            while stopped.load(Ordering::Relaxed) == 0 {
                number += 1;
                Notes(&writer).launched(names[number % 2], ["", ""], Some(number as u64), Cut::default());
            }
        });
        let mut seen = 0;
        while seen < 1000 {
            let Some(launched) = Notes(&words).read() else { continue };
            if launched.number > 0 {
                seen += 1;
                assert_eq!(launched.elements, Some(launched.number));
                assert_eq!(launched.kernel == "one", launched.number % 2 == 0, "{launched}");
            }
        }
        stop.store(1, Ordering::Relaxed);
        thread.join().unwrap();
    }

    #[test]
    fn launches_that_differ_are_told_apart() {
        let words = [words(), words()];
        let [own, theirs] = [Notes(&words[0]), Notes(&words[1])];
        let cut = |parts| Cut { parts, ..Cut::default() };
        let text = || compared(0, &own.read().unwrap(), 1, &theirs.read().unwrap(), true);
        assert_eq!(text(), "");
        own.launched("k", ["all_to_all", "by Simple"], Some(4), cut(2));
        assert_eq!(
            text(),
            " Rank 0 launched last: number 1, `k`, all_to_all of 4 elements to a peer, by Simple over 2 channels; rank 1: nothing on \
             this transport."
        );
        theirs.launched("k", ["all_to_all", "by Simple"], Some(4), cut(2));
        assert!(text().starts_with(" Both launched the same last (number 1, `k`"), "{}", text());
        own.launched("k", ["all_to_all", "by Simple"], Some(4), cut(2));
        theirs.launched("k", ["a schedule of its own", ""], None, cut(3));
        assert!(text().ends_with("rank 1: number 2, `k`, a schedule of its own, 3 blocks."), "{}", text());
        own.launched("k", ["all_to_all", "by Simple"], Some(4), cut(2));
        theirs.left();
        assert!(text().contains("let its transport go after 2 of the 3 launches"), "{}", text());
    }
}
