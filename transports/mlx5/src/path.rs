//! The way from one queue pair to another.

use crate::error::misuse;
use crate::prm::{Link, Path};
use crate::settings::{mtu_bytes, mtu_code};
use fusewire_nic::{Address, Result};

/// The own port, as peers must know it and as commands name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The adapter.
    pub adapter: String,
    /// The port's number, from 1.
    pub number: u8,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Global identifier.
    pub gid: [u8; 16],
    /// Its index.
    pub index: u8,
    /// Whether packets are routed by GID.
    pub ethernet: bool,
    /// `ibv_mtu`: 1 is 256 bytes, 5 is 4096.
    pub mtu: u8,
    /// Logarithms of the reads and atomics under way on one queue pair, as requester and as responder.
    pub log_reads: (u32, u32),
}

/// UDP source port of a connection, for switches that spread flows by it: from 0xc000 on (InfiniBand specification, annex 17), and
/// as Linux takes it from the numbers of both ends (`rdma_calc_flow_label`, `rdma_flow_label_to_udp_sport`).
pub const fn source_port(own: u32, remote: u32) -> u16 {
    let mut v = own as u64 * remote as u64;
    v ^= v >> 20;
    v ^= v >> 40;
    let label = (v & 0xf_ffff) as u32;
    (((label & 0x3fff) ^ (label & 0xf_c000) >> 14) | 0xc000) as u16
}

impl Port {
    /// A queue pair of this port's, for peers, and the number of the first packet that it sends.
    pub fn address(&self, number: u32, first_packet: u32) -> Address {
        Address { number, gid: self.gid, lid: self.lid, first_packet, mtu: mtu_bytes(self.mtu) }
    }

    /// The way from queue pair `own` of this port to `remote`; `mac` finds a next hop on Ethernet.
    pub fn way(
        &self,
        own: u32,
        remote: &Address,
        mac: impl FnOnce([u8; 16]) -> Result<[u8; 6]>,
    ) -> Result<Path> {
        let Some(theirs) = mtu_code(remote.mtu) else {
            return Err(misuse(format!(
                "the peer's packets have at most {} bytes; RDMA needs 256",
                remote.mtu
            )));
        };
        if self.ethernet != (remote.lid == 0) {
            let kind = |ethernet| if ethernet { "Ethernet" } else { "InfiniBand" };
            return Err(misuse(format!(
                "port {} of {} is {}, and the peer's is {}: choose adapters of one kind with FUSEWIRE_IB_HCA",
                self.number,
                self.adapter,
                kind(self.ethernet),
                kind(!self.ethernet)
            )));
        }
        let link = if self.ethernet {
            let source = source_port(own, remote.number);
            Link::Ethernet { gid: remote.gid, index: self.index, mac: mac(remote.gid)?, source }
        } else {
            // A subnet's prefix is a GID's first half.
            let routed = remote.gid[..8] != self.gid[..8];
            Link::InfiniBand { lid: remote.lid, grh: routed.then_some((remote.gid, self.index)) }
        };
        Ok(Path {
            remote: remote.number,
            first_packet: remote.first_packet & 0xff_ffff,
            mtu: self.mtu.min(theirs),
            link,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(ethernet: bool) -> Port {
        let mut gid = [0; 16];
        gid[0] = 0xfe;
        gid[1] = 0x80;
        let lid = if ethernet { 0 } else { 7 };
        let adapter = "mlx5_0".into();
        Port { adapter, number: 1, lid, gid, index: 3, ethernet, mtu: 5, log_reads: (4, 4) }
    }

    fn none(_: [u8; 16]) -> Result<[u8; 6]> {
        panic!("no MAC address is needed on InfiniBand")
    }

    #[test]
    fn the_smaller_mtu_counts() {
        let own = port(false);
        let remote = Address { mtu: 1024, ..own.address(0x99, 0x12_3456) };
        assert_eq!(own.way(0x40, &remote, none).unwrap().mtu, 3);
        assert_eq!(own.way(0x40, &own.address(1, 0x12_3456), none).unwrap().mtu, 5);
        let error = own.way(0x40, &Address { mtu: 0, ..remote }, none).unwrap_err().to_string();
        assert!(error.contains("RDMA needs 256"), "{error}");
    }

    #[test]
    fn another_subnet_is_reached_by_gid() {
        let own = port(false);
        let near = Address { lid: 9, ..own.address(0x99, 0x12_3456) };
        assert_eq!(own.way(0x40, &near, none).unwrap().link, Link::InfiniBand { lid: 9, grh: None });
        let mut far = near;
        far.gid[7] = 1;
        let link = own.way(0x40, &far, none).unwrap().link;
        assert_eq!(link, Link::InfiniBand { lid: 9, grh: Some((far.gid, 3)) });
    }

    #[test]
    fn ethernet_is_reached_by_gid_and_mac() {
        let own = port(true);
        let remote = own.address(0x99, 0x12_3456);
        let mac = [1, 2, 3, 4, 5, 6];
        let link =
            own.way(0x40, &remote, |gid| Ok(if gid == remote.gid { mac } else { [0; 6] })).unwrap().link;
        let source = source_port(0x40, 0x99);
        assert_eq!(link, Link::Ethernet { gid: remote.gid, index: 3, mac, source });
        assert!(own.way(0x40, &remote, |_| Err(misuse("no route"))).is_err());
    }

    #[test]
    fn link_layers_do_not_mix() {
        let error =
            port(true).way(1, &port(false).address(2, 0x12_3456), |_| Ok([0; 6])).unwrap_err().to_string();
        assert!(error.contains("mlx5_0 is Ethernet, and the peer's is InfiniBand"), "{error}");
        assert!(port(false).way(1, &port(true).address(2, 0x12_3456), none).is_err());
    }

    #[test]
    fn source_ports_are_of_rocev2_and_alike_at_both_ends() {
        let mut seen = std::collections::HashSet::new();
        for own in 0x40..0x80u32 {
            for remote in 0x1040..0x1060 {
                let port = source_port(own, remote);
                assert!(port >= 0xc000 && port == source_port(remote, own));
                seen.insert(port);
            }
        }
        // 2,048 connections that all took one way would be no use.
        assert!(seen.len() > 1000, "{} ports", seen.len());
    }
}
