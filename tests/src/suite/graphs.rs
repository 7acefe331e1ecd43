//! Graphs: captured once, replayed many times, between other calls.

use super::support::{misuse, works};
use crate::check::same;
use crate::data::Data;
use crate::kernels::copying::copy;
use crate::kernels::hooks::chain;
use crate::run::Ground;
use crate::{AllToAllOf, Outcome, Rank, SendRecvOf, Subject, reference};
use fusewire::{Buffer, LaunchOptions, Stream};

/// Inputs of which every call takes another.
const INPUTS: usize = 7;

/// An output that chains what arrives, the input that goes out, and the inputs to come.
struct Chain {
    input: Buffer<u32>,
    output: Buffer<u32>,
    sources: Vec<Buffer<u32>>,
    data: Vec<Data>,
    chunk: usize,
    /// Which source each call took.
    taken: Vec<usize>,
}

impl Chain {
    fn new<X: Subject>(
        rank: &Rank<X>,
        ground: &Ground<X>,
        salt: usize,
        chunk: usize,
    ) -> fusewire::Result<Self> {
        let n = chunk * rank.size();
        let data: Vec<Data> = (0..INPUTS).map(|k| rank.data(salt * INPUTS + k)).collect();
        let source = |d: &Data| ground.device.buffer_from(&d.all::<u32>(rank.me(), n));
        let sources = data.iter().map(source).collect::<fusewire::Result<_>>()?;
        let (input, output) = (ground.device.buffer(n)?, ground.device.buffer(n)?);
        Ok(Chain { input, output, sources, data, chunk, taken: Vec::new() })
    }

    /// Queues the next input.
    fn feed<X>(&mut self, ground: &Ground<X>, k: usize) -> fusewire::Result<()> {
        self.taken.push(k);
        self.input.copy_from(&ground.stream, &self.sources[k])
    }

    /// Compares the chain: one call that was lost, doubled or given another's input would show.
    fn check<X: Subject>(&self, rank: &Rank<X>, ground: &Ground<X>, what: &str) -> Outcome {
        let got = self.output.read(&ground.stream)?;
        same(format_args!("{what} after {} calls", self.taken.len()), &got, |i| {
            let arrived: Vec<u32> = self
                .data
                .iter()
                .map(|d| reference::all_to_all(rank.me(), self.chunk, i, |peer, at| d.any(peer, at)))
                .collect();
            self.taken.iter().fold(0, |old, k| reference::link(old, arrived[*k]))
        });
        Ok(())
    }
}

fn replays<X: Subject>(rank: &Rank<X>) -> usize {
    rank.scale.pick(if rank.size() > 3 { 60 } else { 200 }, 10_000)
}

/// No rank waits for another between replays, but in the kernel.
pub fn replays_with_changing_inputs<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<chain::Hooks>::all_to_all(&ground.transport)?;
    let mut chain = Chain::new(rank, &ground, 0, rank.scale.pick(95, 1501))?;
    let graph = ground.stream.capture(|| {
        launcher.launch(
            &ground.stream,
            chain::Launch { input: chain.input.view(), output: chain.output.view_mut() },
        )
    })?;
    assert_eq!(graph.node_count(), 1);
    let mut rng = rank.rng();
    for _ in 0..replays(rank) {
        chain.feed(&ground, rng.within(0, INPUTS - 1))?;
        graph.launch(&ground.stream)?;
    }
    chain.check(rank, &ground, "replays")
}

/// Three graphs, one of them with two launches and a copy, and eager calls of other sizes, in random order on one transport.
pub fn several_graphs_and_eager_calls<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let stream = &ground.stream;
    let launcher = AllToAllOf::<chain::Hooks>::all_to_all(&ground.transport)?;
    let launch = |chain: &mut Chain, channels: u32| {
        let args = chain::Launch { input: chain.input.view(), output: chain.output.view_mut() };
        launcher.launch_with(stream, args, &LaunchOptions::default().channels(channels))
    };
    let sizes = [1, 130, rank.scale.pick(700, 4001), 33];
    let mut chains = sizes
        .iter()
        .enumerate()
        .map(|(k, n)| Chain::new(rank, &ground, k, *n))
        .collect::<fusewire::Result<Vec<_>>>()?;
    let graphs = [
        stream.capture(|| launch(&mut chains[0], 1))?,
        stream.capture(|| launch(&mut chains[1], 3))?,
        stream.capture(|| {
            launch(&mut chains[2], 4)?;
            let Chain { input, sources, .. } = &mut chains[2];
            input.copy_from(stream, &sources[5])?;
            launch(&mut chains[2], 2)
        })?,
    ];
    let mut rng = rank.rng();
    for _ in 0..replays(rank) {
        let (which, k) = (rng.within(0, 3), rng.within(0, INPUTS - 1));
        chains[which].feed(&ground, k)?;
        match graphs.get(which) {
            Some(graph) => graph.launch(stream)?,
            None => launch(&mut chains[which], 1 + k as u32 % 4)?,
        }
        if which == 2 {
            chains[which].taken.push(5);
        }
    }
    chains.iter().enumerate().try_for_each(|(k, chain)| chain.check(rank, &ground, &format!("chain {k}")))
}

pub fn of_send_and_receive<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = SendRecvOf::<chain::Hooks>::sendrecv(&ground.transport)?;
    let (me, size, n, data) = (rank.me(), rank.size(), rank.scale.pick(300, 20_000), rank.data(0));
    let input = ground.device.buffer_from(&data.all::<u32>(me, n))?;
    let mut output = ground.device.buffer::<u32>(n)?;
    let graph = ground.stream.capture(|| {
        (1..size).try_for_each(|step| {
            let args = chain::Launch { input: input.view(), output: output.view_mut() };
            launcher.sendrecv(&ground.stream, (me + step) % size, (me + size - step) % size, args)
        })
    })?;
    let rounds = replays(rank) / 10;
    (0..rounds).try_for_each(|_| graph.launch(&ground.stream))?;
    same("a ring of every distance", &output.read(&ground.stream)?, |i| {
        (0..rounds).fold(0, |old, _| {
            (1..size).fold(old, |old, step| reference::link(old, data.any((me + size - step) % size, i)))
        })
    });
    Ok(())
}

pub fn failed_capture_leaves_the_stream_usable<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let stream = &ground.stream;
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let input = ground.device.buffer::<u32>(64 * rank.size())?;
    let mut output = ground.device.buffer::<u32>(64 * rank.size())?;
    // A launch that is refused, after one that was recorded.
    let refused = stream.capture(|| {
        launcher.launch(stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
        let options = LaunchOptions::default().channels(0);
        launcher.launch_with(
            stream,
            copy::Launch { input: input.view(), output: output.view_mut() },
            &options,
        )
    });
    crate::check::says(misuse(refused), &["0 channels"]);
    assert!(!stream.is_capturing());
    works(rank, &ground)?;
    // What waits cannot be captured; nor can a capture.
    crate::check::says(misuse(stream.capture(|| stream.synchronize())), &["synchronize", "capturing"]);
    crate::check::says(
        misuse(stream.capture(|| output.read(stream).map(drop))),
        &["Buffer::read", "capturing"],
    );
    crate::check::says(
        misuse(stream.capture(|| stream.capture(|| Ok(())).map(drop))),
        &["capturing already"],
    );
    let n = output.len();
    let filled = stream.capture(|| {
        launcher.launch(stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
        output.fill_from(&vec![0; n])
    });
    crate::check::says(misuse(filled), &["fill_from", "capturing"]);
    let empty = stream.capture(|| Ok(()))?;
    empty.launch(stream)?;
    works(rank, &ground)?;
    // A graph outlives what it was made from.
    let graph = stream.capture(|| {
        launcher.launch(stream, copy::Launch { input: input.view(), output: output.view_mut() })
    })?;
    drop((launcher, input, output));
    graph.launch(stream)?;
    stream.synchronize()?;
    Ok(())
}

/// Captured on one stream, replayed on another, between eager calls on a third; dropped while it runs.
pub fn replayed_on_other_streams<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<chain::Hooks>::all_to_all(&ground.transport)?;
    let (me, size, n, data) = (rank.me(), rank.size(), 600 * rank.size(), rank.data(0));
    let streams = [ground.stream.clone(), ground.device.stream()?, ground.device.stream()?];
    let input = ground.device.buffer_from(&data.all::<u32>(me, n))?;
    let mut output = ground.device.buffer::<u32>(n)?;
    let launch = |stream: &Stream, output: &mut Buffer<u32>| {
        launcher.launch(stream, chain::Launch { input: input.view(), output: output.view_mut() })
    };
    // The capture finds its buffers in use by another stream.
    launch(&streams[2], &mut output)?;
    let graph = streams[0].capture(|| launch(&streams[0], &mut output))?;
    for _ in 0..5 {
        graph.launch(&streams[1])?;
        launch(&streams[2], &mut output)?;
    }
    graph.launch(&streams[1])?;
    drop(graph);
    same("a chain over three streams", &output.read(&streams[0])?, |i| {
        let value = reference::all_to_all(me, n / size, i, |peer, at| data.any(peer, at));
        (0..12).fold(0, |old, _| reference::link(old, value))
    });
    Ok(())
}

/// A graph as nodes of another one, between launches of that; dropped, with what it uses, before the other is replayed.
pub fn in_another_graph<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (stream, chunk) = (&ground.stream, 700);
    let launcher = AllToAllOf::<chain::Hooks>::all_to_all(&ground.transport)?;
    let mut own = Chain::new(rank, &ground, 0, chunk)?;
    let launch = |own: &mut Chain| {
        let args = chain::Launch { input: own.input.view(), output: own.output.view_mut() };
        launcher.launch(stream, args)
    };
    let inner = stream.capture(|| {
        own.feed(&ground, 1)?;
        launch(&mut own)?;
        own.feed(&ground, 2)?;
        launch(&mut own)
    })?;
    own.taken.clear();
    let outer = stream.capture(|| {
        own.feed(&ground, 3)?;
        launch(&mut own)?;
        inner.launch(stream)?;
        launch(&mut own)?;
        inner.launch(stream)?;
        own.feed(&ground, 4)?;
        launch(&mut own)
    })?;
    own.taken.clear();
    let (inner_takes, outer_takes) = ([1, 2], [3, 1, 2, 2, 1, 2, 4]);
    // The inner one alone, and the outer one, in turn.
    for _ in 0..3 {
        inner.launch(stream)?;
        own.taken.extend(inner_takes);
        outer.launch(stream)?;
        own.taken.extend(outer_takes);
    }
    own.check(rank, &ground, "two graphs in turn")?;
    drop((inner, launcher));
    for _ in 0..3 {
        outer.launch(stream)?;
        own.taken.extend(outer_takes);
    }
    own.check(rank, &ground, "the outer graph alone")
}
