//! Ranks meet and say where they are. Try it under any launcher:
//!
//! ```text
//! mpirun -n 4 target/debug/examples/meet
//! torchrun --no-python --nproc-per-node 4 target/debug/examples/meet
//! srun -n 4 target/debug/examples/meet
//! ```

use std::time::Instant;

use fusewire_world::{Launch, Result, World};

const ROUNDS: u32 = 100;

fn main() -> Result<()> {
    let launch = Launch::from_env()?;
    let started = Instant::now();
    let world = World::from_env()?;
    let met = started.elapsed();
    world.agree("the example", &[("rounds", ROUNDS.to_string())])?;
    let started = Instant::now();
    for _ in 0..ROUNDS {
        world.barrier()?;
    }
    let barrier = started.elapsed() / ROUNDS;
    let host = world.peer_hostname(world.rank()).unwrap_or("?").to_owned();
    let everyone = world.all_gather_as(&(host, world.local_rank()))?;
    if world.rank() == 0 {
        println!("{launch}: met in {met:.1?}, a barrier takes {barrier:.1?}");
        for (rank, (host, local)) in everyone.iter().enumerate() {
            println!("  rank {rank} is local rank {local} on {host}");
        }
    }
    world.teardown_barrier()
}
