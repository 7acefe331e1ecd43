//! Kernels on a mesh and on the transport that is a part of it, from two streams at once: they take turns on the part's channels.
//! Ends: well

use fusewire::nic::Emulated;
use fusewire::nic::emulated::Behaviour;
use fusewire::prelude::*;
use std::sync::Arc;

#[comm_kernel(transports(Shm, ShmMesh))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.input[ctx.index()]
    }
}

fn rank(world: World) -> fusewire::Result<bool> {
    const LEN: usize = 6000;
    let nic = Arc::new(Emulated::new(Behaviour::default())?);
    let mesh = ShmMesh::rendezvous(&world, 0, nic, Options::from(1 << 16))?;
    let (whole, part) = (copy::all_to_all(&mesh)?, copy::all_to_all(mesh.intra())?);
    let device = Device::of(&mesh);
    let options = LaunchOptions::default().protocol(Protocol::Simple).channels(1);
    let (mut right, streams) = (true, [device.stream()?, device.stream()?]);
    let input = |by: u32| device.buffer_from(&(0..LEN as u32).map(|i| i * by).collect::<Vec<_>>());
    let inputs = [input(3)?, input(5)?];
    let mut outputs = [device.buffer::<u32>(LEN)?, device.buffer::<u32>(LEN)?];
    for _ in 0..50 {
        let [a, b] = &mut outputs;
        let args = copy::Launch { input: inputs[0].view(), output: a.view_mut() };
        whole.launch_with(&streams[0], args, &options)?;
        let args = copy::Launch { input: inputs[1].view(), output: b.view_mut() };
        part.launch_with(&streams[1], args, &options)?;
    }
    for (k, by) in [(0, 3), (1, 5)] {
        streams[k].synchronize()?;
        let got = outputs[k].read(&streams[k])?;
        let half = LEN as u32 / 2;
        let want = |i: u32| (half * world.rank() as u32 + i % half) * by;
        right &= (0..LEN as u32).all(|i| got[i as usize] == want(i));
    }
    Ok(right)
}

pub fn run() -> crate::Ended {
    for outcome in World::threads(2, rank)? {
        let right = outcome?;
        crate::ensure(right, || "data of another launch".into())?;
    }
    Ok(())
}
