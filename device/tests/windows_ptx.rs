//! The code of windows' operations: in registers, each publication one release, each wait one acquire.

#[path = "common/device.rs"]
mod device;

use device::{ARCHS, assemble, body, compile, instructions};
use fusewire_device::launch::Params;
use fusewire_device::mapped::Mapped;
use fusewire_device::window::{AllMapped, DeviceWindow, WindowParts};
use fusewire_flow::{Protocol, Roots, wrong};
use std::mem::offset_of;

/// Where the address of the window's table of peers stands in what an entry is launched with.
const TABLE: usize = offset_of!(Params<Mapped, (), [DeviceWindow<'static>; 1]>, raw)
    + offset_of!(WindowParts<AllMapped>, peers);

/// An entry that does `code` with a window over mapped peers; `source` is a slice of words.
fn entry(name: &str, code: &str) -> String {
    format!(
        "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn {name}(p: Params<Peers, Custom, Raw>) {{
            let source: &[u64] = unsafe {{ p.raw.source.slice(args::Lent::while_borrowed(&p)) }};
            let _ = unsafe {{
                custom(Grid::here(), p.ops, p.control, p.shape, |kernel| {{
                    let window = kernel.window(&p.raw.window);
                    let (peer, id, n) = (p.raw.peer as usize, p.raw.id as usize, p.raw.n);
                    {code}
                }})
            }};
        }}"
    )
}

const HEAD: &str = "
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Raw { window: DeviceWindow<'static>, source: RawSlice<u64>, peer: u64, id: u64, n: u64 }
use group::Block;
";

/// Operation, code, publications (`red` or `st` with release), acquiring loads.
const OPERATIONS: &[(&str, &str, usize, usize)] = &[
    ("signal_add", "window.signal_peer(&Block, peer, id, SignalOp::Add, n)", 1, 0),
    ("signal_set", "window.signal_peer(&Block, peer, id, SignalOp::Set, n)", 1, 0),
    ("signal_all", "window.signal_all(&Block, id, SignalOp::Add, n)", 1, 0),
    // Looks before the clock is read, and in the loop after it: that one is unrolled as it likes.
    ("wait_from", "window.wait_signal_from(&Block, peer, id, Cmp::Ge, n)", 0, 2),
    ("wait_next", "window.wait_next_from(&Block, peer, id, n)", 0, 2),
    ("wait_warp", "window.wait_next_from(&Warp, peer, id, n)", 0, 2),
    ("barrier", "window.barrier(&Block, id)", 1, 2),
    ("barrier_peer", "window.barrier_peer(&Block, peer, id)", 1, 2),
    ("wait_all", "window.wait_signal(&Block, id, Cmp::Ge, n)", 0, 0),
    ("read_all", "window.read_signal(id).map(drop)", 0, 0),
    ("barrier_grid", "window.barrier_grid(id)", 1, 2),
    ("counted", "unsafe { window.put_signal_counter(&Block, peer, id, source, id, n, 0) }", 1, 0),
    ("put", "unsafe { window.put(&Block, peer, id, source) }", 0, 0),
    ("put_signal", "unsafe { window.put_signal(&Block, peer, id, source, id, n) }", 1, 0),
    (
        "turn",
        "unsafe { window.put_signal(&Block, peer, id, source, id, n) }?; window.wait_next_from(&Block, peer, id, 1)?; \
         window.barrier(&Block, id)",
        2,
        4,
    ),
];

#[test]
fn operations_stay_in_registers_and_have_their_orders() {
    let entries = OPERATIONS.iter().map(|(name, code, ..)| entry(name, code)).collect::<String>();
    let source = format!("{HEAD}{entries}");
    for arch in ARCHS {
        let ptx = compile("windows", &source, arch);
        let raised = ptx.replace("// sm_90: ", "");
        assert!(!ptx.contains(".extern .func"), "{arch}: a function that is nowhere");
        let report = assemble(&ptx, arch);
        assert_eq!(report.kernels.len(), OPERATIONS.len(), "{arch}");
        for k in &report.kernels {
            println!("{arch} {}: {} registers", k.name, k.registers);
            assert_eq!(k.spill_stores + k.spill_loads, 0, "{arch} {}: {k:?}", k.name);
            assert!(k.registers <= 80, "{arch} {}: {k:?}", k.name);
        }
        for (name, _, publications, acquires) in OPERATIONS {
            let body = body(&ptx, name);
            let code: Vec<&str> = instructions(&body).collect();
            let count = |what: &[&str]| code.iter().filter(|l| what.iter().any(|w| l.starts_with(w))).count();
            let published = count(&["red.release.sys.add.u64", "st.release.sys.b64"]);
            assert_eq!(published, *publications, "{arch} {name}: {code:#?}");
            let acquired = count(&["ld.acquire.sys.b64"]);
            assert!(acquired >= *acquires && (*acquires > 0 || acquired == 0), "{arch} {name}: {acquired}");
            for line in &code {
                assert!(!line.contains(".local"), "{arch} {name}: {line}");
            }
            // A barrier stands before each publication: what other threads stored goes out with it.
            let first = code.iter().position(|l| l.contains("release.sys"));
            let synced = code.iter().position(|l| l.starts_with("barrier.sync") || l.starts_with("bar."));
            assert!(first.is_none() || synced < first, "{arch} {name}: published before the group is there");
        }
        // A wait ends with its whole group, beside the look at the kernel's beginning.
        for (name, ..) in
            OPERATIONS.iter().filter(|(name, ..)| name.starts_with("wait") || name.starts_with("barrier"))
        {
            let all = body(&ptx, name);
            let any = |l: &&str| l.starts_with("bar.red") || l.starts_with("vote.sync.any");
            assert!(instructions(&all).filter(any).count() >= 2, "{arch} {name}: a wait of one thread");
        }
        // Peers' words that are summed are loaded in no order, and a fence stands behind them.
        for name in ["wait_all", "read_all"] {
            let body = body(&ptx, name);
            let code: Vec<&str> = instructions(&body).collect();
            let last = |what: &str| code.iter().rposition(|line| line.starts_with(what));
            assert!(last("fence.acq_rel.sys") > last("ld.relaxed.sys.b64 %rd0"), "{arch} {name}: {code:#?}");
        }
        // The grid's gate: what every block did is seen by the last one, and what that saw by all.
        let grid = body(&ptx, "barrier_grid");
        for what in ["atom.acq_rel.gpu.add.u64", "st.release.gpu.b64", "ld.acquire.gpu.b64"] {
            assert!(grid.iter().any(|line| line.starts_with(what)), "{arch}: no {what} in a grid's barrier");
        }
        let roots = Roots { own: vec![], tables: vec![TABLE as u64] };
        for (name, ..) in OPERATIONS.iter().filter(|(.., publications, _)| *publications > 0) {
            let wrong = wrong(&raised, name, Protocol::Window, &roots, &[]);
            assert!(wrong.is_empty(), "{arch} {name}:\n{}", wrong.join("\n"));
        }
        let wide = body(&ptx, "put");
        assert!(wide.iter().filter(|l| l.contains("st.global.v4")).count() >= 4, "{arch}: four in flight");
    }
}
