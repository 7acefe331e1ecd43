//! A second stream beside one.

use crate::Result;
use fusewire_driver as cuda;
use std::sync::Arc;

/// A second stream, and the events that tie it to the first: of a launcher, or of a capture, which the stream is in until that ends.
pub(crate) struct Aside {
    stream: cuda::Stream,
    fork: cuda::Event,
    join: cuda::Event,
}

impl Aside {
    /// The one that is there, or a new one.
    pub(crate) fn at(place: &mut Option<Arc<Self>>, context: &cuda::Context) -> Result<Arc<Self>> {
        Ok(match place {
            Some(aside) => Arc::clone(aside),
            none => Arc::clone(none.insert(Arc::new(Self::new(context)?))),
        })
    }

    fn new(context: &cuda::Context) -> Result<Self> {
        let (fork, join) = (cuda::Event::new(context)?, cuda::Event::new(context)?);
        Ok(Aside { stream: cuda::Stream::new(context)?, fork, join })
    }

    /// It, for work behind what `main` has so far.
    pub(crate) fn fork(&self, main: &cuda::Stream) -> Result<&cuda::Stream> {
        self.fork.record(main)?;
        self.stream.wait_event(&self.fork)?;
        Ok(&self.stream)
    }

    /// What `main` gets from here on is behind its work.
    pub(crate) fn join(&self, main: &cuda::Stream) -> Result<()> {
        self.join.record(&self.stream)?;
        Ok(main.wait_event(&self.join)?)
    }
}
