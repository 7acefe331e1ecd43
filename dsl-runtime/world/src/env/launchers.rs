//! Each launcher's variables.

use std::net::Ipv4Addr;

use super::meet::{Meet, Secret, runtime_file};
use super::nodelist::first_host;
use super::{Env, Launch, Launcher, invalid, missing};
use crate::error::EnvError;
use crate::tcp::token::Token;
use crate::{Rank, Result};

/// Where Slurm jobs listen unless told otherwise: below the ports that systems hand out by themselves.
const SLURM_PORTS: std::ops::Range<u16> = 20_000..32_000;

/// In characters.
const SHORTEST_TOKEN: usize = 16;

pub(super) fn detect(env: &Env<'_>) -> Result<Launch> {
    for read in [own, torchrun, open_mpi, slurm] {
        if let Some(launch) = read(env)? {
            return Ok(launch);
        }
    }
    let looked_for = "FUSEWIRE_RANK and FUSEWIRE_WORLD_SIZE, RANK and WORLD_SIZE (torchrun), OMPI_COMM_WORLD_RANK and \
                      OMPI_COMM_WORLD_SIZE (Open MPI), SLURM_PROCID and SLURM_NTASKS (Slurm)";
    Err(EnvError::NoLauncher { looked_for: looked_for.to_owned() }.into())
}

/// The variables that name a rank.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
}

impl Names {
    /// `None` where this launcher is not in charge: one of its two variables alone is not enough to say that it is,
    /// except for our own.
    fn read(&self, env: &Env<'_>) -> Result<Option<(Rank, usize, Option<usize>)>> {
        let (rank, size) = (env.number(self.rank)?, env.number(self.size)?);
        let (rank, size) = match (rank, size) {
            (Some(rank), Some(size)) => (rank, size),
            (None, None) => return Ok(None),
            _ if self.launcher != Launcher::Fusewire => return Ok(None),
            (None, _) => return Err(missing(self.launcher, self.rank, "set it to this process's rank")),
            (_, None) => return Err(missing(self.launcher, self.size, "set it to the number of ranks")),
        };
        if rank >= size {
            let why = format!("it should be below {}, which is {size}", self.size);
            return Err(invalid(self.rank, &rank.to_string(), &why));
        }
        Ok(Some((rank, size, env.number(self.local_rank)?)))
    }
}

fn own(env: &Env<'_>) -> Result<Option<Launch>> {
    let launcher = Launcher::Fusewire;
    let names = Names {
        launcher,
        rank: "FUSEWIRE_RANK",
        size: "FUSEWIRE_WORLD_SIZE",
        local_rank: "FUSEWIRE_LOCAL_RANK",
    };
    let Some((rank, size, local_rank)) = names.read(env)? else { return Ok(None) };
    let job = || "fusewire".to_owned();
    let meet = match given(env, &job)? {
        Some(meet) => meet,
        None if size == 1 => Meet::Nowhere,
        None => {
            let advice = "set it to host:port of rank 0, a port that is free there, the same on every rank; or set \
                          FUSEWIRE_FILE to a file that all ranks can reach";
            return Err(missing(launcher, "FUSEWIRE_ADDR", advice));
        }
    };
    Ok(Some(Launch { launcher, rank, size, local_rank, meet }))
}

fn torchrun(env: &Env<'_>) -> Result<Option<Launch>> {
    let launcher = Launcher::Torchrun;
    let names = Names { launcher, rank: "RANK", size: "WORLD_SIZE", local_rank: "LOCAL_RANK" };
    let Some((rank, size, local_rank)) = names.read(env)? else { return Ok(None) };
    // A restarted job must not meet what is left of its last try.
    let job = || {
        let part = |name| env.text(name).unwrap_or_default();
        let [run, restart] = ["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"].map(part);
        format!("torchrun/{run}/{restart}/{}/{}", part("MASTER_ADDR"), part("MASTER_PORT"))
    };
    let meet = match given(env, &job)? {
        Some(meet) => meet,
        None if size == 1 => Meet::Nowhere,
        None => {
            let advice = "torchrun sets it; by hand, set it to the address of rank 0's host";
            let host = env.text("MASTER_ADDR").ok_or_else(|| missing(launcher, "MASTER_ADDR", advice))?;
            let port = match (env.port("FUSEWIRE_PORT")?, env.port("MASTER_PORT")?) {
                (Some(port), _) => port,
                // The port itself belongs to torch's own store.
                (None, Some(port)) => port.checked_add(1).ok_or_else(|| {
                    invalid(
                        "MASTER_PORT",
                        &port.to_string(),
                        "fusewire takes the port after it; set FUSEWIRE_PORT",
                    )
                })?,
                (None, None) => {
                    return Err(missing(launcher, "MASTER_PORT", "torchrun sets it; or set FUSEWIRE_PORT"));
                }
            };
            Meet::Address { host, port, secret: secret(env, &job)? }
        }
    };
    Ok(Some(Launch { launcher, rank, size, local_rank, meet }))
}

fn open_mpi(env: &Env<'_>) -> Result<Option<Launch>> {
    let launcher = Launcher::OpenMpi;
    let names = Names {
        launcher,
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    };
    let Some((rank, size, local_rank)) = names.read(env)? else { return Ok(None) };
    let id = env.text("PMIX_NAMESPACE").or_else(|| env.text("OMPI_MCA_ess_base_jobid"));
    let job = || format!("openmpi/{}", id.clone().unwrap_or_default());
    let one_host = env.number("OMPI_COMM_WORLD_LOCAL_SIZE")? == Some(size);
    let meet = match given(env, &job)? {
        Some(meet) => meet,
        None if size == 1 => Meet::Nowhere,
        // mpirun gives no address, but the ranks of one host have a place to leave one.
        None if one_host && id.is_some() => {
            Meet::File { path: runtime_file(&job())?, listen: Some(Ipv4Addr::LOCALHOST.into()) }
        }
        None => {
            let advice = "Open MPI gives its ranks no address: mpirun -x FUSEWIRE_ADDR=<host of rank 0>:<free port>, or \
                          -x FUSEWIRE_FILE=<a file in a directory that all hosts share>";
            return Err(missing(launcher, "FUSEWIRE_ADDR", advice));
        }
    };
    Ok(Some(Launch { launcher, rank, size, local_rank, meet }))
}

fn slurm(env: &Env<'_>) -> Result<Option<Launch>> {
    let launcher = Launcher::Slurm;
    let names = Names { launcher, rank: "SLURM_PROCID", size: "SLURM_NTASKS", local_rank: "SLURM_LOCALID" };
    let Some((rank, mut size, local_rank)) = names.read(env)? else { return Ok(None) };
    // A step may have fewer tasks than its job.
    if let Some(tasks) = env.number("SLURM_STEP_NUM_TASKS")? {
        size = tasks;
        if rank >= size {
            let why = format!("it should be below SLURM_STEP_NUM_TASKS, which is {size}");
            return Err(invalid("SLURM_PROCID", &rank.to_string(), &why));
        }
    }
    let text = |name| env.text(name).unwrap_or_default();
    let id = env.text("SLURM_JOB_ID").or_else(|| env.text("SLURM_JOBID"));
    let step = env.text("SLURM_STEP_ID").or_else(|| env.text("SLURM_STEPID")).unwrap_or_default();
    let job = || format!("slurm/{}/{}/{step}", text("SLURM_CLUSTER_NAME"), id.clone().unwrap_or_default());
    let meet = match given(env, &job)? {
        Some(meet) => meet,
        None if size == 1 => Meet::Nowhere,
        None => {
            let lists = ["SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"];
            let found = lists.into_iter().find_map(|name| Some((name, env.text(name)?)));
            let advice = "srun sets it; or set FUSEWIRE_ADDR to host:port of rank 0";
            let (name, list) = found.ok_or_else(|| missing(launcher, "SLURM_STEP_NODELIST", advice))?;
            let host = first_host(&list).ok_or_else(|| {
                invalid(name, &list, "it should be a list of hosts like node[01-04,7]; or set FUSEWIRE_ADDR")
            })?;
            let port = match env.port("FUSEWIRE_PORT")? {
                Some(port) => port,
                None if id.is_some() => derived_port(&job()),
                None => return Err(missing(launcher, "SLURM_JOB_ID", "srun sets it; or set FUSEWIRE_PORT")),
            };
            Meet::Address { host, port, secret: secret(env, &job)? }
        }
    };
    Ok(Some(Launch { launcher, rank, size, local_rank, meet }))
}

/// Where `FUSEWIRE_ADDR` or `FUSEWIRE_FILE` say to meet, which comes before any launcher's word.
fn given(env: &Env<'_>, job: &dyn Fn() -> String) -> Result<Option<Meet>> {
    if let Some(address) = env.text("FUSEWIRE_ADDR") {
        let bad = || invalid("FUSEWIRE_ADDR", &address, "it should be host:port, or [v6 address]:port");
        let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
        let port = port.parse().ok().filter(|&port: &u16| port != 0).ok_or_else(bad)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if host.is_empty() || (bare.is_none() && host.contains(':')) {
            return Err(bad());
        }
        let host = bare.unwrap_or(host).to_owned();
        return Ok(Some(Meet::Address { host, port, secret: secret(env, job)? }));
    }
    let listen = env.parse("FUSEWIRE_LISTEN", "it should be an address of this host, like 10.0.0.1")?;
    Ok(env.text("FUSEWIRE_FILE").map(|path| Meet::File { path: path.into(), listen }))
}

/// The job's secret if it was given one; else its id, which tells jobs apart and is no secret.
fn secret(env: &Env<'_>, job: &dyn Fn() -> String) -> Result<Secret> {
    match env.text("FUSEWIRE_TOKEN") {
        Some(secret) if secret.len() < SHORTEST_TOKEN => {
            let why = format!(
                "it has {} characters; whoever watches a rank join can guess what is shorter than {SHORTEST_TOKEN}, so \
                 draw it: {}",
                secret.len(),
                crate::error::DRAW_TOKEN
            );
            Err(invalid("FUSEWIRE_TOKEN", "(not shown)", &why))
        }
        Some(secret) => Ok(Secret::Given(Token::from_text(&format!("secret/{secret}")))),
        None => Ok(Secret::OfJob(job())),
    }
}

fn derived_port(job: &str) -> u16 {
    let token = Token::from_text(&format!("port/{job}"));
    let span = SLURM_PORTS.end - SLURM_PORTS.start;
    SLURM_PORTS.start + u16::from_le_bytes([token.0[0], token.0[1]]) % span
}
