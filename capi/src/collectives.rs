//! Kernels that every library has: copies of any type, reductions of the usual ones, and a barrier.

use fusewire::dynamic::{self, kernels};
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

/// The same in one buffer, of which a rank gives its own part.
#[comm_kernel(transports(Shm, Nvl), schedules(all_gather), elements(u8, u32))]
mod copy_in_place {
    pub struct Args<'a, T> {
        pub values: InOut<'a, T>,
    }
}

/// Meets all ranks: ends when every rank's has begun.
#[comm_kernel(transports(Shm, Nvl))]
fn barrier<O: Ops>(kernel: &Kernel<O>) -> Flow {
    kernel.barrier(0)
}

macro_rules! reductions {
    ($($name:ident, $in_place:ident, $doc:literal, $fold:ident, $acc:ident, $element:ident;)*) => {
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

            #[doc = $doc]
            #[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), reduce($fold, $acc))]
            mod $in_place {
                pub struct Args<'a> {
                    pub values: InOut<'a, $element>,
                }
            }
        )*

        /// All of them.
        pub(crate) fn kernels() -> Vec<dynamic::Kernel> {
            kernels!(barrier, copy, copy_in_place, $($name, $in_place),*)
        }
    };
}

reductions! {
    sum_f32, sum_f32_in_place, "Sums.", sum, f32, f32;
    sum_f16, sum_f16_in_place, "Sums, rounded once.", sum, f32, F16;
    sum_bf16, sum_bf16_in_place, "Sums, rounded once.", sum, f32, Bf16;
    sum_f64, sum_f64_in_place, "Sums.", sum, f64, f64;
    sum_i32, sum_i32_in_place, "Sums modulo 2^32.", sum, i32, i32;
    sum_i64, sum_i64_in_place, "Sums modulo 2^64.", sum, i64, i64;
    average_f32, average_f32_in_place, "Means.", average, f32, f32;
    average_f16, average_f16_in_place, "Means, rounded once.", average, f32, F16;
    average_bf16, average_bf16_in_place, "Means, rounded once.", average, f32, Bf16;
    max_f32, max_f32_in_place, "The greatest; NaN if there is one.", max, f32, f32;
    max_f16, max_f16_in_place, "The greatest; NaN if there is one.", max, f32, F16;
    max_bf16, max_bf16_in_place, "The greatest; NaN if there is one.", max, f32, Bf16;
    max_i32, max_i32_in_place, "The greatest.", max, i32, i32;
    max_i64, max_i64_in_place, "The greatest.", max, i64, i64;
    min_f32, min_f32_in_place, "The least; NaN if there is one.", min, f32, f32;
    min_f16, min_f16_in_place, "The least; NaN if there is one.", min, f32, F16;
    min_bf16, min_bf16_in_place, "The least; NaN if there is one.", min, f32, Bf16;
    min_i32, min_i32_in_place, "The least.", min, i32, i32;
    min_i64, min_i64_in_place, "The least.", min, i64, i64;
}
