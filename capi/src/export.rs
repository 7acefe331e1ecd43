//! Kernels that a library offers.

use fusewire::dynamic::Kernel;

/// A table of kernels of some module.
#[doc(hidden)]
pub struct Exported(pub &'static [Kernel]);

#[doc(hidden)]
pub use inventory;

inventory::collect!(Exported);

/// Offers the kernels of modules and schedule functions that `#[comm_kernel]` is on to those who load the library: `export!(my::hooks, other)`.
/// None of them may have an argument that is a window, peers, or a handle of a device crate.
#[macro_export]
macro_rules! export {
    ($($($path:ident)::+),+ $(,)?) => {
        $($crate::inventory::submit! { $crate::Exported($($path)::+::__KERNELS) })+
    };
}

/// All kernels of this library: those that are shipped, then those that were exported, by name.
pub(crate) fn kernels() -> Vec<Kernel> {
    #[cfg(feature = "collectives")]
    let mut kernels = crate::collectives::kernels();
    #[cfg(not(feature = "collectives"))]
    let mut kernels = Vec::new();
    let mut own: Vec<Kernel> = inventory::iter::<Exported>().flat_map(|table| table.0).copied().collect();
    // The order of the linker is nobody's: ranks go by names.
    own.sort_by_key(|kernel| kernel.name);
    kernels.extend(own);
    kernels
}
