//! What of the host bears on communication.

use std::{fs, thread};

use rustix::process::{Resource, getrlimit};

/// The host.
#[derive(Debug)]
pub struct Host {
    /// Operating system and kernel.
    pub system: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes, where known.
    pub memory: Option<u64>,
    /// Free bytes of `/dev/shm`, where there is one.
    pub shared_memory: Option<u64>,
    /// How many bytes a process may lock; `None` is no limit.
    pub lockable: Option<u64>,
    /// Whether the kernel module that lets adapters reach GPU memory is loaded.
    pub peer_memory: bool,
}

/// Looks at this machine.
pub fn look() -> Host {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let system = format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease").trim());
    let shared_memory =
        rustix::fs::statvfs("/dev/shm").ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    Host {
        system: system.trim().to_owned(),
        cores: thread::available_parallelism().map_or(1, usize::from),
        memory: total_memory(&read("/proc/meminfo")),
        shared_memory,
        lockable: getrlimit(Resource::Memlock).current,
        peer_memory: read("/proc/modules").lines().any(|line| line.starts_with("nvidia_peermem ")),
    }
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_meminfo() {
        assert_eq!(total_memory("MemTotal:       24576 kB\nMemFree: 1 kB\n"), Some(24576 * 1024));
        assert_eq!(total_memory("nothing"), None);
        assert!(look().cores > 0);
    }
}
