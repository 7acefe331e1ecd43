//! The order of memory operations in the PTX of every shipped schedule: see `fusewire-flow`.

#[path = "common/device.rs"]
mod device;

use device::{ARCHS, archs, body, compile, each};
use fusewire_device::launch::{Params, Shape};
use fusewire_device::mapped::Mapped;
use fusewire_device::protocol::ll128::BUFFER;
use fusewire_flow::{Protocol, Roots, wrong, wrong_in_place};
use fusewire_toolchain::Arch;
use std::mem::offset_of;

const HEAD: &str = "
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Raw { a: RawSlice<f32>, b: RawSlice<f32> }

#[derive(Clone, Copy)]
pub struct Args<'a> { input: &'a [f32], output: Out<'a, f32> }
pub struct H;
impl Hooks for H {
    type Args<'a> = Args<'a>;
    type Wire = f32;
    type Folded = f32;
    const UNROLL: usize = 4;
    #[inline(always)]
    fn produce(ctx: &Produce, args: &Args<'_>) -> Pack<f32> { args.input.pack(ctx) }
    #[inline(always)]
    fn consume(ctx: &Consume, args: &Args<'_>, value: Pack<f32>) { args.output.at(ctx).set_pack(value) }
}
unsafe impl Unpack for H {
    type Raw = Raw;
    #[inline(always)]
    unsafe fn unpack<'a>(raw: &Raw) -> Args<'a> {
        let lent = args::Lent::<'a>::named();
        unsafe { Args { input: raw.a.slice(lent), output: Out::from_raw(raw.b, lent) } }
    }
}

pub struct F;
impl Hooks for F {
    type Args<'a> = Args<'a>;
    type Wire = f32;
    type Folded = f32;
    const UNROLL: usize = 4;
    const FOLDS: bool = true;
    #[inline(always)]
    fn produce(ctx: &Produce, args: &Args<'_>) -> Pack<f32> { args.input.pack(ctx) }
    #[inline(always)]
    fn consume(_: &Consume, _: &Args<'_>, _: Pack<f32>) {}
    #[inline(always)]
    fn fold(ctx: &Consume, args: &Args<'_>, ranks: u32, of: &impl fold::Contributions<f32>) -> bool {
        fold::each::<fold::Sum<f32>, f32>(ctx, ranks, of, |ctx, value| args.output.at(ctx).set(value))
    }
    const RELAYS: usize = 1;
    #[inline(always)]
    fn relay(ranks: u32, of: &impl fold::Contributions<f32>, put: &impl Fn(usize, Pack<f32>)) -> bool {
        fold::relay::<fold::Sum<f32>, f32, f32>(ranks, of, |sum| sum, put)
    }
    const PARTIALS: usize = 1;
    #[inline(always)]
    fn partial(ranks: u32, of: &impl fold::Contributions<f32>, put: &impl Fn(usize, [u32; 4])) -> bool {
        fold::partial::<fold::Sum<f32>, f32>(ranks, of, &|number, pack: Pack<f32>| put(number, pack.words()))
    }
    #[inline(always)]
    fn join(ranks: (u32, u32), of: &impl fold::Partials, put: &impl Fn(usize, Pack<f32>)) {
        fold::join::<fold::Sum<f32>, f32, f32>(ranks, of, |sum| sum, put);
    }
    #[inline(always)]
    fn take(ctx: &Consume, args: &Args<'_>, sum: Pack<f32>) { args.output.at(ctx).set_pack(sum) }
}
unsafe impl Unpack for F {
    type Raw = Raw;
    #[inline(always)]
    unsafe fn unpack<'a>(raw: &Raw) -> Args<'a> { unsafe { H::unpack(raw) } }
}

/// The same in place.
#[derive(Clone, Copy)]
pub struct InPlace<'a> { values: InOut<'a, f32> }
pub struct I;
impl Hooks for I {
    type Args<'a> = InPlace<'a>;
    type Wire = f32;
    type Folded = f32;
    const UNROLL: usize = 4;
    const FOLDS: bool = true;
    const IN_PLACE: bool = true;
    #[inline(always)]
    fn produce(ctx: &Produce, args: &InPlace<'_>) -> Pack<f32> { args.values.pack(ctx) }
    #[inline(always)]
    fn consume(_: &Consume, _: &InPlace<'_>, _: Pack<f32>) {}
    #[inline(always)]
    fn fold(ctx: &Consume, args: &InPlace<'_>, ranks: u32, of: &impl fold::Contributions<f32>) -> bool {
        fold::each::<fold::Sum<f32>, f32>(ctx, ranks, of, |ctx, value| args.values.at(ctx).set(value))
    }
    const RELAYS: usize = 1;
    #[inline(always)]
    fn relay(ranks: u32, of: &impl fold::Contributions<f32>, put: &impl Fn(usize, Pack<f32>)) -> bool {
        fold::relay::<fold::Sum<f32>, f32, f32>(ranks, of, |sum| sum, put)
    }
    #[inline(always)]
    fn take(ctx: &Consume, args: &InPlace<'_>, sum: Pack<f32>) { args.values.at(ctx).set_pack(sum) }
}
unsafe impl Unpack for I {
    type Raw = Raw;
    #[inline(always)]
    unsafe fn unpack<'a>(raw: &Raw) -> InPlace<'a> {
        unsafe { InPlace { values: InOut::from_raw(raw.b, args::Lent::<'a>::named()) } }
    }
}
";

/// By rows, in place, as the macro has them.
const ROWS: &str = "
type Row = row::Row<f32, 64, { row::slots(64) }>;
type ProduceRow = row::ProduceRow<64, { row::slots(64) }>;
type ConsumeRow = row::ConsumeRow<64, { row::slots(64) }>;
pub struct R;
impl R {
    #[inline(always)]
    fn sum<const RANKS: usize>(ranks: u32, own: Option<(u32, row::RowAt)>, args: &InPlace<'_>, of: &impl Fn(u32, u32) -> Pack<f32>) -> Row {
        let own = own.map(|(me, at)| (me, args.values.get_row(&unsafe { ProduceRow::new(at) })));
        row::fold::<fold::Sum<f32>, Row, 64, { row::slots(64) }, RANKS>(ranks, own, of)
    }
}
impl Hooks for R {
    type Args<'a> = InPlace<'a>;
    type Wire = f32;
    type Folded = f32;
    const UNROLL: usize = 4;
    const FOLDS: bool = true;
    const IN_PLACE: bool = true;
    const COLS: usize = 64;
    const ROW_PACKS: usize = 16;
    const RELAYS: usize = 1;
    #[inline(always)]
    fn produce(_: &Produce, _: &InPlace<'_>) -> Pack<f32> { Pack::ZERO }
    #[inline(always)]
    fn consume(_: &Consume, _: &InPlace<'_>, _: Pack<f32>) {}
    #[inline(always)]
    fn produce_row(at: row::RowAt, args: &InPlace<'_>, put: &impl Fn(u32, Pack<f32>)) {
        row::RowWire::hand(&args.values.get_row(&unsafe { ProduceRow::new(at) }), put);
    }
    #[inline(always)]
    fn fold_row<const RANKS: usize>(at: row::RowAt, args: &InPlace<'_>, ranks: u32, own: Option<(u32, row::RowAt)>, of: &impl Fn(u32, u32) -> Pack<f32>) {
        let sum = R::sum::<RANKS>(ranks, own, args, of);
        args.values.row(&unsafe { ConsumeRow::new(at) }).set(&sum);
    }
}
unsafe impl Unpack for R {
    type Raw = Raw;
    #[inline(always)]
    unsafe fn unpack<'a>(raw: &Raw) -> InPlace<'a> { unsafe { I::unpack(raw) } }
}
";

/// Schedules of a user's own.
const CUSTOM: &str = "
#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn custom_lines(p: Params<Peers, Custom, Raw>) {
    let grid = Grid::here();
    // Staging has rules of its own.
    unsafe { core::hint::assert_unchecked(grid.block < ops::Direct::ll128_channels(&p.ops)) };
    let Ok(kernel) = (unsafe { Kernel::begin(grid, p.ops, p.control, p.shape) }) else { return };
    #[inline(always)]
    unsafe fn run(kernel: &Kernel<Peers>, input: &[f32], output: Out<'_, f32>) -> Flow {
        let (lines, tile) = (kernel.ll128(), kernel.share(input.len()));
        lines.send_tile(kernel.next(1), tile, |ctx| input[ctx.index()])?;
        unsafe { lines.recv_tile(kernel.previous(1), tile, |ctx, v: f32| output.at(ctx).add(v))? };
        let pass = |ctx: &Consume, v: f32| { output.at(ctx).add(v); v };
        unsafe { lines.forward_tile(kernel.previous(1), kernel.next(1), tile, pass) }
    }
    let lent = args::Lent::while_borrowed(&p);
    let _ = kernel.end(unsafe { run(&kernel, p.raw.a.slice(lent), Out::from_raw(p.raw.b, lent)) });
}

#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn custom_packs(p: Params<Peers, Custom, Raw>) {
    let grid = Grid::here();
    let Ok(kernel) = (unsafe { Kernel::begin(grid, p.ops, p.control, p.shape) }) else { return };
    #[inline(always)]
    unsafe fn run(kernel: &Kernel<Peers>, input: &[f32], output: Out<'_, f32>) -> Flow {
        let tile = kernel.share(input.len());
        kernel.send_tile(kernel.next(1), tile, |ctx| input.pack(ctx))?;
        let pass = |ctx: &Consume, v: Pack<f32>| { output.at(ctx).set_pack(v); v };
        unsafe { kernel.forward_tile(kernel.previous(1), kernel.next(1), tile, pass)? };
        unsafe { kernel.recv_tile(kernel.previous(1), tile, |ctx, v: Pack<f32>| output.at(ctx).set_pack(v)) }
    }
    let lent = args::Lent::while_borrowed(&p);
    let _ = kernel.end(unsafe { run(&kernel, p.raw.a.slice(lent), Out::from_raw(p.raw.b, lent)) });
}

#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn custom_ring(p: Params<Peers, Custom, Raw>) {
    let grid = Grid::here();
    let Ok(kernel) = (unsafe { Kernel::begin(grid, p.ops, p.control, p.shape) }) else { return };
    #[inline(always)]
    unsafe fn run(kernel: &Kernel<Peers>, input: &[f32], output: Out<'_, f32>) -> Flow {
        let tile = kernel.share(input.len());
        kernel.send_tile(kernel.next(1), tile, |ctx| input[ctx.index()])?;
        unsafe { kernel.recv_tile(kernel.previous(1), tile, |ctx, v: f32| output.at(ctx).add(v))? };
        let pass = |ctx: &Consume, v: f32| { output.at(ctx).add(v); v };
        unsafe { kernel.forward_tile(kernel.previous(1), kernel.next(1), tile, pass)? };
        unsafe { kernel.put(kernel.next(1), 0, input)? };
        kernel.signal(kernel.next(1), 0)?;
        kernel.wait(kernel.previous(1), 0)
    }
    let lent = args::Lent::while_borrowed(&p);
    let _ = kernel.end(unsafe { run(&kernel, p.raw.a.slice(lent), Out::from_raw(p.raw.b, lent)) });
}
";

/// Every shipped schedule.
const SCHEDULES: &[&str] = &["AllToAll", "SendRecv", "AllGather", "Broadcast"];

/// Those that fold.
const FOLDING: &[&str] = &["ReduceScatter", "AllReduce", "Reduce"];

/// Those that go by domains.
const CROSSING: &[&str] = &["AllReduce", "ReduceScatter", "AllGather", "Reduce", "Broadcast"];

/// Every protocol, and the rule for it.
const PROTOCOLS: &[(&str, Protocol)] = &[
    ("Simple", Protocol::Simple),
    ("Ll", Protocol::Ll),
    ("Ll128", Protocol::Ll128),
    ("Store", Protocol::Direct),
    ("Bulk", Protocol::Bulk),
    ("CopyEngine", Protocol::Copy),
];

/// Every schedule by every protocol: its entry, and the rule.
fn entries() -> impl Iterator<Item = (&'static str, &'static str, Protocol)> {
    let ways = [("Simple", Protocol::Simple), ("Ll", Protocol::Ll)];
    let folding = FOLDING.iter().flat_map(move |s| ways.map(|(way, rule)| (*s, way, rule)));
    let folding = folding
        .chain(["AllReduce", "Reduce", "Broadcast"].map(|schedule| (schedule, "TwoShot", Protocol::Simple)))
        .chain([("AllReduce", "Ll128TwoShot", Protocol::Ll128), ("AllToAll", "Local", Protocol::Local)])
        .chain(CROSSING.iter().map(|s| (*s, "Hierarchical", Protocol::Simple)));
    let folding = folding.chain(FOLDING[..2].iter().map(|s| (*s, "Ll128", Protocol::Ll128)));
    SCHEDULES.iter().flat_map(|s| PROTOCOLS.iter().map(|(p, rule)| (*s, *p, *rule))).chain(folding)
}

/// As a launcher gives it to the driver of a newer GPU.
fn raised(ptx: &str) -> String {
    ptx.replace("// sm_90: ", "")
}

/// The same for two ranks.
fn of_two(ptx: &str) -> String {
    ptx.replace("// two: ", "")
}

fn roots() -> Roots {
    let ops = offset_of!(Params<Mapped, (), [u64; 0]>, ops);
    let shape = offset_of!(Params<Mapped, (), [u64; 0]>, shape);
    Roots {
        own: vec![(ops + Mapped::OWN) as u64],
        tables: vec![(ops + Mapped::BASES) as u64, (shape + offset_of!(Shape, outputs)) as u64],
    }
}

/// The device half of a world with domains.
fn in_domains() -> String {
    let text = include_str!("common/in_domains.rs").replace("super::world::Peers", "super::Peers");
    format!("mod in_domains {{ {text} }}\n")
}

fn entry(name: &str, schedule: &str, protocol: &str, hooks: &str) -> String {
    // Those begin with the operations of others.
    let ops = if protocol == "Hierarchical" { "in_domains::InDomains" } else { "Peers" };
    format!(
        "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn {name}(p: Params<{ops}, {schedule}, Raw>) {{
            let grid = Grid::here();
            let _ = unsafe {{ exchange::<{schedule}, protocol::{protocol}, {ops}, {hooks}>(grid, &p) }};
        }}"
    )
}

#[test]
fn memory_operations_keep_their_order() {
    // Two compilers at a time.
    let halves: Vec<(Arch, usize)> = archs().iter().flat_map(|arch| [(*arch, 0), (*arch, 1)]).collect();
    each(&halves, |(arch, half)| {
        let all = || entries().enumerate().filter(move |(k, _)| k % 2 == half).map(|(_, entry)| entry);
        let kernels = all().map(|(schedule, protocol, _)| {
            let hooks = if FOLDING.contains(&schedule) { "F" } else { "H" };
            entry(&format!("k_{schedule}_{protocol}"), schedule, protocol, hooks)
        });
        let source = kernels.fold(HEAD.to_owned() + &in_domains(), |all, entry| all + &entry);
        let ptx = raised(&compile(&format!("order{half}"), &source, arch));
        let of_two = of_two(&ptx);
        for (name, protocol) in all().map(|(s, protocol, rule)| (format!("k_{s}_{protocol}"), rule)) {
            let twice = body(&ptx, &name) != body(&of_two, &name);
            for ptx in if twice { vec![&ptx, &of_two] } else { vec![&ptx] } {
                let wrong = wrong(ptx, &name, protocol, &roots(), &[BUFFER - 128]);
                assert!(wrong.is_empty(), "{arch} {name}:\n{}", wrong.join("\n"));
            }
        }
    });
}

#[test]
fn memory_operations_of_own_schedules_keep_their_order() {
    for arch in &ARCHS[..2] {
        let ptx = raised(&compile("own", &[HEAD, CUSTOM].concat(), *arch));
        let entries = [
            ("custom_ring", Protocol::Simple),
            ("custom_packs", Protocol::Simple),
            ("custom_lines", Protocol::Ll128),
        ];
        for (name, protocol) in entries {
            // What a user's hook keeps is loaded when it is given back.
            let fences = body(&ptx, name).iter().filter(|line| line.contains("fence.acq_rel.sys")).count();
            assert!(
                protocol != Protocol::Simple || fences > 0,
                "{arch} {name}: no fence before room is given back"
            );
            let wrong = wrong(&ptx, name, protocol, &roots(), &[BUFFER - 128]);
            assert!(wrong.is_empty(), "{arch} {name}:\n{}", wrong.join("\n"));
        }
    }
}

/// By two steps there is no need: what is stored for an element came of what was sent of it.
#[test]
fn in_place_a_block_meets_between_what_it_sends_and_what_it_takes() {
    let hooks = ["F", "I"];
    let all = hooks.map(|hooks| entry(&format!("all_{hooks}"), "AllReduce", "Ll128", hooks));
    let by_words = ["I", "R"].map(|hooks| entry(&format!("words_{hooks}"), "AllReduce", "Ll", hooks));
    let arch = ARCHS[1];
    let ptx = raised(&compile("in_place", &[HEAD, ROWS, &all.concat(), &by_words.concat()].concat(), arch));
    let entries = [
        ("all_F", Protocol::Ll128),
        ("all_I", Protocol::Ll128),
        ("words_I", Protocol::Ll),
        ("words_R", Protocol::Ll),
    ];
    for (name, protocol) in entries {
        let wrong = wrong(&ptx, name, protocol, &roots(), &[BUFFER - 128]);
        assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
        let wrong = wrong_in_place(&ptx, name, &roots());
        // Out of place nobody needs it, and LL128 does without.
        assert_eq!(wrong.is_empty(), name != "all_F", "{name}:\n{}", wrong.join("\n"));
    }
    let meetings = hooks.map(|hooks| {
        let lines = body(&ptx, &format!("all_{hooks}"));
        lines.iter().filter(|line| line.contains("bar.sync") || line.contains("barrier.sync")).count()
    });
    assert_eq!(meetings[1], meetings[0] + 1, "{meetings:?}");
}
