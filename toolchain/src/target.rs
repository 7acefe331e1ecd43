//! GPU architectures and PTX versions.

use std::{fmt, str::FromStr};

/// A GPU architecture as PTX names it: `sm_90`, `sm_90a`, `sm_100f`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    number: u32,
    suffix: Option<char>,
}

impl Arch {
    /// V100, and the lowest this project takes.
    pub const SM_70: Arch = Arch::plain(70);
    /// A100.
    pub const SM_80: Arch = Arch::plain(80);
    /// H100, H200.
    pub const SM_90: Arch = Arch::plain(90);
    /// B100, B200.
    pub const SM_100: Arch = Arch::plain(100);
    /// GeForce RTX 50 series and RTX PRO Blackwell.
    pub const SM_120: Arch = Arch::plain(120);

    const fn plain(number: u32) -> Arch {
        Arch { number, suffix: None }
    }

    /// The architecture of compute capability `major.minor`, such as 9.0 for `sm_90`.
    pub fn from_capability(major: u32, minor: u32) -> Result<Arch, ParseArchError> {
        format!("sm_{major}{minor}").parse()
    }

    /// The number after `sm_`: ten times the compute capability.
    pub fn number(self) -> u32 {
        self.number
    }

    /// `a` (this architecture only) or `f` (its family), where given.
    pub fn suffix(self) -> Option<char> {
        self.suffix
    }

    /// The PTX version taken when none is asked for: 8.6 (CUDA 12.7), or the first one that knows the architecture.
    pub fn default_ptx(self) -> u32 {
        let family = if self.suffix == Some('f') { 88 } else { 86 };
        family.max(match self.number {
            120 => 87,
            88 | 110 => 90,
            103 | 121 => 88,
            _ => 86,
        })
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.number)?;
        self.suffix.map_or(Ok(()), |suffix| write!(f, "{suffix}"))
    }
}

/// A text that does not name a GPU architecture this project takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a GPU architecture: write `sm_` and a number from 70 to 121, such as `sm_90`, `sm_90a` or `sm_100f`"
)]
pub struct ParseArchError {
    text: String,
}

impl FromStr for Arch {
    type Err = ParseArchError;

    fn from_str(text: &str) -> Result<Arch, ParseArchError> {
        let error = || ParseArchError { text: text.to_owned() };
        let rest = text.strip_prefix("sm_").ok_or_else(error)?;
        let digits = rest.trim_end_matches(['a', 'f']);
        let suffix = match &rest[digits.len()..] {
            "" => None,
            "a" => Some('a'),
            "f" => Some('f'),
            _ => return Err(error()),
        };
        // `parse` alone would take a sign and leading zeros.
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) || digits.starts_with('0') {
            return Err(error());
        }
        let number = digits.parse().map_err(|_| error())?;
        let known = (70..=121).contains(&number);
        let suffixed = match suffix {
            Some('a') => number >= 90,
            Some(_) => number >= 100,
            None => true,
        };
        if known && suffixed { Ok(Arch { number, suffix }) } else { Err(error()) }
    }
}

/// What PTX is made for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The architecture the PTX needs at least (exactly, with a suffix).
    pub arch: Arch,
    /// The PTX version times ten: 86 for `.version 8.6`. The driver must know it.
    pub ptx: u32,
    /// Whether the PTX carries `.loc` lines, for profilers and debuggers. Costs nothing when it runs.
    pub line_info: bool,
}

impl Target {
    /// `arch` with its default PTX version and no line information.
    pub fn new(arch: Arch) -> Target {
        Target { arch, ptx: arch.default_ptx(), line_info: false }
    }

    /// The same target with or without line information.
    pub fn with_line_info(self, line_info: bool) -> Target {
        Target { line_info, ..self }
    }

    /// The same target at PTX version `ptx` (86 for 8.6).
    pub fn with_ptx(self, ptx: u32) -> Target {
        Target { ptx, ..self }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ptx{}{}", self.arch, self.ptx, if self.line_info { " with line info" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arch_reads_what_it_writes() {
        for text in ["sm_70", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_121a"] {
            assert_eq!(text.parse::<Arch>().unwrap().to_string(), text);
        }
        assert_eq!(Arch::from_capability(9, 0).unwrap(), Arch::SM_90);
        assert_eq!(Arch::from_capability(12, 0).unwrap(), Arch::SM_120);
    }

    #[test]
    fn arch_refuses_what_is_none() {
        for text in
            ["", "90", "sm_", "sm_60", "sm_122", "sm_80a", "sm_90f", "sm_90aa", "sm_+90", "sm_090", "SM_90"]
        {
            let error = text.parse::<Arch>().unwrap_err().to_string();
            assert!(error.contains("sm_90a"), "{error}");
        }
    }

    #[test]
    fn ptx_version_knows_the_architecture() {
        assert_eq!(Arch::SM_80.default_ptx(), 86);
        assert_eq!(Arch::SM_120.default_ptx(), 87);
        assert_eq!("sm_121".parse::<Arch>().unwrap().default_ptx(), 88);
        assert_eq!("sm_100f".parse::<Arch>().unwrap().default_ptx(), 88);
    }
}
