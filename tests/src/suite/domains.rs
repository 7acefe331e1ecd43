//! Schedules by domains of a mesh, of every size that domains of the world can have.

use super::folds::{All, What};
use super::support::{misuse, works};
use super::{collectives, folds, matrix};
use crate::check::says;
use crate::kernels::folds::{averaged, summed};
use crate::run::Ground;
use crate::{AllReduceOf, Outcome, Rank, Stop, Subject};
use fusewire::device::prelude::Bf16;
use fusewire::{LaunchOptions, Protocol};
use std::iter;

fn by_domains() -> LaunchOptions {
    LaunchOptions::default().protocol(Protocol::Hierarchical)
}

/// Runs `body` on a mesh of each size of domains.
fn of_every_size<X: Subject>(rank: &Rank<X>, body: impl Fn(&Ground<X>) -> Outcome) -> Outcome {
    let ranks = rank.size();
    let sizes = (1..).map(|shift| 1 << shift).take_while(|each| 2 * each <= ranks);
    let sizes: Vec<usize> = sizes.filter(|each| ranks.is_multiple_of(*each)).collect();
    for each in &sizes {
        let Some(ground) = rank.in_domains(*each)? else {
            return Err(Stop::LeftOut(format!("{} has no domains", X::NAME)));
        };
        body(&ground)?;
        rank.world.barrier()?;
    }
    match sizes.is_empty() {
        true => Err(Stop::LeftOut(format!("no domains of {ranks} ranks are aligned"))),
        false => Ok(()),
    }
}

/// The bits are those of the tree over all ranks: of every type and length, late, replayed, and beside other protocols on the same channels.
pub fn sums<X: Subject>(rank: &Rank<X>) -> Outcome {
    of_every_size(rank, |ground| {
        matrix::sums_by(rank, ground, &[None, Some(Protocol::TwoShot), Some(Protocol::Hierarchical)])
    })
}

/// A fold that tells every order apart, around packs and of many times the staging.
pub fn chained<X: Subject>(rank: &Rank<X>) -> Outcome {
    of_every_size(rank, |ground| {
        let all = All::new(&ground.transport)?;
        let long = 5 * ground.window() / size_of::<u32>() + 7;
        for chunk in [0, 1, 3, 16, 95, 1001, long] {
            for options in [by_domains(), by_domains().channels(1).chunk(256), by_domains().channels(2)] {
                folds::chained(rank, ground, &all, What::AllReduce, chunk, &options)?;
                folds::chained(rank, ground, &all, What::ReduceScatter, chunk, &options)?;
                for root in 0..rank.size() {
                    folds::chained(rank, ground, &all, What::Reduce(root), chunk, &options)?;
                }
            }
        }
        Ok(())
    })
}

/// Chunks, and parts of a root's, that cross once and are passed on: every element is produced once and taken once by each rank.
pub fn gathered<X: Subject>(rank: &Rank<X>) -> Outcome {
    of_every_size(rank, |ground| {
        let all = collectives::All::new(&ground.transport)?;
        let long = 5 * ground.window() / size_of::<u32>() + 7;
        for chunk in [0, 1, 3, 16, 95, 1001, long] {
            for options in [by_domains(), by_domains().channels(1).chunk(256), by_domains().channels(2)] {
                let roots = (0..rank.size()).map(collectives::What::Broadcast);
                for what in iter::once(collectives::What::AllGather).chain(roots) {
                    collectives::chained(rank, ground, &all, what, chunk, &options)?;
                }
            }
        }
        Ok(())
    })
}

/// What cannot go by domains says why, and leaves nothing behind.
pub fn refused<X: Subject>(rank: &Rank<X>) -> Outcome {
    let asked = |ground: &Ground<X>, words: &[&str]| -> Outcome {
        let sums = AllReduceOf::<summed::Hooks<Bf16>>::all_reduce(&ground.transport)?;
        let (input, mut output) = (ground.device.buffer(8)?, ground.device.buffer(8)?);
        let args = summed::Launch { input: input.view(), output: output.view_mut() };
        says(misuse(sums.launch_with(&ground.stream, args, &by_domains())), words);
        works(rank, ground)
    };
    let ground = rank.small()?;
    if ground.in_domains() {
        let means = AllReduceOf::<averaged::Hooks>::all_reduce(&ground.transport)?;
        let (input, mut output) = (ground.device.buffer(8)?, ground.device.buffer(8)?);
        let args = averaged::Launch { input: input.view(), output: output.view_mut(), scale: 1.0 };
        says(
            misuse(means.launch_with(&ground.stream, args, &by_domains())),
            &["Hierarchical", "fold by a tree"],
        );
        works(rank, &ground)?;
    } else {
        // Of a mesh why its domains are not aligned, of others that they are none.
        asked(&ground, &["domains"])?;
    }
    // All ranks in one.
    if let Some(whole) = rank.in_domains(rank.size())? {
        asked(&whole, &["two domains or more", "ranks are in one domain"])?;
    }
    Ok(())
}
