//! Jobs under attack: by strangers, by whoever sits between rank and store, and by a rank that was let in.
//!
//! The job's ranks are processes: this test binary again, with [`ROLE`] set. Each attack must end with the job running,
//! or with a typed error within the deadline; and no process of the job may ever have taken [`MOST_MEMORY`].

mod attacker;
mod between;
mod insiders;
#[path = "../common/mod.rs"]
mod ports;
mod strangers;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fusewire_world::{EnvError, Error, Options, PeerError, World};

const ROLE: &str = "FUSEWIRE_TEST_ROLE";
const TIMEOUT: &str = "FUSEWIRE_TEST_TIMEOUT_MS";
const SILENCE: &str = "FUSEWIRE_TEST_SILENCE_MS";
/// In kB, as `/proc` counts.
const MOST_MEMORY: u64 = 64 << 10;
const TOKEN: &str = "a token for this test alone";

/// The body of a rank's process; nothing when run as a test of its own.
#[test]
fn rank_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    // The harness begins the line.
    println!();
    let limit = |name: &str| Duration::from_millis(std::env::var(name).unwrap().parse().unwrap());
    let options = Options::default().with_timeout(limit(TIMEOUT)).with_silence(Some(limit(SILENCE)));
    let ended = World::from_env_with(&options).and_then(|world| {
        println!("joined");
        for rank in 0..world.size() {
            println!("host of {rank}: {}", world.peer_hostname(rank).unwrap());
        }
        match role.as_str() {
            // Ranks 0 and 1 work on for a second, whatever the others do.
            "pair" => {
                let pair = world.subgroup(&[0, 1])?;
                for _ in 0..20 {
                    pair.barrier()?;
                    std::thread::sleep(Duration::from_millis(50));
                }
                println!("worked");
                pair.teardown_barrier()
            }
            // All ranks work on until something happens.
            "all" => loop {
                world.barrier()?;
                std::thread::sleep(Duration::from_millis(10));
            },
            other => panic!("no role {other}"),
        }
    });
    match &ended {
        Ok(()) => println!("ended well"),
        Err(error) => println!("{}: {error}", kind(error)),
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("peak {}", peak.trim().trim_end_matches(" kB"));
}

fn kind(error: &Error) -> String {
    match error {
        Error::Peer(PeerError::Lost { rank, .. }) => format!("lost {rank}"),
        Error::Peer(PeerError::Left { rank, .. }) => format!("left {rank}"),
        Error::Peer(PeerError::Refused { .. }) => "refused".to_owned(),
        Error::Timeout(_) => "timeout".to_owned(),
        Error::Fabric(_) => "fabric".to_owned(),
        Error::Env(EnvError::NoToken { .. }) => "no token".to_owned(),
        _ => "other".to_owned(),
    }
}

/// A process of the job; killed when dropped.
pub(crate) struct Rank {
    child: Child,
    started: Instant,
    lines: mpsc::Receiver<String>,
    seen: Vec<String>,
}

/// How a job is set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) role: &'static str,
    pub(crate) size: usize,
    pub(crate) timeout: Duration,
    pub(crate) silence: Duration,
}

impl Setup {
    pub(crate) fn new(role: &'static str, size: usize) -> Self {
        Self { role, size, timeout: Duration::from_secs(10), silence: Duration::from_secs(4) }
    }

    /// Starts a rank that finds the store at `port` of this host.
    pub(crate) fn start(&self, rank: usize, port: u16) -> Rank {
        self.start_with(&[
            ("FUSEWIRE_RANK", &rank.to_string()),
            ("FUSEWIRE_WORLD_SIZE", &self.size.to_string()),
            ("FUSEWIRE_ADDR", &format!("127.0.0.1:{port}")),
            ("FUSEWIRE_TOKEN", TOKEN),
        ])
    }

    pub(crate) fn start_with(&self, variables: &[(&str, &str)]) -> Rank {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "rank_process", "--nocapture"]);
        for (name, _) in std::env::vars() {
            if ["FUSEWIRE_", "OMPI_", "SLURM_", "PMI"].iter().any(|known| name.starts_with(known)) {
                command.env_remove(name);
            }
        }
        command.env_remove("RANK").env_remove("WORLD_SIZE").env(ROLE, self.role);
        command.env(TIMEOUT, self.timeout.as_millis().to_string());
        command.env(SILENCE, self.silence.as_millis().to_string());
        command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().unwrap();
        let (send, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Rank { child, started, lines, seen: Vec::new() }
    }
}

impl Rank {
    /// Waits for a line that begins so, and returns the rest of it.
    #[track_caller]
    pub(crate) fn says(&mut self, start: &str) -> String {
        let deadline = self.started + Duration::from_secs(25);
        loop {
            if let Some(rest) = self.seen.iter().find_map(|line| line.strip_prefix(start)) {
                return rest.to_owned();
            }
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(_) => {
                    panic!("never said {start:?} in {:?}, but {:#?}", self.started.elapsed(), self.seen)
                }
            }
        }
    }

    /// Checks that it ended with this line, within the deadline, and what memory it took; returns the line's rest.
    #[track_caller]
    pub(crate) fn ends(mut self, line: &str) -> String {
        let rest = self.says(line);
        let peak: u64 = self.says("peak ").parse().unwrap();
        assert!(peak < MOST_MEMORY, "took {peak} kB; {:#?}", self.seen);
        eprintln!("{line:?} after {:.1} s, peak {peak} kB", self.started.elapsed().as_secs_f64());
        assert!(self.seen.iter().all(|line| !line.contains(|c: char| c.is_control())), "{:#?}", self.seen);
        rest
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads all that comes until the other side ends or `limit` has passed; true when it ended.
pub(crate) fn hung_up(mut stream: &std::net::TcpStream, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        stream.set_read_timeout(Some(left)).unwrap();
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
