//! Ranks that are processes: workers that wait for the name of a case, run it in a world of their own, and report.
//!
//! The fleet speaks JSON lines with its workers over their standard input and output. A worker ends when its input does, so no
//! worker outlives its test; one that hangs is killed, and the next case gets new ones.

mod worker;

pub use worker::{ENTRY, serve};

use crate::Stop;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// What a worker is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Make an id for a world to meet by.
    MakeId,
    /// Run a case as one rank of a world.
    Run { case: String, id: String, rank: usize, size: usize, seed: u64 },
}

/// What it answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    Id(String),
    Passed,
    LeftOut(String),
    Failed(String),
}

/// What became of one rank.
#[derive(Debug, Clone)]
pub enum Report {
    /// The case passed.
    Passed,
    /// The rank left it out.
    LeftOut(String),
    /// The case failed.
    Failed(String),
    /// The process ended.
    Died(ExitStatus),
    /// It had to be killed.
    Hung,
}

struct Worker {
    child: Child,
    orders: ChildStdin,
}

enum News {
    Answer(Answer),
    Ended,
}

/// From which generation of workers, from which rank, what.
type Tidings = (u64, usize, News);

/// Worker processes, one a rank.
pub struct Fleet {
    program: PathBuf,
    arguments: Vec<String>,
    size: usize,
    workers: Vec<Worker>,
    news: (Sender<Tidings>, Receiver<Tidings>),
    generation: u64,
}

impl Fleet {
    /// A fleet of `size` processes of `program`, which calls [`serve`] when started with these arguments. They start at the first
    /// case.
    pub fn new(program: impl Into<PathBuf>, arguments: &[String], size: usize) -> Self {
        let news = channel();
        Fleet {
            program: program.into(),
            arguments: arguments.to_vec(),
            size,
            workers: Vec::new(),
            news,
            generation: 0,
        }
    }

    /// Runs a case on all ranks; by `limit` every rank has answered, died or been killed.
    ///
    /// # Errors
    /// If processes cannot be started.
    pub fn run(&mut self, case: &str, seed: u64, limit: Duration) -> std::io::Result<Vec<Report>> {
        self.start()?;
        let until = Instant::now() + limit;
        let id = match self.tell(0, &Order::MakeId).map(|()| self.news_of(0, until)) {
            Ok(Some(News::Answer(Answer::Id(id)))) => id,
            _ => {
                self.stop();
                return Err(std::io::Error::other("rank 0 made no id to meet by"));
            }
        };
        for rank in 0..self.size {
            let order = Order::Run { case: case.into(), id: id.clone(), rank, size: self.size, seed };
            // A worker that is gone shows below.
            let _ = self.tell(rank, &order);
        }
        let mut reports: Vec<Option<Report>> = vec![None; self.size];
        while reports.iter().any(Option::is_none) {
            let Some((rank, news)) = self.next_news(until) else { break };
            let report = match news {
                News::Answer(Answer::Passed) => Report::Passed,
                News::Answer(Answer::LeftOut(why)) => Report::LeftOut(why),
                News::Answer(Answer::Failed(why)) => Report::Failed(why),
                News::Answer(Answer::Id(_)) => continue,
                News::Ended => Report::Died(self.workers[rank].child.wait()?),
            };
            reports[rank].get_or_insert(report);
        }
        let reports: Vec<Report> = reports.into_iter().map(|r| r.unwrap_or(Report::Hung)).collect();
        if reports.iter().any(|r| matches!(r, Report::Hung | Report::Died(_))) {
            self.stop();
        }
        Ok(reports)
    }

    /// As [`Fleet::run`]; passes if all ranks do, but for `victim`, which must die.
    ///
    /// # Errors
    /// What the first rank says that did otherwise.
    pub fn expect(
        &mut self,
        case: &str,
        victim: Option<usize>,
        seed: u64,
        limit: Duration,
    ) -> crate::Outcome {
        let size = self.size;
        let failed =
            |why: String| Err(Stop::Failed(format!("{case} on {size} processes, seed {seed}: {why}")));
        let reports = match self.run(case, seed, limit) {
            Ok(reports) => reports,
            Err(error) => return failed(error.to_string()),
        };
        // What a rank says tells more than that another hung for it.
        for (rank, report) in reports.iter().enumerate() {
            if let Report::Failed(why) = report {
                return failed(format!("rank {rank}: {why}"));
            }
        }
        let mut left_out = None;
        for (rank, report) in reports.into_iter().enumerate() {
            match report {
                Report::Died(_) if victim == Some(rank) => {}
                _ if victim == Some(rank) => return failed(format!("rank {rank} should have died")),
                Report::Passed => {}
                Report::LeftOut(why) => left_out = Some(why),
                Report::Died(status) => return failed(format!("rank {rank}'s process ended with {status}")),
                Report::Hung | Report::Failed(_) => {
                    return failed(format!("rank {rank} was still running after {limit:?} and was killed"));
                }
            }
        }
        left_out.map_or(Ok(()), |why| Err(Stop::LeftOut(why)))
    }

    /// Process ids of the workers, where they run.
    pub fn pids(&self) -> Vec<u32> {
        self.workers.iter().map(|w| w.child.id()).collect()
    }

    fn start(&mut self) -> std::io::Result<()> {
        if !self.workers.is_empty() {
            return Ok(());
        }
        self.generation += 1;
        for rank in 0..self.size {
            let mut command = Command::new(&self.program);
            // Set for threads that share a GPU; all clients of MPS together have no more than that.
            command.env_remove(fusewire::driver::Driver::CONNECTIONS);
            command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn()?;
            let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(std::io::Error::other("a worker has no pipes"));
            };
            let (sender, generation) = (self.news.0.clone(), self.generation);
            std::thread::spawn(move || {
                for line in BufReader::new(answers).lines().map_while(Result::ok) {
                    let news = match serde_json::from_str(&line) {
                        Ok(answer) => News::Answer(answer),
                        Err(_) => continue,
                    };
                    let _ = sender.send((generation, rank, news));
                }
                let _ = sender.send((generation, rank, News::Ended));
            });
            self.workers.push(Worker { child, orders });
        }
        Ok(())
    }

    /// Kills what still runs, and waits for it.
    fn stop(&mut self) {
        for mut worker in self.workers.drain(..) {
            drop(worker.orders);
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }

    fn tell(&mut self, rank: usize, order: &Order) -> std::io::Result<()> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        self.workers[rank].orders.write_all(line.as_bytes())
    }

    fn next_news(&self, until: Instant) -> Option<(usize, News)> {
        loop {
            match self.news.1.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((generation, rank, news)) if generation == self.generation => return Some((rank, news)),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn news_of(&self, rank: usize, until: Instant) -> Option<News> {
        loop {
            let (from, news) = self.next_news(until)?;
            if from == rank {
                return Some(news);
            }
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop();
    }
}
