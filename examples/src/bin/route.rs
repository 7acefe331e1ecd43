//! Tokens go to the rank that their owner is, in their own order: a schedule of one's own, whose threads find places by a scan.

use fusewire::prelude::*;

/// Sends token `i`, `width` elements of `tokens`, to rank `owner[i]`. `counts[peer]` becomes the number of tokens that came from `peer`, and they
/// stand in `received` from `peer * room` tokens on. No atomics: whoever sends first, each token has its place.
///
/// In round `r` a rank has to do with rank `r - rank`, and that one with it; each round is one block's.
#[comm_kernel(transports(Shm, Nvl))]
#[allow(clippy::too_many_arguments)] // tokens in, tokens out
pub fn dispatch<O: Ops>(
    kernel: &Kernel<O>,
    owner: &[u32],
    tokens: &[f32],
    width: usize,
    room: usize,
    order: Out<'_, u32>,
    counts: Out<'_, u32>,
    received: Out<'_, f32>,
) -> Flow {
    let (team, me, world) = (kernel.team(), kernel.rank(), kernel.world());
    let mut round = kernel.block();
    while round < world {
        let peer = (round + world - me) % world;
        // The peer's tokens stand together in `order`, behind those of lower ranks.
        let first = team.count(owner.len(), |i| owner[i] < peer as u32);
        let goes = |i: usize| u32::from(owner[i] == peer as u32);
        let place = |i: usize, before: u32| {
            if owner[i] == peer as u32 {
                // SAFETY: a token has one owner, and of an owner's tokens each has another number before it.
                unsafe { order.write(first + before as usize, i as u32) };
            }
        };
        let count = team.scan(owner.len(), 0, goes, |a, b| a + b, place);

        // How many come, then the tokens: as many at a time as staging holds, there and back in turn.
        let one = Tile { start: peer, len: 1 };
        kernel.send_tile(peer, one, |_| count)?;
        // SAFETY: each count is one tile's.
        unsafe { kernel.recv_tile(peer, one, |ctx, count: u32| counts.at(ctx).set(count))? };
        kernel.sync();
        // SAFETY: this block has written it, before the sync.
        let (come, at_once) = (unsafe { counts.read(peer) } as usize, kernel.most_staged::<f32>() / width);
        let mut done = 0;
        while done < come.max(count as usize) {
            let tile = |all: usize| Tile {
                start: (peer * room + done) * width,
                len: at_once.min(all.saturating_sub(done)) * width,
            };
            kernel.send_tile(peer, tile(count as usize), |ctx| {
                // SAFETY: written by this block, before the scan returned.
                let token = unsafe { order.read(first + done + ctx.pos / width) } as usize;
                tokens[token * width + ctx.pos % width]
            })?;
            // SAFETY: each rank's tokens have places of their own, as far as `room` goes: `at` sees to the end of the output alone.
            unsafe { kernel.recv_tile(peer, tile(come), |ctx, value| received.at(ctx).set(value))? };
            done += at_once;
        }
        round += kernel.blocks();
    }
    Ok(())
}

const TOKENS: usize = 1000;
const WIDTH: usize = 48;

/// Token `i` of a rank: its owner, and its elements.
fn token(rank: usize, i: usize, world: usize) -> (u32, [f32; WIDTH]) {
    let owner = (rank * 31 + i * i * 7 + i / 3) % world;
    (owner as u32, std::array::from_fn(|col| (rank * TOKENS + i) as f32 + col as f32 / 64.0))
}

fn rank(world: World) -> fusewire::Result<()> {
    let (me, n) = (world.rank(), world.size());
    let shm = Shm::rendezvous(&world, Options::per_peer(64 << 10).channels(2))?;
    let dispatch = dispatch::on(&shm)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let (owner, tokens): (Vec<u32>, Vec<_>) = (0..TOKENS).map(|i| token(me, i, n)).unzip();
    let (owner, tokens) = (device.buffer_from(&owner)?, device.buffer_from(&tokens.concat())?);
    let (mut order, mut counts) = (device.buffer::<u32>(TOKENS)?, device.buffer::<u32>(n)?);
    let mut received = device.buffer::<f32>(n * TOKENS * WIDTH)?;
    dispatch.launch(
        &stream,
        2,
        dispatch::Launch {
            owner: owner.view(),
            tokens: tokens.view(),
            width: WIDTH,
            room: TOKENS,
            order: order.view_mut(),
            counts: counts.view_mut(),
            received: received.view_mut(),
        },
    )?;
    let (counts, received) = (counts.read(&stream)?, received.read(&stream)?);
    for (peer, came) in received.chunks(TOKENS * WIDTH).enumerate() {
        let own: Vec<_> = (0..TOKENS).map(|i| token(peer, i, n)).filter(|t| t.0 == me as u32).collect();
        assert_eq!(counts[peer] as usize, own.len());
        let own: Vec<_> = own.iter().flat_map(|t| t.1).collect();
        assert_eq!(came[..own.len()], own[..], "tokens of rank {peer} at rank {me}");
    }
    println!("rank {me}: {counts:?} tokens of each rank");
    Ok(())
}

fn main() -> fusewire::Result<()> {
    World::threads(4, rank)?.into_iter().collect()
}
