//! What the macro makes: on the host, and for the device. Rendered small; `cargo insta review` takes changes.

use fusewire_codegen::{Mode, Protocol, analyse, device_source, expand};
use proc_macro2::TokenStream;

const COPY: &str = "/// Copies.
pub mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        /// Where to.
        pub output: Out<'a, f32>,
        pub limit: usize,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.index().min(args.limit)]
    }
}";
const RING: &str = "fn ring<O: Ops>(kernel: &Kernel<O>, input: &[f32], times: u32) -> Flow {
    kernel.sync();
    Ok(())
}";
const AXPY: &str = "mod axpy {
    pub struct Args<'a, T> { pub input: &'a [T], pub output: Out<'a, T>, pub scale: T }
    pub fn produce<T: Float>(ctx: &Produce, args: &Args<T>) -> Pack<T> {
        args.input.pack(ctx)
    }
}";

const TAPS: &str = "mod taps {
    pub struct Args<'a, T, const N: usize> { pub input: &'a [T], pub output: Out<'a, T>, pub taps: [f32; N] }
    pub fn produce<T: Float, const N: usize>(ctx: &Produce, args: &Args<T, N>) -> T {
        T::from_f32(args.taps[0] * args.input[ctx.index()].to_f32())
    }
}";

fn tokens(text: &str) -> TokenStream {
    text.parse().unwrap()
}

fn host(attribute: &str, item: &str) -> String {
    let expanded = expand(tokens(attribute), tokens(item), Mode::CheckOnly);
    prettyplease::unparse(&syn::parse2(expanded).unwrap())
}

fn device(attribute: &str, item: &str) -> String {
    let (model, errors) = analyse(tokens(attribute), tokens(item));
    assert!(errors.messages().is_empty(), "{:?}", errors.messages());
    let model = model.unwrap();
    let entries: Vec<_> = model.entries().into_iter().filter(|e| e.transport.cuda).collect();
    prettyplease::unparse(&syn::parse_file(&device_source(&model, &entries).text).unwrap())
}

#[test]
fn hooks_on_the_host() {
    insta::assert_snapshot!(host("transports(Shm), schedules(all_to_all)", COPY));
}

#[test]
fn hooks_on_the_device() {
    insta::assert_snapshot!(device("transports(Nvl), schedules(all_to_all), unroll(8, 4)", COPY));
}

#[test]
fn hooks_of_numbers_on_the_host() {
    insta::assert_snapshot!(host(
        "transports(Shm), schedules(all_to_all), elements(f32, Bf16), values(4)",
        TAPS
    ));
}

#[test]
fn hooks_of_numbers_on_the_device() {
    insta::assert_snapshot!(device(
        "transports(Nvl), schedules(sendrecv), elements(Bf16), values(4, 8)",
        TAPS
    ));
}

#[test]
fn generic_hooks_on_the_device() {
    insta::assert_snapshot!(device("transports(Nvl), schedules(sendrecv), elements(Bf16, f64)", AXPY));
}

/// Of a rank alone a pack of 8-bit floats, which is two or more in memory, is by itself in flight.
#[test]
fn packs_in_flight() {
    let module = |wire: &str| {
        let both = format!(
            "mod narrowed {{
                pub struct Args<'a> {{ pub input: &'a [Bf16], pub output: Out<'a, Bf16> }}
                pub fn produce(ctx: &Produce, args: &Args) -> Pack<{wire}> {{ Pack::ZERO }}
                pub fn consume(ctx: &Consume, args: &Args, value: Pack<{wire}>) {{}}
            }}"
        );
        let (model, errors) = analyse(tokens("transports(Nvl), schedules(all_to_all)"), tokens(&both));
        assert!(errors.messages().is_empty(), "{:?}", errors.messages());
        let entries = model.unwrap().entries();
        [Protocol::Simple, Protocol::Ll128, Protocol::Local]
            .map(|protocol| entries.iter().find(|e| e.protocol == protocol).unwrap().unroll)
    };
    assert_eq!(module("F8E4M3"), [4, 4, 1]);
    assert_eq!(module("Bf16"), [4, 4, 4]);
}

/// Those of a module's own schedules are of its `Args`, so there is one number of them, the least that an element type has: no variants to choose among.
#[test]
fn packs_in_flight_of_own_schedules() {
    let module = "mod moved {
        pub struct Args<'a, T> { pub input: &'a [T], pub output: Out<'a, T> }
        pub fn produce<T: Element>(ctx: &Produce, args: &Args<T>) -> T { args.input[ctx.index()] }
        pub fn ring<O: Ops, T: Element>(kernel: &Kernel<O>, args: &Args<T>) -> Flow { Ok(()) }
    }";
    let own = |attribute: &str| {
        let (model, errors) = analyse(tokens(attribute), tokens(module));
        assert!(errors.messages().is_empty(), "{:?}", errors.messages());
        let entries = model.unwrap().entries().into_iter();
        let own = entries.filter(|e| e.schedule.is_some_and(|s| s.name == "ring"));
        own.map(|e| (e.unroll, e.default_variant)).collect::<Vec<_>>()
    };
    assert_eq!(own("transports(Shm), schedules(all_to_all, ring), elements(f32), unroll(8, 4)"), [(8, true)]);
    assert_eq!(own("transports(Shm), schedules(ring), elements(f32, u8)"), [(1, true), (1, true)]);
    assert_eq!(own("transports(Shm), schedules(ring), elements(f32)"), [(2, true)]);
}

#[test]
fn a_schedule_on_the_host() {
    insta::assert_snapshot!(host("transports(Shm)", RING));
}

#[test]
fn a_schedule_on_the_device() {
    insta::assert_snapshot!(device("transports(Nvl)", RING));
}

#[test]
fn what_is_refused() {
    insta::assert_snapshot!(host("transports(Nvlink), schedules(all_to_all)", COPY));
}
