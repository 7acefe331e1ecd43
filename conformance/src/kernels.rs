//! The kernels, compiled where a transport is tested.

/// Tests of a transport, as a module: see [the crate](crate).
///
/// ```text
/// fusewire_conformance::conformance! {
///     tube: my_crate::Tube,
///     ranks = [1, 2, 3],
///     meet = |world, options| Ok(my_crate::Tube::rendezvous(world, options)?),
///     put = true,
///     get = false,
/// }
/// ```
///
/// `put` and `get` say whether the device half implements those. The transport's path is one that `#[comm_kernel(transports(..))]` takes: that of a
/// crate that the tested one depends on.
#[macro_export]
macro_rules! conformance {
    (
        $(#[$doc:meta])* $name:ident: $($transport:ident)::+,
        ranks = $ranks:expr,
        meet = $meet:expr,
        put = $put:ident,
        get = $get:ident $(,)?
    ) => {
        $(#[$doc])*
        #[allow(missing_docs)]
        pub mod $name {
            #[allow(unused_imports)]
            use super::*;
            use $crate::fusewire::prelude::*;
            use $crate::fusewire::{Options, Result, View, ViewMut, World};
            use $crate::{ArgsOf, Ground};

            /// Hooks that mark what they send and what they take.
            #[comm_kernel(
                transports($($transport)::+),
                schedules(all_to_all, sendrecv, all_gather, broadcast)
            )]
            pub mod marked {
                pub struct Args<'a> {
                    pub input: &'a [u32],
                    pub output: Out<'a, u32>,
                    pub bad: u64,
                }
                pub fn produce(ctx: &Produce, args: &Args) -> u32 {
                    if ctx.index() as u64 == args.bad {
                        panic!("this element is bad");
                    }
                    args.input[ctx.index()] ^ (ctx.rank as u32) << 24
                }
                pub fn consume(ctx: &Consume, args: &Args, value: u32) {
                    args.output.at(ctx).set(value.wrapping_add(1000 * ctx.peer as u32 + ctx.pos as u32));
                }
            }

            /// Copies.
            #[comm_kernel(transports($($transport)::+), schedules(all_to_all, sendrecv), elements(u8, u64))]
            pub mod copied {
                pub struct Args<'a, T> {
                    pub input: &'a [T],
                    pub output: Out<'a, T>,
                }
            }

            /// Sums.
            #[comm_kernel(
                transports($($transport)::+),
                schedules(all_reduce, reduce_scatter),
                reduce(sum, f32)
            )]
            pub mod summed {
                pub struct Args<'a> {
                    pub input: &'a [f32],
                    pub output: Out<'a, f32>,
                }
            }

            /// Tiles of `most` elements to the next rank, as many as there are elements for, and of one more each time.
            #[comm_kernel(transports($($transport)::+))]
            pub fn tiles<O: Ops>(kernel: &Kernel<O>, own: &[u32], got: Out<'_, u32>, most: usize) -> Flow {
                let Tile { start, len } = kernel.share(own.len());
                let (mut at, mut want) = (0, 1);
                while at < len {
                    let tile = Tile { start: start + at, len: want.min(len - at) };
                    kernel.send_tile(kernel.next(1), tile, |ctx| own[ctx.index()])?;
                    let take = |ctx: &Consume, value: u32| got.at(ctx).set(value);
                    // SAFETY: blocks have shares of their own, and tiles of one are disjoint.
                    unsafe { kernel.recv_tile(kernel.previous(1), tile, take)? };
                    at += tile.len;
                    want = most.min(want + 1);
                }
                Ok(())
            }

            /// Signals to the next rank and back, and how often the previous one's came.
            #[comm_kernel(transports($($transport)::+))]
            pub fn rounds<O: Ops>(kernel: &Kernel<O>, rounds: u32, seen: Out<'_, u32>) -> Flow {
                let mut round = 0;
                while round < rounds {
                    kernel.signal(kernel.next(1), 0)?;
                    kernel.wait(kernel.previous(1), 0)?;
                    kernel.signal(kernel.previous(1), 1)?;
                    kernel.wait(kernel.next(1), 1)?;
                    round += 1;
                }
                // SAFETY: one block, and one thread calls it.
                kernel.team().each(1, |_| unsafe { seen.write(0, rounds) });
                Ok(())
            }

            $crate::__heap_kernel! { put $put, $($transport)::+ }
            $crate::__heap_kernel! { get $get, $($transport)::+ }

            /// The transport, with these kernels.
            #[derive(Debug)]
            pub struct Subject;

            impl $crate::Subject for Subject {
                type On = $($transport)::+;
                type Marked = marked::Hooks;
                type Bytes = copied::Hooks<u8>;
                type Longs = copied::Hooks<u64>;
                type Summed = summed::Hooks;
                type Tiles = tiles::Hooks;
                type Rounds = rounds::Hooks;

                fn meet(world: &World, options: Options) -> Result<Self::On> {
                    let meet: fn(&World, Options) -> Result<Self::On> = $meet;
                    meet(world, options)
                }
                fn marked<'a>(
                    input: View<'a, u32>,
                    output: ViewMut<'a, u32>,
                    bad: u64,
                ) -> ArgsOf<'a, Self::Marked> {
                    marked::Launch { input, output, bad }
                }
                fn bytes<'a>(input: View<'a, u8>, output: ViewMut<'a, u8>) -> ArgsOf<'a, Self::Bytes> {
                    copied::Launch { input, output }
                }
                fn longs<'a>(input: View<'a, u64>, output: ViewMut<'a, u64>) -> ArgsOf<'a, Self::Longs> {
                    copied::Launch { input, output }
                }
                fn summed<'a>(input: View<'a, f32>, output: ViewMut<'a, f32>) -> ArgsOf<'a, Self::Summed> {
                    summed::Launch { input, output }
                }
                fn tiles<'a>(
                    own: View<'a, u32>,
                    got: ViewMut<'a, u32>,
                    most: usize,
                ) -> ArgsOf<'a, Self::Tiles> {
                    tiles::Launch { own, got, most }
                }
                fn rounds<'a>(rounds: u32, seen: ViewMut<'a, u32>) -> ArgsOf<'a, Self::Rounds> {
                    rounds::Launch { rounds, seen }
                }
                $crate::__heap! { put $put, posted }
                $crate::__heap! { get $get, fetched }
            }

            /// Runs every case, and prints each.
            ///
            /// # Panics
            /// At the end, if a case failed.
            pub fn run() {
                $crate::run::<Subject>(&$ranks);
            }

            $crate::__tests! {
                $ranks,
                chunks_of_every_size, elements_of_one_and_eight_bytes, folds, every_number_of_channels,
                calls_follow_each_other, replays, tiles_signals_and_heaps, a_rank_that_does_not_come,
                a_hook_that_panics, an_abort, kernels_that_differ, transports_come_and_go,
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ($ranks:expr, $($case:ident,)*) => {$(
        #[cfg(test)]
        #[test]
        fn $case() {
            $crate::run_case::<Subject>(stringify!($case), &$ranks);
        }
    )*};
}

/// The kernel of an operation that a transport has.
#[doc(hidden)]
#[macro_export]
macro_rules! __heap_kernel {
    ($which:ident false, $($transport:ident)::+) => {};
    (put true, $($transport:ident)::+) => {
        /// A message into the next rank's heap.
        #[comm_kernel(transports($($transport)::+))]
        pub fn posted<O: Put>(kernel: &Kernel<O>, message: &[u32], received: Out<'_, u32>) -> Flow {
            let (up, down) = (kernel.next(1), kernel.previous(1));
            // SAFETY: the neighbour's last signal said that it has read the last message.
            unsafe { kernel.put(up, 0, message)? };
            kernel.signal(up, 0)?;
            kernel.wait(down, 0)?;
            // SAFETY: signalled, and not put again before the answer.
            let came = unsafe { kernel.heap_slice::<u32>(0, message.len()) };
            // SAFETY: one block, and each element is one call's.
            kernel.team().each(message.len(), |i| unsafe { received.write(i, came[i]) });
            kernel.signal(down, 1)?;
            kernel.wait(up, 1)
        }
    };
    (get true, $($transport:ident)::+) => {
        /// A message out of the previous rank's heap.
        #[comm_kernel(transports($($transport)::+))]
        pub fn fetched<O: Get>(kernel: &Kernel<O>, message: &[u32], received: Out<'_, u32>) -> Flow {
            let (up, down, n) = (kernel.next(1), kernel.previous(1), message.len());
            // SAFETY: the neighbour's last signal said that it has fetched the last message.
            let own = unsafe { kernel.heap_out::<u32>(0, n) };
            // SAFETY: each element is one call's.
            kernel.team().each(n, |i| unsafe { own.write(i, message[i]) });
            kernel.signal(up, 2)?;
            kernel.wait(down, 2)?;
            // SAFETY: signalled, and not set again before the answer; the second half is this block's own.
            unsafe { kernel.get::<u32>(down, 0, n, n)? };
            kernel.sync();
            // SAFETY: fetched, behind a sync.
            let came = unsafe { kernel.heap_slice::<u32>(n, n) };
            // SAFETY: one block, and each element is one call's.
            kernel.team().each(n, |i| unsafe { received.write(i, came[i]) });
            kernel.signal(down, 3)?;
            kernel.wait(up, 3)
        }
    };
}

/// How it is launched.
#[doc(hidden)]
#[macro_export]
macro_rules! __heap {
    ($which:ident false, $kernel:ident) => {
        fn $which(_: &Ground<Self>, _: View<'_, u32>, _: ViewMut<'_, u32>) -> Option<Result<()>> {
            None
        }
    };
    ($which:ident true, $kernel:ident) => {
        fn $which(
            ground: &Ground<Self>,
            message: View<'_, u32>,
            received: ViewMut<'_, u32>,
        ) -> Option<Result<()>> {
            let launch = $kernel::Launch { message, received };
            Some($kernel::on(&ground.transport).and_then(|kernel| kernel.launch(&ground.stream, 1, launch)))
        }
    };
}
