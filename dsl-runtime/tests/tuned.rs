//! Rows of tuning tables, by every schedule.

use fusewire::prelude::*;
use fusewire::schedule::*;
use fusewire::tune::{ANY, COPIES, Config, Entry, Key, Table};

#[comm_kernel(transports(Shm), schedules(all_to_all, sendrecv, all_gather, broadcast, scatter, gather))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

#[comm_kernel(transports(Shm), schedules(reduce_scatter, all_reduce, reduce), reduce(sum, f32))]
mod sum {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

const CHUNK: usize = 4096;
const ROOT: u32 = 1;

/// A row for whatever kernel of the schedule copies or folds, as the tuning program of the examples writes it.
fn row(key: &Key, config: Config) -> Table {
    let mut table = Table::default();
    let variant = if key.schedule.contains("reduce") { ANY } else { COPIES };
    let key = Key { variant: variant.into(), element: ANY.into(), ..key.clone() };
    table.insert(key, Entry { config, us: 1.0, default_us: 2.0 });
    table
}

/// Calls a macro for each module, its schedule, and that schedule's value on this rank.
macro_rules! every_schedule {
    ($do:ident, $me:expr) => {
        $do!(copy, all_to_all, AllToAll);
        $do!(copy, sendrecv, SendRecv { to: $me.up(1), from: $me.down(1) });
        $do!(copy, all_gather, AllGather);
        $do!(copy, broadcast, Broadcast { root: ROOT });
        $do!(copy, scatter, Scatter { root: ROOT });
        $do!(copy, gather, Gather { root: ROOT });
        $do!(sum, reduce_scatter, ReduceScatter);
        $do!(sum, all_reduce, AllReduce);
        $do!(sum, reduce, Reduce { root: ROOT });
    };
}

#[test]
fn a_row_decides_for_every_schedule() {
    World::threads(3, |world| {
        let shm = Shm::rendezvous(&world, Options::per_peer(256 << 10).channels(8)).unwrap();
        let (device, me) = (Device::host(), Member { rank: world.rank() as u32, world: 3 });
        let stream = device.stream().unwrap();
        let options = LaunchOptions::default().elements(CHUNK);
        let input = device.buffer_from(&vec![1.0f32; 3 * CHUNK]).unwrap();
        let (mut ordinary, mut symmetric) =
            (device.buffer(3 * CHUNK).unwrap(), Buffer::<f32>::symmetric(&shm, 3 * CHUNK).unwrap());
        macro_rules! check {
            ($module:ident, $schedule:ident, $value:expr) => {
                let (name, schedule) = (stringify!($schedule), $value);
                let prepare = |table: &Table| $module::$schedule(&shm).unwrap().with_table(table).unwrap();
                let plain = prepare(&Table::default());
                let args = $module::Launch { input: input.view(), output: ordinary.view_mut() };
                let default = plain.explain_as(&schedule, &args, &options).unwrap();
                assert_eq!(default.decided, Decided::Default, "{name}");
                let key = plain.key_as(&schedule, &args, &options).unwrap();
                assert_eq!((key.schedule.as_str(), key.bytes), (name, 4 * CHUNK));
                // What can be tried begins with that, on every rank, and all of it fits.
                let spaces = plain.spaces_as(&schedule, &args, &options).unwrap();
                assert_eq!(spaces[0].start, Config::from(&default), "{name}");
                for space in spaces {
                    let plan = plain.explain_as(&schedule, &args, &space.start.options(&options)).unwrap();
                    assert_eq!(plan.protocol, space.start.protocol, "{name}");
                }
                let config = Config { channels: 3, chunk: Some(1024), ..Config::from(&default) };
                let tuned = prepare(&row(&key, config));
                let plan = tuned.explain_as(&schedule, &args, &options).unwrap();
                assert_eq!((Config::from(&plan), plan.decided), (config, Decided::Table), "{name}");
                assert_ne!(config, Config::from(&default), "{name}");
                // What all ranks send is 1, and so is what arrives, or it is folded.
                tuned.launch_as(&stream, schedule, args, &options).unwrap();
                let outputs = schedule.chunks(me)[1] as usize * CHUNK;
                let want = if stringify!($module) == "sum" { 3.0 } else { 1.0 };
                assert!(ordinary.read(&stream).unwrap()[..outputs].iter().all(|x| *x == want), "{name}");
                // Where ranks fold, or need not have an output, nobody stores into it: the same row is for symmetric ones.
                let args = $module::Launch { input: input.view(), output: symmetric.view_mut() };
                let stored = matches!(name, "all_to_all" | "sendrecv" | "all_gather");
                let layout = plain.key_as(&schedule, &args, &options).unwrap().layout;
                assert_eq!(layout.symmetric, stored, "{name}");
                let decided = tuned.explain_as(&schedule, &args, &options).unwrap().decided;
                assert_eq!(decided, if stored { Decided::Default } else { Decided::Table }, "{name}");
                world.barrier().unwrap();
            };
        }
        every_schedule!(check, me);
    })
    .unwrap();
}

#[test]
fn a_row_takes_two_steps() {
    World::threads(2, |world| {
        let shm = Shm::rendezvous(&world, Options::per_peer(256 << 10).channels(8)).unwrap();
        let device = Device::host();
        let input = device.buffer::<f32>(CHUNK).unwrap();
        let mut output = device.buffer::<f32>(CHUNK).unwrap();
        let args = sum::Launch { input: input.view(), output: output.view_mut() };
        let open = LaunchOptions::default();
        let plain = sum::all_reduce(&shm).unwrap().with_table(&Table::default()).unwrap();
        assert_eq!(plain.explain(&args, &open).unwrap().protocol, Protocol::Simple);
        let steps = plain.explain(&args, &open.clone().protocol(Protocol::TwoShot)).unwrap();
        let table = row(&plain.key(&args, &open).unwrap(), Config::from(&steps));
        let plan = sum::all_reduce(&shm).unwrap().with_table(&table).unwrap().explain(&args, &open).unwrap();
        assert_eq!((plan.protocol, plan.decided), (Protocol::TwoShot, Decided::Table));
    })
    .unwrap();
}

/// As the tuning program wrote it when it had two schedules.
const BEFORE: &str = r#"{"fusewire-tuning":1}
{"world":2,"transport":"Shm","device":"host","schedule":"all_to_all","variant":"copies","element":"*","layout":"flat","bytes":16384,"protocol":"simple","channels":2,"self_copy":1,"threads":1,"chunk":4096,"unroll":8,"us":22.08,"default_us":22.62}
{"world":2,"transport":"Shm","device":"host","schedule":"sendrecv","variant":"copies","element":"*","layout":"flat","bytes":16384,"protocol":"simple","channels":4,"self_copy":0,"threads":1,"chunk":2048,"unroll":8,"us":6.25,"default_us":6.25}
"#;

#[test]
fn a_table_of_before_decides_as_it_did() {
    let table = Table::parse(BEFORE, "a table of before").unwrap();
    assert_eq!(table.to_text(), BEFORE);
    World::threads(2, |world| {
        let shm = Shm::rendezvous(&world, Options::per_peer(256 << 10).channels(8)).unwrap();
        let (device, me) = (Device::host(), Member { rank: world.rank() as u32, world: 2 });
        let options = LaunchOptions::default().elements(CHUNK);
        let input = device.buffer::<f32>(2 * CHUNK).unwrap();
        let mut output = device.buffer::<f32>(2 * CHUNK).unwrap();
        macro_rules! check {
            ($module:ident, $schedule:ident, $value:expr) => {
                let launcher = $module::$schedule(&shm).unwrap().with_table(&table).unwrap();
                let args = $module::Launch { input: input.view(), output: output.view_mut() };
                let plan = launcher.explain_as(&$value, &args, &options).unwrap();
                match stringify!($schedule) {
                    "all_to_all" => {
                        assert_eq!((plan.channels, plan.chunk, plan.decided), (2, 4096, Decided::Table))
                    }
                    "sendrecv" => {
                        assert_eq!((plan.channels, plan.chunk, plan.decided), (4, 2048, Decided::Table))
                    }
                    other => assert_eq!(plan.decided, Decided::Default, "{other}"),
                }
            };
        }
        every_schedule!(check, me);
    })
    .unwrap();
}
