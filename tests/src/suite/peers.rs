//! Send and receive: alone, in pairs, in rings.

use super::support::POISON;
use crate::check::same;
use crate::data::{Data, make};
use crate::kernels::copying::copy;
use crate::kernels::hooks::transpose_add;
use crate::run::Ground;
use crate::{Outcome, Rank, SendRecvOf, Subject, reference};
use fusewire::LaunchOptions;
use fusewire::schedule::SendRecvLauncher;

type Copier<X> = SendRecvLauncher<X, copy::Hooks<i32>>;

/// Sends this rank's data to `to` and takes that of `from`, either left out; compares what came.
fn exchange<X: Subject>(
    ground: &Ground<X>,
    launcher: &Copier<X>,
    (to, from): (Option<usize>, Option<usize>),
    data: Data,
    n: usize,
    options: &LaunchOptions,
) -> Outcome {
    let me = ground.transport.rank();
    let input = ground.device.buffer_from(&data.all::<i32>(me, n))?;
    let mut output = ground.device.buffer::<i32>(n)?;
    output.fill_bytes(&ground.stream, POISON)?;
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    launcher.launch_with(&ground.stream, to, from, args, options)?;
    let got = output.read(&ground.stream)?;
    same(format_args!("{n} elements, rank {me} sends to {to:?} and receives from {from:?}"), &got, |i| {
        from.map_or(-1, |from| data.any(from, i))
    });
    Ok(())
}

pub fn send_alone_and_receive_alone<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher: Copier<X> = ground.transport.sendrecv()?;
    let (me, last) = (rank.me(), rank.size() - 1);
    for (k, n) in [1, 200, rank.scale.pick(5000, 1 << 20)].into_iter().enumerate() {
        for (from, to) in [(0, last), (last, 0), (last, last / 2)] {
            let options = LaunchOptions::default();
            let peers = ((me == from && from != to).then_some(to), (me == to && from != to).then_some(from));
            if peers != (None, None) {
                exchange(&ground, &launcher, peers, rank.data(k), n, &options)?;
            }
        }
    }
    // By the short methods.
    let (mut output, input) = (ground.device.buffer::<i32>(9)?, ground.device.buffer_from(&[5i32; 9])?);
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    match me {
        0 => launcher.send(&ground.stream, last, args)?,
        _ if me == last => launcher.recv(&ground.stream, 0, args)?,
        _ => {}
    }
    same("after `send` and `recv`", &output.read(&ground.stream)?, |_| if me == last { 5 } else { 0 });
    Ok(())
}

pub fn pairs<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher: Copier<X> = ground.transport.sendrecv()?;
    let (peer, n) = (rank.me() ^ 1, rank.scale.pick(1500, 1 << 18));
    if peer < rank.size() {
        // The staging is smaller: both directions must go on at once.
        for call in 0..4 {
            let options = LaunchOptions::default().channels(1 + call as u32);
            exchange(&ground, &launcher, (Some(peer), Some(peer)), rank.data(call), n + call, &options)?;
        }
    }
    Ok(())
}

pub fn ring<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher: Copier<X> = ground.transport.sendrecv()?;
    for step in 1..rank.size().min(6) {
        let peers =
            (Some((rank.me() + step) % rank.size()), Some((rank.me() + rank.size() - step) % rank.size()));
        let n = rank.scale.pick(1300, 300_001) + step;
        exchange(&ground, &launcher, peers, rank.data(step), n, &LaunchOptions::default())?;
    }
    Ok(())
}

/// Two rings in opposite directions on two transports, neither waited for before the other is launched.
pub fn crossing_rings<X: Subject>(rank: &Rank<X>) -> Outcome {
    let (a, b) = (rank.small()?, rank.small()?);
    let (up, down): (Copier<X>, Copier<X>) = (a.transport.sendrecv()?, b.transport.sendrecv()?);
    let (me, size, n) = (rank.me(), rank.size(), rank.scale.pick(3000, 1 << 19));
    let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
    let data = rank.data(0);
    let input = a.device.buffer_from(&data.all::<i32>(me, n))?;
    let again = a.device.buffer_from(&data.all::<i32>(me, n))?;
    let (mut first, mut second) = (a.device.buffer::<i32>(n)?, a.device.buffer::<i32>(n)?);
    for _ in 0..3 {
        up.sendrecv(
            &a.stream,
            next,
            previous,
            copy::Launch { input: input.view(), output: first.view_mut() },
        )?;
        down.sendrecv(
            &b.stream,
            previous,
            next,
            copy::Launch { input: again.view(), output: second.view_mut() },
        )?;
    }
    same("up the ring", &first.read(&a.stream)?, |i| data.any(previous, i));
    same("down the ring", &second.read(&b.stream)?, |i| data.any(next, i));
    Ok(())
}

pub fn transposed_on_the_way<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = SendRecvOf::<transpose_add::Hooks>::sendrecv(&ground.transport)?;
    let (me, size, data) = (rank.me(), rank.size(), rank.data(0));
    let (rows, cols) = rank.scale.pick((19, 53), (301, 500));
    let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
    let input = ground.device.buffer_from(&make(rows * cols, |i| data.small(me, i)))?;
    let mut output = ground.device.buffer::<f32>(rows * cols)?;
    for _ in 0..2 {
        let args = transpose_add::Launch { input: input.view(), output: output.view_mut(), rows, cols };
        launcher.sendrecv(&ground.stream, next, previous, args)?;
    }
    same("transposed and added twice", &output.read(&ground.stream)?, |pos| {
        2.0 * reference::transposed(rows, cols, pos, |i| data.small(previous, i))
    });
    Ok(())
}
