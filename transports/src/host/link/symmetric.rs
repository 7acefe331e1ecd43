//! Symmetric memory of a link: allocated, or somebody else's.

use super::Link;
use crate::host::{Error, NotExportable, Result, Symmetric, foreign};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Link {
    /// Allocates symmetric memory. Collective: all ranks call it, with equal sizes.
    ///
    /// # Errors
    /// [`Error::Misuse`] where peers' memory cannot be stored to; [`Error::World`] when sizes differ over ranks or a rank does not
    /// come; what the machine says when there is no memory.
    pub fn symmetric(&self, bytes: usize) -> Result<Arc<Symmetric>> {
        let number = self.allocations.fetch_add(1, Ordering::Relaxed);
        let fields = [("number", number.to_string()), ("bytes", bytes.to_string())];
        self.world.agree("symmetric allocation", &fields)?;
        let memory = self.region.symmetric(&self.world, bytes.max(1))?.ok_or_else(|| self.not_symmetric())?;
        Ok(Arc::new(memory.of(self.id, number)))
    }

    /// Makes memory that is there symmetric: `bytes` bytes at an address, and what keeps them; or why this rank has none. Collective: all ranks call it,
    /// with equal sizes. The owner is dropped when every rank has dropped its part or is gone.
    ///
    /// # Errors
    /// [`Error::NotExportable`], on all ranks; [`Error::Misuse`] for no bytes; else as [`Link::symmetric`].
    ///
    /// # Safety
    /// The memory is on this link's machine, and there until the owner is dropped.
    pub unsafe fn adopt(
        &self,
        own: Result<(u64, foreign::Owner), NotExportable>,
        bytes: usize,
    ) -> Result<Arc<Symmetric>> {
        let number = self.allocations.fetch_add(1, Ordering::Relaxed);
        let fields = [("number", number.to_string()), ("bytes of others", bytes.to_string())];
        self.world.agree("symmetric allocation", &fields)?;
        if !self.region.reaches_mapped() {
            return Err(self.not_symmetric());
        }
        if bytes == 0 {
            return Err(Error::Misuse {
                what: "a buffer of no elements has no memory that could be symmetric".into(),
            });
        }
        // SAFETY: the caller's contract.
        let memory = unsafe { foreign::adopt(&self.world, &self.machine, own, bytes)? };
        Ok(Arc::new(memory.of(self.id, number)))
    }

    fn not_symmetric(&self) -> Error {
        let what =
            format!("`{}` has no symmetric buffers: its ranks do not map each other's memory", self.name);
        Error::Misuse { what }
    }
}
