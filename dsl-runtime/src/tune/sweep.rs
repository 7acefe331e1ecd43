//! The search for the best configuration of each key.

use super::journal::{Journal, Outcome};
use super::key::{Config, Key};
use super::space::Space;
use super::table::{Entry, Table};
use crate::{Error, Graph, Result, Stream};
use fusewire_world::World;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A kernel that can be tuned: what a kernel of one's own implements to join. All ranks call the same methods in the same order.
pub trait Tunable {
    /// Sizes to tune for when none are asked for: bytes to each peer.
    fn sizes(&self) -> Vec<usize> {
        (8..=28).map(|k| 1 << k).collect()
    }
    /// Makes inputs and outputs for chunks of at most `bytes` to each peer, and says what is being tuned: the launcher's `key`.
    ///
    /// # Errors
    /// Those of buffers and launches.
    fn begin(&mut self, bytes: usize) -> Result<Key>;
    /// What can be tried for it: the launcher's `spaces`, or fewer.
    ///
    /// # Errors
    /// Those of launches.
    fn spaces(&mut self) -> Result<Vec<Space>>;
    /// Where launches go.
    fn stream(&self) -> &Stream;
    /// Queues one launch, with [`Config::options`].
    ///
    /// # Errors
    /// Those of launches.
    fn launch(&mut self, config: &Config) -> Result<()>;
    /// Makes the outputs as they are before a first launch, and unlike what a launch leaves there.
    ///
    /// # Errors
    /// Those of buffers.
    fn poison(&mut self) -> Result<()>;
    /// Whether this rank's outputs are, bit by bit, what one launch after [`Tunable::poison`] must leave there.
    ///
    /// # Errors
    /// Those of buffers; the kernel's fault, since this waits for it.
    fn is_exact(&mut self) -> Result<bool>;
}

/// How far a sweep is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Progress {
    /// A key is next.
    Key {
        /// Its number, from 0.
        number: usize,
        /// Keys of this kernel.
        of: usize,
        /// The key.
        key: Key,
    },
    /// A configuration was tried, or left out.
    Tried {
        /// Configurations of this key that are settled.
        settled: usize,
        /// Configurations of this key.
        of: usize,
        /// Microseconds of the best so far.
        best_us: f64,
    },
    /// A configuration cannot be used.
    Failed {
        /// The configuration.
        config: Config,
        /// Why not.
        why: String,
    },
    /// A key is finished.
    Done {
        /// The key.
        key: Key,
        /// Its row.
        entry: Entry,
        /// Whether it was found in the journal.
        resumed: bool,
    },
}

/// A configuration must be faster than the best by this factor to take its place: differences below are noise.
const GAIN: f64 = 0.985;

/// Whose first two windows are slower than the best by this factor is not looked at further.
const HOPELESS: f64 = 1.2;

/// A protocol whose start is slower than the best by this factor is not searched.
const FAR_OFF: f64 = 2.0;

/// Windows of a measurement; the median counts.
const WINDOWS: usize = 5;

/// So many of the fastest are timed again, in turn with the default.
const FINALISTS: usize = 3;

/// Windows of each of them.
const FINAL_WINDOWS: usize = 15;

/// How long each key's default runs before anything is timed: clocks rise, and the last key's work is forgotten.
const WARM_UP: Duration = Duration::from_millis(20);

/// How long each configuration runs before it is timed: clocks fall while the host compares results.
const CLOCKS: Duration = Duration::from_millis(5);

/// About how long a window lasts.
const WINDOW: Duration = Duration::from_micros(1000);

/// Finds the best configuration for each of `sizes` (the subject's own if there are none). Collective.
///
/// From what the launcher decides by itself, one axis after the other is searched for each protocol. Times are medians of windows of
/// replayed graphs, the slowest rank's. Unless it is seen to be much slower than the best, each configuration then runs once on poisoned
/// outputs and must be bit-exact on all ranks. At the end the fastest are timed again in turn with the default, and have to be faster.
///
/// # Errors
/// Those of the subject, but for configurations that do not fit ([`Error::Misuse`]) and wrong results: these are left out. After a
/// fault the journal knows which configuration it was, and a second one excludes it.
pub fn sweep(
    world: &World,
    subject: &mut impl Tunable,
    sizes: &[usize],
    journal: &mut Journal,
    report: &mut dyn FnMut(Progress),
) -> Result<Table> {
    let sizes = if sizes.is_empty() { subject.sizes() } else { sizes.to_vec() };
    let mut table = Table::default();
    for (number, bytes) in sizes.iter().enumerate() {
        let key = subject.begin(*bytes)?;
        report(Progress::Key { number, of: sizes.len(), key: key.clone() });
        let resumed = journal.done(&key);
        let entry = match resumed {
            Some(entry) => entry,
            None => {
                let (measured, settled, of) = (Vec::new(), 0, 0);
                Search { world, subject, journal, report, key: &key, measured, settled, of }.run()?
            }
        };
        report(Progress::Done { key: key.clone(), entry, resumed: resumed.is_some() });
        table.insert(key, entry);
    }
    Ok(table)
}

/// The search for one key.
struct Search<'s, T> {
    world: &'s World,
    subject: &'s mut T,
    journal: &'s mut Journal,
    report: &'s mut dyn FnMut(Progress),
    key: &'s Key,
    measured: Vec<(Config, f64)>,
    settled: usize,
    of: usize,
}

impl<T: Tunable> Search<'_, T> {
    fn run(mut self) -> Result<Entry> {
        // Rank 0's: cores, say, may differ.
        let own = self.subject.spaces()?;
        let spaces: Vec<Space> = self.world.broadcast_as(0, (self.world.rank() == 0).then_some(&own))?;
        self.of = spaces.iter().map(Space::steps).sum();
        let Some(default) = spaces.first().map(|s| s.start) else {
            return Err(Error::misuse(format!("there is nothing to try for {}", self.key)));
        };
        self.warm_up(&default)?;
        let mut best: Option<f64> = None;
        for space in &spaces {
            if let Some((_, us)) = self.search(space, best)? {
                best = Some(best.map_or(us, |best| best.min(us)));
            }
        }
        self.measured.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut finalists: Vec<Config> = self.measured.iter().map(|m| m.0).take(FINALISTS).collect();
        let sound = self.measured.iter().any(|m| m.0 == default);
        if sound && !finalists.contains(&default) {
            finalists.push(default);
        }
        let times = self.compare(&finalists)?;
        let finals = || finalists.iter().copied().zip(times.iter().copied());
        let Some((mut config, mut us)) = finals().min_by(|a, b| a.1.total_cmp(&b.1)) else {
            return Err(Error::misuse(format!("no configuration gives the right result for {}", self.key)));
        };
        let default_us = finals().find(|f| f.0 == default).map_or(us, |f| f.1);
        if sound && us > default_us * GAIN {
            (config, us) = (default, default_us);
        }
        let entry = Entry { config, us: rounded(us), default_us: rounded(default_us) };
        self.journal.finish(self.key, entry)?;
        Ok(entry)
    }

    /// The best of one protocol, if any of its configurations is sound.
    fn search(&mut self, space: &Space, known: Option<f64>) -> Result<Option<(Config, f64)>> {
        let settled_before = self.settled;
        // In full: one bad window must not cost a protocol.
        let mut best = self.measure(space.start, None)?.map(|us| (space.start, us));
        if best.is_none_or(|b| known.is_none_or(|us| b.1 < us * FAR_OFF)) {
            for axis in 0..Space::AXES {
                let base = best.map_or(space.start, |b| b.0);
                for config in space.along(axis, base).into_iter().filter(|c| *c != base) {
                    let us = self.measure(config, best.map(|b| b.1))?;
                    if let Some(us) = us
                        && best.is_none_or(|b| us < b.1 * GAIN)
                    {
                        best = Some((config, us));
                    }
                }
            }
        }
        self.settled = settled_before + space.steps();
        Ok(best)
    }

    /// Microseconds of a configuration; `None` if it is no candidate.
    fn measure(&mut self, config: Config, best: Option<f64>) -> Result<Option<f64>> {
        let outcome = match self.journal.outcome(self.key, &config) {
            Some(outcome) => outcome,
            None => {
                self.journal.trying(self.key, &config)?;
                let outcome = self.try_out(&config, best)?;
                self.journal.tried(self.key, &config, outcome.clone())?;
                outcome
            }
        };
        self.settled = (self.settled + 1).min(self.of);
        let us = match outcome {
            Outcome::Measured(us) => {
                if !self.measured.iter().any(|m| m.0 == config) {
                    self.measured.push((config, us));
                }
                Some(us)
            }
            Outcome::Slow(_) => None,
            Outcome::Failed(why) => {
                (self.report)(Progress::Failed { config, why });
                None
            }
        };
        let best_us = self.measured.iter().map(|m| m.1).fold(f64::INFINITY, f64::min);
        (self.report)(Progress::Tried { settled: self.settled, of: self.of, best_us });
        Ok(us)
    }

    fn try_out(&mut self, config: &Config, best: Option<f64>) -> Result<Outcome> {
        match self.subject.launch(config) {
            Ok(()) => {}
            // Geometry is the same on all ranks.
            Err(Error::Misuse { what }) => return Ok(Outcome::Failed(what)),
            Err(other) => return Err(other),
        }
        let mut timer = Timer::new(self.world, self.subject, config)?;
        // Before results are compared: with large chunks that takes most of a sweep. One bad window must not cost a configuration.
        if let Some(best) = best {
            let mut us = f64::INFINITY;
            for _ in 0..2 {
                let window = timer.window(self.subject.stream())?;
                us = us.min(self.slowest(window)?);
                if us <= best * HOPELESS {
                    break;
                }
            }
            if us > best * HOPELESS {
                return Ok(Outcome::Slow(us));
            }
        }
        let mut times = vec![];
        for _ in 0..WINDOWS {
            times.push(timer.window(self.subject.stream())?);
        }
        let us = self.slowest(median(times))?;
        self.subject.poison()?;
        self.subject.launch(config)?;
        let exact = self.subject.is_exact()?;
        let all = self.world.all_gather_as(&exact)?;
        let wrong: Vec<usize> = (0..all.len()).filter(|r| !all[*r]).collect();
        if !wrong.is_empty() {
            return Ok(Outcome::Failed(format!("the result is wrong on ranks {wrong:?}")));
        }
        Ok(Outcome::Measured(us))
    }

    /// Times configurations in turn.
    fn compare(&mut self, configs: &[Config]) -> Result<Vec<f64>> {
        let mut timers = Vec::new();
        for config in configs {
            timers.push((Timer::new(self.world, self.subject, config)?, vec![]));
        }
        for _ in 0..FINAL_WINDOWS {
            for (timer, times) in &mut timers {
                times.push(timer.window(self.subject.stream())?);
            }
        }
        timers.into_iter().map(|(_, times)| self.slowest(median(times))).collect()
    }

    fn warm_up(&mut self, config: &Config) -> Result<()> {
        match self.subject.launch(config) {
            Ok(()) => self.subject.stream().synchronize()?,
            // It will be said of the candidate.
            Err(Error::Misuse { .. }) => return Ok(()),
            Err(other) => return Err(other),
        }
        let mut timer = Timer::new(self.world, self.subject, config)?;
        let mut spent = 0.0;
        while spent < WARM_UP.as_secs_f64() * 1e6 {
            let us = timer.window(self.subject.stream())?;
            spent += self.slowest(us)?.max(1.0) * f64::from(timer.replays * timer.launches);
        }
        Ok(())
    }

    fn slowest(&self, us: f64) -> Result<f64> {
        Ok(self.world.all_gather_as(&us)?.into_iter().fold(0.0, f64::max))
    }
}

/// Replays a graph of launches.
struct Timer {
    world: World,
    graph: Graph,
    replays: u32,
    launches: u32,
}

impl Timer {
    /// Captures as many launches as make a window, by the time that a few take now. Collective.
    fn new(world: &World, subject: &mut impl Tunable, config: &Config) -> Result<Self> {
        let stream = subject.stream().clone();
        let start = stream.record()?;
        subject.launch(config)?;
        subject.launch(config)?;
        let end = stream.record()?;
        stream.synchronize()?;
        let own = (end.since(&start)? / 2).as_secs_f64();
        let one = world.all_gather_as(&own)?.into_iter().fold(1e-7, f64::max);
        let launches = (WINDOW.as_secs_f64() / one).clamp(1.0, 20.0) as u32;
        let replays = (WINDOW.as_secs_f64() / (one * f64::from(launches))).clamp(1.0, 10.0) as u32;
        let graph = stream.capture(|| (0..launches).try_for_each(|_| subject.launch(config)))?;
        let again = (CLOCKS.as_secs_f64() / (one * f64::from(launches))).clamp(1.0, 1000.0) as u32;
        (0..again).try_for_each(|_| graph.launch(&stream))?;
        stream.synchronize()?;
        Ok(Timer { world: world.clone(), graph, replays, launches })
    }

    /// Microseconds of one launch on this rank.
    fn window(&mut self, stream: &Stream) -> Result<f64> {
        self.world.barrier()?;
        let start = stream.record()?;
        (0..self.replays).try_for_each(|_| self.graph.launch(stream))?;
        let end = stream.record()?;
        stream.synchronize()?;
        Ok(end.since(&start)?.as_secs_f64() * 1e6 / f64::from(self.replays * self.launches))
    }
}

/// Microseconds as people read them.
fn rounded(us: f64) -> f64 {
    (us * 100.0).round() / 100.0
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests;
