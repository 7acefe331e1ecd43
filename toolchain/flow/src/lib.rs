//! Checks the order of memory operations over the control flow of PTX: what no machine at hand can show, since CPUs and GPUs keep more
//! order than they must.
//!
//! [`wrong`] follows every path of an entry through small automata, one rule for each protocol: payload before barrier, barrier before
//! release, release before flag; no global memory before `griddepcontrol.wait`; words that are polled are acquired; lines are stored by
//! whole warps. Instructions are told apart by where their addresses come from: offsets in the entry's first parameter ([`Roots`]).
//!
//! Paths are followed without regard to values, but for predicates that are set to constants alone. So a rule may find fault with a path
//! that is never taken; it overlooks none that is, as far as addresses can be told.

mod flow;
mod parse;
mod rules;

pub use flow::{Flow, Roots};
pub use parse::entries;
pub use rules::{Protocol, wrong, wrong_in_place};

#[cfg(test)]
mod tests;
