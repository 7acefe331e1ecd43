//! What a checked run had and gave, as files: `bench/peers/against_torch.py` computes the same from them.

use fusewire::prelude::*;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where to.
#[derive(clap::Args, Clone, Debug)]
pub struct Save {
    /// Write each rank's inputs and outputs of the fewest rows into this folder, which holds one run, as `against_torch.py` reads them.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
}

impl Save {
    /// What a rank of a run over these numbers of rows saves. Makes the folder, and empties the rank's list.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn run(&self, rows: &[usize], rank: usize, ranks: usize) -> fusewire::Result<Option<Saved>> {
        let (Some(folder), Some(&rows)) = (&self.save, rows.iter().min()) else { return Ok(None) };
        let index = folder.join(format!("rank-{rank}.jsonl"));
        fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
        let index = File::create(&index).map_err(|e| failed(&index, e))?;
        Ok(Some(Saved { folder: folder.clone(), index, rows, rank, ranks }))
    }
}

/// A rank's files: one for each array, little-endian, and a list of them with a line of JSON for each.
#[derive(Debug)]
pub struct Saved {
    folder: PathBuf,
    index: File,
    rows: usize,
    rank: usize,
    ranks: usize,
}

impl Saved {
    /// Itself, if a run of so many rows is the one to save.
    pub fn of(&self, rows: usize) -> Option<&Self> {
        (rows == self.rows).then_some(self)
    }

    /// Writes an array of a case, whose rows have `cols` elements.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn array<T: Saves>(&self, case: &str, name: &str, cols: usize, values: &[T]) -> fusewire::Result<()> {
        let file = format!("{case}.{name}.{}", self.rank);
        let path = self.folder.join(&file);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
        fs::write(&path, bytes).map_err(|e| failed(&path, e))?;
        let (rank, ranks, rows, dtype) = (self.rank, self.ranks, values.len() / cols, T::DTYPE);
        let line = format_args!(
            "{{\"case\":{case:?},\"name\":{name:?},\"dtype\":{dtype:?},\"shape\":[{rows},{cols}],\"rank\":{rank},\
             \"ranks\":{ranks},\"file\":{file:?}}}"
        );
        writeln!(&self.index, "{line}").map_err(|e| failed(&self.folder, e))
    }
}

/// Elements that torch has as well.
pub trait Saves: Copy {
    /// Torch's name for them.
    const DTYPE: &'static str;
    /// Little-endian.
    fn bytes(self) -> impl IntoIterator<Item = u8>;
}

macro_rules! saves {
    ($($t:ty: $dtype:literal;)*) => {$(
        impl Saves for $t {
            const DTYPE: &'static str = $dtype;
            fn bytes(self) -> impl IntoIterator<Item = u8> {
                self.to_bits().to_le_bytes()
            }
        }
    )*};
}
saves! {
    f32: "float32";
    Bf16: "bfloat16";
    F8E4M3: "float8_e4m3fn";
}

fn failed(path: &Path, error: io::Error) -> fusewire::Error {
    let what = format!("writing {}", path.display());
    fusewire::world::Error::fabric(what, error, "give a folder that can be written").into()
}
