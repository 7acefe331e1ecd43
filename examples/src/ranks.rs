//! Starting ranks: as processes of this same program, or as what a launcher made of this process.

use fusewire::World;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

/// Whether a launcher (torchrun, mpirun, srun, or [`spawn`]) started this process as a rank.
pub fn launched() -> bool {
    ["FUSEWIRE_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"]
        .iter()
        .any(|v| std::env::var_os(v).is_some())
}

/// Starts this program once more for each rank, with the same arguments, and waits for all.
pub fn spawn(ranks: usize) -> ExitCode {
    let Ok(program) = std::env::current_exe() else {
        eprintln!("this program does not know its own path");
        return ExitCode::FAILURE;
    };
    let meet = std::env::temp_dir().join(format!("fusewire-{}-{}", std::process::id(), nonce()));
    let mut children: Vec<(usize, Child)> = Vec::new();
    for rank in 0..ranks {
        let child = Command::new(&program)
            .args(std::env::args_os().skip(1))
            .env("FUSEWIRE_RANK", rank.to_string())
            .env("FUSEWIRE_WORLD_SIZE", ranks.to_string())
            .env("FUSEWIRE_LOCAL_RANK", rank.to_string())
            .env("FUSEWIRE_FILE", &meet)
            .env("FUSEWIRE_TOKEN", nonce())
            .spawn();
        match child {
            Ok(child) => children.push((rank, child)),
            Err(e) => {
                eprintln!("rank {rank} could not be started: {e}");
                children.iter_mut().for_each(|(_, c)| drop(c.kill()));
                return ExitCode::FAILURE;
            }
        }
    }
    let mut failed = false;
    for (rank, child) in &mut children {
        match child.wait() {
            Ok(status) if status.success() => {}
            Ok(status) => {
                eprintln!("rank {rank} ended with {status}");
                failed = true;
            }
            Err(e) => {
                eprintln!("rank {rank}: {e}");
                failed = true;
            }
        }
    }
    let _ = std::fs::remove_file(meet);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A word for this job: the same in all calls of this process.
fn nonce() -> &'static str {
    use std::hash::{BuildHasher, RandomState};
    static WORD: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    WORD.get_or_init(|| {
        format!("{:016x}{:016x}", RandomState::new().hash_one(1), RandomState::new().hash_one(2))
    })
}

/// The slowest rank's median of `times`.
pub fn slowest_median(world: &World, mut times: Vec<Duration>) -> fusewire::Result<Duration> {
    times.sort_unstable();
    let own = times.get(times.len() / 2).copied().unwrap_or_default().as_nanos() as u64;
    let all = world.all_gather_as(&own)?;
    Ok(Duration::from_nanos(all.into_iter().max().unwrap_or(own)))
}

/// Number of CUDA devices; 0 without CUDA.
pub fn gpus() -> usize {
    fusewire::driver::Driver::load().and_then(|d| d.device_count()).unwrap_or(0)
}

/// `1 KiB`, `64 MiB`.
pub fn bytes_text(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 30 && b.is_multiple_of(1 << 30) => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// Reads `64K`, `1MiB`, `12345`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        other => return Err(format!("`{other}` is no unit; use K, M or G")),
    };
    let n: usize = digits.parse().map_err(|_| format!("`{digits}` is no number of bytes"))?;
    n.checked_mul(1 << unit).ok_or_else(|| format!("`{text}` is too large"))
}
