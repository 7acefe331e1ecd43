//! Which adapter, and which port of it.

use crate::driver::is_mlx5;
use crate::error::{from_verbs, no_adapter};
use fusewire_nic::Result;
use fusewire_verbs::Filter;
use std::path::{Path, PathBuf};

const RDMA: &str = "/sys/class/infiniband";
const PCI: &str = "/sys/bus/pci/devices";

/// An adapter of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name, `mlx5_0` for instance.
    pub name: String,
    /// Its ports.
    pub ports: Vec<u8>,
    /// Whether libmlx5 drives it.
    pub mlx5: bool,
    /// Where it is in the PCI tree, as a path in `/sys/devices`.
    pub place: Option<PathBuf>,
}

/// Every adapter of this machine.
///
/// # Errors
/// [`fusewire_nic::Error::NoAdapter`] where there is no rdma-core or no RDMA at all.
pub fn candidates() -> Result<Vec<Candidate>> {
    let names = fusewire_verbs::adapters().map_err(from_verbs)?;
    names
        .into_iter()
        .map(|name| {
            let at = Path::new(RDMA).join(&name);
            let mut ports: Vec<u8> = std::fs::read_dir(at.join("ports"))
                .into_iter()
                .flatten()
                .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
                .collect();
            ports.sort_unstable();
            let mlx5 = is_mlx5(&name)?;
            Ok(Candidate { name, ports, mlx5, place: at.join("device").canonicalize().ok() })
        })
        .collect()
}

/// Where a PCI device is, `0000:18:00.0` for instance, as a path in `/sys/devices`.
pub fn place_of(bus_id: &str) -> Option<PathBuf> {
    Path::new(PCI).join(bus_id.to_ascii_lowercase()).canonicalize().ok()
}

/// Bridges that two devices have in common.
fn shared(a: &Path, b: &Path) -> usize {
    a.components().zip(b.components()).take_while(|(a, b)| a == b).count()
}

/// The adapters and ports to try, in order: nearest to the GPU first (most PCI bridges in common), then as the library lists them.
///
/// # Errors
/// [`fusewire_nic::Error::NoAdapter`] if none is left, with what there was and what to do.
pub fn order(candidates: &[Candidate], filter: &Filter, gpu: Option<&Path>) -> Result<Vec<(String, u8)>> {
    let list = |which: &mut dyn Iterator<Item = &Candidate>| {
        which.map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    if candidates.is_empty() {
        return Err(no_adapter(
            "there is none on this machine. `ibv_devices` lists them; transports within a host need none",
        ));
    }
    let mlx5: Vec<&Candidate> = candidates.iter().filter(|c| c.mlx5).collect();
    if mlx5.is_empty() {
        return Err(no_adapter(format!(
            "there is {}, but that is not an mlx5 adapter, and kernels post to no other (DevX): use HostIb there, or a transport within a \
             host",
            list(&mut candidates.iter())
        )));
    }
    let near = |c: &Candidate| match (gpu, &c.place) {
        (Some(gpu), Some(place)) => shared(gpu, place),
        _ => 0,
    };
    let mut admitted: Vec<(usize, &str, u8)> = mlx5
        .iter()
        .flat_map(|c| c.ports.iter().map(|port| (near(c), c.name.as_str(), *port)))
        .filter(|(_, name, port)| filter.admits(name, *port))
        .collect();
    if admitted.is_empty() {
        return Err(no_adapter(format!(
            "the filter lets none through of {}; FUSEWIRE_IB_HCA chooses one, `mlx5_0:1` for instance",
            list(&mut mlx5.into_iter())
        )));
    }
    // Stable: adapters of the same distance stay in order.
    admitted.sort_by_key(|(near, ..)| std::cmp::Reverse(*near));
    Ok(admitted.into_iter().map(|(_, name, port)| (name.to_owned(), port)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, mlx5: bool, place: &str) -> Candidate {
        Candidate { name: name.into(), ports: vec![1], mlx5, place: Some(place.into()) }
    }

    fn machine() -> Vec<Candidate> {
        vec![
            candidate("bnxt_re0", false, "/sys/devices/pci0000:00/0000:00:02.0/0000:05:00.0"),
            candidate("mlx5_0", true, "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:18:00.0"),
            candidate("mlx5_1", true, "/sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:3a:00.0"),
            Candidate {
                ports: vec![1, 2],
                ..candidate("mlx5_10", true, "/sys/devices/pci0000:15/0000:15:05.0/0000:1f:00.0")
            },
        ]
    }

    fn ordered(filter: &str, gpu: Option<&str>) -> Result<Vec<String>> {
        let order = order(&machine(), &Filter::parse(filter).unwrap(), gpu.map(Path::new))?;
        Ok(order.into_iter().map(|(name, port)| format!("{name}:{port}")).collect())
    }

    #[test]
    fn the_nearest_comes_first() {
        assert_eq!(ordered("", None).unwrap(), ["mlx5_0:1", "mlx5_1:1", "mlx5_10:1", "mlx5_10:2"]);
        let gpu = "/sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:3b:00.0";
        assert_eq!(ordered("", Some(gpu)).unwrap()[0], "mlx5_1:1");
        // The same switch before the same root complex.
        let gpu = "/sys/devices/pci0000:15/0000:15:05.0/0000:20:00.0";
        assert_eq!(ordered("", Some(gpu)).unwrap(), ["mlx5_10:1", "mlx5_10:2", "mlx5_0:1", "mlx5_1:1"]);
    }

    #[test]
    fn filters_choose_among_mlx5_adapters() {
        assert_eq!(ordered("=mlx5_1", None).unwrap(), ["mlx5_1:1"]);
        assert_eq!(ordered("mlx5_10:2", None).unwrap(), ["mlx5_10:2"]);
        let error = ordered("bnxt", None).unwrap_err().to_string();
        assert!(error.contains("lets none through of mlx5_0, mlx5_1, mlx5_10"), "{error}");
    }

    #[test]
    fn what_there_is_instead_is_said() {
        let none = order(&[], &Filter::default(), None).unwrap_err().to_string();
        assert!(none.starts_with("no adapter: there is none on this machine"), "{none}");
        let other = order(&machine()[..1], &Filter::default(), None).unwrap_err().to_string();
        assert!(
            other.contains("there is bnxt_re0, but that is not an mlx5 adapter") && other.contains("HostIb"),
            "{other}"
        );
    }

    #[test]
    fn a_device_that_is_not_there_has_no_place() {
        assert_eq!(place_of("ffff:ff:1f.7"), None);
    }
}
