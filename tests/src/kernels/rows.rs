//! Hooks of whole rows.

use fusewire::prelude::*;

/// Rows of less than a warp's, with what goes through all of them; `places` is where hooks were.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_to_all, all_gather),
    grain = row(80)
)]
pub mod short {
    /// One chunk of rows a peer.
    pub struct Args<'a> {
        /// Rows.
        pub input: &'a [Bf16],
        /// One for each column.
        pub weights: &'a [f32],
        /// What arrived, weighted, with the sum of its row and of what stands before it.
        pub output: Out<'a, f32>,
        /// The greatest of each row.
        pub most: PerRow<'a, f32>,
        /// The row's index, its number in the chunk, rows of the chunk, and who sent it.
        pub places: PerRow<'a, u64>,
    }

    pub(crate) fn produce(ctx: &ProduceRow, args: &Args) -> Row<Bf16> {
        let index = ctx.index;
        args.input.row(ctx).map_at(|col, x| Bf16::from_f32(x.to_f32() + ((index + col) % 3) as f32))
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Row<Bf16>) {
        let x = row.to_f32();
        let (sum, most) = (x.sum(ctx), x.max(ctx));
        let weighted = x.zip(&args.weights.each_row(ctx), |x, weight| x * weight + sum);
        let before = x.scan(ctx, -0.0, |a, b| a + b);
        args.output.row(ctx).set(&weighted.zip(&before, |x, before| x + before));
        args.most.at(ctx).set(most);
        args.most.at(ctx).set(args.most.at(ctx).get() - x.min(ctx));
        args.places.at(ctx).set((ctx.index << 48 | ctx.row << 32 | ctx.rows << 16 | ctx.peer) as u64);
    }
}

/// Rows of a block, the last of whose lanes have fewer elements; the output is read as well.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(sendrecv, broadcast),
    grain = row(4112)
)]
pub mod long {
    /// One chunk of rows.
    pub struct Args<'a> {
        /// Rows.
        pub input: &'a [f32],
        /// What each row is added to, less a part of its sum, and with the sum of what stands before each element.
        pub output: Out<'a, f32>,
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        let sum = row.sum(ctx);
        let old = args.output.row(ctx).get();
        let first = row.reduce(ctx, f32::INFINITY, |a, b| if a == f32::INFINITY { b } else { a });
        let out = row.zip(&old, |x, old| x + old - sum / 1024.0 + first);
        let before = row.scan(ctx, -0.0, |a, b| a + b);
        args.output.row(ctx).set(&out.zip(&before, |x, before| x + before));
    }
}

/// Structs of 24 bytes, of which no pack has a whole number.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), schedules(all_to_all), grain = row(48))]
pub mod wide {
    /// What has a place and an id.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Particle {
        /// Its place.
        pub at: [f32; 3],
        /// Numbers of two bytes.
        pub charge: [i16; 4],
        /// Its id.
        pub id: u32,
    }

    /// One chunk of rows a peer.
    pub struct Args<'a> {
        /// Rows.
        pub input: &'a [Particle],
        /// What arrived, with the sender in its id, and its column.
        pub output: Out<'a, Particle>,
        /// The sum of each row's ids.
        pub sums: PerRow<'a, u32>,
    }

    pub(crate) fn produce(ctx: &ProduceRow, args: &Args) -> Row<Particle> {
        args.input.row(ctx).map_at(|col, mut particle| {
            particle.charge[1] = col as i16;
            particle
        })
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Row<Particle>) {
        let from = ctx.peer as u32;
        args.sums.at(ctx).set(row.map(|particle| particle.id).sum(ctx));
        args.output.row(ctx).set(&row.map(|mut particle| {
            particle.id ^= from;
            particle
        }));
    }
}

/// Scales of their groups on the wire, for a warp.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_to_all, broadcast),
    grain = row(192)
)]
pub mod scaled {
    /// One chunk of rows a peer.
    pub struct Args<'a> {
        /// Rows.
        pub input: &'a [f32],
        /// The numbers that arrived.
        pub output: Out<'a, f32>,
        /// Their scales.
        pub scales: PerGroup<'a, f32, 64>,
    }

    pub(crate) fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 64> {
        args.input.row(ctx).quantise(ctx)
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E4M3, 64>) {
        args.output.row(ctx).set(&row.dequantise());
        args.scales.at(ctx).set(&row.scales);
    }
}

/// Scales that are powers of two, for a block.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_to_all),
    grain = row(2112)
)]
pub mod powers {
    /// One chunk of rows a peer.
    pub struct Args<'a> {
        /// Rows.
        pub input: &'a [Bf16],
        /// The values that arrived.
        pub output: Out<'a, F8E5M2>,
        /// Their scales' exponents, and sums of their groups' values.
        pub scales: PerGroup<'a, u8, 32>,
        /// Sums of the groups, in 16ths.
        pub sums: PerGroup<'a, i32, 32>,
    }

    pub(crate) fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E5M2, 32, Ue8m0> {
        args.input.row(ctx).to_f32().quantise(ctx)
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E5M2, 32, Ue8m0>) {
        args.output.row(ctx).set(&row.values);
        args.scales.at(ctx).set(&row.scales.map(|scale| scale.0));
        let whole = row.values.map(|x| (x.to_f32() * 16.0) as i32);
        args.sums.at(ctx).set(&whole.sum_of_groups::<32>(ctx));
    }
}

/// Folded, then taken as rows: the sum of all ranks' less its own average.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_reduce, reduce_scatter, reduce),
    grain = row(80),
    reduce(sum, f32)
)]
pub mod centred {
    /// One chunk of rows, or one for each rank.
    pub struct Args<'a> {
        /// Rows.
        pub input: &'a [Bf16],
        /// Their sums, and the rows' averages beside.
        pub output: Out<'a, f32>,
        /// The sums of rows.
        pub sums: PerRow<'a, f32>,
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        let sum = row.sum(ctx);
        args.output.row(ctx).set(&row.map(|x| x - sum / 80.0));
        args.sums.at(ctx).set(sum);
    }
}

/// Scaled on the wire, folded as numbers, by a block.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_reduce),
    grain = row(2304),
    reduce(max, f32, order = ranks)
)]
pub mod greatest_scaled {
    /// One chunk of rows.
    pub struct Args<'a> {
        /// Rows.
        pub input: &'a [f32],
        /// The greatest of all ranks'.
        pub output: Out<'a, f32>,
    }

    pub(crate) fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 256> {
        args.input.row(ctx).quantise(ctx)
    }
}

/// Scales in both directions: what ranks send, and what they are told.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_reduce),
    grain = row(384),
    reduce(sum, f32, result = Scaled<F8E4M3, 128>)
)]
pub mod quantised_sums {
    /// One chunk of rows.
    pub struct Args<'a> {
        /// Rows.
        pub input: &'a [Bf16],
        /// The sums that arrived.
        pub output: Out<'a, f32>,
        /// Their scales.
        pub scales: PerGroup<'a, f32, 128>,
    }

    pub(crate) fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 128> {
        args.input.row(ctx).to_f32().quantise(ctx)
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E4M3, 128>) {
        args.output.row(ctx).set(&row.dequantise());
        args.scales.at(ctx).set(&row.scales);
    }
}

/// Sums rounded once, then taken by rows that warps share; they take less room than what they are made of.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_reduce),
    grain = row(2304),
    reduce(sum, f32, result = Row<Bf16>)
)]
pub mod rounded_rows {
    /// One chunk of rows.
    pub struct Args<'a> {
        /// Rows.
        pub input: &'a [f32],
        /// The sums that arrived, less the greatest of the row.
        pub output: Out<'a, f32>,
        /// How often a row was taken.
        pub taken: PerRow<'a, u32>,
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Row<Bf16>) {
        let most = row.to_f32().max(ctx);
        args.output.row(ctx).set(&row.to_f32().map(|x| x - most));
        args.taken.at(ctx).set(args.taken.at(ctx).get() + 1);
    }
}

/// Folded by a block, whose last octets half of the threads have: the hidden size of large models.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_reduce),
    grain = row(7168),
    reduce(sum, f32)
)]
pub mod longer {
    /// One chunk of rows.
    pub struct Args<'a> {
        /// Rows.
        pub input: &'a [Bf16],
        /// Their sums over ranks, with the greatest of the row beside each.
        pub output: Out<'a, f32>,
        /// The sums of rows.
        pub sums: PerRow<'a, f32>,
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        let (sum, most) = (row.sum(ctx), row.max(ctx));
        args.output.row(ctx).set(&row.map_at(|col, x| x * most + col as f32));
        args.sums.at(ctx).set(sum);
    }
}

/// The longest row there may be: 64 elements a thread, and 128 scales behind them on the wire.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_to_all),
    grain = row(16384)
)]
pub mod longest {
    /// One chunk of rows a peer.
    pub struct Args<'a> {
        /// Rows.
        pub input: &'a [Bf16],
        /// The numbers that arrived.
        pub output: Out<'a, f32>,
        /// Their scales.
        pub scales: PerGroup<'a, f32, 128>,
    }

    pub(crate) fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 128> {
        args.input.row(ctx).to_f32().quantise(ctx)
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E4M3, 128>) {
        args.output.row(ctx).set(&row.dequantise());
        args.scales.at(ctx).set(&row.scales);
    }
}
