//! The baselines' header names the sizes and offsets that this side has.

use fusewire::device::args::RawSlice;
use fusewire::device::launch::{Params, Shape};
use fusewire::device::mapped::{Layout, Mapped, MappedParts};
use fusewire::device::protocol::ll128 as line;
use fusewire::device::schedule::AllToAll;
use fusewire::device::wait::Control;
use fusewire::ops::NvlOps;
use std::mem::offset_of;

/// The raw arguments of `fused::copy` and `fused::transpose`.
#[allow(dead_code)]
#[repr(C)]
struct Raw {
    input: RawSlice<f32>,
    output: RawSlice<f32>,
}

type Launch = Params<NvlOps, AllToAll, Raw>;

#[test]
fn the_header_agrees() {
    let header = include_str!("../baselines/protocol.cuh");
    let raw = offset_of!(Launch, raw);
    let said = [
        format!("sizeof(Layout) == {}", size_of::<Layout>()),
        format!("sizeof(Mapped) == {}", size_of::<Mapped>()),
        format!("sizeof(Control) == {}", size_of::<Control>()),
        format!("sizeof(Shape) == {}", size_of::<Shape>()),
        format!("sizeof(Params) == {}", size_of::<Launch>()),
        format!("offsetof(Mapped, own) == {}", offset_of!(MappedParts, own)),
        format!("offsetof(Mapped, bases) == {}", offset_of!(MappedParts, bases)),
        format!("offsetof(Shape, outputs) == {}", offset_of!(Shape, outputs)),
        format!("offsetof(Shape, channels) == {}", offset_of!(Shape, channels)),
        format!("offsetof(Params, control) == {}", offset_of!(Launch, control)),
        format!("offsetof(Params, shape) == {}", offset_of!(Launch, shape)),
        format!("offsetof(Params, input) == {}", raw + offset_of!(Raw, input)),
        format!("offsetof(Params, output) == {}", raw + offset_of!(Raw, output)),
        format!("LINE_PACKS = {};", line::PACKS),
        format!("ROW_PACKS = {};", line::ROW_PACKS),
    ];
    for text in said {
        assert!(header.contains(&text), "bench/baselines/protocol.cuh does not say `{text}`");
    }
    assert_eq!(
        line::BUFFER,
        line::PACKS / u64::from(line::ROW_PACKS) * 512 + 128,
        "`BUFFER` of the baselines is another"
    );
}
