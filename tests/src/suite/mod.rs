//! The cases, by what they are about.

mod agreement;
mod alike;
mod collectives;
mod copying;
mod domains;
mod faults;
mod flagged;
mod folds;
mod foreign;
mod graphs;
mod hooks;
mod in_place;
pub mod matrix;
mod misuse;
mod multi_peer;
mod offsets;
mod options;
mod peers;
pub mod processes;
mod random;
mod results;
mod rows;
mod rows_in_place;
mod schedules;
mod shared;
mod structs;
mod support;
mod symmetric;
mod teams;
mod together;
mod tuning;
mod window_faults;
mod windows;

use crate::{Case, Subject};

macro_rules! list {
    ([] $($group:ident { $($case:ident: $ranks:expr,)* })*) => {
        /// Every case for a transport; those in which a rank's process dies come last.
        pub fn cases<X: Subject>() -> Vec<Case<X>> {
            let mut all = vec![$($(
                Case { name: concat!(stringify!($group), "::", stringify!($case)), ranks: $ranks, body: $group::$case::<X> },
            )*)*];
            all.extend(processes::cases());
            all
        }
    };
}

crate::for_each_case! { {list} }
