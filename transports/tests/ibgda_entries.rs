//! Work queue entries: golden bytes of each kind, and everything that is written is read back by the emulated adapter's decoder, which
//! shares no code with the writer.

use fusewire_nic::emulated::decode::{Action, Bad, Decoded, Far, Local, decode};
use fusewire_transports::ibgda::wqe::{Entry, Head, INLINE, MOST};
use fusewire_transports::ibgda::{LocalBuffer, RemoteBuffer};
use proptest::prelude::*;

/// The entry as it lies in memory; what it does not use is zero.
fn bytes(entry: &Entry) -> [u8; 64] {
    let mut out = [0; 64];
    for (k, word) in entry.segments.iter().take(entry.used as usize).flatten().enumerate() {
        out[4 * k..4 * k + 4].copy_from_slice(&word.to_ne_bytes());
    }
    out
}

fn hex(text: &str) -> [u8; 64] {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut out = [0; 64];
    for (k, pair) in digits.chunks(2).enumerate() {
        let digit = |d: u8| (d as char).to_digit(16).map_or(0, |d| d as u8);
        out[k] = digit(pair[0]) << 4 | digit(pair[1]);
    }
    out
}

const HEAD: Head = Head { qpn: 0x12_3456, index: 0x1_abcd, fence: false };
const REMOTE: RemoteBuffer = RemoteBuffer::new(0x1122_3344_5566_7788, 0xaabb_ccdd);
const LOCAL: LocalBuffer = LocalBuffer::new(0x0102_0304_0506_0708, 0x1020_3040);

#[test]
fn an_rdma_write() {
    let golden = hex("00abcd08 12345603 00000008 00000000
                      11223344 55667788 aabbccdd 00000000
                      00001000 10203040 01020304 05060708");
    assert_eq!(bytes(&HEAD.write(REMOTE, LOCAL, 0x1000)), golden);
}

#[test]
fn an_inline_write_of_8_bytes() {
    let golden = hex("00abcd08 12345603 00000008 00000000
                      11223344 55667788 aabbccdd 00000000
                      80000008 0807060504030201 00000000");
    let value = 0x0102_0304_0506_0708u64;
    let payload = [value as u32, (value >> 32) as u32, 0, 0, 0, 0, 0];
    assert_eq!(bytes(&HEAD.write_inline(REMOTE, payload, 8)), golden);
}

#[test]
fn an_inline_write_of_all_that_fits() {
    let golden = hex("00abcd08 12345604 00000008 00000000
                      11223344 55667788 aabbccdd 00000000
                      8000001c 01000000 02000000 03000000
                      04000000 05000000 06000000 07000000");
    assert_eq!(bytes(&HEAD.write_inline(REMOTE, [1, 2, 3, 4, 5, 6, 7], 28)), golden);
}

#[test]
fn an_rdma_read() {
    let golden = hex("00abcd10 12345603 00000008 00000000
                      11223344 55667788 aabbccdd 00000000
                      40000000 10203040 01020304 05060708");
    assert_eq!(bytes(&HEAD.read(REMOTE, LOCAL, MOST as u32)), golden);
}

#[test]
fn a_fetch_and_add_behind_a_fence() {
    let golden = hex("00abcd12 12345604 00000088 00000000
                      11223344 55667788 aabbccdd 00000000
                      ffffffff fffffffe 00000000 00000000
                      00000008 10203040 01020304 05060708");
    let head = Head { fence: true, ..HEAD };
    assert_eq!(bytes(&head.fetch_add(REMOTE, -2i64 as u64, LOCAL)), golden);
}

#[test]
fn a_compare_and_swap() {
    let golden = hex("00abcd11 12345604 00000008 00000000
                      11223344 55667788 aabbccdd 00000000
                      00000000 00000005 00000000 00000006
                      00000008 10203040 01020304 05060708");
    assert_eq!(bytes(&HEAD.compare_swap(REMOTE, 5, 6, LOCAL)), golden);
}

#[test]
fn no_operation() {
    assert_eq!(bytes(&HEAD.nop()), hex("00abcd00 12345601 00000008 00000000"));
}

#[test]
fn a_wait() {
    let golden = hex("00abcd0f 12345602 00000008 00000000
                      00000000 00000000 00012345 00654321");
    assert_eq!(bytes(&HEAD.wait(0x65_4321, 0x1_2345)), golden);
    // Completion queues count in 24 bits.
    assert_eq!(bytes(&HEAD.wait(0x65_4321, 0x5_0201_2345)), bytes(&HEAD.wait(0x65_4321, 0x1_2345)));
}

#[test]
fn keys_are_kept_in_network_order() {
    let buffer = LocalBuffer::new(64, 0x0000_1203);
    assert_eq!(bytemuck::bytes_of(&buffer.lkey), [0, 0, 0x12, 3]);
    assert_eq!(buffer.lkey.number(), 0x1203);
    assert_eq!(buffer.looped_back(), RemoteBuffer::new(64, 0x1203));
}

#[test]
fn a_part_of_a_buffer_keeps_its_key() {
    let whole = RemoteBuffer::new(0x1000, 7);
    assert_eq!(whole.at(0), whole);
    assert_eq!(whole.at(0x20).at(0x10), RemoteBuffer::new(0x1030, 7));
}

#[derive(Clone, Debug)]
enum Kind {
    Write(u32),
    Inline([u32; 7], u32),
    Read(u32),
    Add(u64),
    Swap(u64, u64),
    Nop,
    Wait(u32, u64),
}

fn kinds() -> impl Strategy<Value = Kind> {
    let length = 1..=MOST as u32;
    prop_oneof![
        length.clone().prop_map(Kind::Write),
        (any::<[u32; 7]>(), 1..=INLINE as u32).prop_map(|(p, n)| Kind::Inline(p, n)),
        length.prop_map(Kind::Read),
        any::<u64>().prop_map(Kind::Add),
        any::<(u64, u64)>().prop_map(|(a, b)| Kind::Swap(a, b)),
        Just(Kind::Nop),
        (0..1u32 << 24, any::<u64>()).prop_map(|(q, i)| Kind::Wait(q, i)),
    ]
}

fn encode(kind: &Kind, head: Head, remote: RemoteBuffer, local: LocalBuffer) -> Entry {
    match *kind {
        Kind::Write(n) => head.write(remote, local, n),
        Kind::Inline(payload, n) => head.write_inline(remote, payload, n),
        Kind::Read(n) => head.read(remote, local, n),
        Kind::Add(add) => head.fetch_add(remote, add, local),
        Kind::Swap(swap, compare) => head.compare_swap(remote, swap, compare, local),
        Kind::Nop => head.nop(),
        Kind::Wait(queue, index) => head.wait(queue, index),
    }
}

fn meaning(kind: &Kind, far: Far, local: impl Fn(u32) -> Local) -> Action {
    match *kind {
        Kind::Write(n) => Action::Write(far, local(n)),
        Kind::Inline(payload, n) => {
            let mut bytes = [0; 28];
            bytes[..n as usize].copy_from_slice(&bytemuck::bytes_of(&payload)[..n as usize]);
            Action::Inline(far, bytes, n)
        }
        Kind::Read(n) => Action::Read(far, local(n)),
        Kind::Add(add) => Action::FetchAdd(far, add, local(8)),
        Kind::Swap(swap, compare) => Action::CompareSwap { far, swap, compare, old: local(8) },
        Kind::Nop => Action::Nop,
        Kind::Wait(queue, index) => Action::Wait { queue, index: index as u32 & 0xff_ffff },
    }
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(
        kind in kinds(), qpn in 0..1u32 << 24, index in any::<u64>(), fence in any::<bool>(),
        (far, far_key, near, near_key) in any::<(u64, u32, u64, u32)>(),
    ) {
        let head = Head { qpn, index, fence };
        let entry = encode(&kind, head, RemoteBuffer::new(far, far_key), LocalBuffer::new(near, near_key));
        let local = |bytes| Local { addr: near, key: near_key, bytes };
        let expected = meaning(&kind, Far { addr: far, key: far_key }, local);
        let read = decode(&bytes(&entry), qpn, index as u16);
        let Decoded { action, fence: fenced, report, opcode } = read.map_err(|bad| TestCaseError::fail(format!("{bad:?}")))?;
        prop_assert_eq!(action, expected);
        prop_assert_eq!((fenced, report, u32::from(opcode)), (fence, true, u32::from(bytes(&entry)[3])));
        // Another place, another queue.
        prop_assert_eq!(decode(&bytes(&entry), qpn, (index as u16).wrapping_add(1)), Err(Bad::Index(index as u16)));
        prop_assert_eq!(decode(&bytes(&entry), qpn ^ 1, index as u16), Err(Bad::Queue(qpn)));
    }

    /// Any bytes at all are read or refused.
    #[test]
    fn noise_is_read_or_refused(noise in any::<[u8; 32]>(), rest in any::<[u8; 32]>(), opcode in 0u8..0x20) {
        let mut block = [0; 64];
        block[..32].copy_from_slice(&noise);
        block[32..].copy_from_slice(&rest);
        let _ = decode(&block, 1, 1);
        block[0] = 0;
        block[3] = opcode;
        let (queue, index) = (u32::from_be_bytes([0, block[4], block[5], block[6]]), u16::from_be_bytes([block[1], block[2]]));
        let _ = decode(&block, queue, index);
    }

    #[test]
    fn each_wrong_bit_of_an_operation_without_memory_is_refused(bit in 0usize..128) {
        let mut block = bytes(&HEAD.nop());
        block[bit / 8] ^= 1 << (bit % 8);
        let read = decode(&block, HEAD.qpn, HEAD.index as u16);
        // But for asking for no completion, and for a fence.
        let harmless = [11 * 8 + 3, 11 * 8 + 7].contains(&bit);
        prop_assert_eq!(read.is_ok(), harmless, "bit {}: {:?}", bit, read);
    }
}
