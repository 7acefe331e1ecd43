//! [`UniqueId`]: what one rank makes and any launcher can hand to the others.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::str::FromStr;
use std::sync::{LazyLock, Mutex};

use sha2::{Digest, Sha256};

use crate::sync::lock;
use crate::tcp::client::Whereabouts;
use crate::tcp::handshake::Failure;
use crate::tcp::token::Token;
use crate::{Error, Result};

const MAGIC: [u8; 4] = *b"FWu1";
const TOKEN_AT: usize = 4;
const PORT_AT: usize = 36;
const COUNT_AT: usize = 38;
const ADDRESSES_AT: usize = 39;
const MAX_ADDRESSES: usize = 5;
const SUM_AT: usize = UniqueId::LEN - 4;

/// Names a job that is about to meet: where its store listens, and the secret that lets ranks in.
///
/// Made by [`UniqueId::create`] on one rank, carried to the others by whatever the launcher has (an MPI broadcast, a
/// file, an argument), and given to [`World::connect`](crate::World::connect) by all of them. It holds a secret:
/// [`fmt::Debug`] does not show it, [`fmt::Display`] does, as 256 hexadecimal digits that [`str::parse`] takes back.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniqueId {
    bytes: [u8; Self::LEN],
}

/// Listeners of ids made in this process, until a rank of this process connects and serves them.
static LISTENERS: LazyLock<Mutex<HashMap<[u8; UniqueId::LEN], TcpListener>>> = LazyLock::new(Mutex::default);

impl UniqueId {
    /// The length in bytes, fixed for good.
    pub const LEN: usize = 128;

    /// Starts to listen on a free port of every interface, and names it: which of them the others come by is known only when they do, and
    /// strangers get nowhere without the token. The first [`World::connect`](crate::World::connect) with it **in this process** then holds
    /// the store. Where the network is known, [`create_on`](Self::create_on) opens no more than that.
    ///
    /// # Errors
    /// No port can be listened on, or there is no random source.
    pub fn create() -> Result<Self> {
        Self::listen(listen_everywhere(0)?, own_addresses())
    }

    /// As [`create`](Self::create), but listens on `address` alone, such as `127.0.0.1` for ranks of one machine or
    /// the address of the network that the ranks share.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_on(address: IpAddr) -> Result<Self> {
        Self::listen(bind(SocketAddr::new(address, 0))?, vec![address])
    }

    fn listen(listener: TcpListener, addresses: Vec<IpAddr>) -> Result<Self> {
        let port = listener
            .local_addr()
            .map_err(|e| Error::fabric("asking for the listener's own port", e, "try again"))?
            .port();
        let id = Self::new(&Token::random()?, port, &addresses);
        lock(&LISTENERS).insert(id.bytes, listener);
        Ok(id)
    }

    fn new(token: &Token, port: u16, addresses: &[IpAddr]) -> Self {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[TOKEN_AT..PORT_AT].copy_from_slice(&token.0);
        bytes[PORT_AT..COUNT_AT].copy_from_slice(&port.to_le_bytes());
        bytes[COUNT_AT] = addresses.len().min(MAX_ADDRESSES) as u8;
        for (place, address) in
            bytes[ADDRESSES_AT..].chunks_exact_mut(16).zip(addresses.iter().take(MAX_ADDRESSES))
        {
            let v6 = match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => *v6,
            };
            place.copy_from_slice(&v6.octets());
        }
        let sum = checksum(&bytes);
        bytes[SUM_AT..].copy_from_slice(&sum);
        Self { bytes }
    }

    /// The id as bytes, to broadcast.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.bytes
    }

    /// The id from the bytes of [`as_bytes`](Self::as_bytes).
    ///
    /// # Errors
    /// Bytes that [`create`](Self::create) did not make.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bad = |why: &str| {
            Error::misuse(
                format!("this is not a fusewire UniqueId: {why}"),
                "hand on the one that `UniqueId::create` made, unchanged",
            )
        };
        let bytes: [u8; Self::LEN] =
            bytes.try_into().map_err(|_| bad(&format!("{} bytes instead of {}", bytes.len(), Self::LEN)))?;
        if bytes[..4] != MAGIC {
            return Err(bad("it starts otherwise"));
        }
        if bytes[SUM_AT..] != checksum(&bytes) || usize::from(bytes[COUNT_AT]) > MAX_ADDRESSES {
            return Err(bad("its checksum is wrong"));
        }
        Ok(Self { bytes })
    }

    pub(crate) fn take_listener(&self) -> Option<TcpListener> {
        lock(&LISTENERS).remove(&self.bytes)
    }

    pub(crate) fn token(&self) -> Token {
        let mut token = [0; 32];
        token.copy_from_slice(&self.bytes[TOKEN_AT..PORT_AT]);
        Token(token)
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let port = u16::from_le_bytes([self.bytes[PORT_AT], self.bytes[PORT_AT + 1]]);
        let count = usize::from(self.bytes[COUNT_AT]);
        let octets = self.bytes[ADDRESSES_AT..SUM_AT].chunks_exact(16).take(count);
        octets
            .map(|chunk| {
                let mut octets = [0; 16];
                octets.copy_from_slice(chunk);
                SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), port)
            })
            .collect()
    }
}

impl Whereabouts for UniqueId {
    fn find(&mut self) -> Result<(Vec<SocketAddr>, Token), Failure> {
        Ok((self.addresses(), self.token()))
    }

    fn describe(&self) -> String {
        let addresses: Vec<_> = self.addresses().iter().map(SocketAddr::to_string).collect();
        format!("{} (from a UniqueId)", addresses.join(", "))
    }
}

fn checksum(bytes: &[u8; UniqueId::LEN]) -> [u8; 4] {
    let digest = Sha256::digest(&bytes[..SUM_AT]);
    [digest[0], digest[1], digest[2], digest[3]]
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UniqueId").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

impl FromStr for UniqueId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let nibble = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
        let bytes: Option<Vec<u8>> = text
            .as_bytes()
            .chunks(2)
            .map(|pair| match *pair {
                [high, low] => Some(nibble(high)? << 4 | nibble(low)?),
                _ => None,
            })
            .collect();
        match bytes {
            Some(bytes) => Self::from_bytes(&bytes),
            None => {
                Err(Error::misuse("this is not a fusewire UniqueId: not all hexadecimal", "copy all of it"))
            }
        }
    }
}

pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).map_err(|e| {
        let advice = "choose another with FUSEWIRE_PORT or FUSEWIRE_ADDR, the same on every rank";
        Error::fabric(format!("the store cannot listen on {address}"), e, advice)
    })
}

/// On all interfaces, of both families where there are two.
pub(crate) fn listen_everywhere(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)))
}

/// The addresses that others may reach this host by, best first, loopback last.
pub(crate) fn own_addresses() -> Vec<IpAddr> {
    // Connecting a UDP socket sends nothing: it asks which of our addresses a route would use. The targets are
    // documentation addresses.
    let routed = |bind: &str, to: &str| {
        let socket = UdpSocket::bind(bind).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let mut found: Vec<IpAddr> = Vec::new();
    found.extend(routed("0.0.0.0:0", "192.0.2.1:9"));
    found.extend(routed("[::]:0", "[2001:db8::1]:9"));
    let name = crate::host::hostname();
    found.extend((name.as_str(), 0).to_socket_addrs().into_iter().flatten().map(|a| a.ip()));
    let mut addresses = Vec::new();
    for address in found.into_iter().filter(|a| !a.is_loopback() && !a.is_unspecified()) {
        if !addresses.contains(&address) && addresses.len() < MAX_ADDRESSES - 1 {
            addresses.push(address);
        }
    }
    addresses.push(Ipv4Addr::LOCALHOST.into());
    addresses
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_survives_text_and_bytes() {
        let id = UniqueId::create().unwrap();
        assert_eq!(id.to_string().len(), 256);
        assert_eq!(id.to_string().parse::<UniqueId>().unwrap(), id);
        assert_eq!(UniqueId::from_bytes(id.as_bytes()).unwrap(), id);
        assert!(
            id.addresses().contains(&SocketAddr::new(Ipv4Addr::LOCALHOST.into(), id.addresses()[0].port()))
        );
        assert!(id.take_listener().is_some() && id.take_listener().is_none());
    }

    #[test]
    fn both_families_come_back() {
        let addresses = ["10.1.2.3".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        let id = UniqueId::new(&Token([5; 32]), 4711, &addresses);
        let expected: Vec<SocketAddr> = addresses.iter().map(|&a| SocketAddr::new(a, 4711)).collect();
        assert_eq!(id.addresses(), expected);
    }

    #[test]
    fn debug_hides_the_secret() {
        let id = UniqueId::new(&Token([0xab; 32]), 1, &[]);
        assert!(!format!("{id:?}").contains("ab"));
    }

    #[test]
    fn a_changed_digit_is_noticed() {
        let text = UniqueId::new(&Token([5; 32]), 1, &[]).to_string();
        let changed = format!("{}{}", &text[..100], text[100..].replacen('0', "1", 1));
        assert!(changed.parse::<UniqueId>().unwrap_err().to_string().contains("checksum"));
        assert!("zz".parse::<UniqueId>().unwrap_err().to_string().contains("hexadecimal"));
        assert!("".parse::<UniqueId>().unwrap_err().to_string().contains("0 bytes"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,300}") {
            let _ = text.parse::<UniqueId>();
        }
    }
}
