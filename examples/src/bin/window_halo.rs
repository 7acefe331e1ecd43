//! Windows, second part: a halo exchange with barriers. A grid is cut into slabs of rows, one a rank; each step averages neighbours.

use clap::Parser;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::Custom;
use fusewire_examples::ranks::Ranks;
use std::process::ExitCode;

/// A halo exchange over a window.
#[derive(Parser)]
struct Arguments {
    /// `host` or `cuda`.
    #[arg(long, default_value = "host", value_parser = ["host", "cuda"])]
    device: String,
    #[command(flatten)]
    ranks: Ranks,
    /// Rows of each rank's slab.
    #[arg(long, default_value_t = 24)]
    rows: usize,
    /// Columns.
    #[arg(long, default_value_t = 64)]
    cols: usize,
    /// Steps.
    #[arg(long, default_value_t = 20)]
    steps: usize,
}

/// The window's buffer holds two planes of `rows + 2` rows: the first and the last row are copies of the neighbours' edges. A step
/// reads one plane and writes the other; then edges go to the neighbours. Barriers of the whole grid, all blocks of all ranks, keep
/// reading and writing apart.
#[comm_kernel(transports(Shm, Nvl))]
pub fn smooth<O: Ops>(
    kernel: &Kernel<O>,
    window: DeviceWindow,
    rows: usize,
    cols: usize,
    steps: usize,
) -> Flow {
    let window = kernel.window(&window);
    let (plane, cells) = ((rows + 2) * cols, kernel.share(rows * cols));
    let (up, down) = (kernel.previous(1), kernel.next(1));
    for step in 0..steps {
        let (from, to) = (step % 2 * plane, (step + 1) % 2 * plane);
        // SAFETY: blocks write disjoint cells of the one plane, while nobody writes the other.
        unsafe {
            kernel.local_tile(cells, |ctx| {
                let (row, col) = (1 + ctx.index() / cols, ctx.index() % cols);
                let at = |row: usize, col: usize| window.get::<f32>(from + row * cols + col % cols);
                let (above, below) = (at(row - 1, col), at(row + 1, col));
                let (left, right) = (at(row, col + cols - 1), at(row, col + 1));
                window.set(to + row * cols + col, 0.25 * ((above + below) + (left + right)));
            });
        }
        window.barrier_grid(0)?;
        // SAFETY: edges are written, and their copies read after the next barrier.
        let send = |peer: usize, place: usize, edge: usize| unsafe {
            if peer != kernel.rank() {
                return window.put(&Block, peer, place, window.slice::<f32>(edge, cols));
            }
            // A slab alone is its own neighbour, and puts are to others.
            let row = Tile { start: 0, len: cols };
            kernel.local_tile(row, |ctx| window.set(place + ctx.pos, window.get::<f32>(edge + ctx.pos)));
            Ok(())
        };
        if kernel.block() == 0 {
            send(up, to + (rows + 1) * cols, to + cols)?;
            send(down, to, to + rows * cols)?;
        }
        window.barrier_grid(0)?;
    }
    Ok(())
}

/// The same on one grid, in plain Rust.
fn reference(grid: &[f32], cols: usize, steps: usize) -> Vec<f32> {
    let rows = grid.len() / cols;
    let mut now = grid.to_vec();
    for _ in 0..steps {
        let at = |row: usize, col: usize| now[row % rows * cols + col % cols];
        let cell = |i: usize| {
            let (row, col) = (i / cols, i % cols);
            let vertical = at(row + rows - 1, col) + at(row + 1, col);
            0.25 * (vertical + (at(row, col + cols - 1) + at(row, col + 1)))
        };
        now = (0..grid.len()).map(cell).collect();
    }
    now
}

fn rank<X: Transport>(world: &World, transport: &X, arguments: &Arguments) -> fusewire::Result<()>
where
    smooth::Hooks: Supports<Custom, X>,
{
    let &Arguments { rows, cols, steps, .. } = arguments;
    let (me, size) = (world.rank(), world.size());
    let peers = MultiPeerTransport::new(transport, &PeersConfig::default())?;
    peers.exchange()?;
    let device = Device::of(transport);
    let plane = (rows + 2) * cols;
    let mut buffer = device.shared_buffer::<f32>(2 * plane)?;
    let window = HostWindow::new(&peers, WindowConfig::default(), &buffer)?;
    window.exchange()?;
    let grid: Vec<f32> = (0..size * rows * cols).map(|i| (i * 7919 % 1009) as f32).collect();
    // The slab with a row of each neighbour around it.
    let slab = |i: usize| {
        let row = (me * rows + size * rows + i / cols - 1) % (size * rows);
        grid[row * cols + i % cols]
    };
    buffer.fill_from(&(0..2 * plane).map(|i| if i < plane { slab(i) } else { 0.0 }).collect::<Vec<_>>())?;
    world.barrier()?;
    let (stream, kernel) = (device.stream()?, smooth::on(transport)?);
    kernel.launch(&stream, 4, smooth::Launch { window: &window, rows, cols, steps })?;
    let got = buffer.read(&stream)?;
    let own = &got[steps % 2 * plane + cols..][..rows * cols];
    assert_eq!(own, &reference(&grid, cols, steps)[me * rows * cols..][..rows * cols], "rank {me}");
    println!("rank {me}: {steps} steps of {rows} x {cols} cells are right, on {}", X::NAME);
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let cuda = arguments.device == "cuda";
    arguments.ranks.run(cuda, 4, |world| match cuda {
        true => rank(world, &Nvl::rendezvous(world, Options::default())?, &arguments),
        false => rank(world, &Shm::rendezvous(world, 1 << 20)?, &arguments),
    })
}
