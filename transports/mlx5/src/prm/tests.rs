//! Commands against what the C macros of the public headers make (`DEVX_SET` of `mlx5dv.h`, over `mlx5_ifc.h` of rdma-core and, for
//! CREATE_CQ and CREATE_QP, over the headers of NVSHMEM's transports): the words that are not 0, by offset.

use super::*;
use crate::settings::Settings;

type Words<'a> = &'a [(usize, u32)];

fn image(bytes: usize, words: Words<'_>) -> Vec<u8> {
    let mut image = vec![0; bytes];
    for (at, word) in words {
        image[*at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    image
}

#[track_caller]
fn same(command: Result<Command>, bytes: usize, answer: usize, words: Words<'_>) {
    let command = command.unwrap();
    assert_eq!(command.answer, answer, "{}", command.name);
    assert_eq!(command.bytes.len(), bytes, "{}", command.name);
    let wrong: Vec<_> = command
        .bytes
        .chunks_exact(4)
        .zip(image(bytes, words).chunks_exact(4))
        .enumerate()
        .filter(|(_, (is, wanted))| is != wanted)
        .map(|(k, (is, wanted))| format!("{:#05x}: {is:02x?}, not {wanted:02x?}", 4 * k))
        .collect();
    assert!(wrong.is_empty(), "{}: {wrong:#?}", command.name);
}

/// Settings that are not the defaults, where a field could be mistaken for another.
fn settings() -> Settings {
    Settings { service_level: 5, rnr_retry: 6, ..Settings::default() }
}

const RING: Ring = Ring { umem: 0x1122_3344, ring: 0x1000, record: 0, log: 10, page: 0x00ab_cdef };
const GID: [u8; 16] =
    [0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf];

#[test]
fn completion_queues_are_made() {
    let ring = Ring { ring: 0x11000, record: 128, ..RING };
    let words = [
        (0x000, 0x0400_0000),
        (0x010, 0x0200_0000),
        (0x014, 0x1122_3344),
        (0x01c, 0x0aab_cdef),
        (0x024, 0x0000_005a),
        (0x04c, 0x0000_0080),
        (0x054, 0x0001_1000),
        (0x058, 0x1122_3344),
        (0x05c, 0x8000_0000),
    ];
    same(create_cq(&ring, 0x5a), 272, 16, &words);
}

#[test]
fn queue_pairs_are_made_and_companions_may_wait() {
    let words = [
        (0x000, 0x0500_0000),
        (0x018, 0x0000_1800),
        (0x01c, 0x0065_4321),
        (0x020, 0x0000_5000),
        (0x024, 0x00ab_cdef),
        (0x094, 0x0000_1003),
        (0x0b4, 0x0000_1003),
        (0x0c4, 0x0300_0000),
        (0x0e8, 0x1000_0000),
        (0x0fc, 0x1122_3344),
        (0x104, 0x0000_1000),
        (0x108, 0x1122_3344),
        (0x10c, 0x8000_0000),
    ];
    for kind in [Kind::Main, Kind::Responder] {
        same(create_qp(kind, &RING, 0x0065_4321, 0x1003), 272, 16, &words);
    }
    let mut words = words.to_vec();
    words.push((0x0a8, 0x0000_0001));
    same(create_qp(Kind::Companion, &RING, 0x0065_4321, 0x1003), 272, 16, &words);
}

#[test]
fn queue_pairs_are_connected() {
    let words = [
        (0x000, 0x0502_0000),
        (0x008, 0x0012_3456),
        (0x018, 0x0000_1800),
        (0x054, 0x0002_0000),
        (0x0a8, 0x0001_e000),
    ];
    same(rst2init(0x0012_3456, 2), 272, 16, &words);

    let common = [
        (0x000, 0x0503_0000),
        (0x008, 0x0012_3456),
        (0x020, 0xbe00_0000),
        (0x02c, 0x0000_abcd),
        (0x0a8, 0x0080_0000),
        (0x0ac, 0x0c65_4321),
    ];
    let gid = [(0x040, 0xa0a1_a2a3), (0x044, 0xa4a5_a6a7), (0x048, 0xa8a9_aaab), (0x04c, 0xacad_aeaf)];
    let to = |link, more: Words<'_>| {
        let way = Path { remote: 0xabcd, first_packet: 0x0065_4321, mtu: 5, link };
        same(init2rtr(0x0012_3456, &way, 4, &settings()), 272, 16, &[&common, more].concat());
    };
    let words = [(0x034, 0x0000_1234), (0x03c, 0x0e00_0000), (0x054, 0x0500_0000)];
    to(Link::InfiniBand { lid: 0x1234, grh: None }, &words);
    let words = [(0x034, 0x0080_1234), (0x038, 0x0003_00ff), (0x03c, 0x0e00_0000), (0x054, 0x0500_0000)];
    to(Link::InfiniBand { lid: 0x1234, grh: Some((GID, 3)) }, &[&words[..], &gid].concat());
    let words = [(0x038, 0x0003_00ff), (0x050, 0x0038_c123), (0x054, 0x5000_0c42), (0x058, 0xa101_0203)];
    let mac = [0x0c, 0x42, 0xa1, 1, 2, 3];
    to(Link::Ethernet { gid: GID, index: 3, mac, source: 0xc123 }, &[&words[..], &gid].concat());

    let words = [
        (0x000, 0x0504_0000),
        (0x008, 0x0012_3456),
        (0x038, 0xa000_0000),
        (0x088, 0x0087_c000),
        (0x090, 0x00fe_dcba),
    ];
    same(rtr2rts(0x0012_3456, 0x00fe_dcba, 4, &settings()), 272, 16, &words);
}

#[test]
fn short_commands_name_a_queue_pair() {
    let named = |opcode| [(0x000, opcode), (0x008, 0x0012_3456)];
    same(to_error(0x0012_3456), 16, 16, &named(0x0507_0000));
    same(to_reset(0x0012_3456), 16, 16, &named(0x050a_0000));
    same(query_qp(0x0012_3456), 16, 272, &named(0x050b_0000));
    same(query_capabilities(), 16, 4112, &[(0x000, 0x0100_0000), (0x004, 0x0000_0001)]);
}

#[test]
fn answers_are_read() {
    let words = [(0x020, 0x000f_0000), (0x028, 0x0016_0000), (0x050, 0x0000_0002), (0x054, 0x0008_0001)];
    let all =
        Capabilities { connections: true, atomics: true, waits: true, log_queue: 15, log_completions: 22 };
    assert_eq!(Capabilities::read(&image(4112, &words)), Some(all));
    let without = Capabilities { waits: false, ..all };
    let words = [(0x020, 0x000f_0000), (0x028, 0x0016_0000), (0x050, 0x0000_0002), (0x054, 0x0000_0001)];
    assert_eq!(Capabilities::read(&image(4112, &words)), Some(without));
    assert_eq!(Capabilities::read(&[0; 64]), None);

    let state = |word| State::read(&image(272, &[(0x018, word)]));
    assert_eq!(state(0), Some(State::Reset));
    assert_eq!(state(0x3000_0000), Some(State::Ready));
    assert_eq!(state(0x6000_0000), Some(State::Error));
    assert_eq!(state(0x5000_0000), Some(State::Other(5)));
    assert_eq!(State::read(&[0; 16]), None);

    let words = [(0x000, 0x0800_0000), (0x004, 0xdead_beef), (0x008, 0x0012_3456)];
    let made = image(16, &words);
    assert_eq!(layout::answer::STATUS.get(&made), Some(8));
    assert_eq!(layout::answer::SYNDROME.get(&made), Some(0xdead_beef));
    assert_eq!(layout::answer::NUMBER.get(&made), Some(0x0012_3456));
}

#[test]
fn what_does_not_fit_is_refused() {
    for (command, words) in [
        (
            create_qp(Kind::Main, &RING, 1 << 24, 0),
            "CREATE_QP: 0x1000000 does not fit in `PD`, which has 24 bits",
        ),
        (create_cq(&RING, 256), "does not fit in `C_EQN`"),
        (rst2init(1 << 24, 1), "does not fit in `QPN`"),
        (rtr2rts(1, 0, 8, &settings()), "does not fit in `LOG_SRA_MAX`, which has 3 bits"),
    ] {
        let error = command.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// Bit by bit, from the first one on: nothing of the writer's arithmetic.
fn read(bytes: &[u8], at: u32, bits: u32) -> u64 {
    (at..at + bits)
        .fold(0, |value, bit| value << 1 | u64::from(bytes[(bit / 8) as usize] >> (7 - bit % 8) & 1))
}

/// Every field of every table, with random values among random neighbours.
#[test]
fn fields_are_where_a_reader_of_bits_finds_them() {
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
    println!("seed {SEED:#x}");
    let mut state = SEED;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..20_000 {
        let bits = match random() % 34 {
            33 => 64,
            32 => 32,
            bits => bits as u32 + 1,
        };
        let word = (random() % 66) as u32 * 32;
        let at = if bits >= 32 { word } else { word + (random() % u64::from(33 - bits)) as u32 };
        let field = Field::new("FIELD", at, bits);
        let value = random() >> (64 - bits);
        let other = Field::new("OTHER", if word == 0 { 64 } else { 0 }, 32);
        let apart = u64::from(random() as u32);
        let command = Command::new("TEST", 272, 16, &[(other, apart), (field, value)]).unwrap();
        assert_eq!(read(&command.bytes, at, bits), value, "{field:?}");
        assert_eq!(field.get(&command.bytes), Some(value), "{field:?}");
        let ones = command.bytes.iter().map(|b| b.count_ones()).sum::<u32>();
        // Nothing else was touched.
        if at / 32 != other.at / 32 && !(bits == 64 && (at / 32 + 1) == other.at / 32) {
            assert_eq!(ones, value.count_ones() + apart.count_ones(), "{field:?}");
        }
        if bits < 64 {
            assert!(Command::new("TEST", 272, 16, &[(field, 1 << bits)]).is_err(), "{field:?}");
        }
    }
}

#[test]
fn a_field_outside_of_its_command_is_refused() {
    let outside = Field::new("OUTSIDE", 0x80, 8);
    assert!(Command::new("TEST", 16, 16, &[(outside, 1)]).is_err());
    assert_eq!(outside.get(&[0; 16]), None);
}

#[test]
fn the_last_value_of_a_field_counts() {
    let (field, beside) = (Field::new("FIELD", 5, 6), Field::new("BESIDE", 11, 5));
    let command = Command::new("TEST", 16, 16, &[(field, 0x3f), (beside, 0x15), (field, 0x21)]).unwrap();
    assert_eq!((field.get(&command.bytes), beside.get(&command.bytes)), (Some(0x21), Some(0x15)));
}
