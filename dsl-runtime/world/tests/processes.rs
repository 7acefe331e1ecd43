//! Worlds of real processes, in the environments of each launcher; ranks that are killed or stopped.
//!
//! Each test starts this test binary again, once a rank, with `FUSEWIRE_TEST_ROLE` set: [`rank_process`] is what
//! runs there.

mod common;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{free_port, memfd_page, page_bytes};
use fusewire_world::{Kind, Options, PeerError, World};

const ROLE: &str = "FUSEWIRE_TEST_ROLE";

/// Every variable that decides how ranks meet: none may leak in from where the tests run.
const CLEARED: &[&str] = &[
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "FUSEWIRE_RANK",
    "FUSEWIRE_WORLD_SIZE",
    "FUSEWIRE_ADDR",
    "FUSEWIRE_FILE",
    "FUSEWIRE_PORT",
    "FUSEWIRE_TOKEN",
    "FUSEWIRE_HOST_ID",
];

/// The body of a rank's process; nothing when run as a test of its own.
#[test]
fn rank_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let options = Options::default().with_timeout(Duration::from_secs(8));
    match role.as_str() {
        "meet" => meet(&World::from_env_with(&options).unwrap()),
        "killed" => lose(&World::from_env_with(&options).unwrap(), 1, || {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
        }),
        "exits" => lose(&World::from_env_with(&options).unwrap(), 1, || std::process::exit(0)),
        "store killed" => lose(&World::from_env_with(&options).unwrap(), 0, || {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
        }),
        "stopped" => {
            let options = options.with_silence(Some(Duration::from_millis(800)));
            lose(&World::from_env_with(&options).unwrap(), 1, || {
                let me = rustix::process::getpid();
                rustix::process::kill_process(me, rustix::process::Signal::STOP).unwrap();
            });
        }
        "hosts" => hosts(&World::from_env_with(&options).unwrap()),
        "disagrees" => disagree(&World::from_env_with(&options).unwrap()),
        other => panic!("no role {other}"),
    }
    // Only a rank that came this far says so.
    println!("role {role} done");
}

/// Every collective once, and shared pages that all ranks see.
fn meet(world: &World) {
    let (n, me) = (world.size(), world.rank());
    assert_eq!(world.kind(), Kind::Tcp);
    assert_eq!((world.local_size(), world.local_rank()), (n, me));
    assert_eq!(world.all_gather_as(&(me * 10)).unwrap(), (0..n).map(|r| r * 10).collect::<Vec<_>>());
    world.agree("geometry", &[("slots", "4".to_owned()), ("wire type", "f32".to_owned())]).unwrap();

    let page = memfd_page();
    let pages = world.exchange_fds(&[std::os::fd::AsFd::as_fd(&page)]).unwrap();
    let pages: Vec<_> = pages.iter().map(|fds| page_bytes(&fds[0])).collect();
    for page in &pages {
        page[me].store(me as u8 + 1, std::sync::atomic::Ordering::SeqCst);
    }
    world.barrier().unwrap();
    for page in &pages {
        for (rank, byte) in page.iter().take(n).enumerate() {
            assert_eq!(byte.load(std::sync::atomic::Ordering::SeqCst), rank as u8 + 1);
        }
    }
    world.teardown_barrier().unwrap();
}

/// `victim` ends itself by `end`; the others must know within two seconds.
fn lose(world: &World, victim: usize, end: impl FnOnce()) {
    world.barrier().unwrap();
    if world.rank() == victim {
        std::thread::sleep(Duration::from_millis(200));
        end();
        // A signal need not take effect before the call returns.
        std::thread::sleep(Duration::from_secs(60));
    }
    let started = Instant::now();
    let error = world.barrier().unwrap_err();
    assert_eq!(error.lost_rank(), Some(victim), "{error}");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(world.lost(), [victim]);
    assert_eq!(world.barrier().unwrap_err().lost_rank(), Some(victim));
    let torn_down = world.teardown_barrier();
    // With the store gone nothing more is learnt of the others.
    assert!(torn_down.is_ok() || victim == 0, "{torn_down:?}");
}

/// Ranks 0 and 2 on one host, 1 and 3 on another.
fn hosts(world: &World) {
    let mine = world.rank() % 2;
    assert_eq!((world.local_size(), world.local_rank()), (2, world.rank() / 2));
    assert_eq!(world.local_ranks(), [mine, mine + 2]);
    assert_eq!(world.host_id(), format!("host{mine}"));
    let page = memfd_page();
    let pages = world.exchange_fds(&[std::os::fd::AsFd::as_fd(&page)]).unwrap();
    let counts: Vec<_> = pages.iter().map(Vec::len).collect();
    assert_eq!(counts, if mine == 0 { [1, 0, 1, 0] } else { [0, 1, 0, 1] });
    let local = world.split(mine as u64, 0).unwrap();
    assert_eq!((local.size(), local.rank(), local.local_size()), (2, world.rank() / 2, 2));
    assert_eq!(local.all_gather_as(&world.rank()).unwrap(), [mine, mine + 2]);
    world.teardown_barrier().unwrap();
}

fn disagree(world: &World) {
    let wire = if world.rank() == 2 { "bf16" } else { "f32" };
    let error = world.agree("all_to_all", &[("wire type", wire.to_owned())]).unwrap_err();
    assert!(matches!(error, fusewire_world::Error::Peer(PeerError::Disagreement(_))));
    assert!(error.to_string().contains("rank 2 has wire type `bf16`, ranks 0 and 1 have `f32`"), "{error}");
    world.teardown_barrier().unwrap();
}

/// The processes of a job; killed, should any be left, when this ends.
struct Job(Vec<Child>);

impl Job {
    fn start<V: AsRef<str>>(
        n: usize,
        role: &str,
        variables: impl Fn(usize) -> Vec<(&'static str, V)>,
    ) -> Self {
        let start = |rank| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "rank_process", "--nocapture"]).env(ROLE, role);
            for name in CLEARED {
                command.env_remove(name);
            }
            command.envs(variables(rank).iter().map(|(name, value)| (name, value.as_ref())));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        Self((0..n).map(start).collect())
    }

    /// Waits for all but `excepted`, which must not come to its end, and checks that each did its part.
    fn finish(mut self, role: &str, excepted: Option<usize>) {
        let deadline = Instant::now() + Duration::from_secs(9);
        for (rank, child) in self.0.iter_mut().enumerate() {
            if Some(rank) == excepted {
                continue;
            }
            while child.try_wait().unwrap().is_none() {
                assert!(Instant::now() < deadline, "rank {rank} does not end");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        for (rank, mut child) in std::mem::take(&mut self.0).into_iter().enumerate() {
            if Some(rank) == excepted {
                child.kill().unwrap();
            }
            let output = child.wait_with_output().unwrap();
            let (out, err) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let done = out.contains(&format!("role {role} done"));
            assert_eq!(done, Some(rank) != excepted, "rank {rank}: {out}\n{err}");
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn own(n: usize) -> impl Fn(usize) -> Vec<(&'static str, String)> {
    let address = format!("127.0.0.1:{}", free_port());
    move |rank| {
        vec![
            ("FUSEWIRE_RANK", rank.to_string()),
            ("FUSEWIRE_WORLD_SIZE", n.to_string()),
            ("FUSEWIRE_ADDR", address.clone()),
            ("FUSEWIRE_TOKEN", "a token for this test alone".to_owned()),
        ]
    }
}

#[test]
fn by_our_own_variables() {
    Job::start(3, "meet", own(3)).finish("meet", None);
}

#[test]
fn by_torchrun() {
    let port = free_port() - 1;
    let variables = |rank: usize| {
        vec![
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", "4".to_owned()),
            ("LOCAL_RANK", rank.to_string()),
            ("MASTER_ADDR", "localhost".to_owned()),
            ("MASTER_PORT", port.to_string()),
        ]
    };
    // As torch's own store would.
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    Job::start(4, "meet", variables).finish("meet", None);
}

#[test]
fn by_slurm() {
    let id = std::process::id().to_string();
    let variables = |rank: usize| {
        vec![
            ("SLURM_PROCID", rank.to_string()),
            ("SLURM_NTASKS", "3".to_owned()),
            ("SLURM_LOCALID", rank.to_string()),
            ("SLURM_JOB_ID", id.clone()),
            ("SLURM_STEP_ID", "0".to_owned()),
            ("SLURM_STEP_NODELIST", "localhost,other[1-3]".to_owned()),
        ]
    };
    Job::start(3, "meet", variables).finish("meet", None);
}

#[test]
fn by_open_mpi_variables_through_a_private_file() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().to_str().unwrap().to_owned();
    let variables = |rank: usize| {
        vec![
            ("OMPI_COMM_WORLD_RANK", rank.to_string()),
            ("OMPI_COMM_WORLD_SIZE", "3".to_owned()),
            ("OMPI_COMM_WORLD_LOCAL_RANK", rank.to_string()),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "3".to_owned()),
            ("PMIX_NAMESPACE", "77.1".to_owned()),
            ("XDG_RUNTIME_DIR", runtime.clone()),
        ]
    };
    Job::start(3, "meet", variables).finish("meet", None);
    let left: Vec<_> = std::fs::read_dir(dir.path().join("fusewire")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn by_a_shared_file_although_an_old_one_lies_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meet");
    std::fs::write(&path, fusewire_world::UniqueId::create().unwrap().to_string()).unwrap();
    let variables = |rank: usize| {
        // Rank 0 comes late: the others see the old file first.
        if rank == 2 {
            std::thread::sleep(Duration::from_millis(300));
        }
        vec![
            ("FUSEWIRE_RANK", ((rank + 1) % 3).to_string()),
            ("FUSEWIRE_WORLD_SIZE", "3".to_owned()),
            ("FUSEWIRE_FILE", path.to_str().unwrap().to_owned()),
        ]
    };
    Job::start(3, "meet", variables).finish("meet", None);
    assert!(!path.exists());
}

/// Needs `mpirun`; `FUSEWIRE_TEST_MPIRUN=1` says that it is there, and then it must be.
#[test]
fn by_mpirun_itself() {
    by_launcher("FUSEWIRE_TEST_MPIRUN", "mpirun", &["--allow-run-as-root", "--oversubscribe", "-n", "4"]);
}

/// Needs `srun` and a cluster; `FUSEWIRE_TEST_SRUN=1` says that they are there, and then they must be.
#[test]
fn by_srun_itself() {
    by_launcher("FUSEWIRE_TEST_SRUN", "srun", &["--overcommit", "-n", "4"]);
}

/// Four ranks that a launcher of others starts, if `variable` says that it is there.
fn by_launcher(variable: &str, launcher: &str, arguments: &[&str]) {
    if std::env::var_os(variable).is_none() {
        println!("left out: {launcher} (set {variable}=1 where it is installed)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(launcher);
    for name in CLEARED {
        command.env_remove(name);
    }
    command.args(arguments);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "rank_process", "--nocapture"]);
    // Slurm names nodes, whose addresses are not loopback: those ranks need a secret.
    command.env(ROLE, "meet").env("XDG_RUNTIME_DIR", dir.path()).env("FUSEWIRE_TOKEN", "of this test alone");
    let output =
        command.output().unwrap_or_else(|e| panic!("{variable} is set, but {launcher} does not start: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert_eq!(out.matches("role meet done").count(), 4, "{out}\n{err}");
}

#[test]
fn a_killed_process_is_known_within_two_seconds() {
    Job::start(4, "killed", own(4)).finish("killed", Some(1));
}

#[test]
fn a_process_that_just_exits_is_lost() {
    Job::start(3, "exits", own(3)).finish("exits", Some(1));
}

#[test]
fn a_killed_store_is_known_within_two_seconds() {
    Job::start(3, "store killed", own(3)).finish("store killed", Some(0));
}

#[test]
fn a_stopped_process_is_known_by_its_silence() {
    Job::start(3, "stopped", own(3)).finish("stopped", Some(1));
}

#[test]
fn two_hosts() {
    let own = own(4);
    let variables = |rank: usize| {
        let mut variables = own(rank);
        variables.push(("FUSEWIRE_HOST_ID", format!("host{}", rank % 2)));
        variables
    };
    Job::start(4, "hosts", variables).finish("hosts", None);
}

#[test]
fn disagreement_reaches_every_process() {
    Job::start(3, "disagrees", own(3)).finish("disagrees", None);
}
