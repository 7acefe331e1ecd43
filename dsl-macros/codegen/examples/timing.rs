//! From an edit to PTX: what the macro costs, with a warm device library and a kernel that was never seen before.
//!
//! `cargo run --release -p fusewire-codegen --example timing`; the numbers are in `docs/performance-compile.md`. With an argument behind `--`, only the
//! attributes that contain it: `-- row`.

use fusewire_codegen::{Mode, expand};
use fusewire_toolchain::Toolchain;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const ROUNDS: usize = 7;

/// Of a kernel of whole rows.
const ROWS: &str = "schedules(all_reduce), grain = row(4096), reduce(sum, f32)";

fn main() {
    Toolchain::prepare(&mut |event| eprintln!("{event}")).unwrap_or_else(|error| panic!("{error}"));
    // Makes the device library, once.
    measure("transports(Nvl), schedules(sendrecv)", 1);
    measure("transports(Nvl), schedules(sendrecv), archs(sm_90)", 1);
    let asked = std::env::args().nth(1).unwrap_or_default();
    println!("| attribute | edit to PTX | again, from the cache | checks and host code alone |");
    println!("|---|---|---|---|");
    for (attribute, edits) in [
        ("transports(Nvl), schedules(sendrecv)", ROUNDS),
        ("transports(Nvl), schedules(all_to_all)", ROUNDS),
        ("transports(Nvl), schedules(all_to_all, sendrecv)", ROUNDS),
        ("transports(Nvl), schedules(all_to_all), unroll(8, 4)", ROUNDS),
        ("transports(Nvl), schedules(all_to_all), archs(sm_80, sm_90)", ROUNDS),
        ("transports(Shm), schedules(all_to_all)", ROUNDS),
        (&format!("transports(Nvl), {ROWS}"), ROUNDS),
        (&format!("transports(Nvl), {ROWS}, archs(sm_90)"), ROUNDS),
    ] {
        if !attribute.contains(&asked) {
            continue;
        }
        let (edit, again, checks) = measure(attribute, edits);
        println!("| `{attribute}` | {edit:.0} ms | {again:.0} ms | {checks:.1} ms |");
    }
}

/// A module that is new with each number: hooks of elements, or of rows that are quantised on their way.
fn module(attribute: &str, number: u128) -> String {
    if attribute.contains("row") {
        return format!(
            "mod edited {{
                pub struct Args<'a> {{ pub input: &'a [Bf16], pub output: Out<'a, Bf16> }}
                pub fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 128> {{
                    args.input.row(ctx).to_f32().map(|x| x + {number}.0).quantise(ctx)
                }}
            }}"
        );
    }
    format!(
        "mod edited {{
            pub struct Args<'a> {{ pub input: &'a [f32], pub output: Out<'a, f32>, pub scale: f32 }}
            pub fn produce(ctx: &Produce, args: &Args) -> f32 {{
                args.input[ctx.index()] * args.scale + {number}.0
            }}
            pub fn consume(ctx: &Consume, args: &Args, value: f32) {{
                args.output.at(ctx).add(value);
            }}
        }}"
    )
}

/// Medians in milliseconds of: a new text, the same text again, checks alone.
fn measure(attribute: &str, rounds: usize) -> (f64, f64, f64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..rounds {
        // A number that was never there: the cache knows nothing of this text.
        let item = module(attribute, (now + round as u128) % 1_000_000_007);
        for (times, mode) in times.iter_mut().zip([Mode::Compile, Mode::Compile, Mode::CheckOnly]) {
            let (attribute, item) = (attribute.parse().expect("tokens"), item.parse().expect("tokens"));
            let started = Instant::now();
            let tokens = expand(attribute, item, mode).to_string();
            times.push(started.elapsed().as_secs_f64() * 1e3);
            assert!(!tokens.contains("compile_error"), "{tokens}");
        }
    }
    let mut medians = times.map(|mut t| {
        t.sort_by(f64::total_cmp);
        t[t.len() / 2]
    });
    let [a, b, c] = &mut medians;
    (*a, *b, *c)
}
