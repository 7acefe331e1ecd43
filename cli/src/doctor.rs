//! `cargo fusewire doctor`: what of this machine can be used, and what to do about the rest.

use std::{path::Path, process::ExitCode};

use fusewire_toolchain::{Arch, Toolchain, ptxas::Ptxas};

use crate::{
    cuda_facts::{self, Cuda, Gpu, Reach, Trouble},
    host_facts::{self, Host},
    rdma_facts::{self, Port},
    report::{self, Finding, State},
    toolchain_facts,
};

/// The CUDA version whose driver takes PTX 8.6, which kernels are made for unless told otherwise.
const OLDEST_DRIVER: (u32, u32) = (12, 7);

/// What `doctor` takes.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Looks and prints. Fails only when something is missing that nothing works without.
pub fn run(_args: &Args) -> Result<ExitCode, crate::Error> {
    let host = host_facts::look();
    let ports = rdma_facts::look(Path::new(rdma_facts::CLASS));
    let mut findings = vec![
        toolchain_facts::compiler(&Toolchain::find()),
        toolchain_facts::assembler(Ptxas::find().ok().as_ref()),
        toolchain_facts::cache(),
    ];
    findings.extend(cuda(&cuda_facts::look()));
    findings.extend(rdma(&ports, &host));
    findings.extend(machine(&host));
    let bad = findings.iter().filter(|finding| finding.state == State::Bad).count();
    if bad == 0 {
        report::print(&findings, "Nothing that is needed is missing.");
        return Ok(ExitCode::SUCCESS);
    }
    report::print(&findings, &format!("Needed and missing: {bad}, marked `!!` above."));
    Ok(ExitCode::FAILURE)
}

fn cuda(looked: &Result<Cuda, Trouble>) -> Vec<Finding> {
    let subject = "CUDA driver";
    let expected = "one that takes CUDA 12.7 or later (565, PTX 8.6); without it kernels run on CPU threads";
    let cuda = match looked {
        Ok(cuda) => cuda,
        Err(trouble @ Trouble::NoLibrary) => {
            let action = "install NVIDIA's driver to run kernels on GPUs";
            return vec![Finding::absent(subject, trouble.to_string(), expected, action)];
        }
        Err(trouble @ Trouble::Driver(_)) => {
            let action = "in a container, give it the GPUs; else see whether `nvidia-smi` runs, \
                          and load the kernel module or restart after a driver update";
            return vec![Finding::absent(subject, trouble.to_string(), expected, action)];
        }
    };
    let (major, minor) = cuda.version;
    let text = format!("takes CUDA {major}.{minor}");
    let mut findings = vec![if cuda.version >= OLDEST_DRIVER {
        Finding::good(subject, text)
    } else {
        Finding::absent(subject, text, expected, "update the driver, or ask for an older PTX version")
    }];
    if cuda.gpus.is_empty() {
        let expected = "at least one; without it kernels run on CPU threads";
        findings.push(Finding::absent(
            "GPUs",
            "none",
            expected,
            "see whether CUDA_VISIBLE_DEVICES hides them",
        ));
        return findings;
    }
    findings.push(gpus(&cuda.gpus));
    findings.push(shares(&cuda.gpus));
    if cuda.gpus.len() > 1 {
        findings.push(reaches(&cuda.gpus));
    }
    findings
}

fn gpus(gpus: &[Gpu]) -> Finding {
    let line = |(ordinal, gpu): (usize, &Gpu)| {
        let (major, minor) = gpu.capability;
        let gb = gpu.memory as f64 / 1e9;
        format!("{ordinal}: {}, sm_{major}{minor}, {} SMs, {gb:.0} GB", gpu.name, gpu.multiprocessors)
    };
    let text = gpus.iter().enumerate().map(line).collect::<Vec<_>>().join("\n");
    if gpus.iter().all(|gpu| Arch::from_capability(gpu.capability.0, gpu.capability.1).is_ok()) {
        Finding::good("GPUs", text)
    } else {
        let action = "leave older GPUs out with CUDA_VISIBLE_DEVICES";
        Finding::absent("GPUs", text, "sm_70 or later, which kernels are made for", action)
    }
}

/// How many ranks of what size can share each GPU, and as what.
fn shares(gpus: &[Gpu]) -> Finding {
    let line = |(ordinal, gpu): (usize, &Gpu)| {
        let sizes: Vec<String> =
            gpu.shares.iter().map(|(ranks, each)| format!("{ranks} ranks with {each} SMs each")).collect();
        let sizes = if sizes.is_empty() { "too few SMs to divide".to_owned() } else { sizes.join(", ") };
        let processes = match gpu.mps {
            true => "or processes (MPS serves it)",
            false => "not processes (no MPS: start `nvidia-cuda-mps-control -d`)",
        };
        format!("{ordinal}: {sizes}; threads of one process, {processes}")
    };
    Finding::good("ranks on one GPU", gpus.iter().enumerate().map(line).collect::<Vec<_>>().join("\n"))
}

/// Which GPU reaches which: a table, rows reach columns.
fn reaches(gpus: &[Gpu]) -> Finding {
    let head: String = (0..gpus.len()).map(|to| format!("{to:>4}")).collect();
    let row = |(from, gpu): (usize, &Gpu)| {
        let cell = |reach: &Reach| match reach {
            Reach::Itself => ".",
            Reach::Atomics => "rwa",
            Reach::Memory => "rw",
            Reach::No => "-",
        };
        let cells: String = gpu.reaches.iter().map(|reach| format!("{:>4}", cell(reach))).collect();
        format!("{from:>3}{cells}")
    };
    let rows: Vec<String> = gpus.iter().enumerate().map(row).collect();
    let legend = "rwa: loads, stores and atomics; rw: no atomics; -: not at all";
    let text = format!("{legend}\n   {head}\n{}", rows.join("\n"));
    if gpus.iter().all(|gpu| gpu.reaches.iter().all(|reach| matches!(reach, Reach::Itself | Reach::Atomics)))
    {
        Finding::good("GPU to GPU", text)
    } else {
        let expected = "`rwa` for every pair; without native atomics `Nvl` does not use LL128, and windows do not map the peer";
        Finding::absent("GPU to GPU", text, expected, "ask `nvidia-smi topo -p2p a` for the reason")
    }
}

fn rdma(ports: &[Port], host: &Host) -> Vec<Finding> {
    let subject = "RDMA adapters";
    if ports.is_empty() {
        let expected = "one, for transports between hosts; ranks on one host need none";
        let action = "where there is an adapter, install its driver; in a container, give it /dev/infiniband";
        return vec![Finding::absent(subject, "none", expected, action)];
    }
    let line = |port: &Port| {
        let numa = port.numa.map(|node| format!(", NUMA node {node}")).unwrap_or_default();
        format!("{} port {}: {} {} {}{numa}", port.device, port.number, port.link, port.state, port.rate)
    };
    let text = ports.iter().map(line).collect::<Vec<_>>().join("\n");
    let mut findings = vec![if ports.iter().any(|port| port.state == "ACTIVE") {
        Finding::good(subject, text)
    } else {
        Finding::absent(
            subject,
            text,
            "a port that is ACTIVE; without one there are no transports between hosts",
            "see to the cable, the switch and the subnet manager",
        )
    }];
    if !host.peer_memory {
        let expected = "nvidia_peermem, or dma-buf (open kernel modules), by which adapters reach GPU memory";
        let action = "run `modprobe nvidia-peermem` where the driver has no dma-buf";
        findings.push(Finding::absent("GPUDirect RDMA", "nvidia_peermem is not loaded", expected, action));
    }
    findings
}

fn machine(host: &Host) -> Vec<Finding> {
    let gb = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    let memory = host.memory.map(|bytes| format!(", {}", gb(bytes))).unwrap_or_default();
    let mut findings = vec![Finding::good("host", format!("{}, {} cores{memory}", host.system, host.cores))];
    let expected = "256 MiB free, in which ranks on one host share memory";
    findings.push(match host.shared_memory {
        Some(free) if free >= 256 << 20 => Finding::good("/dev/shm", format!("{} free", gb(free))),
        Some(free) => {
            let action = "free some; start a container with `--shm-size=1g` or more";
            Finding::absent("/dev/shm", format!("{} free", gb(free)), expected, action)
        }
        None => Finding::absent("/dev/shm", "none", expected, "mount a tmpfs there"),
    });
    findings.push(match host.lockable {
        None => Finding::good("locked memory", "no limit"),
        Some(bytes) => {
            let found = format!("{:.1} MB at most", bytes as f64 / 1e6);
            let expected =
                "no limit where RDMA is used: an adapter's memory is locked; nothing else needs it";
            Finding::absent("locked memory", found, expected, "run `ulimit -l unlimited` before the program")
        }
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(reaches: &[Reach]) -> Gpu {
        Gpu {
            name: "H200".to_owned(),
            capability: (9, 0),
            memory: 150 << 30,
            multiprocessors: 132,
            shares: vec![(2, 64), (4, 32)],
            mps: false,
            reaches: reaches.to_vec(),
        }
    }

    #[test]
    fn no_driver_is_no_failure() {
        let findings = cuda(&Err(Trouble::NoLibrary));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].state, State::Absent);
        assert!(findings[0].mend.is_some());
    }

    #[test]
    fn an_old_driver_and_a_cut_pair_are_told() {
        let gpus = vec![gpu(&[Reach::Itself, Reach::No]), gpu(&[Reach::Memory, Reach::Itself])];
        let findings = cuda(&Ok(Cuda { version: (12, 4), gpus }));
        let states: Vec<_> = findings.iter().map(|finding| (finding.subject, finding.state)).collect();
        let expected = [
            ("CUDA driver", State::Absent),
            ("GPUs", State::Good),
            ("ranks on one GPU", State::Good),
            ("GPU to GPU", State::Absent),
        ];
        assert_eq!(states, expected);
        let shares = "1: 2 ranks with 64 SMs each, 4 ranks with 32 SMs each; threads of one process, not processes (no MPS";
        assert!(findings[2].found.contains(shares), "{}", findings[2].found);
        assert!(findings[3].found.contains("  0   .   -\n  1  rw   ."), "{}", findings[2].found);
        assert!(findings[1].found.contains("1: H200, sm_90, 132 SMs, 161 GB"), "{}", findings[1].found);
    }

    #[test]
    fn rdma_needs_an_active_port() {
        let host = host_facts::look();
        assert_eq!(rdma(&[], &host)[0].state, State::Absent);
        let port = |state: &str| Port {
            device: "mlx5_0".to_owned(),
            number: 1,
            link: "InfiniBand".to_owned(),
            state: state.to_owned(),
            rate: "400 Gb/sec (4X NDR)".to_owned(),
            numa: Some(0),
        };
        assert_eq!(rdma(&[port("DOWN")], &host)[0].state, State::Absent);
        assert_eq!(rdma(&[port("DOWN"), port("ACTIVE")], &host)[0].state, State::Good);
    }
}
