//! Where the ranks of a launched job meet.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::id::{UniqueId, bind, listen_everywhere};
use crate::tcp::auth::{Token, random};
use crate::tcp::client::{self, Whereabouts};
use crate::tcp::server;
use crate::{Error, Options, Rank, Result, World};

/// Rank 0 holds the store; this is where it is to be found.
#[derive(Debug, Clone)]
pub(super) enum Meet {
    /// A job of one rank.
    Nowhere,
    Address {
        host: String,
        port: u16,
        token: Token,
    },
    /// Rank 0 writes a [`UniqueId`] here, and removes it when all have come.
    File {
        path: PathBuf,
        this_host_only: bool,
    },
}

impl Meet {
    pub fn join(&self, rank: Rank, size: usize, options: &Options) -> Result<World> {
        match self {
            Self::Nowhere => World::lone_process(options),
            Self::Address { host, port, token } if rank == 0 => {
                let listener = listen_on(host, *port)?;
                World::over_tcp(server::host(listener, token.clone(), rank, size, options)?, options)
            }
            Self::File { path, this_host_only } if rank == 0 => {
                let id = if *this_host_only {
                    UniqueId::create_on(Ipv4Addr::LOCALHOST.into())?
                } else {
                    UniqueId::create()?
                };
                let written = Written::new(path, &id)?;
                let world = World::connect(&id, rank, size, options);
                drop(written);
                world
            }
            Self::Address { .. } | Self::File { .. } => {
                World::over_tcp(client::join(&mut Place(self), rank, size, options)?, options)
            }
        }
    }
}

impl fmt::Display for Meet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("no place (one rank)"),
            Self::Address { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Address { host, port, .. } => write!(f, "{host}:{port}"),
            Self::File { path, .. } => write!(f, "the file {}", path.display()),
        }
    }
}

struct Place<'a>(&'a Meet);

impl Whereabouts for Place<'_> {
    fn find(&mut self) -> Result<(Vec<SocketAddr>, Token), String> {
        match self.0 {
            Meet::Nowhere => Err("a job of one rank has no store".to_owned()),
            Meet::Address { host, port, token } => {
                let found = (host.as_str(), *port).to_socket_addrs();
                let found: Vec<_> = found.map_err(|e| format!("cannot resolve `{host}` ({e})"))?.collect();
                Ok((found, token.clone()))
            }
            Meet::File { path, .. } => {
                let id = read_id(path).map_err(|e| format!("cannot read {} ({e})", path.display()))?;
                Ok((id.addresses(), id.token()))
            }
        }
    }

    fn describe(&self) -> String {
        self.0.to_string()
    }

    fn may_be_stale(&self) -> bool {
        // A file may be left from an earlier job until rank 0 writes anew.
        matches!(self.0, Meet::File { .. })
    }
}

fn listen_on(host: &str, port: u16) -> Result<std::net::TcpListener> {
    let loopback = match host {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        host => host.parse::<IpAddr>().ok().filter(IpAddr::is_loopback),
    };
    match loopback {
        Some(address) => bind(SocketAddr::new(address, port)),
        None => listen_everywhere(port),
    }
}

/// The rendezvous file of a job whose ranks all are on this host: in a directory that only this user can enter.
pub(super) fn runtime_file(job: &str) -> Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let (base, dir) = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir())
    {
        Some(base) => (base.clone(), base.join("fusewire")),
        None => (std::env::temp_dir(), std::env::temp_dir().join(format!("fusewire-{user}"))),
    };
    let broken = |e: io::Error| {
        Error::fabric(
            format!("making the private directory {} under {}", dir.display(), base.display()),
            e,
            "set XDG_RUNTIME_DIR or TMPDIR to a directory of your own, or set FUSEWIRE_ADDR",
        )
    };
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(broken(error)),
        _ => {}
    }
    let metadata = fs::symlink_metadata(&dir).map_err(broken)?;
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o077 != 0 {
        return Err(broken(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not private to this user",
        )));
    }
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
    Ok(dir.join(job.chars().map(safe).collect::<String>()))
}

/// A rendezvous file, removed when dropped.
struct Written<'a>(&'a Path);

impl<'a> Written<'a> {
    fn new(path: &'a Path, id: &UniqueId) -> Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{:016x}", u64::from_le_bytes(random()?)));
        let temporary = path.with_file_name(name);
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(id.to_string().as_bytes())?;
            // Whole or not at all: nobody reads half an id.
            fs::rename(&temporary, path)
        };
        write().map_err(|e| {
            let _ = fs::remove_file(&temporary);
            let advice = "choose another place with FUSEWIRE_FILE, or set FUSEWIRE_ADDR";
            Error::fabric(format!("writing the rendezvous file {}", path.display()), e, advice)
        })?;
        Ok(Self(path))
    }
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

fn read_id(path: &Path) -> Result<UniqueId, String> {
    let file = OpenOptions::new().read(true).open(path).map_err(|e| e.to_string())?;
    let owner = file.metadata().map_err(|e| e.to_string())?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return Err(format!("user {owner} wrote it, not this one"));
    }
    let mut text = String::new();
    file.take(2 * UniqueId::LEN as u64 + 2).read_to_string(&mut text).map_err(|e| e.to_string())?;
    text.parse().map_err(|e: Error| e.to_string())
}
