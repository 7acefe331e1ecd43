//! Tuning tables: what a row decides, and what it must not.

use super::support::{POISON, misuse};
use crate::check::{same, says};
use crate::kernels::copying::copy;
use crate::kernels::schedules::ring_all_gather;
use crate::run::Ground;
use crate::{AllToAllOf, CustomOf, Outcome, Rank, Subject, reference};
use fusewire::schedule::{CustomLauncher, Decided, Plan};
use fusewire::tune::{ANY, Config, Entry, Journal, Key, Progress, Space, Table, Tunable, sweep};
use fusewire::{Blocks, Buffer, Error, LaunchOptions, Options, Protocol, Result, Stream};

const CHUNK: usize = 4096;

fn row(key: Key, config: Config) -> Table {
    let mut table = Table::default();
    table.insert(key, Entry { config, us: 1.0, default_us: 2.0 });
    table
}

/// The caller's word comes before the row, and the row before the default; a row that does not fit is none.
pub fn the_table_decides<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(64 << 10).channels(8))?;
    let n = CHUNK * rank.size();
    let input = ground.device.buffer::<u32>(n)?;
    let mut output = ground.device.buffer::<u32>(n)?;
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    let open = LaunchOptions::default();
    let prepare = || AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport);
    let plain = prepare()?.with_table(&Table::default())?;
    let default = plain.explain(&args, &open)?;
    assert_eq!(default.decided, Decided::Default);
    let key = plain.key(&args, &open)?;
    assert_eq!((key.world, key.bytes, key.element.as_str()), (rank.size(), 16384, "u32"));

    let staged = plain.explain(&args, &open.clone().protocol(Protocol::Simple))?;
    // Something else than the default, whatever that is.
    let config = Config {
        protocol: Protocol::Simple,
        channels: 3,
        self_copy: staged.self_copy,
        threads: if default.threads == 1 { 1 } else { 96 },
        chunk: Some(1024),
        unroll: staged.unroll,
    };
    let tuned = prepare()?.with_table(&row(key.clone(), config))?;
    let plan = tuned.explain(&args, &open)?;
    assert_eq!((Config::from(&plan), plan.decided), (config, Decided::Table));
    says(plan, &["3 channels", "as the tuning table says"]);
    let plan = tuned.explain(&args, &open.clone().channels(2))?;
    assert_eq!((plan.channels, plan.chunk, plan.decided), (2, 1024, Decided::Table));
    if X::MAPS {
        let plan = tuned.explain(&args, &open.clone().protocol(Protocol::Ll128))?;
        assert_eq!((plan.protocol, plan.decided), (Protocol::Ll128, Decided::Caller));
    } else {
        misuse(tuned.explain(&args, &open.clone().protocol(Protocol::Ll128)));
    }
    let plan = tuned.explain(&args, &open.clone().elements(CHUNK / 4))?;
    assert_eq!(plan.decided, Decided::Default, "another bucket");
    misuse(tuned.explain(&args, &open.clone().protocol(Protocol::Simple).channels(9)));

    let rows_of_any = Key { element: ANY.into(), variant: ANY.into(), ..key.clone() };
    for (key, config, decided) in [
        (rows_of_any, config, Decided::Table),
        (Key { world: key.world + 1, ..key.clone() }, config, Decided::Default),
        (key.clone(), Config { channels: 9, ..config }, Decided::Default),
        (key.clone(), Config { chunk: Some(100), ..config }, Decided::Default),
        (key, Config { unroll: 3, ..config }, Decided::Default),
    ] {
        let tuned = prepare()?.with_table(&row(key, config))?;
        let plan = tuned.explain(&args, &open)?;
        assert_eq!(plan.decided, decided, "{config}");
        assert_eq!(Config::from(&plan) == config, decided == Decided::Table, "{plan}");
    }
    Ok(())
}

/// A schedule of one's own has the blocks that it is told, that a table says, or that are planned; whatever can be tried is right.
pub fn blocks_of_own_schedules<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(64 << 10).channels(8))?;
    let (me, n, open) = (rank.me(), 3 * CHUNK + 5, LaunchOptions::default());
    let prepare = || CustomOf::<ring_all_gather::Hooks>::custom(&ground.transport);
    let plain = prepare()?.with_table(&Table::default())?;
    let planned = |options: &LaunchOptions| plain.explain(Blocks::Planned, options);
    let (short, sent, long) =
        (planned(&open.clone().elements(64))?, open.clone().elements(4 * n), planned(&open)?);
    assert_eq!((short.blocks, short.decided), (1, Decided::Default), "{short}");
    assert!((1..=8).contains(&long.blocks) && long.blocks == long.channels, "{long}");
    assert!((1..=long.blocks).contains(&planned(&sent)?.blocks));
    assert_eq!(planned(&open.clone().blocks(1))?.blocks, 1);
    assert_eq!(planned(&open.clone().channels(5))?.blocks, 5);
    assert_eq!(plain.explain(7, &open)?.blocks, 7);
    misuse(planned(&open.clone().channels(9)));
    misuse(plain.explain(0, &open));
    // What is told is of the elements that were said, or of none.
    let told = |plan: &Plan| (plan.elements, plan.wire_bytes);
    assert_eq!((told(&short), told(&long)), ((64, 64), (0, 0)));
    // There are no variants.
    assert_eq!(planned(&open.clone().unroll(long.unroll))?.unroll, long.unroll);
    let said = misuse(planned(&open.clone().unroll(long.unroll + 1)));
    assert!(said.contains("leave `LaunchOptions::unroll` out"), "{said}");

    let spaces = plain.spaces(&sent)?;
    assert_eq!(spaces.iter().map(|s| s.start).collect::<Vec<_>>(), [Config::from(&planned(&sent)?)]);
    let data = rank.data(1);
    let own = ground.device.buffer_from(&data.all::<f32>(me, n))?;
    let mut all = ground.device.buffer::<f32>(n * rank.size())?;
    let most = (ground.window() - 128) / 4;
    let mut right = |launcher: &CustomLauncher<X, ring_all_gather::Hooks>, options: &LaunchOptions| {
        all.fill_bytes(&ground.stream, POISON)?;
        let args = ring_all_gather::Launch { own: own.view(), all: all.view_mut(), most };
        launcher.launch_with(&ground.stream, Blocks::Planned, args, options)?;
        same(format_args!("{options:?}"), &all.read(&ground.stream)?, |i| data.any(i / n, i % n));
        Ok::<_, Error>(())
    };
    right(&plain, &open)?;
    right(&plain, &sent)?;
    for config in around(&spaces[0]) {
        right(&plain, &config.options(&sent))?;
    }
    let config = Config { channels: 3, chunk: Some(1024), ..spaces[0].start };
    let tuned = prepare()?.with_table(&row(plain.key(&sent), config))?;
    let plan = tuned.explain(Blocks::default(), &sent)?;
    assert_eq!((Config::from(&plan), plan.blocks, plan.decided), (config, 3, Decided::Table));
    assert_eq!(tuned.explain(Blocks::Planned, &open)?.decided, Decided::Default, "another bucket");
    right(&tuned, &sent)?;
    Ok(())
}

/// The all-gather by tiles, for the tuner.
struct Tiles<'r, X: Subject> {
    rank: &'r Rank<X>,
    ground: &'r Ground<X>,
    launcher: CustomLauncher<X, ring_all_gather::Hooks>,
    own: Buffer<f32>,
    all: Buffer<f32>,
    options: LaunchOptions,
}

impl<X: Subject> Tunable for Tiles<'_, X> {
    fn begin(&mut self, bytes: usize) -> Result<Key> {
        let n = bytes / size_of::<f32>();
        self.own = self.ground.device.buffer_from(&self.rank.data(1).all::<f32>(self.rank.me(), n))?;
        self.all = self.ground.device.buffer(n * self.rank.size())?;
        self.options.elements = Some(bytes);
        Ok(self.launcher.key(&self.options))
    }

    fn spaces(&mut self) -> Result<Vec<Space>> {
        let mut spaces = self.launcher.spaces(&self.options)?;
        // Few, since each takes milliseconds.
        for space in &mut spaces {
            space.channels.retain(|channels| [space.start.channels, 1, 3].contains(channels));
            space.chunk.truncate(2);
        }
        Ok(spaces)
    }

    fn stream(&self) -> &Stream {
        &self.ground.stream
    }

    fn launch(&mut self, config: &Config) -> Result<()> {
        let most = (self.ground.window() - 128) / size_of::<f32>();
        let args = ring_all_gather::Launch { own: self.own.view(), all: self.all.view_mut(), most };
        self.launcher.launch_with(&self.ground.stream, Blocks::Planned, args, &config.options(&self.options))
    }

    fn poison(&mut self) -> Result<()> {
        self.all.fill_bytes(&self.ground.stream, POISON)
    }

    fn is_exact(&mut self) -> Result<bool> {
        let (n, data) = (self.own.len(), self.rank.data(1));
        let got = self.all.read(&self.ground.stream)?;
        Ok((0..got.len()).all(|i| got[i].to_bits() == data.any::<f32>(i / n, i % n).to_bits()))
    }
}

/// The tuner measures a schedule of one's own, and what it finds decides the next launch.
pub fn own_schedules_are_tuned<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = &rank.meet(Options::per_peer(64 << 10).channels(8))?;
    let prepare =
        || CustomOf::<ring_all_gather::Hooks>::custom(&ground.transport)?.with_table(&Table::default());
    let (own, all) = (ground.device.buffer(0)?, ground.device.buffer(0)?);
    let options = LaunchOptions::default();
    let mut tiles = Tiles { rank, ground, launcher: prepare()?, own, all, options };
    let (bytes, mut tried) = (CHUNK, 0);
    let table = sweep(&rank.world, &mut tiles, &[bytes], &mut Journal::default(), &mut |progress| {
        tried += usize::from(matches!(progress, Progress::Tried { .. }));
        assert!(!matches!(progress, Progress::Failed { .. }), "{progress:?}");
    })?;
    assert!(tried >= 2, "{tried} configurations");
    let (key, entry) = table.rows().next().map(|(key, entry)| (key.clone(), *entry)).unwrap();
    let sent = LaunchOptions::default().elements(bytes);
    assert_eq!(key, tiles.launcher.key(&sent));
    let plan = prepare()?.with_table(&table)?.explain(Blocks::Planned, &sent)?;
    assert_eq!((Config::from(&plan), plan.decided), (entry.config, Decided::Table));
    Ok(())
}

/// Ranks that would cut differently are told so.
pub fn tables_that_differ<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let n = CHUNK * rank.size();
    let input = ground.device.buffer::<u32>(n)?;
    let mut output = ground.device.buffer::<u32>(n)?;
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let key = launcher.key(&args, &LaunchOptions::default())?;
    let plan = launcher.explain(&args, &LaunchOptions::default())?;
    let channels = if rank.me() == 1 { 2 } else { 1 };
    let table = row(key, Config { channels, ..Config::from(&plan) });
    match launcher.with_table(&table) {
        Err(Error::Peer(error)) => {
            says(error, &["tuning table", "rank 1 has tuned configurations", "1 rows"])
        }
        Err(other) => panic!("the ranks should disagree: {other:?}"),
        Ok(_) => panic!("the ranks should disagree"),
    }
    // Rows for others do not matter.
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let key = launcher.key(&args, &LaunchOptions::default())?;
    let other = Key { transport: format!("of rank {}", rank.me()), ..key };
    launcher.with_table(&row(other, Config::from(&plan)))?;
    Ok(())
}

/// Whatever a launcher says can be tried gives the right result, into ordinary and into symmetric memory.
pub fn all_that_can_be_tried<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(64 << 10).channels(8))?;
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let (me, open) = (rank.me(), LaunchOptions::default());
    for (call, chunk) in [1, CHUNK + 3, 10 * CHUNK].into_iter().enumerate() {
        let (data, n) = (rank.data(call), chunk * rank.size());
        let input = ground.device.buffer_from(&data.all::<u32>(me, n))?;
        for symmetric in if X::MAPS { &[false, true][..] } else { &[false] } {
            let symmetric = *symmetric;
            let mut output = match symmetric {
                true => Buffer::<u32>::symmetric(&ground.transport, n)?,
                false => ground.device.buffer::<u32>(n)?,
            };
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            assert_eq!(launcher.key(&args, &open)?.layout.symmetric, symmetric);
            let default = Config::from(&launcher.explain(&args, &open)?);
            let spaces = launcher.spaces(&args, &open)?;
            assert_eq!(spaces[0].start, default);
            let direct = spaces.iter().any(|s| s.start.protocol == Protocol::Direct);
            assert!(symmetric == direct, "{spaces:?}");
            for config in spaces.iter().flat_map(around) {
                output.fill_bytes(&ground.stream, POISON)?;
                let args = copy::Launch { input: input.view(), output: output.view_mut() };
                launcher.launch_with(&ground.stream, args, &config.options(&open))?;
                let got = output.read(&ground.stream)?;
                same(format_args!("{chunk} elements to each rank, {config}, at rank {me}"), &got, |i| {
                    reference::all_to_all(me, chunk, i, |peer, at| data.any(peer, at))
                });
            }
        }
    }
    Ok(())
}

/// The start of a space and its neighbours along each axis.
fn around(space: &Space) -> Vec<Config> {
    let Space { start, channels, self_copy, threads, chunk, unroll } = space.clone();
    assert!(channels.contains(&start.channels) && unroll.contains(&start.unroll));
    channels
        .into_iter()
        .map(|channels| Config { channels, ..start })
        .chain(self_copy.into_iter().map(|self_copy| Config { self_copy, ..start }))
        .chain(threads.into_iter().map(|threads| Config { threads, ..start }))
        .chain(chunk.into_iter().map(|bytes| Config { chunk: Some(bytes), ..start }))
        .chain(unroll.into_iter().map(|unroll| Config { unroll, ..start }))
        .collect()
}
