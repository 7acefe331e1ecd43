//! Tunes the all-to-all on the machine at hand: `cargo fusewire tune -p fusewire-examples`.
//!
//! A kernel of one's own joins in the same way: it implements [`Tunable`].

use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::{AllToAll, AllToAllLauncher};
use fusewire::tune::{ANY, Config, Key, Session, Space, Tunable};
use fusewire_examples::hooks::copy;
use fusewire_examples::reference::{self, parallel};
use std::process::ExitCode;

/// The copy hook on a transport. Its rows are for every hook and element type that has none of its own.
struct Copy<X: Transport> {
    transport: X,
    launcher: AllToAllLauncher<X, copy::Hooks>,
    stream: Stream,
    input: Buffer<f32>,
    output: Buffer<f32>,
    expected: Vec<f32>,
    /// Whether the output is symmetric memory.
    symmetric: bool,
}

impl<X: Transport> Copy<X>
where
    copy::Hooks: Supports<AllToAll, X>,
{
    fn new(transport: X, symmetric: bool) -> fusewire::Result<Self> {
        let device = Device::of(&transport);
        Ok(Copy {
            launcher: copy::all_to_all(&transport)?,
            stream: device.stream()?,
            input: device.buffer(0)?,
            output: device.buffer(0)?,
            expected: Vec::new(),
            symmetric,
            transport,
        })
    }
}

impl<X: Transport> Tunable for Copy<X>
where
    copy::Hooks: Supports<AllToAll, X>,
{
    fn begin(&mut self, bytes: usize) -> fusewire::Result<Key> {
        let (rank, world) = (self.transport.rank(), self.transport.world_size());
        let chunk = bytes / size_of::<f32>();
        let device = Device::of(&self.transport);
        self.input = device.buffer_from(&parallel(chunk * world, |i| reference::input(rank, i)))?;
        self.output = match self.symmetric {
            true => Buffer::symmetric(&self.transport, chunk * world)?,
            false => device.buffer(chunk * world)?,
        };
        self.expected = parallel(chunk * world, |i| reference::output("copy", rank, world, chunk, 1.0, i));
        let args = copy::Launch { input: self.input.view(), output: self.output.view_mut() };
        let key = self.launcher.key(&args, &LaunchOptions::default())?;
        Ok(Key { variant: ANY.into(), element: ANY.into(), ..key })
    }

    fn spaces(&mut self) -> fusewire::Result<Vec<Space>> {
        let args = copy::Launch { input: self.input.view(), output: self.output.view_mut() };
        self.launcher.spaces(&args, &LaunchOptions::default())
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }

    fn launch(&mut self, config: &Config) -> fusewire::Result<()> {
        let args = copy::Launch { input: self.input.view(), output: self.output.view_mut() };
        self.launcher.launch_with(&self.stream, args, &config.options(&LaunchOptions::default()))
    }

    fn poison(&mut self) -> fusewire::Result<()> {
        self.output.fill_bytes(&self.stream, 0xff)
    }

    fn is_exact(&mut self) -> fusewire::Result<bool> {
        Ok(reference::same_bits(&self.output.read(&self.stream)?, &self.expected))
    }
}

fn tune<X: Transport>(
    session: &mut Session,
    meet: impl Fn(&World) -> fusewire::Result<X>,
) -> fusewire::Result<()>
where
    copy::Hooks: Supports<AllToAll, X>,
{
    session.tune("ordinary output", |world| Copy::new(meet(world)?, false))?;
    session.tune("symmetric output", |world| Copy::new(meet(world)?, true))
}

fn main() -> ExitCode {
    fusewire::tune::main(|session: &mut Session| match session.on_gpus() {
        true => tune(session, |world| Ok(Nvl::rendezvous(world, Options::default())?)),
        false => tune(session, |world| Ok(Shm::rendezvous(world, Options::default())?)),
    })
}
