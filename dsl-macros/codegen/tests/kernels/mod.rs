//! Kernels whose PTX is tested in `ptx.rs`; read as text.

/// A default copy.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

/// A copy over whatever GPUs are linked by.
#[comm_kernel(transports(Nvl, Ibgda, NvlMesh, HostIb))]
mod everywhere {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

/// By element, gathered from anywhere.
#[comm_kernel(transports(Shm, Nvl))]
mod transpose {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub rows: usize,
        pub cols: usize,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        let (row, col) = (ctx.pos % args.rows, ctx.pos / args.rows);
        args.input[ctx.chunk_start + row * args.cols + col]
    }
}

/// By element, by tiles.
#[comm_kernel(transports(Nvl), elements(u8, Bf16, f32, u64), layout(transposed))]
mod tiles {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
    pub fn produce<T: Element>(ctx: &Produce, args: &Args<T>) -> T {
        args.input[ctx.transposed_index()]
    }
}

/// By tiles, and taken by element.
#[comm_kernel(transports(Nvl), schedules(all_to_all), layout(transposed))]
mod tiles_add {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub scale: f32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Bf16 {
        let (row, col) = ctx.row_col();
        Bf16::from_f32(args.input[ctx.chunk_start + col * ctx.rows + row] * args.scale)
    }
    pub fn consume(ctx: &Consume, args: &Args, value: Bf16) {
        args.output.at(ctx).add(value.to_f32());
    }
}

/// By pack, read and written.
#[comm_kernel(transports(Nvl))]
mod scale_add {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub scale: f32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        args.input.pack(ctx).map(|v| v * args.scale)
    }
    pub fn consume(ctx: &Consume, args: &Args, value: Pack<f32>) {
        args.output.at(ctx).update_pack(|old| old.zip(value, |a, b| a + b));
    }
}

/// By pack, with a struct, an enum and options by value.
#[comm_kernel(transports(Nvl), schedules(all_to_all))]
mod params {
    #[derive(Clone, Copy, PartialEq, Plain)]
    #[repr(u8)]
    pub enum Mode {
        Add,
        Set,
    }
    #[derive(Clone, Plain, Copy)]
    #[repr(C)]
    pub struct Params {
        pub mode: Mode,
        pub scale: f32,
        pub taps: [f32; 2],
    }
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub params: Params,
        pub most: Option<f32>,
        pub mode: Option<Mode>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        let tap = args.params.taps[0] - args.params.taps[1];
        args.input.pack(ctx).map(|v| {
            let v = v * args.params.scale + tap;
            args.most.map_or(v, |most| if v < most { v } else { most })
        })
    }
    pub fn consume(ctx: &Consume, args: &Args, value: Pack<f32>) {
        let place = args.output.at(ctx);
        match args.mode.unwrap_or(args.params.mode) {
            Mode::Add => place.update_pack(|old| old.zip(value, |a, b| a + b)),
            Mode::Set => place.set_pack(value),
        }
    }
}

/// Four bytes in memory, one on the wire.
#[comm_kernel(transports(Nvl))]
mod quantise {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> F8E4M3 {
        F8E4M3::from_f32(args.input[ctx.index()])
    }
    pub fn consume(ctx: &Consume, args: &Args, value: F8E4M3) {
        args.output.at(ctx).set(value.to_f32());
    }
}

/// Generic over every element type.
#[comm_kernel(
    transports(Nvl),
    schedules(all_to_all),
    elements(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, F16, Bf16, F8E4M3, F8E5M2)
)]
mod every {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
        pub none: T,
    }
    pub fn produce<T: Element>(ctx: &Produce, args: &Args<T>) -> T {
        if ctx.rank == ctx.peer { args.none } else { args.input[ctx.index()] }
    }
}

/// Hooks in a schedule of the module's own.
#[comm_kernel(transports(Shm, Nvl), schedules(round))]
pub mod rounds {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        args.input.pack(ctx).map(|v| v * 2.0)
    }
    pub fn round<O: Ops>(kernel: &Kernel<O>, args: &Args) -> Flow {
        let (hooks, tile) = (kernel.hooks(args), kernel.share(args.input.len()));
        hooks.send_tile(kernel.next(1), tile)?;
        // SAFETY: each block has its own share.
        unsafe { hooks.recv_tile(kernel.previous(1), tile) }
    }
}

/// Tiles round a ring.
#[comm_kernel(transports(Shm, Nvl))]
pub fn ring<O: Ops>(kernel: &Kernel<O>, input: &[f32], output: Out<f32>) -> Flow {
    for step in 1..kernel.world() {
        let tile = kernel.share(input.len());
        kernel.send_tile(kernel.next(step), tile, |ctx| input[ctx.index()])?;
        // SAFETY: each block has its own share, and tiles of one index are a sync apart.
        unsafe { kernel.recv_tile(kernel.previous(step), tile, |ctx, value| output.at(ctx).add(value))? };
        kernel.sync();
    }
    Ok(())
}

/// Raw operations.
#[comm_kernel(transports(Nvl))]
pub fn exchange<O: Put>(kernel: &Kernel<O>, input: &[u32], output: Out<u32>) -> Flow {
    let (to, from) = (kernel.next(1), kernel.previous(1));
    // SAFETY: the one block writes the one place of its peer, once.
    unsafe { kernel.put(to, 0, input)? };
    kernel.signal(to, 0)?;
    kernel.wait(from, 0)?;
    let all = Tile { start: 0, len: input.len() };
    // SAFETY: the peer has signalled; one tile.
    unsafe { kernel.local_tile(all, |ctx| output.at(ctx).set(kernel.heap_get::<u32>(ctx.index()))) };
    Ok(())
}

/// Device math by pack: the fast tier on what is sent, the exact one on what arrives.
#[comm_kernel(transports(Nvl), schedules(all_to_all))]
mod activations {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<Bf16> {
        args.input.pack(ctx).map_f32(|x| x * math::fast::recip(1.0 + math::fast::exp(-x)))
    }
    pub fn consume(ctx: &Consume, args: &Args, value: Pack<Bf16>) {
        args.output.at(ctx).set_pack(math::tanh(value));
    }
}

/// Rows of a warp, with scales on the wire.
#[comm_kernel(transports(Nvl), schedules(all_to_all, sendrecv), grain = row(1024))]
mod quantised {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 128> {
        args.input.row(ctx).to_f32().quantise(ctx)
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E4M3, 128>) {
        args.output.row(ctx).set(&row.dequantise().to());
    }
}

/// Rows of a block, folded and normed.
#[comm_kernel(transports(Nvl), schedules(all_reduce, reduce_scatter), grain = row(4096), reduce(sum, f32))]
mod normed {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub residual: &'a [Bf16],
        pub gamma: &'a [Bf16],
        pub output: Out<'a, F8E4M3>,
        pub scales: PerRow<'a, f32>,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        let x = row.zip(&args.residual.row(ctx).to_f32(), |x, residual| x + residual);
        let scale = math::fast::rsqrt(x.map(|x| x * x).sum(ctx) / 4096.0 + 1e-6);
        let normed = x.zip(&args.gamma.each_row(ctx).to_f32(), |x, gamma| x * scale * gamma);
        let most = math::max(normed.map(f32::abs).max(ctx), f32::MIN_POSITIVE);
        args.output.row(ctx).set(&normed.map(|x| x * 448.0 / most).to());
        args.scales.at(ctx).set(most / 448.0);
    }
}

/// The same in place, of rows that two warps share.
#[comm_kernel(transports(Nvl), schedules(all_reduce), grain = row(2048), reduce(sum, f32))]
mod normed_in_place {
    pub struct Args<'a> {
        pub hidden: InOut<'a, Bf16>,
        pub residual: Out<'a, Bf16>,
        pub gamma: &'a [Bf16],
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        let residual = args.residual.row(ctx);
        let x = row.zip(&residual.get().to_f32(), |x, residual| x + residual);
        residual.set(&x.to());
        let scale = math::fast::rsqrt(x.map(|x| x * x).sum(ctx) / 2048.0 + 1e-6);
        let gamma = args.gamma.each_row(ctx).to_f32();
        args.hidden.row(ctx).set(&x.zip(&gamma, |x, gamma| x * scale * gamma).to());
    }
}

/// Rows that are moved in place.
#[comm_kernel(transports(Nvl), schedules(all_gather, scatter), grain = row(256))]
mod moved_in_place {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 128> {
        args.values.get_row(ctx).quantise(ctx)
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E4M3, 128>) {
        args.values.row(ctx).set(&row.dequantise());
    }
}

/// The longest rows, of the widest elements that hooks compute with.
#[comm_kernel(transports(Nvl), schedules(all_gather), grain = row(16384))]
mod longest {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<f32> {
        let row = args.input.row(ctx);
        let most = row.max(ctx);
        let powers = row.map(|x| math::fast::exp(x - most));
        let sum = powers.sum(ctx);
        powers.map(|x| x / sum)
    }
}

/// What all ranks contribute, in one step and in two.
#[comm_kernel(transports(Nvl), schedules(all_reduce), reduce(average, f32))]
mod gradient {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, f32>,
        pub rate: f32,
    }
    pub fn consume(ctx: &Consume, args: &Args, mean: f32) {
        args.output.at(ctx).update(|weight| weight - args.rate * mean);
    }
}

/// Looks at what it sends.
#[comm_kernel(transports(Nvl), schedules(all_to_all))]
mod prints {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        let value = args.input[ctx.index()];
        if value < 0.0 {
            print_at!(ctx, "{} is negative, {}% of peer {}'s", value, 100u8, ctx.peer);
        }
        value
    }
}

/// What a block's threads fold together.
#[comm_kernel(transports(Nvl))]
pub fn folded_by_block<O: Ops>(kernel: &Kernel<O>, input: &[f32], output: Out<f32>) -> Flow {
    let sum = kernel.team().sum(input.len(), |i| input[i]);
    // SAFETY: one block.
    kernel.team().each(1, |i| unsafe { output.write(i, sum) });
    Ok(())
}

/// Two teams of one block, in turn.
#[comm_kernel(transports(Nvl))]
pub fn folded_by_two<O: Ops>(kernel: &Kernel<O>, input: &[f32], output: Out<f32>) -> Flow {
    let (one, other) = (kernel.team(), kernel.team());
    let sum = one.sum(input.len(), |i| input[i]);
    let most = other.max(input.len(), |i| input[i]);
    // SAFETY: one block.
    one.each(1, |i| unsafe { output.write(i, sum / most) });
    Ok(())
}

/// What stands before each element.
#[comm_kernel(transports(Nvl))]
pub fn scanned_by_block<O: Ops>(kernel: &Kernel<O>, input: &[u32], output: Out<u32>) -> Flow {
    // SAFETY: one block, and each element is one call's.
    kernel.team().scan(input.len(), 0, |i| input[i], |a, b| a + b, |i, before| unsafe {
        output.write(i, before)
    });
    Ok(())
}

/// What one thread says.
#[comm_kernel(transports(Nvl))]
pub fn said_by_one<O: Ops>(kernel: &Kernel<O>, drawn: Accumulate<u32>, output: Out<u32>) -> Flow {
    let first = kernel.team().once(|| drawn.fetch_add(0, 512));
    // SAFETY: one block, and each element is one call's.
    kernel.team().each(512, |i| unsafe { output.write(i, first + i as u32) });
    Ok(())
}

/// What two warps do.
#[comm_kernel(transports(Nvl))]
pub fn folded_by_warps<O: Ops>(kernel: &Kernel<O>, input: &[f32], output: Out<f32>) -> Flow {
    kernel.teams::<2>(output.len(), |team, row| {
        let sum = team.sum(input.len(), |i| input[i]);
        // SAFETY: one block, and each row is one team's.
        team.each(1, |_| unsafe { output.write(row, sum) });
        Ok(())
    })
}

/// What goes through shared memory.
#[comm_kernel(transports(Nvl))]
pub fn through_shared<O: Ops>(kernel: &Kernel<O>, input: &[f32], output: Out<f32>) -> Flow {
    kernel.shared::<f32, 512, _>(|memory| {
        let team = kernel.team();
        team.each(512, |i| memory.set(511 - i, input[i]));
        // SAFETY: one block, and each element is one call's.
        team.each(512, |i| unsafe { output.write(i, memory.get(i)) });
    });
    Ok(())
}

/// Says why it panics.
#[comm_kernel(transports(Nvl), schedules(all_to_all))]
mod asserts {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub most: usize,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        let (index, most) = (ctx.index(), args.most);
        assert!(index < most, "{index} is not below {most}");
        args.input.get(index).copied().unwrap_or(0.0)
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        assert_eq!(value, value);
        args.output.at(ctx).set(value);
    }
}

/// Adds to elements of two bytes.
#[comm_kernel(transports(Nvl))]
pub fn halves<O: Ops>(kernel: &Kernel<O>, half: Accumulate<F16>, brief: Accumulate<Bf16>) -> Flow {
    half.fetch_add(kernel.block(), F16::from_f32(1.0));
    brief.fetch_add(kernel.block(), Bf16::from_f32(1.0));
    Ok(())
}
