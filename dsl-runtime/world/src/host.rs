//! Which ranks can share memory: those with the same host id.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Overrides the host id, for tests of several hosts on one and for unusual containers.
const OVERRIDE: &str = "FUSEWIRE_HOST_ID";

/// Equal exactly for processes that run under one kernel, and can pass each other file descriptors: the boot, the
/// network namespace (abstract socket names live there), the IPC and user namespaces, the file system behind `/dev/shm`, and
/// the user.
pub(crate) fn host_id() -> String {
    if let Ok(given) = std::env::var(OVERRIDE)
        && !given.is_empty()
    {
        return given;
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    // Without a boot id the name must do: hosts of one cluster differ in it.
    let boot = boot.map_or_else(|_| hostname(), |id| id.trim().to_owned());
    let inode = |path: &str| fs::metadata(path).map_or(0, |m| m.ino());
    let shm = fs::metadata("/dev/shm").map_or(0, |m| m.dev());
    let user = rustix::process::geteuid().as_raw();
    let [net, ipc, users] = ["net", "ipc", "user"].map(|name| inode(&format!("/proc/self/ns/{name}")));
    format!("{boot}/net{net}/ipc{ipc}/users{users}/shm{shm}/user{user}")
}

pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
