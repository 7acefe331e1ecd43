//! Starting ranks: a process each, on this host.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};

use crate::env::private;
use crate::error::EnvError;
use crate::tcp::token::random;
use crate::{Error, Rank, Result};

/// Processes that are the ranks of one world. They are killed when this is dropped before [`Job::wait`].
///
/// Each finds its place with [`World::from_env`](crate::World::from_env).
#[derive(Debug)]
pub struct Job {
    children: Vec<Child>,
    meeting: PathBuf,
}

impl Job {
    /// Starts `command(rank)` for each rank.
    ///
    /// # Errors
    /// There is no random source or no private directory, or a process cannot be started; those that were are killed.
    pub fn start(ranks: usize, command: impl Fn(Rank) -> Command) -> Result<Job> {
        let name: [u8; 8] = random()?;
        // The secret is in the file that rank 0 writes there.
        let meeting = private::directory()?.join(format!("job-{:016x}", u64::from_le_bytes(name)));
        let mut job = Job { children: Vec::new(), meeting };
        for rank in 0..ranks {
            let mut command = command(rank);
            command
                .env("FUSEWIRE_RANK", rank.to_string())
                .env("FUSEWIRE_WORLD_SIZE", ranks.to_string())
                .env("FUSEWIRE_LOCAL_RANK", rank.to_string())
                .env("FUSEWIRE_FILE", &job.meeting)
                .env("FUSEWIRE_LISTEN", "127.0.0.1")
                .env_remove("FUSEWIRE_ADDR");
            let child = command.spawn().map_err(|e| {
                let what = format!("starting rank {rank}, `{}`", command.get_program().display());
                Error::fabric(what, e, "see whether the program is there and may be run")
            })?;
            job.children.push(child);
        }
        Ok(job)
    }

    /// The process of a rank: for its pipes.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn child(&mut self, rank: Rank) -> &mut Child {
        &mut self.children[rank]
    }

    /// Waits for all ranks. Which did not succeed, and how each of them ended.
    ///
    /// # Errors
    /// The system does not tell how a process ended.
    pub fn wait(mut self) -> Result<Vec<(Rank, ExitStatus)>> {
        let mut failed = Vec::new();
        for (rank, child) in self.children.iter_mut().enumerate() {
            let status = child.wait().map_err(|e| {
                Error::fabric(format!("waiting for rank {rank}"), e, "see whether it still runs")
            })?;
            if !status.success() {
                failed.push((rank, status));
            }
        }
        Ok(failed)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.children {
            // What has been waited for is not there any more.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(&self.meeting);
    }
}

/// Whether a launcher that [`World::from_env`](crate::World::from_env) knows, or a [`Job`], started this process as a rank; also if what
/// it says makes no sense.
pub fn launched() -> bool {
    !matches!(crate::Launch::from_env(), Err(Error::Env(EnvError::NoLauncher { .. })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn ranks_know_who_they_are_and_their_ends_are_told() {
        let script = "test $FUSEWIRE_WORLD_SIZE$FUSEWIRE_LOCAL_RANK = 3$FUSEWIRE_RANK && test -d ${FUSEWIRE_FILE%/*} && exit $FUSEWIRE_RANK";
        let failed = Job::start(3, |_| shell(script)).unwrap().wait().unwrap();
        let codes: Vec<_> = failed.iter().map(|(rank, status)| (*rank, status.code())).collect();
        assert_eq!(codes, [(1, Some(1)), (2, Some(2))]);
    }

    #[test]
    fn no_rank_outlives_its_job() {
        let start = Instant::now();
        let error =
            Job::start(
                2,
                |rank| if rank == 0 { shell("sleep 60") } else { Command::new("/no/such/program") },
            );
        let error = error.unwrap_err().to_string();
        assert!(error.contains("starting rank 1, `/no/such/program`"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30), "rank 0 was waited for");
    }
}
