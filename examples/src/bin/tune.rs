//! Tunes every schedule on the machine at hand: `cargo fusewire tune -p fusewire-examples`.
//!
//! A kernel of one's own joins in the same way: it implements [`Tunable`].

use fusewire::device::schedule::NOBODY;
use fusewire::kernel::{HookSet, Supports};
use fusewire::prelude::*;
use fusewire::schedule::*;
use fusewire::tune::{ANY, COPIES, Config, Key, Session, Space, Tunable};
use fusewire_examples::reference::{self, parallel};
use std::process::ExitCode;

/// Copies.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all, sendrecv, all_gather, broadcast, scatter, gather))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

/// Adds up.
#[comm_kernel(transports(Shm, Nvl), schedules(reduce_scatter, all_reduce, reduce), reduce(sum, f32))]
mod sum {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

/// Hooks of an input and an output.
trait Plain: HookSet {
    fn args<'a>(input: View<'a, f32>, output: ViewMut<'a, f32>) -> Self::Args<'a>;
}

impl Plain for copy::Hooks {
    fn args<'a>(input: View<'a, f32>, output: ViewMut<'a, f32>) -> copy::Launch<'a> {
        copy::Launch { input, output }
    }
}

impl Plain for sum::Hooks {
    fn args<'a>(input: View<'a, f32>, output: ViewMut<'a, f32>) -> sum::Launch<'a> {
        sum::Launch { input, output }
    }
}

/// A schedule of such hooks on a transport. Its rows are for every element type, and for every hook module that has neither `produce` nor `consume`; or of a
/// schedule that folds, for every module that has no row of its own.
struct Subject<X: Transport, S, H> {
    launcher: Launcher<S, X, H>,
    schedule: S,
    me: Member,
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
    transport: X,
}

impl<X: Transport, S: Schedule, H: Plain> Subject<X, S, H> {
    /// The chunks of all ranks' inputs that each chunk of this rank's output is made of, in the order of the ranks.
    fn sources(&self) -> Vec<Vec<(u32, u32)>> {
        let Subject { schedule, me, .. } = self;
        let mut sources = vec![Vec::new(); schedule.chunks(*me)[1] as usize];
        let [from, to] = schedule.own(*me);
        if to != NOBODY {
            sources[to as usize].push((me.rank, from));
        }
        for leg in (1..=schedule.receives(*me)).map(|leg| schedule.from(*me, leg)) {
            sources[leg.chunk as usize].push((leg.peer, leg.theirs));
        }
        sources.iter_mut().for_each(|ranks| ranks.sort_unstable());
        sources
    }
}

impl<X: Transport, S: Schedule, H: Plain> Tunable for Subject<X, S, H> {
    fn begin(&mut self, bytes: usize) -> fusewire::Result<Key> {
        let (chunk, device) = (bytes / size_of::<f32>(), Device::of(&self.transport));
        // What a rank does not use may not be empty.
        let [inputs, outputs] = self.schedule.chunks(self.me).map(|chunks| chunk * chunks.max(1) as usize);
        let rank = self.me.rank as usize;
        self.input = device.buffer_from(&parallel(inputs, |i| reference::input(rank, i)))?;
        self.output = match self.symmetric {
            true => Buffer::symmetric(&self.transport, outputs)?,
            false => device.buffer(outputs)?,
        };
        let sources = self.sources();
        self.expected = parallel(chunk * sources.len(), |i| {
            let ranks = &sources[i / chunk];
            reference::tree(0..ranks.len(), &|k| {
                let (rank, theirs) = ranks[k];
                reference::input(rank as usize, theirs as usize * chunk + i % chunk)
            })
        });
        self.got = vec![0.0; outputs];
        self.options.elements = Some(chunk);
        let args = H::args(self.input.view(), self.output.view_mut());
        let key = self.launcher.key_as(&self.schedule, &args, &self.options)?;
        // `COPIES` has no row for what is folded.
        Ok(Key { variant: if S::FOLDS { ANY } else { COPIES }.into(), element: ANY.into(), ..key })
    }

    fn spaces(&mut self) -> fusewire::Result<Vec<Space>> {
        let args = H::args(self.input.view(), self.output.view_mut());
        self.launcher.spaces_as(&self.schedule, &args, &self.options)
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }

    fn launch(&mut self, config: &Config) -> fusewire::Result<()> {
        let args = H::args(self.input.view(), self.output.view_mut());
        self.launcher.launch_as(&self.stream, self.schedule, args, &config.options(&self.options))
    }

    fn poison(&mut self) -> fusewire::Result<()> {
        self.output.fill_bytes(&self.stream, 0xff)
    }

    fn is_exact(&mut self) -> fusewire::Result<bool> {
        self.output.read_into(&self.stream, &mut self.got)?;
        Ok(reference::same_bits(&self.got[..self.expected.len()], &self.expected))
    }
}

/// Where a session's subjects run.
struct Ground<'s, M> {
    session: &'s mut Session,
    meet: M,
}

impl<X: Transport, M: Fn(&World) -> fusewire::Result<X>> Ground<'_, M> {
    /// Tunes one schedule.
    fn tune<S: Schedule, H: Plain>(
        &mut self,
        name: &str,
        symmetric: bool,
        prepare: impl FnOnce(&X) -> fusewire::Result<Launcher<S, X, H>>,
        schedule: impl FnOnce(Member) -> S,
    ) -> fusewire::Result<()> {
        let name = format!("{name}, {} output", if symmetric { "symmetric" } else { "ordinary" });
        let options = self.session.launch_options();
        let meet = &self.meet;
        self.session.tune(&name, |world| {
            let transport = meet(world)?;
            let me = Member { rank: world.rank() as u32, world: world.size() as u32 };
            let device = Device::of(&transport);
            Ok(Subject {
                launcher: prepare(&transport)?,
                schedule: schedule(me),
                me,
                stream: device.stream()?,
                input: device.buffer(0)?,
                output: device.buffer(0)?,
                expected: Vec::new(),
                got: Vec::new(),
                symmetric,
                options,
                transport,
            })
        })
    }

    fn all(&mut self) -> fusewire::Result<()>
    where
        copy::Hooks: Supports<AllToAll, X>
            + Supports<SendRecv, X>
            + Supports<AllGather, X>
            + Supports<Broadcast, X>
            + Supports<Scatter, X>
            + Supports<Gather, X>,
        sum::Hooks: Supports<ReduceScatter, X> + Supports<AllReduce, X> + Supports<Reduce, X>,
    {
        let root = 0;
        for symmetric in [false, true] {
            self.tune("all-to-all", symmetric, copy::all_to_all, |_| AllToAll)?;
            self.tune("all-gather", symmetric, copy::all_gather, |_| AllGather)?;
            // Each rank to its next.
            if self.session.world().size() > 1 {
                let ring = |me: Member| SendRecv { to: me.up(1), from: me.down(1) };
                self.tune("sendrecv", symmetric, copy::sendrecv, ring)?;
            }
        }
        // Nobody stores into the outputs of these, wherever they are.
        self.tune("broadcast", false, copy::broadcast, |_| Broadcast { root })?;
        self.tune("scatter", false, copy::scatter, |_| Scatter { root })?;
        self.tune("gather", false, copy::gather, |_| Gather { root })?;
        self.tune("reduce-scatter", false, sum::reduce_scatter, |_| ReduceScatter)?;
        self.tune("all-reduce", false, sum::all_reduce, |_| AllReduce)?;
        self.tune("reduce", false, sum::reduce, |_| Reduce { root })
    }
}

fn main() -> ExitCode {
    fusewire::tune::main(|session: &mut Session| match session.on_gpus() {
        true => {
            Ground { session, meet: |world: &World| Ok(Nvl::rendezvous(world, Options::default())?) }.all()
        }
        false => {
            Ground { session, meet: |world: &World| Ok(Shm::rendezvous(world, Options::default())?) }.all()
        }
    })
}
