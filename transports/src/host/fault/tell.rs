//! A fault in words.

use super::{Bound, CallField, Fault, Operation};
use crate::host::ledger::{OWN_SCHEDULE, compared};
use fusewire_device::protocol::simple::channel::{HEADER, KernelWord};
use std::fmt;

/// A completion's syndrome in words (`mlx5dv.h`, `MLX5_CQE_SYNDROME_*`).
fn syndrome_text(syndrome: u8) -> &'static str {
    match syndrome {
        0x01 => "a wrong local length",
        0x02 => "a malformed entry",
        0x04 => "local memory that is not registered",
        0x05 => "the queue pair in error",
        0x12 => "a request that the peer refuses",
        0x13 => "peer's memory that is not registered, or no longer",
        0x14 => "a failure at the peer",
        0x15 => "no answer from the peer: is its link up, is its process alive?",
        0x16 => "a peer that is not ready",
        _ => "an error of the adapter's",
    }
}

/// A length in packs.
fn packs_text((bytes, rest): (u64, u64)) -> String {
    let packs = bytes / 16;
    match rest {
        0 => format!("{packs} whole packs of 16 bytes"),
        rest => format!("{packs} packs of 16 bytes, the last with {}", rest_text(rest)),
    }
}

/// So many elements of a pack; 0 is all.
fn rest_text(elements: u64) -> String {
    match elements {
        0 => "as many as fit".to_owned(),
        1 => "1 element".to_owned(),
        some => format!("{some} elements"),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { transport, reader, rank, .. } = self;
        if reader != rank {
            write!(f, "rank {reader} was stopped by rank {rank}: ")?;
        }
        match &self.operation {
            None => write!(f, "a kernel on {transport} was aborted; that rank's own error says why")?,
            Some(operation) => operation.tell(f, transport, *rank)?,
        }
        if let (Some(at), false) = (&self.at, matches!(self.operation, Some(Operation::Panicked { .. }))) {
            write!(f, " (called at {at})")?;
        }
        let late = matches!(self.operation, Some(Operation::Expired { .. }));
        let compared = match (&self.launched, self.missed()) {
            (Some(both), Some(peer)) => compared(*rank, &both[0], peer, &both[1], late),
            _ => String::new(),
        };
        match self.missed() {
            Some(peer) if late && compared.is_empty() && self.at.is_none() => {
                write!(f, "; did rank {peer} launch the same kernel?")?;
            }
            _ => write!(f, ".{compared}")?,
        }
        if let (Some(staging), Some(both)) = (self.staging, &self.launched)
            && both[0].schedule == OWN_SCHEDULE
        {
            write!(
                f,
                " A channel stages {staging} bytes, {} of them for a tile; the rest of a longer tile waits until the peer receives. Where ranks send \
                 before they receive, let tiles have at most `Kernel::most_staged` elements, or give `Options` more staging or fewer channels.",
                staging - HEADER
            )?;
        }
        write!(f, " The transport is poisoned until all ranks call `renew`")
    }
}

impl Operation {
    /// What happened, without the end of the sentence.
    fn tell(&self, f: &mut fmt::Formatter<'_>, transport: &str, rank: usize) -> fmt::Result {
        match self {
            // For all peers at once, or for the other blocks of this rank.
            Operation::Expired { what, peer, block, channel, expected, seen, waited } if *peer == rank => {
                write!(
                    f,
                    "rank {rank} waited {waited:.3?} for {what} (block {block} of it, number {channel}, expected {expected}, seen {seen}): not \
                 every peer, or not every block of rank {rank}, has come to it"
                )
            }
            Operation::Expired { what, peer, block, channel, expected, seen, waited } => write!(
                f,
                "rank {rank} waited {waited:.3?} for {what} of rank {peer} on {transport} (block {block}, channel {channel}, \
                 expected {expected}, seen {seen})"
            ),
            Operation::Aborted { reason } => write!(f, "rank {rank} aborted {transport}: {reason}"),
            Operation::Disagreed { reason } => {
                write!(f, "rank {rank} refused to launch on {transport}: {reason}")
            }
            Operation::Panicked { block, file, line, column, message } => {
                write!(f, "a kernel panicked on rank {rank} at {file}:{line}:{column} (block {block})")?;
                if message.is_empty() { Ok(()) } else { write!(f, ": {message}") }
            }
            Operation::Elsewhere { peer, own, theirs } => write!(
                f,
                "{transport}: rank {rank}'s output is byte {} of symmetric buffer {}, rank {peer}'s is byte {} of symmetric buffer {}: \
                 give every rank the same part of the same buffer",
                own.1, own.0, theirs.1, theirs.0
            ),
            Operation::Mismatch { peer, channel, field: CallField::Bytes, expected, seen } => write!(
                f,
                "rank {peer} sends {seen} bytes on channel {channel} of {transport} where rank {rank} expects {expected}: \
                 all ranks must launch with the same number of elements and the same options"
            ),
            Operation::Cut { peer, channel, bytes } => write!(
                f,
                "rank {peer} cuts the {bytes} bytes on channel {channel} of {transport} in another way than rank {rank}: all ranks must \
                 launch with the same number of elements and the same options: protocol, channels, blocks and shape"
            ),
            Operation::Length { peer, channel, expected, seen } => write!(
                f,
                "rank {peer} sends a chunk of another length on channel {channel} of {transport} ({}) than rank {rank} expects ({}). All ranks must launch \
                 with the same number of elements. Both ends of a tile give it the same length",
                packs_text(*seen),
                packs_text(*expected)
            ),
            Operation::Mismatch { peer, channel, field: CallField::Rest, expected, seen } => {
                write!(
                    f,
                    "rank {peer} sends a chunk of another length on channel {channel} of {transport} (its last 16 bytes hold {}) than rank \
                 {rank} expects (there {}). All ranks must launch with the same number of elements. Both ends of a tile give it the same length",
                    rest_text(KernelWord(*seen).rest()),
                    rest_text(KernelWord(*expected).rest())
                )
            }
            Operation::Mismatch { peer, channel, field: CallField::Type, .. } => {
                write!(
                    f,
                    "rank {peer} sends a tile of another type on channel {channel} of {transport} than rank {rank} expects. Both ends of \
                 a tile give the same type, and take a channel's tiles in the same order"
                )
            }
            Operation::Mismatch { peer, channel, field, expected, seen } => write!(
                f,
                "rank {peer} runs another kernel on channel {channel} of {transport} ({seen:#x}) than rank {rank} ({expected:#x}), or the \
                 same with another number of elements. All ranks must launch the same kernels in the same order{}",
                if *field == CallField::Digest {
                    ". Both ends of a tile by LL128 give it the same length and type"
                } else {
                    ""
                }
            ),
            Operation::Adapter { what, block, peer, syndrome, entry } => write!(
                f,
                "the adapter of rank {rank} ended entry {entry} towards rank {peer} with {} (syndrome {syndrome:#04x}); `{what}` in block \
                 {block} found out",
                syndrome_text(*syndrome)
            ),
            Operation::Fabric { what, peer, channel, status } => write!(
                f,
                "the RDMA adapter of rank {rank} could not carry out a `{what}` to rank {peer} on {transport} (channel {channel}): {}",
                status.describe()
            ),
            Operation::OutOfRange { what, block, peer, bound, given, limit } => {
                write!(
                    f,
                    "`{what}`{} on rank {rank} ",
                    if *bound == Bound::Ll128Packs { " by LL128" } else { "" }
                )?;
                match bound {
                    Bound::Channel => write!(f, "in block {block}: ")?,
                    _ => write!(f, "(block {block}, peer {peer}) ")?,
                }
                match bound {
                    Bound::Elements => {
                        write!(
                            f,
                            "would reach element {given} of memory that has {}",
                            limit.saturating_sub(1)
                        )
                    }
                    Bound::Packs => write!(
                        f,
                        "was given a tile of {given} packs of 16 bytes; one has at most {} (64 GiB)",
                        limit - 1
                    ),
                    Bound::Ll128Packs => write!(
                        f,
                        "was given a tile of {given} packs of 16 bytes; an LL128 channel holds {}: cut it into tiles of `Ll128Tiles::most` \
                         elements, or send it through staging",
                        limit - 1
                    ),
                    Bound::Start => write!(
                        f,
                        "was given a tile that begins at element {given} and has {} elements: its end is no index",
                        u64::MAX - limit
                    ),
                    Bound::Channel if *given != *block as u64 => write!(
                        f,
                        "took channel {given}, but there are {limit} channels: let `Kernel::take_channel` have a number below that, or make the transport with more \
                         `Options::channels`"
                    ),
                    Bound::Channel => write!(
                        f,
                        "tiles of a block travel on the channel of its number, and there are {limit} channels. Launch {limit} blocks at most, or \
                         make the transport with more `Options::channels`"
                    ),
                    Bound::Number => write!(f, "was given {given}, which must be below {limit}"),
                }
            }
            Operation::Refused { what, block, peer, why } => {
                write!(f, "`{what}` on rank {rank} (block {block}, peer {peer}) cannot be: {why}")
            }
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;
    use fusewire_device::kernel::MOST_PACKS;
    use fusewire_device::protocol::ll128::PACKS;
    use fusewire_device::protocol::simple::channel::CUT;
    use fusewire_device::wait::{AbortRecord, kind, operation};

    fn read(kind: u32, operation: u32, [expected, seen]: [u64; 2]) -> String {
        let record =
            AbortRecord { kind, operation, rank: 3, peer: 1, block: 4, channel: 2, ..AbortRecord::EMPTY };
        Fault::read("Shm", 3, &AbortRecord { expected, seen, ..record }).to_string()
    }

    #[test]
    fn kernels_tiles_and_lengths_are_told_apart() {
        let own = 0x1f2e_3d4c_5b6a_7980;
        let mismatch = |differs: u64| read(kind::MISMATCH, operation::RECEIVE, [own, own ^ differs]);
        let rest = mismatch(3 << 60);
        assert!(rest.contains("a chunk of another length") && rest.contains("hold 2 elements"), "{rest}");
        assert!(rest.contains("(there 1 element)"), "{rest}");
        for type_and_rest in [0xf, 0xb, 3 << 60 | 6] {
            let text = mismatch(type_and_rest);
            assert!(text.contains("a tile of another type on channel 2"), "{text}");
        }
        assert!(mismatch(0x100 | 6).contains("another kernel") && !mismatch(0x100).contains("by LL128"));
        // Of LL128, which names kernels by 16 bits.
        let text = read(kind::MISMATCH, operation::DIGEST, [0x4a01, 0x4a7f]);
        assert!(text.contains("another kernel") && text.contains("a tile by LL128"), "{text}");
        // Few bits do not make a digest.
        let text = read(kind::MISMATCH, operation::RECEIVE, [0x4a01, 0x4b01]);
        assert!(text.contains("another kernel") && !text.contains("by LL128"), "{text}");
    }

    #[test]
    fn what_is_out_of_range_is_told_by_its_kind() {
        let text = |kind, operation, limit, given| read(kind, operation, [limit, given]);
        let told = text(kind::NO_CHANNEL, operation::RECEIVE, 4, 4);
        assert!(
            told.starts_with("`recv_tile` on rank 3 in block 4: tiles") && told.contains("4 blocks at most"),
            "{told}"
        );
        let told = text(kind::NO_CHANNEL, operation::SEND, 3, 7);
        assert!(
            told.starts_with("`send_tile` on rank 3 in block 4: took channel 7, but there are 3 channels:"),
            "{told}"
        );
        // `rank - 1` of rank 0; whatever the operation.
        for operation in [operation::SEND, operation::PUT, operation::GET] {
            let told = text(kind::RANGE, operation, 4, u64::MAX);
            assert!(told.contains("was given 18446744073709551615, which must be below 4"), "{told}");
        }
        for number in [PACKS + 1, MOST_PACKS, 4] {
            let told = text(kind::RANGE, operation::SEND, number, number);
            assert!(told.contains(&format!("must be below {number}")), "{told}");
        }
        let told = text(kind::BEYOND, operation::PUT, 11, 12);
        assert!(told.contains("(block 4, peer 1) would reach element 12 of memory that has 10"), "{told}");
        let told = text(kind::LONG_LL128_TILE, operation::SEND, PACKS + 1, PACKS + 5);
        assert!(
            told.contains("`send_tile` by LL128 on rank 3") && told.contains(&format!("holds {PACKS}:")),
            "{told}"
        );
        assert!(told.contains("`Ll128Tiles::most` elements"), "{told}");
        let told = text(kind::LONG_TILE, operation::SEND, MOST_PACKS, MOST_PACKS + 1);
        assert!(told.contains("a tile of 4294967297 packs") && told.contains("at most 4294967295"), "{told}");
        let told = text(kind::TILE_END, operation::SEND, u64::MAX - 160, u64::MAX - 159);
        assert!(told.contains("18446744073709551456 and has 160 elements"), "{told}");
    }

    #[test]
    fn sizes_and_cuts_are_told_apart() {
        let read = |expected, seen| read(kind::MISMATCH, operation::HEADER, [expected, seen]);
        let text = read(3 * CUT + 640, 5 * CUT + 640);
        assert!(text.contains("cuts the 640 bytes") && text.contains("in another way"), "{text}");
        // Few elements more may be as many bytes on each channel.
        assert!(text.contains("the same number of elements and the same options"), "{text}");
        let text = read(3 * CUT + 640, 5 * CUT + 1280);
        assert!(text.contains("sends 1280 bytes") && text.contains("expects 640"), "{text}");
    }

    #[test]
    fn what_a_panic_says_is_read_up_to_a_cut_character() {
        let read = |text: &[u8]| {
            let mut record =
                AbortRecord { kind: kind::PANIC, file_len: text.len() as u32, ..AbortRecord::EMPTY };
            record.file[..text.len()].copy_from_slice(text);
            let fault = Fault::read("Shm", 0, &record);
            let Some(Operation::Panicked { file, message, .. }) = fault.operation else { panic!("{fault}") };
            (file, message)
        };
        let [both, place] = [&b"\xa9/a.rs\0too \xc3"[..], b"a.rs"].map(read);
        assert_eq!((both.0.as_str(), both.1.as_str()), ("/a.rs", "too "));
        assert_eq!((place.0.as_str(), place.1.as_str()), ("a.rs", ""));
    }

    #[test]
    fn what_a_panic_says_has_the_values_that_came_with_it() {
        let text = b"a.rs\0%llu%% of %lld, %.9g, %?, %.1";
        let mut record = AbortRecord {
            kind: kind::PANIC,
            file_len: text.len() as u32,
            values: [7, (-3i64).cast_unsigned(), f64::to_bits(0.1f32.into()), 0, 9, 0, 0, 0],
            value_count: 5,
            ..AbortRecord::EMPTY
        };
        record.file[..text.len()].copy_from_slice(text);
        let said = Fault::read("Nvl", 0, &record).to_string();
        assert!(said.contains(": 7% of -3, 0.1, .., ..."), "{said}");
        record.value_count = 0;
        let said = Fault::read("Nvl", 0, &record).to_string();
        assert!(said.contains("%llu%% of %lld, %.9g, %?, %.1"), "{said}");
    }
}
