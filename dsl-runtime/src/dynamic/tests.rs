use super::{Access, Call, Region, Value, kernels};
use crate::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_to_all, sendrecv, broadcast), elements(f32, u16))]
mod tagged {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub flag: bool,
        pub rows: [u32; 2],
        pub output: Out<'a, T>,
    }
    pub fn produce<T: Element>(ctx: &Produce, args: &Args<T>) -> T {
        let twice = args.flag as usize + args.rows[1] as usize;
        args.input[ctx.index() * twice % args.input.len()]
    }
}

#[comm_kernel(transports(Shm))]
fn counts<O: Ops>(kernel: &Kernel<O>, total: Accumulate<'_, u32>, by: Option<u32>) -> Flow {
    total.add(0, by.unwrap_or(1) * (1 + kernel.block() as u32));
    Ok(())
}

#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod turned {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Complex {
        pub re: f32,
        pub im: f32,
    }
    pub struct Args<'a> {
        pub input: &'a [Complex],
        pub output: Out<'a, Complex>,
        pub by: Complex,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Complex {
        let (a, b) = (args.input[ctx.index()], args.by);
        Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
    }
}

#[comm_kernel(transports(Shm), schedules(all_to_all), elements(u16))]
mod valued {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Pair {
        pub a: [u16; 2],
        pub b: F8E4M3,
        pub c: u8,
    }
    #[derive(Clone, Copy, Plain)]
    #[repr(C)]
    pub struct Gap {
        pub a: u8,
        pub b: u16,
    }
    #[derive(Clone, Copy, Plain)]
    #[repr(u8)]
    pub enum Mode {
        Add,
    }
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
        pub number: T,
        pub pair: Pair,
        pub pairs: Option<[[Pair; 2]; 2]>,
        pub flag: bool,
        pub flags: [bool; 2],
        pub gap: Gap,
        pub mode: Option<Mode>,
    }
    pub fn produce<T: Element>(ctx: &Produce, args: &Args<T>) -> T {
        args.input[ctx.index()]
    }
}

fn alone() -> (Shm, Device, Stream) {
    let shm = Shm::rendezvous(&World::single().unwrap(), 1 << 16).unwrap();
    let device = Device::of(&shm);
    let stream = device.stream().unwrap();
    (shm, device, stream)
}

#[test]
fn a_table_says_what_there_is() {
    let all = kernels!(tagged, counts);
    let named: Vec<_> = all.iter().map(|k| [k.name, k.element, k.schedule, k.transport]).collect();
    let expected = ["f32", "u16"].map(|element| {
        ["all_to_all", "sendrecv", "broadcast"].map(|schedule| ["tagged", element, schedule, "Shm"])
    });
    let expected: Vec<_> = expected.concat().into_iter().chain([["counts", "", "custom", "Shm"]]).collect();
    assert_eq!(named, expected);
    let fields = all[3].fields.iter().map(|f| (f.name, f.access, f.size)).collect::<Vec<_>>();
    let expected = [
        ("input", Access::Read, 2),
        ("flag", Access::Value, 1),
        ("rows", Access::Value, 8),
        ("output", Access::Write, 2),
    ];
    assert_eq!(fields, expected);
    assert_eq!(all[6].fields[0].access, Access::AddTo);
    assert!(all[6].fields[1].optional && !all[3].fields[1].optional);
}

#[test]
fn a_table_says_which_values_are_any_bytes() {
    let fields = kernels!(valued)[0].fields.iter();
    let any: Vec<_> = fields.clone().filter(|f| f.any_bytes).map(|f| f.name).collect();
    assert_eq!(any, ["input", "output", "number", "pair", "pairs"]);
    assert_eq!(fields.map(|f| f.size).collect::<Vec<_>>(), [2, 2, 2, 6, 24, 1, 2, 4, 1]);
}

#[test]
fn values_become_arguments() {
    let (shm, device, stream) = alone();
    let (input, output) = (device.buffer_from(&[1u16, 2, 3, 4]).unwrap(), device.buffer::<u16>(4).unwrap());
    let [from, to] = [&input, &output].map(Region::of);
    let (flag, rows) = (true, [7u32, 2]);
    let values = [Value::Region(&from), Value::plain(&flag), Value::plain(&rows), Value::Region(&to)];
    let launcher = kernels!(tagged)[3].prepare(&shm).unwrap();
    launcher.launch(&stream, &values, &Call::default()).unwrap();
    assert_eq!(output.read(&stream).unwrap(), [1, 4, 3, 2]);
    assert_eq!(launcher.explain(&values, &Call::default()).unwrap().elements, 4);

    let total = device.buffer::<u32>(1).unwrap();
    let (region, by) = (Region::of(&total), 5u32);
    let values = [Value::Region(&region), Value::plain(&by)];
    let launcher = kernels!(counts)[0].prepare(&shm).unwrap();
    launcher.launch(&stream, &values, &Call { blocks: 3, ..Call::default() }).unwrap();
    assert_eq!(total.read(&stream).unwrap(), [5 * (1 + 2 + 3)]);
    launcher.launch(&stream, &[Value::Region(&region), Value::Absent], &Call::default()).unwrap();
    assert_eq!(total.read(&stream).unwrap(), [5 * (1 + 2 + 3) + 1]);
}

#[test]
fn bytes_of_others_are_arguments() {
    let (shm, device, stream) = alone();
    let (input, mut output) = ([9u16; 8], [0u16; 8]);
    let aligned = |address: usize| address.next_multiple_of(16) as u64;
    let (mut from, mut to) = ([0u8; 48], [0u8; 48]);
    let [a, b] = [from.as_mut_ptr() as u64, to.as_mut_ptr() as u64].map(|at| aligned(at as usize));
    // SAFETY: 16 bytes of 48, from a multiple of 16 on.
    unsafe { std::ptr::copy_nonoverlapping(input.as_ptr().cast::<u8>(), a as *mut u8, 16) };
    // SAFETY: both outlive the launch that is waited for.
    let [from, to] = [a, b].map(|at| unsafe { Region::borrowed(&device, at, 8, 2) }.unwrap());
    let values = [Value::Region(&from), Value::plain(&true), Value::plain(&[0u32; 2]), Value::Region(&to)];
    kernels!(tagged)[3].prepare(&shm).unwrap().launch(&stream, &values, &Call::default()).unwrap();
    stream.synchronize().unwrap();
    // SAFETY: written by the launch that has ended.
    unsafe { std::ptr::copy_nonoverlapping(b as *const u8, output.as_mut_ptr().cast::<u8>(), 16) };
    assert_eq!(output, input);
}

#[test]
fn what_is_written_overlaps_nothing() {
    let (shm, device, stream) = alone();
    let memory = device.buffer_from(&[3u16; 32]).unwrap();
    let launcher = kernels!(tagged)[3].prepare(&shm).unwrap();
    // SAFETY: the buffer outlives what is launched, and waits for it below.
    let eight = |at: u64| unsafe { Region::borrowed(&device, memory.address() + at, 8, 2) }.unwrap();
    let launch = |from: u64, to: u64| {
        let (from, to) = (eight(from), eight(to));
        let values =
            [Value::Region(&from), Value::plain(&true), Value::plain(&[0u32; 2]), Value::Region(&to)];
        launcher.launch(&stream, &values, &Call::default())
    };
    // The same bytes, and the last or first two.
    for (from, to) in [(16, 16), (0, 14), (14, 0)] {
        let text = launch(from, to).unwrap_err().to_string();
        assert!(text.contains("buffers `input` and `output` overlap, and one of them is written"), "{text}");
    }
    // One beside the other.
    launch(0, 16).unwrap();
    launch(32, 16).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(memory.read(&stream).unwrap(), [3; 32]);
}

#[test]
fn bytes_stand_for_structs() {
    use turned::Complex;
    let (shm, device, stream) = alone();
    let launcher = kernels!(turned)[0].prepare(&shm).unwrap();
    let input: Vec<u8> = [1.0f32, 2.0, 3.0, -4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let input = device.buffer_from(&[&input[..], &[0; 9]].concat()).unwrap();
    let output = device.buffer::<Complex>(2).unwrap();
    let [all, to] = [Region::of(&input), Region::of(&output)];
    assert_eq!((all.bytes(), to.bytes()), (25, 16));
    let by = Complex { re: 0.0, im: 1.0 };
    let launch = |from: std::ops::Range<usize>| {
        let from = all.slice(from, 1, 1).unwrap();
        let values = [Value::Region(&from), Value::Region(&to), Value::plain(&by)];
        launcher.launch(&stream, &values, &Call::default())
    };
    launch(0..16).unwrap();
    let turned = [Complex { re: -2.0, im: 1.0 }, Complex { re: 4.0, im: 3.0 }];
    assert_eq!(output.read(&stream).unwrap(), turned);
    for from in [0..15, 0..25, 4..20] {
        let text = launch(from).unwrap_err().to_string();
        assert!(text.contains("`input` has elements of Complex, of 8 bytes and aligned to 4"), "{text}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let (shm, device, stream) = alone();
    let (input, output) = (device.buffer::<f32>(4).unwrap(), device.buffer::<f32>(4).unwrap());
    let [from, to] = [&input, &output].map(Region::of);
    let (flag, rows) = (false, [1u32, 1]);
    let [a, f, r, o] = [Value::Region(&from), Value::plain(&flag), Value::plain(&rows), Value::Region(&to)];
    let prepared: Vec<_> = kernels!(tagged).iter().map(|k| k.prepare(&shm).unwrap()).collect();
    let refused = |which: usize, values: &[Value], call: &Call| {
        prepared[which].launch(&stream, values, call).unwrap_err().to_string()
    };
    let call = Call::default();
    let cases = [
        (refused(0, &[a, f, r], &call), "3 arguments for `tagged`, which has 4: `input`, `flag`"),
        (refused(3, &[a, f, r, o], &call), "argument `input` has elements of u16, but these are of f32"),
        (refused(0, &[a, a, r, o], &call), "argument `flag` is a single value"),
        (refused(0, &[a, r, r, o], &call), "argument `flag` is bool of 1 bytes, but this is type"),
        (
            refused(0, &[f, f, r, o], &call),
            "argument `input` has elements of f32, but this is a single value",
        ),
        (refused(0, &[a, Value::Absent, r, o], &call), "argument `flag` is not an `Option`"),
        (refused(0, &[a, f, r, a], &call), "overlap"),
        (refused(1, &[a, f, r, o], &call), "neither a peer to send to"),
        (refused(1, &[a, f, r, o], &Call { to: Some(3), ..Call::default() }), "peer 3 in a world of 1"),
        (refused(1, &[a, f, r, o], &Call { to: Some(usize::MAX), ..Call::default() }), "in a world of 1"),
        (refused(2, &[a, f, r, o], &Call { root: 1, ..Call::default() }), "root 1 in a world of 1"),
        (kernels!(tagged)[0].prepare_on(&7u32).err().unwrap().to_string(), "for the transport `Shm`"),
    ];
    for (text, expected) in cases {
        assert!(text.contains(expected), "{text}\nshould have: {expected}");
    }
}

#[test]
fn parts_of_a_region_are_checked() {
    let device = Device::host();
    let buffer = device.buffer::<u8>(64).unwrap();
    let whole = Region::of(&buffer);
    let part = whole.slice(16..32, 9, 4).unwrap();
    assert_eq!((part.address(), part.bytes()), (whole.address() + 16, 16));
    assert_eq!(part.slice(4..16, 9, 4).unwrap().address(), whole.address() + 20);
    for (range, code, size) in [(0..65, 1, 1), (2..10, 9, 4), (0..6, 9, 4), (0..8, 9, 2), (0..8, 99, 1)] {
        assert!(whole.slice(range, code, size).is_err());
    }
    // SAFETY: refused, or never used.
    let borrowed = |address, len, code| unsafe { Region::borrowed(&device, address, len, code) };
    assert_eq!(borrowed(0, 0, 9).unwrap().bytes(), 0);
    for (address, len, code) in [(0, 1, 9), (2, 1, 9), (16, usize::MAX, 9), (u64::MAX - 3, 2, 9), (16, 1, 77)]
    {
        assert!(borrowed(address, len, code).is_err());
    }
}
