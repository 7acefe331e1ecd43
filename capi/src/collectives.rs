//! Kernels that every library has: copies of any type, and reductions of the usual ones.

use fusewire::dynamic::{Kernel, kernels};
use fusewire::prelude::*;

/// Elements as they are; by `u8` those of any type.
#[comm_kernel(
    transports(Shm, Nvl),
    schedules(all_to_all, all_gather, broadcast, gather, scatter, sendrecv),
    elements(u8, u32)
)]
mod copy {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
}

macro_rules! reductions {
    ($($name:ident, $doc:literal, $fold:ident, $acc:ident, $element:ident;)*) => {
        $(
            #[doc = $doc]
            #[comm_kernel(
                transports(Shm, Nvl),
                schedules(all_reduce, reduce_scatter, reduce),
                reduce($fold, $acc)
            )]
            mod $name {
                pub struct Args<'a> {
                    pub input: &'a [$element],
                    pub output: Out<'a, $element>,
                }
            }
        )*

        /// All of them.
        pub(crate) fn kernels() -> Vec<Kernel> {
            kernels!(copy, $($name),*)
        }
    };
}

reductions! {
    sum_f32, "Sums.", sum, f32, f32;
    sum_f16, "Sums, rounded once.", sum, f32, F16;
    sum_bf16, "Sums, rounded once.", sum, f32, Bf16;
    sum_f64, "Sums.", sum, f64, f64;
    sum_i32, "Sums modulo 2^32.", sum, i32, i32;
    sum_i64, "Sums modulo 2^64.", sum, i64, i64;
    average_f32, "Means.", average, f32, f32;
    average_f16, "Means, rounded once.", average, f32, F16;
    average_bf16, "Means, rounded once.", average, f32, Bf16;
    max_f32, "The greatest; NaN if there is one.", max, f32, f32;
    max_f16, "The greatest; NaN if there is one.", max, f32, F16;
    max_bf16, "The greatest; NaN if there is one.", max, f32, Bf16;
    max_i32, "The greatest.", max, i32, i32;
    max_i64, "The greatest.", max, i64, i64;
    min_f32, "The least; NaN if there is one.", min, f32, f32;
    min_f16, "The least; NaN if there is one.", min, f32, F16;
    min_bf16, "The least; NaN if there is one.", min, f32, Bf16;
    min_i32, "The least.", min, i32, i32;
    min_i64, "The least.", min, i64, i64;
}
