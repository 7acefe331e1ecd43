//! The exact tier against `std`'s functions of `f64`, which are off by less than one unit in the last place of an `f64`; special cases; and
//! what packs and narrow elements make of it.
//!
//! `cargo test --release -p fusewire-device --test math -- --ignored --nocapture` goes through every `f32` and prints the largest errors.

use fusewire_device::prelude::*;

const NAN: u32 = 0x7fff_ffff;
const NAN_64: u64 = 0x7fff_ffff_ffff_ffff;

/// A function by its name: the exact tier of `f32` and of `f64`, and `std`'s.
type Function = (&'static str, fn(f32) -> f32, fn(f64) -> f64, fn(f64) -> f64);

fn rsqrt(x: f64) -> f64 {
    1.0 / x.sqrt()
}

const FUNCTIONS: [Function; 9] = [
    ("exp", math::exp, math::exp, f64::exp),
    ("exp2", math::exp2, math::exp2, f64::exp2),
    ("ln", math::ln, math::ln, f64::ln),
    ("log2", math::log2, math::log2, f64::log2),
    ("tanh", math::tanh, math::tanh, f64::tanh),
    ("erf", math::erf, math::erf, libm_erf),
    ("sin", math::sin, math::sin, f64::sin),
    ("cos", math::cos, math::cos, f64::cos),
    ("rsqrt", math::rsqrt, math::rsqrt, rsqrt),
];

unsafe extern "C" {
    #[link_name = "erf"]
    safe fn c_erf(x: f64) -> f64;
}

fn libm_erf(x: f64) -> f64 {
    c_erf(x)
}

/// How far `got` is from `want`, in units of the last place that an `f32` of that size has.
fn ulps(got: f32, want: f64) -> f64 {
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.to_bits() == NAN { 0.0 } else { f64::INFINITY };
    }
    // What rounds to infinity: half a unit above the largest.
    if got.is_infinite() && got.is_sign_negative() == want.is_sign_negative() {
        return if want.abs() >= f64::from(f32::MAX) + 2f64.powi(103) { 0.0 } else { f64::INFINITY };
    }
    let exponent = ((want.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(-126);
    (f64::from(got) - want).abs() / 2f64.powi(exponent - 23)
}

/// The largest error over every `stride`th `f32`, and where.
fn worst(of: fn(f32) -> f32, by: fn(f64) -> f64, stride: usize) -> (f64, f32) {
    let mut worst = (0.0, 0.0);
    for bits in (0..=u32::MAX).step_by(stride) {
        let x = f32::from_bits(bits);
        let error = ulps(of(x), by(f64::from(x)));
        if error > worst.0 {
            worst = (error, x);
        }
    }
    worst
}

#[test]
fn f32_is_rounded_once() {
    for (name, of, _, by) in FUNCTIONS {
        let (error, at) = worst(of, by, 9_973);
        assert!(error < 0.5001, "{name}({at:e}): {error} ulp");
    }
}

#[test]
#[ignore = "minutes on many cores"]
fn every_f32() {
    std::thread::scope(|scope| {
        for (name, of, _, by) in FUNCTIONS {
            scope.spawn(move || {
                let (error, at) = worst(of, by, 1);
                println!("{name:8} {error:.7} ulp at {at:e}");
                assert!(error < 0.5001, "{name}");
            });
        }
        scope.spawn(|| {
            let (error, at) = worst(fast_erf, libm_erf, 1);
            println!("fast erf {error:.7} ulp at {at:e}, but for its exponential");
        });
    });
}

/// xorshift64*; the same on every run.
fn random_bits() -> impl FnMut() -> u64 {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Bits of finite numbers of one sign are in order.
fn apart(a: f64, b: f64) -> u64 {
    if a.is_nan() && b.is_nan() { 0 } else { a.to_bits().abs_diff(b.to_bits()) }
}

#[test]
fn f64_is_close_to_std() {
    let mut random = random_bits();
    for (name, _, of, by) in FUNCTIONS {
        for k in 0..300_000 {
            let bits = random();
            // One third of all sizes, two thirds of those that neither overflow nor vanish.
            let x =
                if k % 3 == 0 { f64::from_bits(bits) } else { (bits as i64 as f64) / 2f64.powi(63 - k % 11) };
            let (got, want) = (of(x), by(x));
            let most = if name == "tanh" { 3 } else { 1 };
            assert!(apart(got, want) <= most, "{name}({x:e}): {got:e}, not {want:e}");
        }
    }
    for k in 0..300_000 {
        let x = f64::from_bits(random() >> 1);
        // So that the result is neither infinite nor zero for most.
        let y = if k % 4 == 0 {
            f64::from_bits(random())
        } else {
            (random() as i64 as f64) / 2f64.powi(63) * 700.0 / x.log2()
        };
        let (got, want) = (math::pow(x, y), x.powf(y));
        assert!(apart(got, want) <= 1, "pow({x:e}, {y:e}): {got:e}, not {want:e}");
    }
}

#[test]
fn a_power_of_f32_is_rounded_once() {
    let mut random = random_bits();
    let mut largest = 0.0;
    for _ in 0..1_000_000 {
        let bits = random();
        let x = f32::from_bits(bits as u32 >> 1);
        let y = (bits >> 32) as i32 as f32 / 2f32.powi(31) * 160.0 / (f64::from(x).log2() as f32);
        let error = ulps(math::pow(x, y), f64::from(x).powf(f64::from(y)));
        assert!(error < 0.5001, "pow({x:e}, {y:e}): {error} ulp");
        largest = f64::max(largest, error);
    }
    println!("pow {largest:.7} ulp");
}

fn bits(x: f32) -> u32 {
    x.to_bits()
}

#[test]
fn special_cases() {
    const INF: f32 = f32::INFINITY;
    let tiny = f32::from_bits(1);
    for (name, got, want) in [
        ("exp(-inf)", math::exp(-INF), 0.0),
        ("exp(inf)", math::exp(INF), INF),
        ("exp(-0)", math::exp(-0.0f32), 1.0),
        ("exp2(-149)", math::exp2(-149.0f32), tiny),
        ("exp2(-151)", math::exp2(-151.0f32), 0.0),
        ("exp2(128)", math::exp2(128.0f32), INF),
        ("ln(0)", math::ln(0.0f32), -INF),
        ("ln(-0)", math::ln(-0.0f32), -INF),
        ("ln(1)", math::ln(1.0f32), 0.0),
        ("ln(inf)", math::ln(INF), INF),
        ("log2(least)", math::log2(tiny), -149.0),
        ("sqrt(-0)", math::sqrt(-0.0f32), -0.0),
        ("rsqrt(0)", math::rsqrt(0.0f32), INF),
        ("rsqrt(-0)", math::rsqrt(-0.0f32), -INF),
        ("recip(-inf)", math::recip(-INF), -0.0),
        ("tanh(-0)", math::tanh(-0.0f32), -0.0),
        ("tanh(-inf)", math::tanh(-INF), -1.0),
        ("tanh(least)", math::tanh(tiny), tiny),
        ("erf(-0)", math::erf(-0.0f32), -0.0),
        ("erf(-inf)", math::erf(-INF), -1.0),
        ("sin(-0)", math::sin(-0.0f32), -0.0),
        ("sin(least)", math::sin(tiny), tiny),
        ("cos(0)", math::cos(0.0f32), 1.0),
        ("pow(0, 0)", math::pow(0.0f32, 0.0), 1.0),
        ("pow(nan, 0)", math::pow(f32::NAN, 0.0), 1.0),
        ("pow(1, nan)", math::pow(1.0, f32::NAN), 1.0),
        ("pow(-1, inf)", math::pow(-1.0, INF), 1.0),
        ("pow(-2, 3)", math::pow(-2.0f32, 3.0), -8.0),
        ("pow(-2, -2)", math::pow(-2.0f32, -2.0), 0.25),
        ("pow(-0, -3)", math::pow(-0.0f32, -3.0), -INF),
        ("pow(-0, 2)", math::pow(-0.0f32, 2.0), 0.0),
        ("pow(-inf, 3)", math::pow(-INF, 3.0), -INF),
        ("pow(0.5, -inf)", math::pow(0.5, -INF), INF),
        ("pow(2, -inf)", math::pow(2.0, -INF), 0.0),
        ("round_ties_even(2.5)", math::round_ties_even(2.5f32), 2.0),
        ("round_ties_even(-0.5)", math::round_ties_even(-0.5f32), -0.0),
        ("round(2.5)", math::round(2.5f32), 3.0),
        ("round(-0.5)", math::round(-0.5f32), -1.0),
        ("round(-0.25)", math::round(-0.25f32), -0.0),
        ("round(-inf)", math::round(-INF), -INF),
        ("floor(-0.5)", math::floor(-0.5f32), -1.0),
        ("ceil(-0.5)", math::ceil(-0.5f32), -0.0),
        ("trunc(-1.5)", math::trunc(-1.5f32), -1.0),
        ("fma", math::fma(1.0 + f32::EPSILON, 1.0 - f32::EPSILON, -1.0), -f32::EPSILON * f32::EPSILON),
    ] {
        assert_eq!(bits(got), bits(want), "{name}: {got:e}, not {want:e}");
    }
    for (name, got) in [
        ("ln(-1)", math::ln(-1.0f32)),
        ("log2(-inf)", math::log2(-INF)),
        ("sqrt(-1)", math::sqrt(-1.0f32)),
        ("rsqrt(-1)", math::rsqrt(-1.0f32)),
        ("sin(inf)", math::sin(INF)),
        ("cos(-inf)", math::cos(-INF)),
        ("pow(-2, 0.5)", math::pow(-2.0f32, 0.5)),
        ("fma(inf, 0, 1)", math::fma(INF, 0.0, 1.0)),
    ] {
        assert_eq!(bits(got), NAN, "{name}");
    }
    assert_eq!(math::exp2(-1074.0), f64::from_bits(1));
    assert_eq!(math::exp(1000.0), f64::INFINITY);
    assert_eq!(math::log2(f64::from_bits(1)), -1074.0);
}

#[test]
fn round_is_that_of_rust() {
    // Of every exponent, among them what adding one half would round to the next whole number.
    let narrow = (0..=u32::MAX).step_by(4093).map(f32::from_bits);
    let edges = [0.5f32.next_down(), -0.5f32.next_down(), 8_388_607.5, 8_388_609.0, f32::MAX];
    for x in narrow.chain(edges).filter(|x| !x.is_nan()) {
        assert_eq!(bits(math::round(x)), bits(x.round()), "{x:e}");
    }
    let wide = (0..1_000_000u64).map(|k| k.wrapping_mul(0x9e37_79b9_7f4a_7c15)).map(f64::from_bits);
    let small = (-100_000..100_000).map(|k| f64::from(k) / 64.0);
    let edges = [0.5f64.next_down(), -0.5f64.next_down(), 4_503_599_627_370_495.5, f64::MAX];
    for x in wide.chain(small).chain(edges).filter(|x| !x.is_nan()) {
        assert_eq!(math::round(x).to_bits(), x.round().to_bits(), "{x:e}");
    }
    for half in (0..=u16::MAX).map(F16::from_bits).filter(|half| !half.to_f32().is_nan()) {
        let got = math::round(Pack::splat(half)).get(3);
        assert_eq!(bits(got.to_f32()), bits(half.to_f32().round()), "{half:?}");
    }
}

#[test]
fn there_is_one_nan() {
    let odd = [f32::from_bits(0xffc0_1234), f32::from_bits(0x7f80_0001)];
    let one: [fn(f32) -> f32; 16] = [
        math::exp,
        math::exp2,
        math::ln,
        math::log2,
        math::sqrt,
        math::rsqrt,
        math::recip,
        math::tanh,
        math::erf,
        math::sin,
        math::cos,
        math::floor,
        math::ceil,
        math::trunc,
        math::round_ties_even,
        math::round,
    ];
    for (f, x) in one.iter().flat_map(|f| odd.map(|x| (f, x))) {
        assert_eq!(bits(f(x)), NAN);
    }
    for x in odd {
        assert_eq!(bits(math::fma(x, 1.0, 1.0)), NAN);
        assert_eq!(bits(math::min(x, x)), NAN);
        assert_eq!(bits(math::pow(x, 2.0)), NAN);
    }
    assert_eq!(math::exp(-f64::NAN).to_bits(), NAN_64);
    assert_eq!(math::min(-f64::NAN, -f64::NAN).to_bits(), NAN_64);
}

#[test]
fn extremes_order_zeros_and_nan() {
    let (x, nan) = (3.0f32, f32::NAN);
    for (a, b) in [(0.0f32, -0.0f32), (-0.0, 0.0)] {
        for min in [math::min, math::min_nan] {
            assert_eq!(bits(min(a, b)), bits(-0.0));
        }
        for max in [math::max, math::max_nan] {
            assert_eq!(bits(max(a, b)), bits(0.0));
        }
    }
    for (a, b) in [(x, nan), (nan, x)] {
        assert_eq!((math::min(a, b), math::max(a, b)), (x, x));
        assert_eq!((bits(math::min_nan(a, b)), bits(math::max_nan(a, b))), (NAN, NAN));
    }
    assert_eq!((math::min(x, -x), math::max(x, -x)), (-x, x));
    assert_eq!((math::min_nan(2.0f64, 1.0), math::max_nan(2.0f64, 1.0)), (1.0, 2.0));
}

/// Each element of a pack as the element alone, and that as its `f32`, rounded.
fn packs_as<T: Float>(values: [f32; 4]) {
    let pack = Pack::<T>::from_fn(|k| T::from_f32(values[k % 4]));
    let (exp, power) = (math::exp(pack), math::pow(pack, math::min(pack, pack)));
    pack.for_each(|k, x| {
        assert_eq!(exp.get(k).to_bits64(), math::exp(x).to_bits64(), "{} {x:?}", T::NAME);
        assert_eq!(power.get(k).to_bits64(), math::pow(x, x).to_bits64(), "{} {x:?}", T::NAME);
        if T::NAME != "f64" {
            assert_eq!(exp.get(k).to_bits64(), T::from_f32(math::exp(x.to_f32())).to_bits64());
        }
    });
}

#[test]
fn packs_and_narrow_elements() {
    let values = [0.5, -1.25, 7.0, f32::NAN];
    packs_as::<f32>(values);
    packs_as::<f64>(values);
    packs_as::<F16>(values);
    packs_as::<Bf16>(values);
    packs_as::<F8E4M3>(values);
    packs_as::<F8E5M2>(values);
    // More than an `f32` has.
    assert_eq!(math::exp(Pack::splat(1.0f64)).get(1), core::f64::consts::E);
}

#[test]
fn fast_is_exact_on_the_host() {
    for x in [0.1f32, 1.0, 2.5] {
        assert_eq!(bits(math::fast::tanh(x)), bits(math::tanh(x)));
        assert_eq!(bits(math::fast::erf(x)), bits(math::erf(x)));
        let pack = Pack::splat(F16::from_f32(x));
        assert!(math::fast::tanh(pack) == math::tanh(pack));
        let pack = Pack::splat(Bf16::from_f32(x));
        assert!(math::fast::exp2(pack) == math::exp2(pack));
    }
}

/// What the GPU computes, but for its exponential, and with one NaN.
fn fast_erf(x: f32) -> f32 {
    let y = math::fast::erf_by(x, math::exp2);
    math::min(y, y)
}

#[test]
fn fast_error_function() {
    let (error, at) = worst(fast_erf, libm_erf, 9_973);
    assert!(error < 2.0, "erf({at:e}): {error} ulp");
    assert_eq!(math::fast::erf_by(-f32::INFINITY, math::exp2), -1.0);
    assert_eq!(bits(math::fast::erf_by(-0.0, math::exp2)), bits(-0.0));
}
