//! The order of memory operations in the PTX of every entry that the macro makes: see `fusewire-flow`.

mod common;

use common::{kernel, on_gpus, ptx};
use fusewire_device::launch::{Params, Shape};
use fusewire_device::mapped::Mapped;
use fusewire_device::protocol::ll128::BUFFER;
use fusewire_flow::Roots;
use std::mem::offset_of;

/// Where addresses begin, in what an entry is launched with.
fn roots() -> Roots {
    let ops = offset_of!(Params<Mapped, (), [u64; 0]>, ops);
    let shape = offset_of!(Params<Mapped, (), [u64; 0]>, shape);
    Roots {
        own: vec![(ops + Mapped::OWN) as u64],
        tables: vec![(ops + Mapped::BASES) as u64, (shape + offset_of!(Shape, outputs)) as u64],
    }
}

fn protocol(of: fusewire_codegen::Protocol) -> fusewire_flow::Protocol {
    use fusewire_codegen::Protocol::{
        Bulk, Copy, Direct, Hierarchical, Ll, Ll128, Ll128TwoShot, Local, Simple, TwoShot,
    };
    match of {
        Simple | TwoShot | Hierarchical => fusewire_flow::Protocol::Simple,
        Ll => fusewire_flow::Protocol::Ll,
        Ll128 | Ll128TwoShot => fusewire_flow::Protocol::Ll128,
        Direct => fusewire_flow::Protocol::Direct,
        Bulk => fusewire_flow::Protocol::Bulk,
        Local => fusewire_flow::Protocol::Local,
        Copy => fusewire_flow::Protocol::Copy,
    }
}

/// Checks every entry of a kernel, as it is raised for newer GPUs.
fn ordered(name: &str, arch: &str) {
    let model = kernel(name);
    let entries = on_gpus(&model);
    let text = ptx(&model, &entries, arch, false);
    let raised = fusewire_driver::ptx::raised(&text, 9);
    assert!(raised.contains("griddepcontrol.wait"), "{name} {arch}");
    for entry in &entries {
        let symbol = entry.symbol(model.ident());
        let way = match entry.transport.label {
            "nvl" => protocol(entry.protocol),
            "ibgda" => fusewire_flow::Protocol::Posted,
            _ => continue,
        };
        let wrong = fusewire_flow::wrong(&raised, &symbol, way, &roots(), &[BUFFER - 128]);
        assert!(wrong.is_empty(), "{symbol} for {arch}:\n{}", wrong.join("\n"));
    }
}

macro_rules! ordered {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            for arch in ["sm_80", "sm_90"] {
                ordered(stringify!($name), arch);
            }
        }
    )*};
}
ordered! { copy transpose tiles_add scale_add quantise ring exchange everywhere quantised normed }
