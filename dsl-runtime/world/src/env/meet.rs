//! Where the ranks of a launched job meet.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use super::invalid;
use super::private::{self, Unread};
use crate::error::EnvError;
use crate::id::{UniqueId, bind, listen_everywhere, own_addresses};
use crate::tcp::client::{self, Whereabouts};
use crate::tcp::handshake::Failure;
use crate::tcp::server;
use crate::tcp::token::Token;
use crate::{Error, Options, Rank, Result, World};

/// Rank 0 holds the store; this is where it is to be found.
#[derive(Debug, Clone)]
pub(super) enum Meet {
    /// A job of one rank.
    Nowhere,
    Address {
        host: String,
        port: u16,
        secret: Secret,
    },
    /// Rank 0 writes a [`UniqueId`] here, and removes it when all have come.
    File {
        path: PathBuf,
        /// The address to listen on, where it was given.
        listen: Option<IpAddr>,
    },
}

/// What keeps others out.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Secret {
    Given(Token),
    /// None was given; the job's id, which is not secret.
    OfJob(String),
}

impl Meet {
    pub fn join(&self, rank: Rank, size: usize, options: &Options) -> Result<World> {
        match self {
            Self::Nowhere => World::lone_process(options),
            Self::Address { host, port, secret } => {
                let token = self.token(host, secret)?;
                let member = if rank == 0 {
                    server::host(listen_on(host, *port)?, token, rank, size, options)?
                } else {
                    client::join(&mut Address { meet: self, host, port: *port, token }, rank, size, options)?
                };
                World::over_tcp(member, options)
            }
            Self::File { path, listen } if rank == 0 => {
                private::may_write(path).map_err(|why| unfit(path, &why))?;
                // On what the others are told, and nowhere else.
                let address = listen.or_else(|| own_addresses().first().copied());
                let id = UniqueId::create_on(address.unwrap_or(Ipv4Addr::LOCALHOST.into()))?;
                let written = Written::new(path, &id)?;
                let world = World::connect(&id, rank, size, options);
                drop(written);
                world
            }
            Self::File { path, .. } => {
                World::over_tcp(client::join(&mut File { meet: self, path }, rank, size, options)?, options)
            }
        }
    }

    /// Without a secret of the job's own, only a loopback address will do, with the secret of this user on this host.
    fn token(&self, host: &str, secret: &Secret) -> Result<Token> {
        match secret {
            Secret::Given(token) => Ok(token.clone()),
            Secret::OfJob(job) if loopback(host).is_some() => {
                Ok(Token::from_text(&format!("loopback/{}/{job}", private::secret()?)))
            }
            Secret::OfJob(_) => Err(EnvError::NoToken { address: self.to_string() }.into()),
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

struct Address<'a> {
    meet: &'a Meet,
    host: &'a str,
    port: u16,
    token: Token,
}

impl Whereabouts for Address<'_> {
    fn find(&mut self) -> Result<(Vec<SocketAddr>, Token), Failure> {
        let found = match loopback(self.host) {
            Some(address) => vec![SocketAddr::new(address, self.port)],
            None => (self.host, self.port)
                .to_socket_addrs()
                .map_err(|e| Failure::Retry(format!("cannot resolve `{}` ({e})", self.host)))?
                .collect(),
        };
        Ok((found, self.token.clone()))
    }

    fn describe(&self) -> String {
        self.meet.to_string()
    }
}

struct File<'a> {
    meet: &'a Meet,
    path: &'a Path,
}

impl Whereabouts for File<'_> {
    fn find(&mut self) -> Result<(Vec<SocketAddr>, Token), Failure> {
        let retry = |why: String| Failure::Retry(format!("cannot read {} ({why})", self.path.display()));
        let text = private::read(self.path, 2 * UniqueId::LEN as u64 + 2).map_err(|e| match e {
            Unread::No(error) => retry(error.to_string()),
            Unread::Unfit(why) => Failure::Unfit(unfit(self.path, &why)),
        })?;
        let id: UniqueId = text.parse().map_err(|e: Error| retry(e.to_string()))?;
        Ok((id.addresses(), id.token()))
    }

    fn describe(&self) -> String {
        self.meet.to_string()
    }

    fn may_be_stale(&self) -> bool {
        // A file may be left from an earlier job until rank 0 writes anew.
        true
    }
}

fn unfit(path: &Path, why: &str) -> Error {
    let why = format!("{why}; name a file that is not there yet, in a directory of your own");
    invalid("FUSEWIRE_FILE", &path.display().to_string(), &why)
}

/// The loopback address that a host's name or number says, by itself and without asking anybody.
fn loopback(host: &str) -> Option<IpAddr> {
    match host {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        host => host.parse::<IpAddr>().ok().filter(|address| address.to_canonical().is_loopback()),
    }
}

fn listen_on(host: &str, port: u16) -> Result<std::net::TcpListener> {
    if let Some(address) = loopback(host) {
        return bind(SocketAddr::new(address, port));
    }
    // An address that is not this host's own may still lead here.
    let own = host.parse::<IpAddr>().ok().map(|address| std::net::TcpListener::bind((address, port)));
    match own {
        Some(Err(error)) if error.kind() != io::ErrorKind::AddrNotAvailable => {
            bind(SocketAddr::new(host.parse().unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port))
        }
        Some(Ok(listener)) => Ok(listener),
        _ => listen_everywhere(port),
    }
}

/// The rendezvous file of a job whose ranks all are on this host: in a directory that only this user can enter.
pub(super) fn runtime_file(job: &str) -> Result<PathBuf> {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
    Ok(private::directory()?.join(job.chars().map(safe).collect::<String>()))
}

/// A rendezvous file, removed when dropped.
struct Written<'a>(&'a Path);

impl<'a> Written<'a> {
    fn new(path: &'a Path, id: &UniqueId) -> Result<Self> {
        private::write(path, &id.to_string(), |temporary, path| fs::rename(temporary, path)).map_err(
            |e| {
                let advice =
                    "choose another place with FUSEWIRE_FILE, or set FUSEWIRE_ADDR and FUSEWIRE_TOKEN";
                Error::fabric(format!("writing the rendezvous file {}", path.display()), e, advice)
            },
        )?;
        Ok(Self(path))
    }
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_told_by_the_address_alone() {
        for host in ["localhost", "127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"] {
            assert!(loopback(host).is_some(), "{host}");
        }
        for host in ["node7", "localhost.example.org", "10.0.0.1", "0.0.0.0", "::", "127.0.0.1.nip.io"] {
            assert!(loopback(host).is_none(), "{host}");
        }
    }
}
