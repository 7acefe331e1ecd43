//! A rank of one's own making: what a program needs that knows the token and means ill.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use serde::Serialize;
use sha2::{Digest, Sha256};
use snow::{Builder, StatelessTransportState};

pub const VERSION: u16 = 2;
pub const HELLO_LEN: usize = 58;
pub const ANSWER_LEN: usize = 59;

/// Requests as the store reads them.
#[derive(Serialize)]
#[allow(dead_code)]
pub enum Request {
    Gather { op: (u64, u64), members: Vec<usize>, part: Blob },
    GiveUp { op: (u64, u64) },
    Send { to: usize, tag: u64, bytes: Blob },
    Done { op: (u64, u64), members: Vec<usize> },
}

/// Bytes that are copied as one block.
pub struct Blob(pub Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

pub struct Attacker {
    pub stream: TcpStream,
    keys: StatelessTransportState,
    sent: u64,
}

pub fn greeting(version: u16) -> Vec<u8> {
    [b"FUSEWIRE".as_slice(), &version.to_le_bytes()].concat()
}

pub fn token(text: &str) -> [u8; 32] {
    Sha256::digest([b"fusewire token\0".as_slice(), text.as_bytes()].concat()).into()
}

/// Connects as soon as somebody listens.
pub fn connect(port: u16) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Attacker {
    /// A session with the store, if the token is right.
    pub fn session(port: u16, token: [u8; 32]) -> Option<Self> {
        let mut stream = connect(port);
        stream.set_nodelay(true).unwrap();
        let prologue = greeting(VERSION);
        let builder = Builder::new("Noise_NNpsk0_25519_ChaChaPoly_SHA256".parse().unwrap());
        let mut noise =
            builder.psk(0, &token).unwrap().prologue(&prologue).unwrap().build_initiator().unwrap();
        let mut hello = [greeting(VERSION), vec![0; 48]].concat();
        noise.write_message(&[], &mut hello[10..]).unwrap();
        stream.write_all(&hello).unwrap();
        let mut answer = [0; ANSWER_LEN];
        stream.read_exact(&mut answer).ok()?;
        noise.read_message(&answer[11..], &mut [0; 48]).ok()?;
        Some(Self { stream, keys: noise.into_stateless_transport_mode().unwrap(), sent: 0 })
    }

    /// Joins the job as `rank`, and takes part in its meeting under a host name of choice.
    pub fn join(port: u16, rank: usize, size: usize, hostname: &str) -> Self {
        let mut this = Self::session(port, token(&format!("secret/{}", super::TOKEN))).unwrap();
        this.send(&(rank as u64, size as u64, 31_337u32));
        let info = postcard::to_stdvec(&("host", hostname, None::<(String, [u8; 16])>)).unwrap();
        this.send(&Request::Gather { op: (world(size), 1), members: vec![], part: Blob(info) });
        this
    }

    pub fn send<T: Serialize>(&mut self, value: &T) {
        let frame = postcard::to_stdvec(value).unwrap();
        let _ = self.try_send(&frame);
    }

    pub fn try_send(&mut self, frame: &[u8]) -> std::io::Result<()> {
        let plain = [&(frame.len() as u64).to_le_bytes(), frame].concat();
        for chunk in plain.chunks(65_519) {
            let record = self.record(chunk);
            self.stream.write_all(&record)?;
        }
        Ok(())
    }

    /// The next record, with whatever in it.
    pub fn record(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut record = vec![0; 2 + plain.len() + 16];
        let length = self.keys.write_message(self.sent, plain, &mut record[2..]).unwrap();
        self.sent += 1;
        record[..2].copy_from_slice(&(length as u16).to_le_bytes());
        record
    }

    /// Takes in what the store says, as an honest rank would.
    pub fn drain(&self) {
        let mut stream = self.stream.try_clone().unwrap();
        std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
    }
}

/// The id of the group of all ranks.
pub fn world(size: usize) -> u64 {
    let mut hash = Sha256::new().chain_update(0u64.to_le_bytes());
    for rank in 0..size as u64 {
        hash.update(rank.to_le_bytes());
    }
    u64::from_le_bytes(hash.finalize()[..8].try_into().unwrap())
}
