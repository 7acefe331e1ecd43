//! What can be named in the attribute: transports, schedules, element types, architectures.

/// A transport that kernels can be compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// As users write it: the host type's name in `fusewire`, or its path from the crate that it comes from.
    pub name: &'static str,
    /// The crate that it comes from, by the name that the kernel's crate has for it; `None` for fusewire's own.
    pub krate: Option<&'static str>,
    /// The device half: its name in `fusewire_transports::ops`, or its path in the device crate that it comes from.
    pub ops: &'static str,
    /// In symbols.
    pub label: &'static str,
    /// Whether its kernels run on GPUs.
    pub cuda: bool,
    /// Whether its kernels run on CPU threads.
    pub host: bool,
    /// Whether peers' memory can be stored to.
    pub direct: bool,
    /// Whether ranks are in domains, within which they reach each other by other links.
    pub domains: bool,
    /// Whether an attribute that names no transports means this one too.
    pub implied: bool,
}

/// Every transport.
pub const TRANSPORTS: &[Transport] = &[
    Transport {
        name: "Shm",
        krate: None,
        ops: "ShmOps",
        label: "shm",
        cuda: false,
        host: true,
        direct: true,
        domains: false,
        implied: true,
    },
    Transport {
        name: "Nvl",
        krate: None,
        ops: "NvlOps",
        label: "nvl",
        cuda: true,
        host: false,
        direct: true,
        domains: false,
        implied: true,
    },
    Transport {
        name: "Ibgda",
        krate: None,
        ops: "IbgdaOps",
        label: "ibgda",
        cuda: true,
        host: true,
        direct: false,
        domains: false,
        implied: false,
    },
    Transport {
        name: "ShmMesh",
        krate: None,
        ops: "ShmMeshOps",
        label: "shm_mesh",
        cuda: false,
        host: true,
        direct: false,
        domains: true,
        implied: false,
    },
    Transport {
        name: "NvlMesh",
        krate: None,
        ops: "NvlMeshOps",
        label: "nvl_mesh",
        cuda: true,
        host: false,
        direct: false,
        domains: true,
        implied: false,
    },
    Transport {
        name: "HostIb",
        krate: None,
        ops: "HostIbOps",
        label: "host_ib",
        cuda: true,
        host: true,
        direct: false,
        domains: false,
        implied: false,
    },
];

/// A schedule that hooks can be compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// In symbols, and the function that prepares it. As users write it, if it is shipped.
    pub name: &'static str,
    /// The crate that it comes from, by the name that the kernel's crate has for it; `None` for fusewire's own.
    pub krate: Option<&'static str>,
    /// The type: its name in `fusewire_device::schedule`, or its path from the crate that it comes from.
    pub marker: &'static str,
    /// The launcher in `fusewire::schedule`: the schedule's own, or `Launcher`.
    pub launcher: &'static str,
    /// Whether an attribute that names no schedules means this one too.
    pub implied: bool,
    /// Whether a rank alone has something to do.
    pub own: bool,
    /// Whether elements are produced once for all peers.
    pub once: bool,
    /// Whether `consume` gets one value, folded of what all ranks sent.
    pub folds: bool,
    /// Whether a rank may both send and receive, so that peers may store into its output.
    pub mutual: bool,
    /// Whether no chunk that a rank receives is one that it sends, where input and output are one buffer.
    pub apart: bool,
    /// Whether it has two steps: every output gets the same.
    pub two_steps: bool,
    /// One line for the generated function's documentation.
    pub doc: &'static str,
}

impl Schedule {
    /// Whether it may go by domains: every rank or a root takes what is folded, every rank takes what a root has, or every pair of ranks has one chunk between them of what is
    /// produced once or folded.
    pub fn crosses(&self) -> bool {
        match self.two_steps {
            true => self.folds || !self.mutual,
            false => self.mutual && self.apart && self.once != self.folds,
        }
    }
}

/// How bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Through rings of staging, with credits.
    Simple,
    /// The same, twice: each rank folds a part and passes it on.
    TwoShot,
    /// The same, three times: by domains.
    Hierarchical,
    /// LL: in words that carry their flags.
    Ll,
    /// LL128: in lines that carry their flags.
    Ll128,
    /// Nowhere: of a rank alone.
    Local,
    /// The same, twice, as `TwoShot`.
    Ll128TwoShot,
    /// Straight into the peers' outputs.
    Direct,
    /// By bulk copies through shared memory, straight into the peers' outputs.
    Bulk,
    /// By the copy engine, straight into the peers' outputs.
    Copy,
}

impl Protocol {
    /// The variant of `fusewire::schedule::Protocol`.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Simple => "Simple",
            Protocol::TwoShot => "TwoShot",
            Protocol::Hierarchical => "Hierarchical",
            Protocol::Ll => "Ll",
            Protocol::Ll128 => "Ll128",
            Protocol::Ll128TwoShot => "Ll128TwoShot",
            Protocol::Local => "Local",
            Protocol::Direct => "Direct",
            Protocol::Bulk => "Bulk",
            Protocol::Copy => "Copy",
        }
    }

    /// As users write it.
    pub fn word(self) -> &'static str {
        match self {
            Protocol::Simple => "simple",
            Protocol::TwoShot => "two_shot",
            Protocol::Hierarchical => "hierarchical",
            Protocol::Ll => "ll",
            Protocol::Ll128 => "ll128",
            Protocol::Ll128TwoShot => "ll128_two_shot",
            Protocol::Local => "local",
            Protocol::Direct => "direct",
            Protocol::Bulk => "bulk",
            Protocol::Copy => "copy",
        }
    }

    /// The type in `fusewire_device::protocol`.
    pub fn device(self) -> &'static str {
        match self {
            Protocol::Simple => "Simple",
            Protocol::TwoShot => "TwoShot",
            Protocol::Hierarchical => "Hierarchical",
            Protocol::Ll => "Ll",
            Protocol::Ll128 => "Ll128",
            Protocol::Ll128TwoShot => "Ll128TwoShot",
            Protocol::Local => "Local",
            Protocol::Direct => "Store",
            Protocol::Bulk => "Bulk",
            Protocol::Copy => "CopyEngine",
        }
    }

    /// The same for kernels on CPU threads.
    pub fn host(self) -> &'static str {
        match self {
            Protocol::Simple => "Host",
            Protocol::TwoShot => "HostTwoShot",
            Protocol::Hierarchical => "HostHierarchical",
            _ => self.device(),
        }
    }

    /// Whether CPU threads take it where nothing is named: it has a form for them.
    pub fn by_default_on_host(self) -> bool {
        self.host() != self.device()
    }
}

/// Every shipped schedule.
pub const SCHEDULES: &[Schedule] = &[
    Schedule {
        name: "all_to_all",
        krate: None,
        marker: "AllToAll",
        launcher: "AllToAllLauncher",
        implied: true,
        own: true,
        once: false,
        folds: false,
        mutual: true,
        apart: false,
        two_steps: false,
        doc: "Every rank sends one chunk to every rank. Collective: all ranks call it, in the same order.",
    },
    Schedule {
        name: "sendrecv",
        krate: None,
        marker: "SendRecv",
        launcher: "SendRecvLauncher",
        implied: true,
        own: false,
        once: false,
        folds: false,
        mutual: true,
        apart: false,
        two_steps: false,
        doc: "One chunk to a peer and one from a peer, or either alone. Collective: all ranks call it, in the same order.",
    },
    Schedule {
        name: "all_gather",
        krate: None,
        marker: "AllGather",
        launcher: "AllGatherLauncher",
        implied: false,
        own: true,
        once: true,
        folds: false,
        mutual: true,
        apart: true,
        two_steps: false,
        doc: "Each rank's chunk goes to every rank. Collective: all ranks call it, in the same order.",
    },
    Schedule {
        name: "broadcast",
        krate: None,
        marker: "Broadcast",
        launcher: "BroadcastLauncher",
        implied: false,
        own: true,
        once: true,
        folds: false,
        mutual: false,
        apart: true,
        two_steps: true,
        doc: "One rank's chunk goes to every rank. Collective: all ranks call it, in the same order.",
    },
    Schedule {
        name: "scatter",
        krate: None,
        marker: "Scatter",
        launcher: "ScatterLauncher",
        implied: false,
        own: true,
        once: false,
        folds: false,
        mutual: false,
        apart: true,
        two_steps: false,
        doc: "One rank sends a chunk to every rank. Collective: all ranks call it, in the same order.",
    },
    Schedule {
        name: "gather",
        krate: None,
        marker: "Gather",
        launcher: "GatherLauncher",
        implied: false,
        own: true,
        once: false,
        folds: false,
        mutual: false,
        apart: true,
        two_steps: false,
        doc: "Each rank's chunk goes to one rank. Collective: all ranks call it, in the same order.",
    },
    Schedule {
        name: "reduce_scatter",
        krate: None,
        marker: "ReduceScatter",
        launcher: "ReduceScatterLauncher",
        implied: false,
        own: true,
        once: false,
        folds: true,
        mutual: true,
        apart: true,
        two_steps: false,
        doc: "Every rank gets one chunk, folded of what all ranks have for it. Collective: all ranks call it, in the same order.",
    },
    Schedule {
        name: "all_reduce",
        krate: None,
        marker: "AllReduce",
        launcher: "AllReduceLauncher",
        implied: false,
        own: true,
        once: true,
        folds: true,
        mutual: true,
        apart: false,
        two_steps: true,
        doc: "Every rank gets the fold of all ranks' chunks. Collective: all ranks call it, in the same order.",
    },
    Schedule {
        name: "reduce",
        krate: None,
        marker: "Reduce",
        launcher: "ReduceLauncher",
        implied: false,
        own: true,
        once: false,
        folds: true,
        mutual: false,
        apart: true,
        two_steps: true,
        doc: "One rank gets the fold of all ranks' chunks. Collective: all ranks call it, in the same order.",
    },
];

/// Folds by the name that users write, and the type in `fusewire_device::fold`.
pub const FOLDS: &[(&str, &str)] = &[
    ("sum", "Sum"),
    ("product", "Product"),
    ("min", "Min"),
    ("max", "Max"),
    ("and", "And"),
    ("or", "Or"),
    ("xor", "Xor"),
    ("average", "Average"),
];

/// Element types by the name users write; the path is relative to `fusewire_device`.
pub const ELEMENTS: &[(&str, &str)] = &[
    ("u8", "u8"),
    ("u16", "u16"),
    ("u32", "u32"),
    ("u64", "u64"),
    ("i8", "i8"),
    ("i16", "i16"),
    ("i32", "i32"),
    ("i64", "i64"),
    ("f32", "f32"),
    ("f64", "f64"),
    ("F16", "element::F16"),
    ("Bf16", "element::Bf16"),
    ("F8E4M3", "element::F8E4M3"),
    ("F8E5M2", "element::F8E5M2"),
];

/// Architectures that are known to assemble. PTX for one runs on all later ones.
pub const ARCHS: &[&str] = &["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];

/// The name in `known` that is nearest to `word`, if one is near.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let begins = |k: &&str| {
        let k = k.to_lowercase();
        lower.len() > 1 && (k.starts_with(&lower) || lower.starts_with(&k))
    };
    let mut beginnings = known.clone().filter(begins);
    if let Some(k) = beginnings.next() {
        return Some(k);
    }
    known
        .map(|k| (distance(&word.to_lowercase(), &k.to_lowercase()), k))
        .filter(|(d, k)| *d <= k.len().div_ceil(3))
        .min()
        .map(|(_, k)| k)
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (diagonal + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}

/// "a, b and c".
pub fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|n| format!("`{n}`")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_found_and_a_far_one_is_not() {
        let transports = || TRANSPORTS.iter().map(|t| t.name);
        assert_eq!(nearest("Nvlink", transports()), Some("Nvl"));
        assert_eq!(nearest("nvl", transports()), Some("Nvl"));
        assert_eq!(nearest("shmem", transports()), Some("Shm"));
        assert_eq!(nearest("Smoke", transports()), None);
        assert_eq!(nearest("Shn", transports()), Some("Shm"));
        assert_eq!(nearest("all2all", SCHEDULES.iter().map(|s| s.name)), Some("all_to_all"));
        assert_eq!(nearest("bf16", ELEMENTS.iter().map(|e| e.0)), Some("Bf16"));
        assert_eq!(nearest("sm90", ARCHS.iter().copied()), Some("sm_90"));
        assert_eq!(nearest("sm_9", ARCHS.iter().copied()), Some("sm_90"));
        assert_eq!(nearest("", transports()), None);
    }

    #[test]
    fn distance_counts_edits() {
        for (a, b, edits) in
            [("", "", 0), ("a", "", 1), ("ab", "ba", 2), ("kitten", "sitting", 3), ("größe", "grösse", 2)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (edits, edits), "{a} {b}");
        }
    }

    #[test]
    fn lists_read_as_people_write_them() {
        assert_eq!(list([].into_iter()), "");
        assert_eq!(list(["a"].into_iter()), "`a`");
        assert_eq!(list(["a", "b", "c"].into_iter()), "`a`, `b` and `c`");
    }

    #[test]
    fn every_element_type_is_the_devices() {
        use fusewire_device::element::*;
        let names = [
            u8::NAME,
            u16::NAME,
            u32::NAME,
            u64::NAME,
            i8::NAME,
            i16::NAME,
            i32::NAME,
            i64::NAME,
            f32::NAME,
            f64::NAME,
            F16::NAME,
            Bf16::NAME,
            F8E4M3::NAME,
            F8E5M2::NAME,
        ];
        assert_eq!(ELEMENTS.iter().map(|e| e.0).collect::<Vec<_>>(), names);
    }
}
