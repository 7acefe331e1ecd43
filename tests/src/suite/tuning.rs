//! Tuning tables: what a row decides, and what it must not.

use super::support::misuse;
use crate::check::says;
use crate::kernels::copying::copy;
use crate::{AllToAllOf, Outcome, Rank, Subject};
use fusewire::schedule::Decided;
use fusewire::tune::{ANY, Config, Entry, Key, Space, Table};
use fusewire::{Error, LaunchOptions, Options, Protocol};

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

    // Something else than the default, whatever that is.
    let config = Config {
        protocol: Protocol::Staged,
        channels: 3,
        threads: if default.threads == 1 { 1 } else { 96 },
        chunk: Some(1024),
        unroll: plain.explain(&args, &open.clone().protocol(Protocol::Staged))?.unroll,
    };
    let tuned = prepare()?.with_table(&row(key.clone(), config))?;
    let plan = tuned.explain(&args, &open)?;
    assert_eq!((Config::from(&plan), plan.decided), (config, Decided::Table));
    says(plan, &["3 channels", "as the tuning table says"]);
    let plan = tuned.explain(&args, &open.clone().channels(2))?;
    assert_eq!((plan.channels, plan.chunk, plan.decided), (2, 1024, Decided::Table));
    let plan = tuned.explain(&args, &open.clone().protocol(Protocol::Lines))?;
    assert_eq!((plan.protocol, plan.decided), (Protocol::Lines, Decided::Caller));
    let plan = tuned.explain(&args, &open.clone().elements(CHUNK / 4))?;
    assert_eq!(plan.decided, Decided::Default, "another bucket");
    misuse(tuned.explain(&args, &open.clone().channels(9)));

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

/// Whatever a launcher says can be tried gives the right result.
pub fn all_that_can_be_tried<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(64 << 10).channels(8))?;
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    for (call, chunk) in [1, CHUNK + 3, 10 * CHUNK].into_iter().enumerate() {
        let input = ground.device.buffer::<u32>(chunk * rank.size())?;
        let mut output = ground.device.buffer::<u32>(chunk * rank.size())?;
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        let open = LaunchOptions::default();
        let default = Config::from(&launcher.explain(&args, &open.clone())?);
        let spaces = launcher.spaces(&args, &open)?;
        assert_eq!(spaces[0].start, default);
        for Space { start, channels, threads, chunk: bytes, unroll } in spaces {
            assert!(channels.contains(&start.channels) && unroll.contains(&start.unroll));
            let along = channels
                .into_iter()
                .map(|channels| Config { channels, ..start })
                .chain(threads.into_iter().map(|threads| Config { threads, ..start }))
                .chain(bytes.into_iter().map(|bytes| Config { chunk: Some(bytes), ..start }))
                .chain(unroll.into_iter().map(|unroll| Config { unroll, ..start }));
            for config in along {
                super::support::copy_once(
                    &ground,
                    &launcher,
                    rank.data(call),
                    chunk,
                    &config.options(&open),
                )?;
            }
        }
    }
    Ok(())
}
