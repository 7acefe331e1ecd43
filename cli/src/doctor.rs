//! `cargo fusewire doctor`: what of this machine can be used, and what to do about the rest.

use std::{path::Path, process::ExitCode};

use fusewire_toolchain::{Arch, Toolchain, cache, ptxas::Ptxas};

use crate::{
    cuda_facts::{self, Cuda, Gpu, Reach, Trouble},
    host_facts::{self, Host},
    rdma_facts::{self, Port},
    report::{Finding, State},
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
    let mut findings = vec![device_compiler(), assembler()];
    findings.extend(cuda(&cuda_facts::look()));
    findings.extend(rdma(&ports, &host));
    findings.extend(machine(&host));
    for finding in &findings {
        println!("{finding}");
    }
    let bad = findings.iter().filter(|finding| finding.state == State::Bad).count();
    if bad == 0 {
        println!("\nNothing needed is missing.");
        return Ok(ExitCode::SUCCESS);
    }
    println!("\n{bad} needed but missing: see `!!` above.");
    Ok(ExitCode::FAILURE)
}

fn device_compiler() -> Finding {
    let subject = "device compiler";
    match Toolchain::find() {
        Ok(found) => {
            let folder = cache::dir();
            let size = cache::size(&folder) as f64 / 1e6;
            let text =
                format!("{}\n{}\ncache {} ({size:.0} MB)", found.version(), found.source(), folder.display());
            Finding::good(subject, text)
        }
        Err(error) => Finding::bad(subject, error.to_string(), "cargo fusewire setup"),
    }
}

fn assembler() -> Finding {
    let subject = "ptxas";
    match Ptxas::find() {
        Ok(found) => {
            let (major, minor) = found.release();
            Finding::good(subject, format!("CUDA {major}.{minor}, {}", found.path().display()))
        }
        Err(_) => Finding::absent(
            subject,
            "none of CUDA 12.9 or later; only needed to check PTX without a GPU",
            "cargo fusewire setup --ptxas",
        ),
    }
}

fn cuda(looked: &Result<Cuda, Trouble>) -> Vec<Finding> {
    let subject = "CUDA driver";
    let cuda = match looked {
        Ok(cuda) => cuda,
        Err(trouble @ Trouble::NoLibrary) => {
            let advice = "kernels run on CPU threads here; for GPUs install NVIDIA's driver";
            return vec![Finding::absent(subject, trouble.to_string(), advice)];
        }
        Err(trouble @ Trouble::Driver(_)) => {
            let advice = "in a container, give it the GPUs; else see whether `nvidia-smi` runs, \
                          and load the kernel module or restart after a driver update";
            return vec![Finding::absent(subject, trouble.to_string(), advice)];
        }
    };
    let (major, minor) = cuda.version;
    let text = format!("takes CUDA {major}.{minor}");
    let mut findings = vec![if cuda.version >= OLDEST_DRIVER {
        Finding::good(subject, text)
    } else {
        let advice =
            "it does not take PTX 8.6: update the driver to 565 or later, or ask for an older PTX version";
        Finding::absent(subject, text, advice)
    }];
    if cuda.gpus.is_empty() {
        findings.push(Finding::absent("GPUs", "none", "see CUDA_VISIBLE_DEVICES"));
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
        Finding::absent("GPUs", text, "kernels are made for sm_70 and later: leave older GPUs out")
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
        let advice = "pairs without `rwa` have no native atomics: `Nvl` leaves lines out there, and windows do not map such peers; `nvidia-smi topo -p2p a` says why";
        Finding::absent("GPU to GPU", text, advice)
    }
}

fn rdma(ports: &[Port], host: &Host) -> Vec<Finding> {
    let subject = "RDMA adapters";
    if ports.is_empty() {
        let advice = "transports over the network are not available; on one host none is needed";
        return vec![Finding::absent(subject, "none", advice)];
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
            "no port is ACTIVE: look at the cable, the switch and the subnet manager",
        )
    }];
    if !host.peer_memory {
        let advice =
            "adapters reach GPU memory only by dma-buf (open kernel modules); else `modprobe nvidia-peermem`";
        findings.push(Finding::absent("GPUDirect RDMA", "nvidia_peermem is not loaded", advice));
    }
    findings
}

fn machine(host: &Host) -> Vec<Finding> {
    let gb = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    let memory = host.memory.map(|bytes| format!(", {}", gb(bytes))).unwrap_or_default();
    let mut findings = vec![Finding::good("host", format!("{}, {} cores{memory}", host.system, host.cores))];
    findings.push(match host.shared_memory {
        Some(free) if free >= 256 << 20 => Finding::good("/dev/shm", format!("{} free", gb(free))),
        Some(free) => {
            let advice =
                "ranks on one host share memory there: in a container start it with `--shm-size=1g` or more";
            Finding::absent("/dev/shm", format!("{} free", gb(free)), advice)
        }
        None => {
            Finding::absent("/dev/shm", "none", "mount a tmpfs there: ranks on one host share memory in it")
        }
    });
    findings.push(match host.lockable {
        None => Finding::good("locked memory", "no limit"),
        Some(bytes) => {
            let advice = "registering memory with an adapter locks it: raise `ulimit -l` to unlimited before using RDMA";
            Finding::absent("locked memory", format!("{:.1} MB at most", bytes as f64 / 1e6), advice)
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
        assert!(findings[0].advice.is_some());
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
