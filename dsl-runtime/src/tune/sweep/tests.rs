use super::super::Layout;
use super::*;
use crate::Device;
use crate::schedule::Protocol;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A kernel that takes as long as is said here, and is wrong where it is said.
struct Model {
    stream: Stream,
    spaces: Vec<Space>,
    cost: fn(&Config) -> u64,
    wrong: fn(&Config) -> bool,
    last: Option<Config>,
    launches: Arc<AtomicU32>,
    checks: u32,
}

fn config(protocol: Protocol, channels: u32, threads: u32) -> Config {
    Config { protocol, channels, self_copy: 1, threads, chunk: None, unroll: 1 }
}

impl Model {
    fn new(cost: fn(&Config) -> u64, wrong: fn(&Config) -> bool) -> Self {
        let space = |protocol, channels| Space {
            start: config(protocol, channels, 64),
            channels: vec![1, 2, 4, 8],
            self_copy: vec![1],
            threads: vec![64, 128],
            chunk: vec![],
            unroll: vec![1],
        };
        Model {
            stream: Device::host().stream().unwrap(),
            spaces: vec![space(Protocol::Simple, 4), space(Protocol::Ll128, 1)],
            cost,
            wrong,
            last: None,
            launches: Arc::default(),
            checks: 0,
        }
    }
}

impl Tunable for Model {
    fn begin(&mut self, bytes: usize) -> Result<Key> {
        Ok(Key {
            world: 1,
            transport: "Model".into(),
            device: "host".into(),
            schedule: "all_to_all".into(),
            variant: "model".into(),
            element: "f32".into(),
            layout: Layout::default(),
            bytes,
        })
    }

    fn spaces(&mut self) -> Result<Vec<Space>> {
        Ok(self.spaces.clone())
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }

    fn launch(&mut self, config: &Config) -> Result<()> {
        if config.channels == 8 {
            return Err(Error::misuse("8 channels do not fit"));
        }
        self.last = Some(*config);
        let (time, launches) = (Duration::from_micros((self.cost)(config)), Arc::clone(&self.launches));
        self.stream.push(Arc::new(move |_| {
            launches.fetch_add(1, Ordering::Relaxed);
            let start = Instant::now();
            while start.elapsed() < time {
                std::hint::spin_loop();
            }
        }));
        Ok(())
    }

    fn poison(&mut self) -> Result<()> {
        self.last = None;
        Ok(())
    }

    fn is_exact(&mut self) -> Result<bool> {
        self.stream.synchronize()?;
        self.checks += 1;
        Ok(self.last.is_some_and(|config| !(self.wrong)(&config)))
    }
}

/// The table's one entry, and what was reported.
fn tune(model: &mut Model, journal: &mut Journal) -> Result<(Entry, Vec<Progress>)> {
    let (world, mut news) = (World::single()?, Vec::new());
    let table = sweep(&world, model, &[4096], journal, &mut |progress| news.push(progress))?;
    let entry = table.rows().next().map(|(_, entry)| *entry);
    Ok((entry.unwrap(), news))
}

#[test]
fn the_fastest_that_is_right_is_found() {
    // The fastest of all is wrong, and by so much the fastest that even a busy machine does not leave it out as slow; lines are twice
    // as fast as staging, and best with 128 threads.
    let cost = |c: &Config| {
        let lines = u64::from(c.protocol == Protocol::Simple) + 1;
        if c.channels == 2 { 1 } else { lines * 300 + if c.threads == 64 { 400 } else { 0 } }
    };
    let wrong = |c: &Config| c.channels == 2;
    let mut model = Model::new(cost, wrong);
    let (entry, news) = tune(&mut model, &mut Journal::default()).unwrap();
    let best = Config { channels: entry.config.channels, ..config(Protocol::Ll128, 1, 128) };
    assert_eq!(entry.config, best, "{entry:?}");
    assert!(matches!(entry.config.channels, 1 | 4), "{entry:?}");
    assert!(entry.us >= 300.0 && entry.default_us >= 1000.0, "{entry:?}");
    let failed = |what: &str| {
        let is = |p: &&Progress| matches!(p, Progress::Failed { why, .. } if why.contains(what));
        news.iter().filter(is).count()
    };
    assert_eq!((failed("wrong on ranks [0]"), failed("do not fit")), (2, 2), "{news:?}");
    let settled = news.iter().filter_map(|p| match p {
        Progress::Tried { settled, of, .. } => Some((*settled, *of)),
        _ => None,
    });
    let settled: Vec<_> = settled.collect();
    assert!(settled.iter().all(|(s, of)| s <= of && *of == 10), "{settled:?}");
    assert_eq!(settled.last(), Some(&(10, 10)));
}

#[test]
fn the_default_stays_where_nothing_is_better() {
    let mut model = Model::new(|_| 200, |_| false);
    let (entry, _) = tune(&mut model, &mut Journal::default()).unwrap();
    // Unless the machine was busy with something else for most of a measurement.
    assert!(entry.config == model.spaces[0].start || entry.us < entry.default_us * GAIN, "{entry:?}");
}

#[test]
fn a_protocol_that_is_far_off_is_not_searched() {
    let cost = |c: &Config| if c.protocol == Protocol::Ll128 { 2000 } else { 200 };
    let mut model = Model::new(cost, |_| false);
    let (_, news) = tune(&mut model, &mut Journal::default()).unwrap();
    let tried = news.iter().filter(|p| matches!(p, Progress::Tried { .. })).count();
    assert!(tried <= 6, "{tried} of 10");
}

#[test]
fn what_is_much_slower_is_not_compared_nor_chosen() {
    // Of each protocol two of four numbers of channels, one of which does not fit.
    let cost = |c: &Config| if c.channels <= 2 { 3000 } else { 300 };
    let wrong = |c: &Config| c.channels <= 2;
    let mut model = Model::new(cost, wrong);
    model.spaces[1].start.channels = 4;
    let (entry, news) = tune(&mut model, &mut Journal::default()).unwrap();
    assert_eq!(entry.config.channels, 4);
    let wrong = |p: &&Progress| matches!(p, Progress::Failed { why, .. } if why.contains("wrong"));
    assert_eq!(news.iter().filter(wrong).count(), 0, "{news:?}");
    // Starts always are; on a busy machine a good one may seem slow.
    assert!((2..=4).contains(&model.checks), "{}: {news:?}", model.checks);
}

#[test]
fn what_the_journal_knows_is_not_run() {
    let mut model = Model::new(|_| 100, |_| false);
    let mut journal = Journal::default();
    let (first, _) = tune(&mut model, &mut journal).unwrap();
    let launches = model.launches.swap(0, Ordering::Relaxed);
    assert!(launches > 0 && journal.len() == 1);
    let (second, news) = tune(&mut model, &mut journal).unwrap();
    assert_eq!((second, model.launches.load(Ordering::Relaxed)), (first, 0));
    assert!(matches!(news.last(), Some(Progress::Done { resumed: true, .. })), "{news:?}");
}

#[test]
fn nothing_right_is_an_error() {
    let mut model = Model::new(|_| 100, |_| true);
    let error = tune(&mut model, &mut Journal::default()).unwrap_err().to_string();
    assert!(error.contains("no configuration gives the right result"), "{error}");
}
