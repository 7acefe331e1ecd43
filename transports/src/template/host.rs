//! Host half of the blank.

use super::TemplateOps;
use crate::host::{Error, Link, Options, Result, Transport};
use fusewire_world::World;
use std::sync::Arc;

/// A transport to copy.
#[derive(Debug)]
pub struct Template {
    link: Arc<Link>,
}

impl Template {
    /// Collective. In this order, so that every rank fails with the same error and nobody waits:
    /// check the options ([`Options::layout`]); compare them over all ranks; find out on every rank whether every rank can take part
    /// (`World::all_gather_as` of a reason why not); make memory; exchange; build the [`Link`]; barrier.
    ///
    /// # Errors
    /// Always: it is a blank.
    pub fn rendezvous(world: &World, options: impl Into<Options>) -> Result<Template> {
        let layout = options.into().layout(world.size())?;
        crate::host::agree(world, "template rendezvous", &layout)?;
        Err(Error::Misuse { what: "the template transport is a blank to copy; use `Shm` or `Nvl`".into() })
    }
}

// SAFETY: the operations follow no address.
unsafe impl Transport for Template {
    type Ops = TemplateOps;
    const NAME: &'static str = "Template";

    fn link(&self) -> &Arc<Link> {
        &self.link
    }

    unsafe fn ops(&self) -> TemplateOps {
        TemplateOps { rank: self.rank() as u32, world: self.world_size() as u32 }
    }
}
