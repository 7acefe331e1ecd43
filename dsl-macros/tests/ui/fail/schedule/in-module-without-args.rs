use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_to_all, ring))]
mod moved {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn ring<O: Ops>(kernel: &Kernel<O>, input: &[f32]) -> Flow {
        kernel.sync();
        Ok(())
    }
}

fn main() {
    World::threads(1, |world| {
        let shm = Shm::rendezvous(&world, 1 << 16).unwrap();
        let _ = moved::ring::on(&shm);
    })
    .unwrap();
}
