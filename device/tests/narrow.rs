//! Narrow floats against independent references: other crates, and a search in the table of all values.

use fusewire_device::args::Crosses;
use fusewire_device::element::{Bf16, F8E4M3, F8E5M2, F16, Float};

/// What an overflow becomes.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    Infinity(u64),
    Saturate,
}

/// A format by its values alone: every finite magnitude in order of its bits, then what would come next.
struct Table {
    values: Vec<f64>,
    over: Over,
    nan: u64,
    sign: u64,
}

impl Table {
    /// Decodes by powers of two, as the formats' papers define them.
    fn new(exponent_bits: u32, mantissa_bits: u32, finite: u64, over: Over, nan: u64) -> Table {
        let bias = (1i32 << (exponent_bits - 1)) - 1;
        let steps = f64::from(1u32 << mantissa_bits);
        let value = |bits: u64| {
            let (e, m) = ((bits >> mantissa_bits) as i32, (bits & ((1 << mantissa_bits) - 1)) as f64);
            if e == 0 { m / steps * 2f64.powi(1 - bias) } else { (1.0 + m / steps) * 2f64.powi(e - bias) }
        };
        let sign = 1 << (exponent_bits + mantissa_bits);
        Table { values: (0..=finite + 1).map(value).collect(), over, nan, sign }
    }

    /// Nearest value, ties to the even one.
    fn round(&self, value: f64) -> u64 {
        if value.is_nan() {
            return self.nan;
        }
        let sign = if value.is_sign_negative() { self.sign } else { 0 };
        let (v, last) = (value.abs(), self.values.len() - 1);
        let up = self.values.partition_point(|&x| x < v).min(last);
        let near = if up == 0 || self.values[up] == v {
            up
        } else {
            let (below, above) = (v - self.values[up - 1], self.values[up] - v);
            if below < above || (below == above && up % 2 == 1) { up - 1 } else { up }
        };
        sign | match self.over {
            _ if near < last => near as u64,
            Over::Infinity(bits) => bits,
            Over::Saturate => last as u64 - 1,
        }
    }

    fn check<T: Float>(&self, value: f32) {
        let (got, want) = (T::from_f32(value).to_bits64(), self.round(f64::from(value)));
        assert_eq!(
            got,
            want,
            "{} of {value:e} ({:#010x}): {got:#x}, not {want:#x}",
            T::NAME,
            value.to_bits()
        );
    }

    /// Every value, every midpoint, their neighbours among `f32`, the specials, and `random` random patterns.
    fn check_all<T: Float>(&self, random: u32) {
        for pair in self.values.windows(2) {
            for exact in [pair[0], (pair[0] + pair[1]) / 2.0, pair[1]] {
                let near = exact as f32;
                let bits = near.to_bits();
                for bits in [bits.saturating_sub(2), bits.saturating_sub(1), bits, bits + 1, bits + 2] {
                    self.check::<T>(f32::from_bits(bits));
                    self.check::<T>(-f32::from_bits(bits));
                }
            }
        }
        for exponent in 0..=255u32 {
            for mantissa in [0, 1, 2, 0x3f_ffff, 0x40_0000, 0x40_0001, 0x7f_fffe, 0x7f_ffff] {
                self.check::<T>(f32::from_bits(exponent << 23 | mantissa));
                self.check::<T>(f32::from_bits(1 << 31 | exponent << 23 | mantissa));
            }
        }
        let mut random_bits = random_bits();
        for _ in 0..random {
            let bits = random_bits() as u32;
            self.check::<T>(f32::from_bits(bits));
            // Most patterns overflow or vanish; these do neither.
            let scale = (127 - 12) << 23;
            self.check::<T>(f32::from_bits((bits & 0x80ff_ffff) % (24 << 23) + scale));
        }
    }

    fn widens<T: Float>(&self) {
        for bits in 0..2 * self.sign {
            let got = T::from_bits64(bits).to_f32();
            let magnitude = bits & (self.sign - 1);
            let want = match self.values.get(magnitude as usize) {
                Some(&v) if magnitude as usize != self.values.len() - 1 => v as f32,
                _ if self.over == Over::Infinity(magnitude) => f32::INFINITY,
                _ if T::CODE == F8E5M2::CODE && magnitude == 0x7c => f32::INFINITY,
                _ => {
                    assert!(got.is_nan(), "{} {bits:#x}", T::NAME);
                    let kept = (bits as u32) << 16;
                    assert_eq!(got.to_bits(), if T::CODE == Bf16::CODE { kept } else { 0x7fff_ffff });
                    continue;
                }
            };
            let want = if bits & self.sign == 0 { want } else { -want };
            assert_eq!(got.to_bits(), want.to_bits(), "{} {bits:#x}", T::NAME);
            if want.is_finite() {
                assert_eq!(T::from_f32(got).to_bits64(), bits, "{} round trip", T::NAME);
            }
        }
    }
}

/// xorshift64*; the same on every run.
fn random_bits() -> impl FnMut() -> u64 {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

fn f16() -> Table {
    Table::new(5, 10, 0x7bff, Over::Infinity(0x7c00), 0x7fff)
}
fn bf16() -> Table {
    Table::new(8, 7, 0x7f7f, Over::Infinity(0x7f80), 0x7fff)
}
fn e4m3() -> Table {
    Table::new(4, 3, 0x7e, Over::Saturate, 0x7f)
}
fn e5m2() -> Table {
    Table::new(5, 2, 0x7b, Over::Saturate, 0x7f)
}

const RANDOM: u32 = 1_000_000;

#[test]
fn f16_rounds_to_nearest_even() {
    f16().check_all::<F16>(RANDOM);
}
#[test]
fn bf16_rounds_to_nearest_even() {
    bf16().check_all::<Bf16>(RANDOM);
}
#[test]
fn e4m3_rounds_and_saturates() {
    e4m3().check_all::<F8E4M3>(RANDOM);
    assert_eq!(F8E4M3::from_f32(f32::INFINITY).to_bits(), 0x7e);
    assert_eq!(F8E4M3::from_f32(f32::NEG_INFINITY).to_bits(), 0xfe);
    assert_eq!(F8E4M3::from_f32(-f32::NAN).to_bits(), 0x7f);
}
#[test]
fn e5m2_rounds_and_saturates() {
    e5m2().check_all::<F8E5M2>(RANDOM);
    assert_eq!(F8E5M2::from_f32(f32::INFINITY).to_bits(), 0x7b);
    assert_eq!(F8E5M2::from_f32(f32::NEG_INFINITY).to_bits(), 0xfb);
    assert_eq!(F8E5M2::from_f32(-f32::NAN).to_bits(), 0x7f);
}

#[test]
fn every_pattern_widens() {
    f16().widens::<F16>();
    bf16().widens::<Bf16>();
    e4m3().widens::<F8E4M3>();
    e5m2().widens::<F8E5M2>();
}

#[test]
fn other_crates_agree() {
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    for bits in 0..=u16::MAX {
        let (a, b) = (F16::from_bits(bits).to_f32(), half::f16::from_bits(bits).to_f32());
        assert!(same(a, b), "f16 {bits:#x}: {a:e}, half says {b:e}");
        let (a, b) = (Bf16::from_bits(bits).to_f32(), half::bf16::from_bits(bits).to_f32());
        assert!(same(a, b), "bf16 {bits:#x}: {a:e}, half says {b:e}");
    }
    for bits in 0..=u8::MAX {
        let (a, b) = (F8E4M3::from_bits(bits).to_f32(), float8::F8E4M3::from_bits(bits).to_f32());
        assert!(same(a, b), "e4m3 {bits:#x}: {a:e}, float8 says {b:e}");
        let (a, b) = (F8E5M2::from_bits(bits).to_f32(), float8::F8E5M2::from_bits(bits).to_f32());
        assert!(same(a, b), "e5m2 {bits:#x}: {a:e}, float8 says {b:e}");
    }
    let mut random_bits = random_bits();
    for _ in 0..RANDOM {
        let v = f32::from_bits(random_bits() as u32);
        if !v.is_nan() {
            assert_eq!(F16::from_f32(v).to_bits(), half::f16::from_f32(v).to_bits(), "f16 of {v:e}");
            assert_eq!(Bf16::from_f32(v).to_bits(), half::bf16::from_f32(v).to_bits(), "bf16 of {v:e}");
        }
    }
}

/// `a op b` for every pair given, against the exact result rounded once.
fn arithmetic<T>(table: &Table, pairs: impl Iterator<Item = (u64, u64)>, exact_sums: bool)
where
    T: Float
        + std::ops::Add<Output = T>
        + std::ops::Sub<Output = T>
        + std::ops::Mul<Output = T>
        + std::ops::Neg<Output = T>,
{
    for (a, b) in pairs {
        let (x, y) = (T::from_bits64(a), T::from_bits64(b));
        let (p, q) = (f64::from(x.to_f32()), f64::from(y.to_f32()));
        assert_eq!((x * y).to_bits64(), table.round(p * q), "{} {x:?} * {y:?}", T::NAME);
        if exact_sums {
            assert_eq!((x + y).to_bits64(), table.round(p + q), "{} {x:?} + {y:?}", T::NAME);
            assert_eq!((x - y).to_bits64(), table.round(p - q), "{} {x:?} - {y:?}", T::NAME);
        } else {
            assert_eq!((x + y).to_bits64(), table.round(f64::from(x.to_f32() + y.to_f32())));
            assert_eq!((x - y).to_bits64(), table.round(f64::from(x.to_f32() - y.to_f32())));
        }
        assert_eq!((-x).to_bits64(), table.round(-p));
    }
}

#[test]
fn arithmetic_rounds_once() {
    let bytes = || (0..256u64).flat_map(|a| (0..256).map(move |b| (a, b)));
    arithmetic::<F8E4M3>(&e4m3(), bytes(), true);
    arithmetic::<F8E5M2>(&e5m2(), bytes(), true);
    let words = || {
        let mut random_bits = random_bits();
        (0..300_000).map(move |_| {
            let bits = random_bits();
            (bits & 0xffff, bits >> 16 & 0xffff)
        })
    };
    arithmetic::<F16>(&f16(), words(), true);
    // A bfloat16 sum may need more bits than an f64 has.
    arithmetic::<Bf16>(&bf16(), words(), false);
}

#[test]
fn wide_floats_have_one_nan() {
    let negative = f64::from_bits(0xfff8_0000_0000_0123);
    assert_eq!(negative.to_f32().to_bits(), 0x7fff_ffff);
    assert_eq!(f64::from_f32(-f32::NAN).to_bits(), 0x7fff_ffff_ffff_ffff);
    assert_eq!(f64::from_f32(1.5), 1.5);
}
