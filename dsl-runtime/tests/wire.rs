//! What each schedule sends, counted by emulated adapters, beside what the tutorial's table says.

use fusewire::nic::Emulated;
use fusewire::nic::emulated::Behaviour;
use fusewire::prelude::*;
use fusewire::schedule::*;
use std::collections::BTreeSet;
use std::sync::Arc;

#[comm_kernel(transports(Ibgda), schedules(all_to_all, sendrecv, all_gather, broadcast, scatter, gather))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

#[comm_kernel(transports(Ibgda), schedules(reduce_scatter, all_reduce, reduce), reduce(sum, f32))]
mod sum {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

/// What is passed on has twice the bytes of what is folded.
#[comm_kernel(transports(Ibgda), schedules(all_reduce), reduce(sum, f32))]
mod kept {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, f32>,
    }
    pub fn consume(ctx: &Consume, args: &Args, sum: f32) {
        args.output.at(ctx).set(sum);
    }
}

/// The same, rounded first.
#[comm_kernel(transports(Ibgda), schedules(all_reduce), reduce(sum, f32, result = Bf16))]
mod rounded {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, f32>,
    }
    pub fn consume(ctx: &Consume, args: &Args, sum: Bf16) {
        args.output.at(ctx).set(sum.to_f32());
    }
}

/// Scales in both steps: 25 packs for each row.
#[comm_kernel(transports(Ibgda), schedules(all_reduce), grain = row(384), reduce(sum, f32, result = Scaled<F8E4M3, 128>))]
mod quantised {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 128> {
        args.input.row(ctx).quantise(ctx)
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E4M3, 128>) {
        args.output.row(ctx).set(&row.dequantise());
    }
}

/// Bytes of the larger of a rank's input and output: whole lines for each part of every number of ranks here.
const BYTES: usize = 3 << 17;
const ROOT: u32 = 1;

/// A row of the table.
struct Row {
    schedule: String,
    way: String,
    rank: String,
    sends: String,
    receives: String,
}

fn table() -> Vec<Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tutorial/10-costs.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> =
            line.strip_prefix("| `")?.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [schedule, way, rank, sends, receives, _, ""] = cells[..] else { return None };
        let [schedule, way, rank, sends, receives] = [schedule, way, rank, sends, receives].map(String::from);
        Some(Row { schedule, way, rank, sends, receives })
    });
    rows.collect()
}

/// What a cell says of `n` ranks, as a part of `B`.
fn part(cell: &str, n: u32) -> f64 {
    let n = f64::from(n);
    match cell {
        "0" => 0.0,
        "1" => 1.0,
        "1 / n" => 1.0 / n,
        "n - 1" => n - 1.0,
        "(n - 2) / (n - 1)" => (n - 2.0) / (n - 1.0),
        "(n - 1) / n" => (n - 1.0) / n,
        "2 (n - 1) / n" => 2.0 * (n - 1.0) / n,
        "3 (n - 1) / n" => 3.0 * (n - 1.0) / n,
        other => panic!("`{other}` is no formula that this test knows"),
    }
}

/// A transport, and the adapter that counts what it sends.
fn counted(world: &World) -> (Ibgda, Arc<Emulated>) {
    let behaviour = Behaviour { seed: world.rank() as u64, ..Behaviour::default() };
    let adapter = Arc::new(Emulated::new(behaviour).unwrap());
    let options = Options::per_peer(256 << 10).channels(4);
    (Ibgda::rendezvous_with(world, adapter.clone(), None, options).unwrap(), adapter)
}

#[test]
fn scaled_rows_send_a_byte_for_each_element_in_both_steps() {
    const ROWS: usize = 384;
    for n in [2, 3, 4] {
        World::threads(n, |world| {
            let (ibgda, adapter) = counted(&world);
            let device = Device::host();
            let stream = device.stream().unwrap();
            let input = device.buffer_from(&vec![1.0; ROWS * 384]).unwrap();
            let mut output = device.buffer::<f32>(ROWS * 384).unwrap();
            let args = quantised::Launch { input: input.view(), output: output.view_mut() };
            let options = LaunchOptions::default().protocol(Protocol::TwoShot);
            let launcher = quantised::all_reduce(&ibgda).unwrap();
            let before = adapter.counts().wire_bytes;
            launcher.launch_with(&stream, args, &options).unwrap();
            assert!(output.read(&stream).unwrap().iter().all(|sum| (sum - n as f32).abs() < 1e-3));
            world.barrier().unwrap();
            let counted = (adapter.counts().wire_bytes - before) as f64;
            let said = (2 * (n - 1) * ROWS * 25 * 16) as f64 / n as f64;
            assert!((said * 0.999..said * 1.03).contains(&counted), "{n} ranks: {counted}, not {said}");
        })
        .unwrap();
    }
}

#[test]
fn a_rank_sends_and_receives_what_the_tutorial_says() {
    let table = &table();
    for n in [2, 3, 4] {
        let seen = World::threads(n as usize, |world| {
            let me = Member { rank: world.rank() as u32, world: n };
            let (ibgda, adapter) = counted(&world);
            let (device, mut seen) = (Device::host(), BTreeSet::new());
            let stream = device.stream().unwrap();
            macro_rules! check {
                ($module:ident, $schedule:ident, $value:expr, $types:ty, $way:literal, $protocol:ident) => {
                    let (name, schedule) = (stringify!($schedule), $value);
                    let mine = |rank: &str| rank == "every" || (rank == "root") == (me.rank == ROOT);
                    let here = |row: &Row| row.schedule == name && row.way == $way && mine(&row.rank);
                    let at = table.iter().position(here).unwrap_or_else(|| panic!("no row of {name} in {}", $way));
                    let Row { sends, receives, .. } = &table[at];
                    let chunks = |rank| schedule.chunks(Member { rank, world: n });
                    let most = (0..n).flat_map(chunks).max().unwrap() as usize;
                    let (input, mut output) = <$types>::default();
                    let _ = (&input, &mut output);
                    let bytes = BYTES / most;
                    let elements = bytes / size_of_val(&input);
                    let [inputs, outputs] = chunks(me.rank).map(|chunks| chunks.max(1) as usize * elements);
                    let input = device.buffer_from(&vec![input; inputs]).unwrap();
                    let mut output = device.buffer_from(&vec![output; outputs]).unwrap();
                    let args = $module::Launch { input: input.view(), output: output.view_mut() };
                    let options = LaunchOptions::default().elements(elements).protocol(Protocol::$protocol);
                    let launcher = $module::$schedule(&ibgda).unwrap();
                    let before = adapter.counts().wire_bytes;
                    launcher.launch_as(&stream, schedule, args, &options).unwrap();
                    stream.synchronize().unwrap();
                    world.barrier().unwrap();
                    let counted = (adapter.counts().wire_bytes - before) as f64 / BYTES as f64;
                    let said = part(sends, n);
                    // Headers and signals are counted, too.
                    assert!(
                        (said - 0.001..said + 0.03).contains(&counted),
                        "{name} in {} of {n} ranks: rank {} sends {counted}, where the table has {sends}, {said}",
                        $way,
                        me.rank
                    );
                    if $way == "one step" {
                        let legs = [schedule.sends(me), schedule.receives(me)].map(|legs| f64::from(legs) / most as f64);
                        assert!((legs[0] - said).abs() + (legs[1] - part(receives, n)).abs() < 1e-9, "{name}: {legs:?}");
                    }
                    seen.insert(at);
                };
            }
            check!(copy, all_to_all, AllToAll, (f32, f32), "one step", Simple);
            check!(
                copy,
                sendrecv,
                SendRecv { to: me.up(1), from: me.down(1) },
                (f32, f32),
                "one step",
                Simple
            );
            check!(copy, all_gather, AllGather, (f32, f32), "one step", Simple);
            check!(copy, broadcast, Broadcast { root: ROOT }, (f32, f32), "one step", Simple);
            check!(copy, scatter, Scatter { root: ROOT }, (f32, f32), "one step", Simple);
            check!(copy, gather, Gather { root: ROOT }, (f32, f32), "one step", Simple);
            check!(sum, reduce_scatter, ReduceScatter, (f32, f32), "one step", Simple);
            check!(sum, reduce, Reduce { root: ROOT }, (f32, f32), "one step", Simple);
            check!(sum, all_reduce, AllReduce, (f32, f32), "one step", Simple);
            check!(sum, all_reduce, AllReduce, (f32, f32), "two steps", TwoShot);
            if n > 2 {
                check!(copy, broadcast, Broadcast { root: ROOT }, (f32, f32), "two steps", TwoShot);
                check!(sum, reduce, Reduce { root: ROOT }, (f32, f32), "two steps", TwoShot);
            }
            check!(rounded, all_reduce, AllReduce, (Bf16, f32), "two steps", TwoShot);
            check!(kept, all_reduce, AllReduce, (Bf16, f32), "two steps, `consume` of f32", TwoShot);
            seen
        });
        let seen: BTreeSet<usize> = seen.unwrap().into_iter().flatten().collect();
        let counted = |row: &&Row| n > 2 || row.way == "one step" || row.rank == "every";
        assert_eq!(
            seen.len(),
            table.iter().filter(counted).count(),
            "rows that nothing was counted for, of {n} ranks"
        );
        // What some send, others receive.
        for Row { schedule, way, .. } in table {
            let rows = || table.iter().filter(|row| (&row.schedule, &row.way) == (schedule, way));
            let ranks = |row: &Row| match row.rank.as_str() {
                "every" => n,
                "root" => 1,
                _ => n - 1,
            };
            let all = |cell: fn(&Row) -> &str| {
                rows().map(|row| f64::from(ranks(row)) * part(cell(row), n)).sum::<f64>()
            };
            assert!(
                (all(|row| &row.sends) - all(|row| &row.receives)).abs() < 1e-9,
                "{schedule} in {way} of {n}"
            );
        }
    }
}
