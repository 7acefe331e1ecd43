//! By the copy engine: a kernel that says and awaits *go*, one copy for each chunk, a kernel that says and awaits *done*. A rank's own
//! chunk is copied on a second stream meanwhile. All of it is captured into graphs like any launch.

use super::prepared::{Agreed, Call, Places};
use crate::stream::Kind;
use crate::{Error, Result, Stream};
use fusewire_device::launch::{BEHIND, Shape};
use fusewire_driver::{self as cuda, DevicePtr};

/// What the copy engine copies: chunk `from` of the input to chunk `to` of the output of `peer`, which may be this rank.
pub(crate) struct Chunk {
    pub(crate) peer: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Agreed {
    /// Launches with checked geometry; the plan's protocol is [`super::Protocol::Copy`]. `chunks` are those of `input` and of the peers'
    /// outputs; `queue` queues a kernel, the buffers are claimed.
    pub(super) fn copied(
        &self,
        stream: &Stream,
        places: Places<'_>,
        call: &Call<'_>,
        chunks: &[Chunk],
        queue: &mut dyn FnMut(&Call<'_>) -> Result<bool>,
    ) -> Result<()> {
        let Call { plan, shape, .. } = *call;
        let (Kind::Cuda(main), Some(output)) = (&stream.0.kind, places.output) else {
            return Err(Error::misuse("the copy engine copies to the output of a GPU's buffers"));
        };
        let Some(symmetric) = output.symmetric else {
            return Err(Error::misuse("the copy engine stores into outputs from `Buffer::symmetric`"));
        };
        let (rank, bytes) = (self.rank(), plan.elements * self.facts.wire_bytes);
        let input = places.source()?;
        let aside = stream.aside(&self.aside, main.context())?;
        if !queue(call)? {
            return Ok(());
        }
        let beside = chunks.iter().any(|c| c.peer == rank).then(|| aside.fork(main)).transpose()?;
        for chunk in chunks {
            let from = DevicePtr::new(input + (chunk.from * bytes) as u64);
            let base = symmetric.bases()[chunk.peer] + shape.output_offset;
            let to = DevicePtr::new(base + (chunk.to * bytes) as u64);
            let on = beside.filter(|_| chunk.peer == rank).unwrap_or(main);
            // SAFETY: the launch above checked both buffers, which do not overlap and live until the stream is idle; peers said go, with
            // this size and place, so their outputs hold the chunk and nobody uses it before *done*.
            unsafe { cuda::copy::d2d_async(on, to, from, bytes)? };
        }
        if beside.is_some() {
            aside.join(main)?;
        }
        queue(&Call { shape: Shape { flags: shape.flags | BEHIND, ..shape }, ..*call }).map(drop)
    }
}
