//! `#[comm_kernel]`: see the documentation in `fusewire`, which re-exports it.

use fusewire_codegen::Mode;
use proc_macro::TokenStream;

/// Compiles hooks, or a schedule of one's own, to fused communication kernels.
///
/// On a module with `Args`, `produce` and `consume` (either may be left out: copy takes its place); or on a function
/// `fn name<O: Ops>(kernel: &Kernel<O>, ..) -> Flow`.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `transports(Nvl, Shm)` | transports to compile for, also by path from a [device crate](device_crate!); others are a compile error where they are asked for | all |
/// | `schedules(all_to_all, sendrecv)` | schedules to compile: those, `all_gather`, `broadcast`, `scatter`, `gather`, with `reduce(..)` `all_reduce`, `reduce_scatter`, `reduce`, functions of the module that are schedules (`fn name<O: Ops>(kernel: &Kernel<O>, args: &Args) -> Flow`, launched by `module::name::on`), or by path from a device crate | `all_to_all` and `sendrecv`; with `reduce(..)` `all_reduce` and `reduce_scatter` |
/// | `reduce(sum, f32)` | how what all ranks send becomes the one value that `consume` gets, and in which type: `sum`, `product`, `min`, `max`, `and`, `or`, `xor`, `average`, with `order = ranks` or `order = tree` (the default) and `result = T`, what `consume` gets in place of the accumulator, or a type that implements `Fold` | none |
/// | `grain = row(4096)` | hooks give and take rows of so many elements | elements or packs, as hooks are written |
/// | `layout(transposed)` | `produce` reads the rows of a column side by side, by tiles | packs follow each other |
/// | `uses(some_crate)` | device crates whose functions, types and constants the hooks use | none |
/// | `elements(f32, Bf16)` | element types of a module that is generic over one | not generic |
/// | `values(4, 8)` | numbers of a module that is generic over one (`const N: usize`) | not generic |
/// | `archs(sm_80, sm_90)` | PTX targets; PTX runs on its own and all later architectures | `sm_80`; with 8-bit floats `sm_80, sm_90` |
/// | `unroll(8, 4)` | packs in flight per thread, the first one is the default variant | 8 for copies, 4 by pack (and for copies of bytes; a rank alone: 1 of 8-bit floats), 2 by element (1 for 8- and 16-bit wires); a module's own schedules have one variant, the first or, of several element types, the least of these |
/// | `line_info` | PTX names source lines, for profilers and sanitizers | off |
/// | `crate = path` | where `fusewire` is | `::fusewire` |
#[proc_macro_attribute]
pub fn comm_kernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    fusewire_codegen::expand(attribute.into(), item.into(), mode()).into()
}

/// Makes a crate a *device crate*: its source is compiled for the device too, and kernels of other crates use what is in it.
///
/// In the crate's root, behind `cfg(not(target_arch = "nvptx64"))`; what the device has no use for stands behind that `cfg` as well, and
/// the crate begins with `#![cfg_attr(target_arch = "nvptx64", no_std)]`. Code for both sides names `fusewire::device`.
///
/// ```ignore
/// #[cfg(not(target_arch = "nvptx64"))]
/// fusewire::device_crate! {
///     uses another_device_crate;
///     transport Tube = TubeOps: threads, gpus, stores;
/// }
/// ```
///
/// `transport` names a type that implements `Transport`, and its device half by the path that it has on the device; then where kernels run
/// (`threads`, `gpus`), and `stores` if kernels may store into peers' memory. Kernels name it in their attribute:
/// `transports(that_crate::Tube)`. A schedule needs no declaration: `schedules(that_crate::RingShift)` names any type that implements
/// `Schedule`; the function that prepares it is `ring_shift`. Arguments of kernels may be of the crate's handle types; the attribute
/// then says `uses(that_crate)`. `docs/device-crates.md` in the repository goes through one.
#[proc_macro]
pub fn device_crate(declaration: TokenStream) -> TokenStream {
    fusewire_codegen::declare(declaration.into()).into()
}

/// Makes a struct or an enum without data, in a hook module, an argument that kernels take by value.
///
/// ```ignore
/// #[comm_kernel]
/// mod scaled {
///     #[derive(Clone, Copy, Plain)]
///     #[repr(C)]
///     pub struct Params {
///         pub scale: f32,
///         pub mode: Mode,
///     }
///     #[derive(Clone, Copy, PartialEq, Plain)]
///     #[repr(u8)]
///     pub enum Mode {
///         Add,
///         Set,
///     }
///     pub struct Args<'a> {
///         pub input: &'a [f32],
///         pub output: Out<'a, f32>,
///         pub params: Params,
///         pub clip: Option<f32>,
///     }
///     // ..
/// }
/// ```
///
/// Fields are numbers, `bool`, plain types and arrays of these. `#[repr(C)]` (or `transparent`, of an enum a number such as `u8`) makes the
/// layout the same for host and device; padding does not matter. An `Option` is a field of `Args` itself. `#[comm_kernel]` understands the
/// derive, for the device has none: it stands at the top of a hook module, and nowhere else. In a device crate `fusewire::device::plain!` does the
/// same.
#[proc_macro_derive(Plain)]
pub fn plain(item: TokenStream) -> TokenStream {
    fusewire_codegen::plain_elsewhere("Plain", item.into()).into()
}

/// Makes a struct of a hook module an element: it stands in slices and outputs, crosses the wire, and is plain data.
///
/// ```
/// # use fusewire::prelude::*;
/// #[comm_kernel(transports(Shm), schedules(all_reduce), reduce(Greatest))]
/// mod greatest {
///     use fusewire::device::fold::Fold;
///
///     #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
///     #[repr(C)]
///     pub struct Found {
///         pub value: f32,
///         pub index: u32,
///     }
///
///     pub struct Greatest;
///     impl Fold<Found> for Greatest {
///         type Acc = Found;
///         fn lift(one: Found) -> Found {
///             one
///         }
///         fn fold(left: Found, right: Found) -> Found {
///             if right.value > left.value { right } else { left }
///         }
///     }
///
///     pub struct Args<'a> {
///         pub input: &'a [Found],
///         pub output: Out<'a, Found>,
///     }
/// }
/// ```
///
/// Fields are numbers, other elements, and arrays of these; they leave no gaps. `#[repr(C)]` (or `transparent`) makes the layout the same for host and
/// device. What crosses the wire has 1, 2, 4, 8 or 16 bytes; what stays in memory may have any size. In a device crate `fusewire::device::element!`
/// does the same.
#[proc_macro_derive(Element)]
pub fn element(item: TokenStream) -> TokenStream {
    fusewire_codegen::plain_elsewhere("Element", item.into()).into()
}

/// Goes on with `#[comm_kernel]` when a device crate has answered.
#[doc(hidden)]
#[proc_macro]
pub fn __comm_kernel(answer: TokenStream) -> TokenStream {
    fusewire_codegen::expand_answer(answer.into(), mode()).into()
}

/// Editors expand macros at every keystroke: there no compiler is started. docs.rs has none.
fn mode() -> Mode {
    let in_editor = std::env::var_os("RUST_ANALYZER_INTERNALS_DO_NOT_USE").is_some()
        || std::env::current_exe()
            .is_ok_and(|exe| exe.file_name().is_some_and(|n| n.to_string_lossy().contains("rust-analyzer")));
    match in_editor {
        true => Mode::Editor,
        false if std::env::var_os("DOCS_RS").is_some() || only_checked() => Mode::CheckOnly,
        false => Mode::Compile,
    }
}

/// Whether `FUSEWIRE_CHECK_ONLY` says that this package's kernels are checked and not compiled: it names packages, or is `1` for all.
fn only_checked() -> bool {
    let packages = std::env::var("FUSEWIRE_CHECK_ONLY").unwrap_or_default();
    let own = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    packages.split(',').map(str::trim).any(|name| name == "1" || !name.is_empty() && name == own)
}
