//! Bit fields of commands, and a writer that refuses what does not fit.

use crate::error::misuse;
use fusewire_nic::Result;

/// A field of a command or of an answer: big-endian, its highest bit first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// As `mlx5_ifc.h` has it.
    pub name: &'static str,
    /// Bits before it.
    pub at: u32,
    /// Its width.
    pub bits: u32,
}

impl Field {
    /// A field within one 32-bit word, or of whole words.
    pub const fn new(name: &'static str, at: u32, bits: u32) -> Field {
        let (within, whole) = (at % 32 + bits <= 32, at.is_multiple_of(32) && bits == 64);
        assert!(bits > 0 && (within || whole), "a field crosses a word");
        Field { name, at, bits }
    }

    /// The same field of a structure that begins `base` bits further on.
    pub const fn of(self, base: u32) -> Field {
        Field::new(self.name, self.at + base, self.bits)
    }

    const fn most(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Its value in `bytes`, if they are long enough.
    pub fn get(self, bytes: &[u8]) -> Option<u64> {
        let first = (self.at / 32 * 4) as usize;
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let high = u64::from(word(first)?);
        if self.bits == 64 {
            return Some(high << 32 | u64::from(word(first + 4)?));
        }
        Some(high >> (32 - self.at % 32 - self.bits) & self.most())
    }

    fn set(self, bytes: &mut [u8], value: u64) -> Option<()> {
        let first = (self.at / 32 * 4) as usize;
        if self.bits == 64 {
            bytes.get_mut(first..first + 8)?.copy_from_slice(&value.to_be_bytes());
            return Some(());
        }
        let shift = 32 - self.at % 32 - self.bits;
        let place: &mut [u8; 4] = bytes.get_mut(first..first + 4)?.try_into().ok()?;
        let others = u32::from_be_bytes(*place) & !((self.most() << shift) as u32);
        *place = (others | (value << shift) as u32).to_be_bytes();
        Some(())
    }
}

/// A command for the firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its name in the manual.
    pub name: &'static str,
    /// What is sent.
    pub bytes: Vec<u8>,
    /// Bytes of the answer.
    pub answer: usize,
}

impl Command {
    /// A command of `bytes` bytes with these fields set and all others 0.
    ///
    /// # Errors
    /// [`fusewire_nic::Error::Misuse`] if a value is wider than its field.
    pub fn new(name: &'static str, bytes: usize, answer: usize, fields: &[(Field, u64)]) -> Result<Command> {
        let mut command = Command { name, bytes: vec![0; bytes], answer };
        for (field, value) in fields {
            let fits = *value <= field.most() && field.set(&mut command.bytes, *value).is_some();
            if !fits {
                return Err(misuse(format!(
                    "{name}: {value:#x} does not fit in `{}`, which has {} bits",
                    field.name, field.bits
                )));
            }
        }
        Ok(command)
    }

    /// Puts bytes in at a byte's offset, for what is no number.
    pub fn with(mut self, at: u32, bytes: &[u8]) -> Command {
        self.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
        self
    }
}
