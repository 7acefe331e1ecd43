//! What is timed, as nccl-tests has it.

use crate::measure::Shape;

/// An operation. Rates and bytes are of `n` ranks, for each byte of the size: the larger of a rank's input and output.
#[derive(Debug)]
pub struct Operation {
    pub name: &'static str,
    /// Whether ranks' contributions are added up.
    pub folds: bool,
    /// Whether it has a root.
    pub rooted: bool,
    /// Whether only the root gets something.
    pub to_root: bool,
    /// Whether it runs in place.
    pub in_place: bool,
    /// Whether the input has a chunk for every rank, and the output.
    pub of_every_rank: [bool; 2],
    /// What nccl-tests multiplies the rate with, so that it compares with a link's.
    pub bus: fn(f64) -> f64,
    /// What the rank sends that sends most, in one step.
    pub wire: fn(f64) -> f64,
}

/// All of them.
pub static OPERATIONS: [Operation; 9] = [
    Operation { of_every_rank: [false, true], bus: others, wire: others, ..Operation::named("all_gather") },
    Operation { rooted: true, wire: |n| n - 1.0, ..Operation::named("broadcast") },
    Operation {
        rooted: true,
        to_root: true,
        of_every_rank: [false, true],
        bus: others,
        wire: |n| 1.0 / n,
        ..Operation::named("gather")
    },
    Operation {
        rooted: true,
        of_every_rank: [true, false],
        bus: others,
        wire: others,
        ..Operation::named("scatter")
    },
    Operation { folds: true, rooted: true, to_root: true, ..Operation::named("reduce") },
    Operation {
        folds: true,
        of_every_rank: [true, false],
        bus: others,
        wire: others,
        ..Operation::named("reduce_scatter")
    },
    Operation { folds: true, bus: in_two_steps, wire: |n| n - 1.0, ..Operation::named("all_reduce") },
    Operation {
        in_place: false,
        of_every_rank: [true, true],
        bus: others,
        wire: others,
        ..Operation::named("all_to_all")
    },
    Operation { in_place: false, ..Operation::named("sendrecv") },
];

/// All parts but a rank's own.
fn others(n: f64) -> f64 {
    (n - 1.0) / n
}

/// Parts to all, then what was folded of them.
pub fn in_two_steps(n: f64) -> f64 {
    2.0 * others(n)
}

impl Operation {
    /// One chunk in, one out, and one sent.
    const fn named(name: &'static str) -> Self {
        let (folds, rooted, to_root, in_place) = (false, false, false, true);
        Operation {
            name,
            folds,
            rooted,
            to_root,
            in_place,
            of_every_rank: [false; 2],
            bus: |_| 1.0,
            wire: |_| 1.0,
        }
    }

    /// The one of that name.
    pub fn parse(name: &str) -> Result<&'static Operation, String> {
        OPERATIONS.iter().find(|operation| operation.name == name).ok_or_else(|| {
            format!(
                "there is no operation `{name}`; there are {}",
                OPERATIONS.each_ref().map(|o| o.name).join(", ")
            )
        })
    }

    /// How many elements of 2 bytes are where, of a size in bytes.
    pub fn shape(&self, bytes: usize, ranks: usize) -> Result<Shape, String> {
        let all = bytes / size_of::<fusewire::device::prelude::Bf16>();
        let chunk = if self.of_every_rank == [false; 2] { all } else { all / ranks };
        if chunk == 0 {
            return Err(format!(
                "{} of {bytes} bytes over {ranks} ranks: each chunk has at least 2 bytes",
                self.name
            ));
        }
        let [input, output] = self.of_every_rank.map(|every| if every { chunk * ranks } else { chunk });
        Ok(Shape { input, output, chunk })
    }

    /// In place, the chunks of the buffer before what `rank` sends, and before what it gets.
    pub fn before(&self, rank: usize, root: usize) -> [usize; 2] {
        match (self.name, rank == root) {
            ("all_gather", _) | ("gather", true) => [rank, 0],
            ("reduce_scatter", _) | ("scatter", true) => [0, rank],
            _ => [0; 2],
        }
    }
}
