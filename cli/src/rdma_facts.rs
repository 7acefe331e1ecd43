//! RDMA adapters, as the kernel lists them.

use std::{fs, path::Path};

/// Where the kernel lists them.
pub const CLASS: &str = "/sys/class/infiniband";

/// One port of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The adapter, such as `mlx5_0`.
    pub device: String,
    /// The port's number.
    pub number: u32,
    /// `InfiniBand` or `Ethernet` (RoCE).
    pub link: String,
    /// `ACTIVE`, `DOWN`, ...
    pub state: String,
    /// Such as `400 Gb/sec (4X NDR)`.
    pub rate: String,
    /// The NUMA node it is attached to, where the kernel tells.
    pub numa: Option<i32>,
}

/// All ports under `class`, sorted; none where there is no such folder.
pub fn look(class: &Path) -> Vec<Port> {
    let mut ports = Vec::new();
    for device in folders(class) {
        let folder = class.join(&device);
        let numa = read(&folder.join("device/numa_node")).parse().ok().filter(|node| *node >= 0);
        for port in folders(&folder.join("ports")) {
            let Ok(number) = port.parse() else { continue };
            let at = |name: &str| read(&folder.join("ports").join(&port).join(name));
            // The state reads `4: ACTIVE`.
            let state = at("state");
            let state = state.split_once(": ").map_or(state.as_str(), |(_, word)| word).to_owned();
            let device = device.clone();
            ports.push(Port { device, number, link: at("link_layer"), state, rate: at("rate"), numa });
        }
    }
    ports
}

fn folders(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_lists() {
        let class = tempfile::tempdir().unwrap();
        let port = class.path().join("mlx5_0/ports/1");
        fs::create_dir_all(&port).unwrap();
        fs::create_dir_all(class.path().join("mlx5_0/device")).unwrap();
        fs::write(class.path().join("mlx5_0/device/numa_node"), "1\n").unwrap();
        for (name, text) in
            [("state", "4: ACTIVE\n"), ("rate", "400 Gb/sec (4X NDR)\n"), ("link_layer", "InfiniBand\n")]
        {
            fs::write(port.join(name), text).unwrap();
        }
        let expected = Port {
            device: "mlx5_0".to_owned(),
            number: 1,
            link: "InfiniBand".to_owned(),
            state: "ACTIVE".to_owned(),
            rate: "400 Gb/sec (4X NDR)".to_owned(),
            numa: Some(1),
        };
        assert_eq!(look(class.path()), [expected]);
        assert!(look(&class.path().join("none")).is_empty());
    }
}
