//! Who reaches whom, and how.

use super::PeersError;
use crate::host::Machine;
use fusewire_device::window::LinkKind;
use fusewire_driver::{Device, Driver, PeerAttribute};
use fusewire_world::World;
use serde::{Deserialize, Serialize};

/// What to make of the machine that ranks find; equal on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersConfig {
    /// Whether peers' memory may be stored to (NVLink, shared memory of the host).
    pub mapped: bool,
    /// Whether adapters may be used.
    pub rdma: bool,
    /// Whether paths between GPUs may be taken to have native atomics where the driver says so. Signals and barriers of mapped memory are
    /// added to, so pairs without are not mapped.
    pub atomics: bool,
    /// Ranks that may store to each other's memory, as disjoint groups; ranks in none of them are alone. `None`: all that can.
    pub domains: Option<Vec<Vec<usize>>>,
}

impl Default for PeersConfig {
    /// Everything there is; `FUSEWIRE_NO_NVLINK=1` (or `NCCL_P2P_DISABLE=1`) turns mapped memory off, `FUSEWIRE_NO_RDMA=1` adapters,
    /// [`FUSEWIRE_NO_NATIVE_ATOMICS=1`](NO_ATOMICS) native atomics.
    fn default() -> Self {
        let on = |name: &str| std::env::var(name).is_ok_and(|v| !v.is_empty() && v != "0");
        PeersConfig {
            atomics: !on(NO_ATOMICS),
            mapped: !on("FUSEWIRE_NO_NVLINK") && !on("NCCL_P2P_DISABLE"),
            rdma: !on("FUSEWIRE_NO_RDMA"),
            domains: None,
        }
    }
}

impl PeersConfig {
    /// Turns mapped memory on or off.
    #[must_use]
    pub fn mapped(mut self, on: bool) -> Self {
        self.mapped = on;
        self
    }

    /// Turns native atomics between ranks on or off.
    #[must_use]
    pub fn atomics(mut self, on: bool) -> Self {
        self.atomics = on;
        self
    }

    /// Turns adapters on or off.
    #[must_use]
    pub fn rdma(mut self, on: bool) -> Self {
        self.rdma = on;
        self
    }

    /// Restricts mapped memory to these groups of ranks.
    #[must_use]
    pub fn domains(mut self, domains: &[&[usize]]) -> Self {
        self.domains = Some(domains.iter().map(|d| d.to_vec()).collect());
        self
    }

    /// The domain of each rank; ranks without one have a number of their own.
    pub(super) fn domain_of(&self, world: usize) -> Result<Vec<usize>, PeersError> {
        let Some(domains) = &self.domains else { return Ok(vec![0; world]) };
        let wrong = |what: String| PeersError::Configuration { what };
        let mut of: Vec<usize> = (0..world).map(|rank| domains.len() + rank).collect();
        let mut seen = vec![false; world];
        for (number, domain) in domains.iter().enumerate() {
            for &rank in domain {
                match seen.get_mut(rank) {
                    None => return Err(PeersError::NoSuchRank { rank, world }),
                    Some(true) => {
                        return Err(wrong(format!(
                            "rank {rank} is in two domains; a rank is in one at most"
                        )));
                    }
                    Some(seen) => *seen = true,
                }
                of[rank] = number;
            }
        }
        Ok(of)
    }
}

/// What one rank knows of itself.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) struct Facts {
    /// Ranks with the same one share the host's memory.
    pub host: String,
    /// Its GPU, by bus id.
    pub gpu: Option<String>,
    /// GPUs that it reaches, by bus id, its own included.
    pub reaches: Vec<String>,
    /// Of these, those on which its atomic operations work natively.
    pub atomics: Vec<String>,
    /// Mapped memory is turned on.
    pub mapped: bool,
    /// Native atomics are not turned off.
    pub native: bool,
    /// Its adapter, by name.
    pub adapter: Option<String>,
}

impl Facts {
    /// Of this rank.
    pub fn find(world: &World, machine: &Machine, config: &PeersConfig, adapter: Option<String>) -> Self {
        let mut facts = Facts {
            host: world.host_id().to_owned(),
            gpu: None,
            reaches: Vec::new(),
            atomics: Vec::new(),
            mapped: config.mapped,
            native: config.atomics,
            adapter,
        };
        let Machine::Cuda(context) = machine else { return facts };
        let own = context.device();
        facts.gpu = Some(own.pci_bus_id().to_owned());
        let devices = Driver::load().and_then(|d| d.devices()).unwrap_or_default();
        for device in devices.iter().filter(|_| own.supports_posix_fd()) {
            let (bus, itself) = (device.pci_bus_id().to_owned(), device.pci_bus_id() == own.pci_bus_id());
            if itself || own.can_access_peer(device).unwrap_or(false) {
                facts.reaches.push(bus.clone());
            }
            if itself || native_atomics(own, device) {
                facts.atomics.push(bus);
            }
        }
        facts
    }
}

/// The variable by which paths between ranks count as being without native atomics, to try what is left then.
pub const NO_ATOMICS: &str = "FUSEWIRE_NO_NATIVE_ATOMICS";

/// Whether the driver grants atomic operations of one GPU on the memory of another, which it does over NVLink and not over PCIe.
pub(crate) fn native_atomics(own: &Device, other: &Device) -> bool {
    own.peer_attribute(other, PeerAttribute::NativeAtomics).is_ok_and(|has| has != 0)
}

/// How every rank is reached from this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub(super) rank: usize,
    pub(super) kinds: Vec<LinkKind>,
    pub(super) adapters: bool,
}

impl Topology {
    /// The same on every rank but for the point of view: each learns of any pair that cannot reach each other.
    pub(super) fn classify(rank: usize, facts: &[Facts], domains: &[usize]) -> Result<Self, PeersError> {
        let world = facts.len();
        let adapters = facts.iter().all(|f| f.adapter.is_some());
        for a in 0..world {
            for b in a + 1..world {
                if let Some(why) = unmapped(a, b, facts, domains)
                    && !adapters
                {
                    let without: Vec<String> =
                        (0..world).filter(|r| facts[*r].adapter.is_none()).map(|r| r.to_string()).collect();
                    let why =
                        format!("{why}; and not every rank has an adapter (without: {})", without.join(", "));
                    return Err(PeersError::Unreachable { from: a, to: b, why });
                }
            }
        }
        let kinds = (0..world)
            .map(|peer| match peer {
                _ if peer == rank => LinkKind::Own,
                _ if unmapped(rank, peer, facts, domains).is_none() => LinkKind::Mapped,
                _ => LinkKind::Rdma,
            })
            .collect();
        Ok(Topology { rank, kinds, adapters })
    }

    /// How `rank` is reached: mapped memory before an adapter. `None` for a rank that does not exist.
    pub fn kind(&self, rank: usize) -> Option<LinkKind> {
        self.kinds.get(rank).copied()
    }

    /// Peers whose memory can be stored to, ascending.
    pub fn mapped_peers(&self) -> Vec<usize> {
        (0..self.kinds.len()).filter(|r| self.kinds[*r] == LinkKind::Mapped).collect()
    }

    /// Peers that an adapter reaches, ascending: every peer where there are adapters, mapped ones too.
    pub fn rdma_peers(&self) -> Vec<usize> {
        let all = 0..self.kinds.len();
        all.filter(|r| self.adapters && *r != self.rank).collect()
    }

    /// Whether every rank has an adapter.
    pub fn has_rdma(&self) -> bool {
        self.adapters
    }
}

/// Why two ranks cannot store to each other's memory, if they cannot.
fn unmapped(a: usize, b: usize, facts: &[Facts], domains: &[usize]) -> Option<String> {
    let (x, y) = (&facts[a], &facts[b]);
    if let Some(off) = [a, b].into_iter().find(|r| !facts[*r].mapped) {
        return Some(format!("mapped memory is turned off on rank {off}"));
    }
    if domains[a] != domains[b] {
        return Some("they are in different domains".into());
    }
    if x.host != y.host {
        return Some("they are on different hosts".into());
    }
    if let Some(off) = [a, b].into_iter().find(|r| !facts[*r].native) {
        return Some(format!(
            "native atomics, which signals and barriers need, are turned off on rank {off}"
        ));
    }
    match (&x.gpu, &y.gpu) {
        (None, None) => None,
        (Some(p), Some(q)) if x.reaches.contains(q) && y.reaches.contains(p) => {
            let native = x.atomics.contains(q) && y.atomics.contains(p);
            (!native).then(|| {
                format!(
                    "the path between their GPUs ({p} and {q}) has no native atomics, which signals and barriers need \
                     (PCIe has none, NVLink has)"
                )
            })
        }
        (Some(p), Some(q)) => Some(format!("their GPUs ({p} and {q}) do not reach each other's memory")),
        _ => Some("one runs on a GPU and the other on CPU threads".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Facts, LinkKind, PeersConfig, PeersError, Topology};
    use proptest::prelude::*;

    fn fact(host: &str, gpu: Option<&str>, reaches: &[&str], adapter: bool) -> Facts {
        Facts {
            host: host.into(),
            gpu: gpu.map(str::to_owned),
            reaches: reaches.iter().map(|r| (*r).to_owned()).collect(),
            atomics: reaches.iter().map(|r| (*r).to_owned()).collect(),
            mapped: true,
            native: true,
            adapter: adapter.then(|| "mlx5_0".to_owned()),
        }
    }

    fn kinds(rank: usize, facts: &[Facts], config: &PeersConfig) -> Result<Vec<LinkKind>, PeersError> {
        Ok(Topology::classify(rank, facts, &config.domain_of(facts.len())?)?.kinds)
    }

    const ALL: PeersConfig = PeersConfig { mapped: true, rdma: true, atomics: true, domains: None };

    #[test]
    fn one_host_is_mapped_and_two_hosts_are_not() {
        use LinkKind::{Mapped, Own, Rdma};
        let two = [("a", true), ("a", true), ("b", true), ("b", true)].map(|(h, n)| fact(h, None, &[], n));
        assert_eq!(kinds(1, &two, &ALL), Ok(vec![Mapped, Own, Rdma, Rdma]));
        assert_eq!(kinds(2, &two, &ALL), Ok(vec![Rdma, Rdma, Own, Mapped]));
        let topology = Topology::classify(1, &two, &[0; 4]).unwrap();
        assert_eq!((topology.mapped_peers(), topology.rdma_peers()), (vec![0], vec![0, 2, 3]));
        let one = ["a", "a", "a"].map(|h| fact(h, None, &[], false));
        assert_eq!(kinds(0, &one, &ALL), Ok(vec![Own, Mapped, Mapped]));
        assert!(Topology::classify(0, &one, &[0; 3]).unwrap().rdma_peers().is_empty());
    }

    #[test]
    fn domains_part_a_host() {
        use LinkKind::{Mapped, Own, Rdma};
        let facts = [(); 5].map(|()| fact("a", None, &[], true));
        let config = ALL.domains(&[&[0, 1], &[3, 2]]);
        assert_eq!(kinds(3, &facts, &config), Ok(vec![Rdma, Rdma, Mapped, Own, Rdma]));
        assert_eq!(kinds(4, &facts, &config), Ok(vec![Rdma, Rdma, Rdma, Rdma, Own]));
        let refused = ALL.domains(&[&[0, 9]]).domain_of(5);
        assert_eq!(refused, Err(PeersError::NoSuchRank { rank: 9, world: 5 }));
        let refused = ALL.domains(&[&[0, 1], &[1]]).domain_of(5).unwrap_err().to_string();
        assert!(refused.contains("rank 1 is in two domains"), "{refused}");
    }

    #[test]
    fn gpus_reach_each_other_both_ways_or_not_at_all() {
        let facts =
            |back: &[&str]| [fact("a", Some("0"), &["0", "1"], true), fact("a", Some("1"), back, true)];
        assert_eq!(kinds(0, &facts(&["0", "1"]), &ALL), Ok(vec![LinkKind::Own, LinkKind::Mapped]));
        assert_eq!(kinds(0, &facts(&["1"]), &ALL), Ok(vec![LinkKind::Own, LinkKind::Rdma]));
    }

    #[test]
    fn pairs_without_native_atomics_are_not_mapped() {
        use LinkKind::{Mapped, Own, Rdma};
        let all = ["0", "1", "2"];
        let mut facts = all.map(|gpu| fact("a", Some(gpu), &all, true));
        // The path between the first and the last, as the last one's driver says.
        facts[2].atomics.retain(|gpu| gpu != "0");
        assert_eq!(kinds(0, &facts, &ALL), Ok(vec![Own, Mapped, Rdma]));
        assert_eq!(kinds(1, &facts, &ALL), Ok(vec![Mapped, Own, Mapped]));
        assert_eq!(kinds(2, &facts, &ALL), Ok(vec![Rdma, Mapped, Own]));
        facts.iter_mut().for_each(|fact| fact.adapter = None);
        let text = kinds(1, &facts, &ALL).unwrap_err().to_string();
        assert!(text.contains("(0 and 2) has no native atomics"), "{text}");
    }

    #[test]
    fn without_an_adapter_every_rank_hears_of_the_pair() {
        let facts =
            [("a", true), ("b", false), ("a", true)].map(|(host, adapter)| fact(host, None, &[], adapter));
        for rank in 0..3 {
            let error = kinds(rank, &facts, &ALL).unwrap_err();
            assert!(matches!(&error, PeersError::Unreachable { from: 0, to: 1, .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("different hosts") && text.contains("without: 1"), "{text}");
        }
        let mut off = [fact("a", None, &[], false), fact("a", None, &[], false)];
        off[1].mapped = false;
        let text = kinds(0, &off, &ALL).unwrap_err().to_string();
        assert!(text.contains("turned off on rank 1"), "{text}");
    }

    proptest! {
        #[test]
        fn both_ends_see_the_same_link(hosts in prop::collection::vec((0u8..3, 0usize..3, any::<bool>()), 1..9)) {
            let facts: Vec<Facts> = hosts.iter().map(|(h, _, mapped)| {
                Facts { mapped: *mapped, ..fact(&h.to_string(), None, &[], true) }
            }).collect();
            let domains: Vec<usize> = hosts.iter().map(|h| h.1).collect();
            let all: Vec<Topology> =
                (0..facts.len()).map(|r| Topology::classify(r, &facts, &domains).unwrap()).collect();
            for (a, one) in all.iter().enumerate() {
                for (b, other) in all.iter().enumerate() {
                    prop_assert_eq!(one.kinds[b], other.kinds[a]);
                    prop_assert_eq!(one.kinds[b] == LinkKind::Own, a == b);
                }
            }
        }
    }
}
