//! Hooks by element, with documentation and attributes of one's own.
use fusewire::prelude::*;

/// Sends each chunk transposed; the receiver adds it to what it has.
#[comm_kernel(transports(Shm, Nvl))]
#[allow(unused_parens)]
pub mod transpose_add {
    //! Documented inside too.
    #![allow(clippy::needless_return)]

    /// What it takes.
    #[derive(Clone, Copy)]
    pub struct Args<'a> {
        /// Read.
        pub input: &'a [f32],
        /// Added to.
        pub output: Out<'a, f32>,
        pub rows: usize,
        pub cols: usize,
    }

    /// Transposes.
    #[inline]
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        let (row, col) = (ctx.pos % args.rows, ctx.pos / args.rows);
        return (args.input[ctx.chunk_start + row * args.cols + col]);
    }

    pub fn consume(ctx: &Consume, args: &Args<'_>, value: f32) {
        args.output.at(ctx).add(value);
    }
}

fn main() -> fusewire::Result<()> {
    let ranks = World::threads(2, |world| -> fusewire::Result<Vec<f32>> {
        let shm = Shm::rendezvous(&world, 1 << 16)?;
        let all_to_all = transpose_add::all_to_all(&shm)?;
        let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
        let values: Vec<f32> = (0..12).map(|i| (i + 100 * world.rank()) as f32).collect();
        let input = device.buffer_from(&values)?;
        let mut output = device.buffer::<f32>(12)?;
        all_to_all.launch(
            &stream,
            transpose_add::Launch { input: input.view(), output: output.view_mut(), rows: 2, cols: 3 },
        )?;
        output.read(&stream)
    })?;
    let ranks: Vec<_> = ranks.into_iter().collect::<fusewire::Result<_>>()?;
    assert_eq!(ranks[1][..6], [6.0, 9.0, 7.0, 10.0, 8.0, 11.0]);
    assert_eq!(ranks[1][6..], [106.0, 109.0, 107.0, 110.0, 108.0, 111.0]);
    Ok(())
}
