//! Ranks under a real `srun`: a cluster of this machine alone, for as long as a step runs.

use crate::steps::{self, Outcome, target};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What of Debian there must be.
const PACKAGES: [(&str, &str); 3] =
    [("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("srun", "slurm-client")];

/// A cluster, of packages that are installed if we may. The error is the reason why it is left out.
pub fn prepare(install: bool) -> Outcome<Cluster> {
    // Its daemons start jobs for others.
    if !steps::is_root() {
        return Err("Slurm's daemons run as root alone".into());
    }
    for (program, package) in PACKAGES {
        if there(program) {
            continue;
        }
        if !install {
            return Err(format!("{program} is missing, and `--no-install` was given; install {package}"));
        }
        println!("installing the package {package} on this system, for the tests under srun");
        steps::debian(package)?;
        if !there(program) {
            return Err(format!("{package} was installed, but there is no {program}"));
        }
    }
    Cluster::start(&target().join("slurm"))
}

/// Whether it is on the `PATH`: without a configuration it does not even say its version.
fn there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// The tests that start ranks by `srun`.
pub fn run(cluster: &Cluster) -> Outcome {
    let programs = steps::programs()?;
    for name in ["processes", "suite"] {
        let program = steps::program(&programs, name, true)?;
        let mut command = Command::new(&program.path);
        command.arg("srun").current_dir(&program.folder);
        command.env("FUSEWIRE_TEST_SRUN", "1").env("SLURM_CONF", &cluster.config);
        steps::run(&format!("srun's tests of `{name}`"), &mut command)?;
    }
    Ok(())
}

/// The two daemons, until it is dropped.
pub struct Cluster {
    config: PathBuf,
    daemons: Vec<Child>,
}

impl Cluster {
    fn start(folder: &Path) -> Outcome<Self> {
        let _ = std::fs::remove_dir_all(folder);
        let text = |e: std::io::Error| format!("{}: {e}", folder.display());
        for part in ["state", "spool"] {
            std::fs::create_dir_all(folder.join(part)).map_err(text)?;
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").map_err(text)?;
        let host = host.trim().split('.').next().unwrap_or_default().to_owned();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let at = folder.display();
        // Nobody else is on it, so that nobody is asked who he is.
        let config = format!(
            "ClusterName=fusewire\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/none\nCredType=cred/none\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/linear\nSwitchType=switch/none\nMpiDefault=none\n\
             JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\nReturnToService=2\n\
             StateSaveLocation={at}/state\nSlurmdSpoolDir={at}/spool\nSlurmctldPidFile={at}/slurmctld.pid\nSlurmdPidFile={at}/slurmd.pid\n\
             SlurmctldLogFile={at}/slurmctld.log\nSlurmdLogFile={at}/slurmd.log\nSlurmctldPort=26817\nSlurmdPort=26818\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        );
        let file = folder.join("slurm.conf");
        std::fs::write(&file, config).map_err(text)?;
        let mut cluster = Cluster { config: file, daemons: Vec::new() };
        for daemon in ["slurmctld", "slurmd"] {
            let mut command = Command::new(daemon);
            command.arg("-D").env("SLURM_CONF", &cluster.config).stdout(Stdio::null()).stderr(Stdio::null());
            cluster.daemons.push(command.spawn().map_err(|e| format!("{daemon}: {e}"))?);
        }
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let mut ready = Command::new("srun");
            ready.args(["--immediate=5", "true"]).env("SLURM_CONF", &cluster.config).stderr(Stdio::null());
            if ready.status().is_ok_and(|status| status.success()) {
                return Ok(cluster);
            }
            if Instant::now() > until {
                return Err(format!(
                    "Slurm's daemons do not run a job; see slurmctld.log and slurmd.log in {at}"
                ));
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
