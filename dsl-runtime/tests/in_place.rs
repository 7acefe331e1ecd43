//! An `InOut` beside an output: what arrives goes to the first, whatever memory the second is in.
#![forbid(unsafe_code)]

use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_gather))]
mod beside {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
        pub seen: Out<'a, u8>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.values.get(ctx)
    }
}

#[test]
fn nobody_stores_into_an_output_beside() {
    let ranks = World::threads(2, |world| -> fusewire::Result<()> {
        let shm = Shm::rendezvous(&world, 1 << 16)?;
        let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
        let mut values = device.buffer_from(&[world.rank() as f32 + 1.0; 4])?;
        // As many elements as there are values, and a quarter of their bytes.
        let mut seen = Buffer::<u8>::symmetric(&shm, 4)?;
        let gather = beside::all_gather(&shm)?;
        let args = beside::Launch { values: values.view_mut(), seen: seen.view_mut() };
        let direct = LaunchOptions::default().protocol(Protocol::Direct);
        let refused = gather.launch_with(&stream, args, &direct).unwrap_err().to_string();
        assert!(refused.contains("give it an output from `Buffer::symmetric`"), "{refused}");
        gather.launch(&stream, beside::Launch { values: values.view_mut(), seen: seen.view_mut() })?;
        assert_eq!((values.read(&stream)?, seen.read(&stream)?), (vec![1.0, 1.0, 2.0, 2.0], vec![0; 4]));
        Ok(())
    });
    for rank in ranks.unwrap() {
        rank.unwrap();
    }
}

#[comm_kernel(transports(Shm), schedules(all_reduce), grain = row(64), reduce(sum, f32))]
mod centred {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        let mean = row.sum(ctx) / 64.0;
        args.values.row(ctx).set(&row.map(|x| x - mean));
    }
}

#[test]
fn rows_that_are_overwritten_go_in_two_steps() {
    let plans = |ranks| {
        let ranks = World::threads(ranks, |world| -> fusewire::Result<Vec<Protocol>> {
            let shm = Shm::rendezvous(&world, 1 << 20)?;
            let launcher = centred::all_reduce(&shm)?;
            let open = LaunchOptions::default();
            // Few rows and many, and what is an option of staging.
            let mut protocols = Vec::new();
            for (rows, options) in [(1, open.clone()), (3000, open.clone()), (8, open.chunk(256))] {
                let mut values = Device::of(&shm).buffer::<f32>(64 * rows)?;
                let args = centred::Launch { values: values.view_mut() };
                protocols.push(launcher.explain(&args, &options)?.protocol);
            }
            Ok(protocols)
        });
        ranks.unwrap().into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(plans(1), [[Protocol::Simple; 3]], "who is alone stores what it has read");
    for plan in plans(3) {
        assert!(plan.iter().all(|p| matches!(p, Protocol::TwoShot | Protocol::Ll)), "{plan:?}");
        assert_eq!(plan[1..], [Protocol::TwoShot; 2]);
    }
}
