//! Tunes the all-to-all and `sendrecv` on the machine at hand: `cargo fusewire tune -p fusewire-examples`.
//!
//! A kernel of one's own joins in the same way: it implements [`Tunable`].

use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::{AllToAll, AllToAllLauncher, SendRecv, SendRecvLauncher};
use fusewire::tune::{ANY, COPIES, Config, Key, Session, Space, Tunable};
use fusewire_examples::hooks::copy;
use fusewire_examples::reference::{self, parallel};
use std::process::ExitCode;

/// A launcher of the copy hook, of either schedule.
trait Launcher<X: Transport>: Sized {
    /// Collective.
    fn new(transport: &X) -> fusewire::Result<Self>;
    /// Elements of a rank's input and output, if each peer gets `chunk`.
    fn elements(world: usize, chunk: usize) -> usize;
    /// Element `i` of the output of `rank`.
    fn want(rank: usize, world: usize, chunk: usize, i: usize) -> f32;
    fn key(&self, args: &copy::Launch<'_>, options: &LaunchOptions) -> fusewire::Result<Key>;
    fn spaces(&self, args: &copy::Launch<'_>, options: &LaunchOptions) -> fusewire::Result<Vec<Space>>;
    fn launch(
        &self,
        on: (&X, &Stream),
        args: copy::Launch<'_>,
        options: &LaunchOptions,
    ) -> fusewire::Result<()>;
}

impl<X: Transport> Launcher<X> for AllToAllLauncher<X, copy::Hooks>
where
    copy::Hooks: Supports<AllToAll, X>,
{
    fn new(transport: &X) -> fusewire::Result<Self> {
        copy::all_to_all(transport)
    }
    fn elements(world: usize, chunk: usize) -> usize {
        chunk * world
    }
    fn want(rank: usize, world: usize, chunk: usize, i: usize) -> f32 {
        reference::output("copy", rank, world, chunk, 1.0, i)
    }
    fn key(&self, args: &copy::Launch<'_>, options: &LaunchOptions) -> fusewire::Result<Key> {
        AllToAllLauncher::key(self, args, options)
    }
    fn spaces(&self, args: &copy::Launch<'_>, options: &LaunchOptions) -> fusewire::Result<Vec<Space>> {
        AllToAllLauncher::spaces(self, args, options)
    }
    fn launch(
        &self,
        (_, stream): (&X, &Stream),
        args: copy::Launch<'_>,
        options: &LaunchOptions,
    ) -> fusewire::Result<()> {
        self.launch_with(stream, args, options)
    }
}

/// Each rank to its next.
impl<X: Transport> Launcher<X> for SendRecvLauncher<X, copy::Hooks>
where
    copy::Hooks: Supports<SendRecv, X>,
{
    fn new(transport: &X) -> fusewire::Result<Self> {
        copy::sendrecv(transport)
    }
    fn elements(_: usize, chunk: usize) -> usize {
        chunk
    }
    fn want(rank: usize, world: usize, _: usize, i: usize) -> f32 {
        reference::input((rank + world - 1) % world, i)
    }
    fn key(&self, args: &copy::Launch<'_>, options: &LaunchOptions) -> fusewire::Result<Key> {
        SendRecvLauncher::key(self, args, options)
    }
    fn spaces(&self, args: &copy::Launch<'_>, options: &LaunchOptions) -> fusewire::Result<Vec<Space>> {
        SendRecvLauncher::spaces(self, args, options)
    }
    fn launch(
        &self,
        (transport, stream): (&X, &Stream),
        args: copy::Launch<'_>,
        options: &LaunchOptions,
    ) -> fusewire::Result<()> {
        let (rank, world) = (transport.rank(), transport.world_size());
        let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
        self.launch_with(stream, Some(next), Some(previous), args, options)
    }
}

/// The copy hook on a transport. Its rows are for every hook module that only copies, and every element type.
struct Copy<X: Transport, L> {
    transport: X,
    launcher: L,
    stream: Stream,
    input: Buffer<f32>,
    output: Buffer<f32>,
    expected: Vec<f32>,
    /// What came out last.
    got: Vec<f32>,
    /// Whether the output is symmetric memory.
    symmetric: bool,
    /// With which every launch is made.
    options: LaunchOptions,
}

impl<X: Transport, L: Launcher<X>> Copy<X, L> {
    fn new(transport: X, symmetric: bool, options: LaunchOptions) -> fusewire::Result<Self> {
        let device = Device::of(&transport);
        Ok(Copy {
            launcher: L::new(&transport)?,
            stream: device.stream()?,
            input: device.buffer(0)?,
            output: device.buffer(0)?,
            expected: Vec::new(),
            got: Vec::new(),
            symmetric,
            options,
            transport,
        })
    }
}

impl<X: Transport, L: Launcher<X>> Tunable for Copy<X, L> {
    fn begin(&mut self, bytes: usize) -> fusewire::Result<Key> {
        let (rank, world) = (self.transport.rank(), self.transport.world_size());
        let chunk = bytes / size_of::<f32>();
        let (elements, device) = (L::elements(world, chunk), Device::of(&self.transport));
        self.input = device.buffer_from(&parallel(elements, |i| reference::input(rank, i)))?;
        self.output = match self.symmetric {
            true => Buffer::symmetric(&self.transport, elements)?,
            false => device.buffer(elements)?,
        };
        self.expected = parallel(elements, |i| L::want(rank, world, chunk, i));
        self.got = vec![0.0; elements];
        let args = copy::Launch { input: self.input.view(), output: self.output.view_mut() };
        let key = self.launcher.key(&args, &self.options)?;
        Ok(Key { variant: COPIES.into(), element: ANY.into(), ..key })
    }

    fn spaces(&mut self) -> fusewire::Result<Vec<Space>> {
        let args = copy::Launch { input: self.input.view(), output: self.output.view_mut() };
        self.launcher.spaces(&args, &self.options)
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }

    fn launch(&mut self, config: &Config) -> fusewire::Result<()> {
        let args = copy::Launch { input: self.input.view(), output: self.output.view_mut() };
        self.launcher.launch((&self.transport, &self.stream), args, &config.options(&self.options))
    }

    fn poison(&mut self) -> fusewire::Result<()> {
        self.output.fill_bytes(&self.stream, 0xff)
    }

    fn is_exact(&mut self) -> fusewire::Result<bool> {
        self.output.read_into(&self.stream, &mut self.got)?;
        Ok(reference::same_bits(&self.got, &self.expected))
    }
}

fn tune<X: Transport>(
    session: &mut Session,
    meet: impl Fn(&World) -> fusewire::Result<X>,
) -> fusewire::Result<()>
where
    copy::Hooks: Supports<AllToAll, X> + Supports<SendRecv, X>,
{
    type Exchange<X> = Copy<X, AllToAllLauncher<X, copy::Hooks>>;
    type Ring<X> = Copy<X, SendRecvLauncher<X, copy::Hooks>>;
    let options = session.launch_options();
    for (symmetric, output) in [(false, "ordinary output"), (true, "symmetric output")] {
        let (exchange, ring) = (format!("all-to-all, {output}"), format!("sendrecv, {output}"));
        session.tune(&exchange, |world| Exchange::new(meet(world)?, symmetric, options.clone()))?;
        if session.world().size() == 1 {
            continue;
        }
        session.tune(&ring, |world| Ring::new(meet(world)?, symmetric, options.clone()))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    fusewire::tune::main(|session: &mut Session| match session.on_gpus() {
        true => tune(session, |world| Ok(Nvl::rendezvous(world, Options::default())?)),
        false => tune(session, |world| Ok(Shm::rendezvous(world, Options::default())?)),
    })
}
