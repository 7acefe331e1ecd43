//! NVIDIA's assembler, as a check of PTX on machines without a GPU.
//!
//! It is not needed to run anything (the driver assembles PTX itself); tests and `cargo fusewire ptx` use it to prove
//! that PTX assembles and to count registers and spills.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    cache::{self, Cache},
    command,
    error::{Attempt, Error},
    target::Arch,
    trust,
};

/// The Python package that ships ptxas, at the release of CUDA that this project is tested with, and what its wheels are: for x86-64 and
/// for 64-bit Arm. pip takes no other.
const WHEEL: &str = "nvidia-cuda-nvcc==13.0.88 \
    --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03 \
    --hash=sha256:c7ff28f86a24effdc6c034fa15230c549a273e4771b10a7fec14996f8cf3307f";

/// The first CUDA whose ptxas knows every PTX version that [`Arch::default_ptx`] gives for GPUs up to `sm_121`.
const OLDEST: (u32, u32) = (12, 9);

/// ptxas on this machine.
#[derive(Clone, Debug)]
pub struct Ptxas {
    path: PathBuf,
    release: (u32, u32),
}

/// Why PTX was not checked or did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PtxasError {
    /// ptxas refuses the PTX.
    #[error("ptxas refuses the PTX for {arch}:\n{messages}")]
    Refused {
        /// For which architecture.
        arch: Arch,
        /// What ptxas said.
        messages: String,
    },
    /// ptxas could not be run.
    #[error("ptxas could not be run: {0}")]
    Run(#[from] Error),
}

/// What ptxas made of PTX.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PtxasReport {
    /// The kernels.
    pub kernels: Vec<KernelReport>,
    /// Functions that stayed functions: what kernels call and was not inlined.
    pub functions: Vec<FunctionReport>,
    /// Warnings, each one line.
    pub warnings: Vec<String>,
}

/// What one kernel takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelReport {
    /// Its name.
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Named barriers.
    pub barriers: u32,
    /// Statically allocated shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Local memory of the kernel's own frame for a thread, in bytes.
    pub stack_bytes: u32,
    /// Bytes of spill stores, counted in the code.
    pub spill_stores: u32,
    /// Bytes of spill loads, counted in the code.
    pub spill_loads: u32,
}

/// What one function that was not inlined takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionReport {
    /// Its name.
    pub name: String,
    /// Local memory of its frame for a thread, in bytes.
    pub stack_bytes: u32,
    /// Bytes of spill stores, counted in the code.
    pub spill_stores: u32,
    /// Bytes of spill loads, counted in the code.
    pub spill_loads: u32,
}

impl PtxasReport {
    /// The kernel `name`.
    pub fn kernel(&self, name: &str) -> Option<&KernelReport> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// Whether any kernel or function spills registers.
    pub fn spills(&self) -> bool {
        self.kernels.iter().any(|kernel| kernel.spill_stores + kernel.spill_loads > 0)
            || self.functions.iter().any(|function| function.spill_stores + function.spill_loads > 0)
    }
}

impl Ptxas {
    /// ptxas named by `FUSEWIRE_PTXAS`, on `PATH`, in `$CUDA_HOME/bin` or `/usr/local/cuda/bin`, or in the cache; the
    /// first that is new enough. Never downloads.
    ///
    /// # Errors
    /// [`Error::NoPtxas`] with what was looked at.
    pub fn find() -> Result<Ptxas, Error> {
        let cache = Cache::open()?;
        let mut tried = Vec::new();
        look(&cache, &mut tried).ok_or(Error::NoPtxas { tried })
    }

    /// As [`Ptxas::find`], or the one of the Python package `nvidia-cuda-nvcc`, put into the cache with pip.
    ///
    /// # Errors
    /// [`Error::NoPtxas`] with what was looked at, pip's failure last.
    pub fn find_or_install() -> Result<Ptxas, Error> {
        let cache = Cache::open()?;
        if let Some(found) = look(&cache, &mut Vec::new()) {
            return Ok(found);
        }
        let lock = cache.lock("ptxas", |_| ());
        let _lock = lock.map_err(Error::io("locking the cache", cache.lock_path("ptxas")))?;
        let mut tried = Vec::new();
        if let Some(found) = look(&cache, &mut tried) {
            return Ok(found);
        }
        match install(&cache) {
            Ok(found) => Ok(found),
            Err(error) => {
                tried.push(Attempt::new(format!("Python package {WHEEL}"), error));
                Err(Error::NoPtxas { tried })
            }
        }
    }

    /// The executable.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor release of the CUDA it belongs to.
    pub fn release(&self) -> (u32, u32) {
        self.release
    }

    /// Assembles `ptx` for `arch` and reports what it takes; the code itself is thrown away.
    ///
    /// # Errors
    /// [`PtxasError::Refused`] with ptxas's own words, which name lines of `ptx`.
    pub fn check(&self, ptx: &str, arch: Arch) -> Result<PtxasReport, PtxasError> {
        let cache = Cache::open()?;
        let scratch = cache.scratch().map_err(Error::io("making a folder in the cache", cache::dir()))?;
        let (source, out) = (scratch.path().join("kernel.ptx"), scratch.path().join("kernel.cubin"));
        fs::write(&source, ptx).map_err(Error::io("writing", &source))?;
        let mut command = Command::new(&self.path);
        command.arg("-v").arg(format!("-arch={arch}")).arg("-o").arg(out).arg("kernel.ptx");
        let output = command.current_dir(scratch.path()).stdin(Stdio::null()).output();
        let output = output.map_err(Error::io("running ptxas", &self.path))?;
        // Errors come on either stream, depending on the release.
        let mut text = String::from_utf8_lossy(&output.stderr).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stdout));
        if output.status.success() {
            Ok(parse_report(&text))
        } else {
            let problems: Vec<&str> = text.lines().filter(|line| !line.starts_with("ptxas info")).collect();
            Err(PtxasError::Refused { arch, messages: problems.join("\n") })
        }
    }
}

fn look(cache: &Cache, tried: &mut Vec<Attempt>) -> Option<Ptxas> {
    let name = format!("ptxas{}", env::consts::EXE_SUFFIX);
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let mut places: Vec<PathBuf> = Vec::new();
    places.extend(set("FUSEWIRE_PTXAS").map(PathBuf::from));
    places.extend(env::split_paths(&set("PATH").unwrap_or_default()).map(|folder| folder.join(&name)));
    let roots = [set("CUDA_HOME"), set("CUDA_PATH"), Some("/usr/local/cuda".into())];
    places.extend(roots.into_iter().flatten().map(|root| Path::new(&root).join("bin").join(&name)));
    let kept = cache::entries(&cache.ptxas()).into_iter().filter(|folder| trust::is_whole(folder));
    places.extend(kept.map(|folder| folder.join(&name)));
    for path in places.into_iter().filter(|path| path.is_file()) {
        match probe(&path) {
            Ok(found) => return Some(found),
            Err(why) => tried.push(Attempt::new(path.display().to_string(), why)),
        }
    }
    tried.push(Attempt::new("PATH, CUDA_HOME, /usr/local/cuda and the cache", "no ptxas that does"));
    None
}

fn probe(path: &Path) -> Result<Ptxas, String> {
    let text = command::text("asking for its version", Command::new(path).arg("--version"));
    let text = text.map_err(|error| error.to_string())?;
    let release = parse_release(&text).ok_or("`--version` does not tell a release")?;
    if release < OLDEST {
        let (major, minor) = OLDEST;
        return Err(format!("it is of CUDA {}.{}; {major}.{minor} or later is needed", release.0, release.1));
    }
    Ok(Ptxas { path: path.to_owned(), release })
}

fn install(cache: &Cache) -> Result<Ptxas, Error> {
    let scratch = cache.scratch().map_err(Error::io("making a folder in the cache", cache.ptxas()))?;
    let tree = scratch.path().join("wheel");
    // ptxas stands alone: what the package depends on is for nvcc.
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--no-deps", "--no-input", "--disable-pip-version-check", "--quiet"]);
    let requirements = scratch.path().join("requirements.txt");
    fs::write(&requirements, WHEEL).map_err(Error::io("writing", &requirements))?;
    pip.args(["--require-hashes", "--only-binary=:all:", "-r"]).arg(requirements).arg("--target").arg(&tree);
    command::run("installing ptxas into the cache", &mut pip)?;
    let name = format!("ptxas{}", env::consts::EXE_SUFFIX);
    let found = find_file(&tree, &name).ok_or_else(|| Error::Command {
        step: "installing ptxas into the cache".to_owned(),
        program: "pip".to_owned(),
        why: format!("{WHEEL} holds no {name}"),
    })?;
    let made = scratch.path().join("ptxas");
    fs::create_dir(&made).map_err(Error::io("making a folder", &made))?;
    fs::rename(&found, made.join(&name)).map_err(Error::io("moving ptxas", &found))?;
    if let Some(license) = find_file(&tree, "License.txt") {
        fs::rename(&license, made.join("License.txt")).map_err(Error::io("moving the licence", &license))?;
    }
    let probed = probe(&made.join(&name)).map_err(|why| Error::Command {
        step: "trying the installed ptxas".to_owned(),
        program: name.clone(),
        why,
    })?;
    let to = cache.ptxas().join(format!("{}.{}", probed.release.0, probed.release.1));
    cache::publish(&made, &to).map_err(Error::io("putting ptxas into the cache", &to))?;
    Ok(Ptxas { path: to.join(&name), ..probed })
}

fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    cache::entries(folder).into_iter().find_map(|path| match path.is_dir() {
        true => find_file(&path, name),
        false => path.file_name().is_some_and(|file| file == name).then_some(path),
    })
}

/// `13.0` out of `Cuda compilation tools, release 13.0, V13.0.88`.
fn parse_release(text: &str) -> Option<(u32, u32)> {
    let rest = text.split("release ").nth(1)?;
    let (major, minor) = rest.split(',').next()?.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// What `-v` says.
fn parse_report(text: &str) -> PtxasReport {
    let mut report = PtxasReport::default();
    // The function whose properties come next; ptxas gives them on a line of their own.
    let mut function = String::new();
    for line in text.lines() {
        let info = line.split_once(':').map_or("", |(_, rest)| rest.trim());
        if line.starts_with("ptxas warning") || line.contains("; warning") {
            report.warnings.push(info.to_owned());
        } else if let Some(rest) = info.strip_prefix("Compiling entry function ") {
            let name = rest.split('\'').nth(1).unwrap_or_default().to_owned();
            report.kernels.push(KernelReport { name, ..KernelReport::default() });
        } else if let Some(name) = info.strip_prefix("Function properties for ") {
            function = name.trim().to_owned();
        } else if line.contains("bytes stack frame") {
            let stack_bytes = count(line, "bytes stack frame");
            let spill_stores = count(line, "bytes spill stores");
            let spill_loads = count(line, "bytes spill loads");
            let name = std::mem::take(&mut function);
            match report.kernels.iter_mut().find(|kernel| kernel.name == name) {
                Some(kernel) => {
                    *kernel =
                        KernelReport { stack_bytes, spill_stores, spill_loads, ..std::mem::take(kernel) };
                }
                None => {
                    report.functions.push(FunctionReport { name, stack_bytes, spill_stores, spill_loads });
                }
            }
        } else if info.starts_with("Used ")
            && let Some(kernel) = report.kernels.last_mut()
        {
            kernel.registers = count(info, "registers");
            kernel.barriers = count(info, "barriers");
            kernel.shared_bytes = count(info, "bytes smem");
        }
    }
    report
}

/// The number before `unit` in a list such as `Used 32 registers, used 0 barriers, 1024 bytes smem`.
fn count(line: &str, unit: &str) -> u32 {
    line.split([',', ':'])
        .filter_map(|part| part.trim().strip_suffix(unit))
        .find_map(|number| number.split_whitespace().next_back()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
ptxas info    : 722 bytes gmem, 72 bytes cmem[4]
ptxas info    : Compiling entry function 'add' for 'sm_80'
ptxas info    : Function properties for add
    32 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 32 bytes cumulative stack size, 1024 bytes smem, 376 bytes cmem[0]
ptxas info    : Compile time = 19.591 ms
ptxas info    : Function properties for far
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'other' for 'sm_80'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
ptxas warning : Unresolved extern
";

    #[test]
    fn reads_reports() {
        let report = parse_report(REPORT);
        let add = KernelReport {
            name: "add".to_owned(),
            registers: 32,
            barriers: 1,
            shared_bytes: 1024,
            stack_bytes: 32,
            spill_stores: 12,
            spill_loads: 8,
        };
        assert_eq!(report.kernel("add"), Some(&add));
        let other = report.kernel("other").unwrap();
        assert_eq!((other.registers, other.shared_bytes, other.stack_bytes), (8, 0, 0));
        assert_eq!(report.functions.len(), 1);
        assert_eq!(report.functions[0].name, "far");
        assert_eq!(report.warnings, ["Unresolved extern"]);
        assert!(report.spills());
        assert_eq!(parse_report("noise\n: : ,\nUsed 3"), PtxasReport::default());
    }

    #[test]
    fn reads_releases() {
        assert_eq!(parse_release("Cuda compilation tools, release 13.0, V13.0.88\n"), Some((13, 0)));
        assert_eq!(parse_release("ptxas"), None);
    }
}
