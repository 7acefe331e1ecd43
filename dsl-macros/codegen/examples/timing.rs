//! From an edit to PTX: what the macro costs, with a warm device library and a kernel that was never seen before.
//!
//! `cargo run --release -p fusewire-codegen --example timing`; the numbers are in `docs/performance-compile.md`.

use fusewire_codegen::{Mode, expand};
use fusewire_toolchain::Toolchain;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const ROUNDS: usize = 7;

fn main() {
    Toolchain::prepare(&mut |event| eprintln!("{event}")).unwrap_or_else(|error| panic!("{error}"));
    // Makes the device library, once.
    measure("transports(Nvl), schedules(sendrecv)", 1);
    measure("transports(Nvl), schedules(sendrecv), archs(sm_90)", 1);
    println!("| attribute | edit to PTX | again, from the cache | checks and host code alone |");
    println!("|---|---|---|---|");
    for (attribute, edits) in [
        ("transports(Nvl), schedules(sendrecv)", ROUNDS),
        ("transports(Nvl), schedules(all_to_all)", ROUNDS),
        ("transports(Nvl), schedules(all_to_all, sendrecv)", ROUNDS),
        ("transports(Nvl), schedules(all_to_all), unroll(8, 4)", ROUNDS),
        ("transports(Nvl), schedules(all_to_all), archs(sm_80, sm_90)", ROUNDS),
        ("transports(Shm), schedules(all_to_all)", ROUNDS),
    ] {
        let (edit, again, checks) = measure(attribute, edits);
        println!("| `{attribute}` | {edit:.0} ms | {again:.0} ms | {checks:.1} ms |");
    }
}

/// Medians in milliseconds of: a new text, the same text again, checks alone.
fn measure(attribute: &str, rounds: usize) -> (f64, f64, f64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..rounds {
        // A number that was never there: the cache knows nothing of this text.
        let item = format!(
            "mod edited {{
                pub struct Args<'a> {{ pub input: &'a [f32], pub output: Out<'a, f32>, pub scale: f32 }}
                pub fn produce(ctx: &Produce, args: &Args) -> f32 {{
                    args.input[ctx.index()] * args.scale + {}.0
                }}
                pub fn consume(ctx: &Consume, args: &Args, value: f32) {{
                    args.output.at(ctx).add(value);
                }}
            }}",
            (now + round as u128) % 1_000_000_007
        );
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
