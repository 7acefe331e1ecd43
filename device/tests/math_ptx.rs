//! The PTX of device math: the fast tier is the instructions that its documentation names, the exact tier rounds each operation by itself
//! and flushes nothing.

#[path = "common/device.rs"]
mod device;

use device::{ARCHS, assemble, body, compile, instructions};
use fusewire_toolchain::Arch;

fn entry(name: &str, t: &str, arguments: usize, call: &str) -> String {
    let values = ["x", "y", "z"].map(|v| format!("{v}: {t}"));
    format!(
        "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn {name}(to: *mut {t}, {}) {{ unsafe {{ *to = {call} }} }}\n",
        values[..arguments].join(", ")
    )
}

/// Functions of the exact tier, and how many arguments they have.
const EXACT: [(&str, usize); 22] = [
    ("exp", 1),
    ("exp2", 1),
    ("ln", 1),
    ("log2", 1),
    ("pow", 2),
    ("sqrt", 1),
    ("rsqrt", 1),
    ("recip", 1),
    ("tanh", 1),
    ("erf", 1),
    ("sin", 1),
    ("cos", 1),
    ("floor", 1),
    ("ceil", 1),
    ("trunc", 1),
    ("round_ties_even", 1),
    ("round", 1),
    ("fma", 3),
    ("min", 2),
    ("max", 2),
    ("min_nan", 2),
    ("max_nan", 2),
];

#[test]
fn the_exact_tier_rounds_each_operation() {
    let mut source = String::new();
    for (name, arguments) in EXACT {
        for t in ["f32", "f64"] {
            let call = format!("math::{name}({})", ["x", "y", "z"][..arguments].join(", "));
            source.push_str(&entry(&format!("{name}_{t}"), t, arguments, &call));
        }
    }
    for arch in ARCHS {
        let ptx = compile("exact_math", &source, arch);
        let report = assemble(&ptx, arch);
        assert_eq!(report.kernels.len(), 2 * EXACT.len());
        assert!(report.kernels.iter().all(|k| k.spill_stores == 0) && !ptx.contains(".local"), "{arch}");
        // Entries, and the functions that they call.
        for function in ptx.split("\n}") {
            let head = function.lines().find(|l| l.contains(".entry ") || l.contains(".func ")).unwrap_or("");
            let about = |line: &str| format!("{arch} {head}: {line}");
            for line in function.lines().map(str::trim) {
                assert!(!line.contains("ftz") && !line.contains("approx"), "{}", about(line));
                // Without `.rn` the assembler may make one fused instruction of two.
                let float = line.contains(".f32") || line.contains(".f64");
                let rounds =
                    ["add.", "sub.", "mul.", "div.", "fma.", "sqrt."].iter().any(|o| line.starts_with(o));
                assert!(!(float && rounds) || line.contains(".rn."), "{}", about(line));
                // Nor does the compiler fuse any: only what says so is.
                let vectorised = head.contains("narrow") && !head.contains("sin") && !head.contains("cos");
                assert!(!vectorised || !line.starts_with("fma."), "{}", about(line));
            }
        }
        assert!(ptx.contains("narrow") && ptx.matches("fma.rn.f64").count() > 10, "{arch}");
    }
}

/// Functions of the fast tier, how many arguments they have, and their instructions.
const FAST: [(&str, usize, &[&str]); 11] = [
    ("exp2", 1, &["ex2.approx.ftz.f32"]),
    ("exp", 1, &["mul.rn.f32", "ex2.approx.ftz.f32"]),
    ("log2", 1, &["lg2.approx.ftz.f32"]),
    ("ln", 1, &["lg2.approx.ftz.f32", "mul.rn.f32"]),
    ("pow", 2, &["lg2.approx.ftz.f32", "mul.rn.f32", "ex2.approx.ftz.f32"]),
    ("sqrt", 1, &["sqrt.approx.ftz.f32"]),
    ("rsqrt", 1, &["rsqrt.approx.ftz.f32"]),
    ("recip", 1, &["rcp.approx.ftz.f32"]),
    ("sin", 1, &["sin.approx.ftz.f32"]),
    ("cos", 1, &["cos.approx.ftz.f32"]),
    ("tanh", 1, &["tanh.approx.f32"]),
];

/// The floating-point instructions of an entry, without their operands.
fn arithmetic(ptx: &str, name: &str) -> Vec<String> {
    let body = body(ptx, name);
    let words = instructions(&body).filter_map(|line| line.split(' ').next()).map(str::to_owned);
    words.filter(|w| w.contains(".f32") || w.contains("f16x2")).collect()
}

#[test]
fn the_fast_tier_is_its_instructions() {
    let mut source = String::new();
    for (name, arguments, _) in FAST {
        let call = format!("math::fast::{name}({})", ["x", "y", "z"][..arguments].join(", "));
        source.push_str(&entry(name, "f32", arguments, &call));
    }
    for (name, t) in ["exp2", "tanh"].iter().flat_map(|name| ["F16", "Bf16"].map(|t| (name, t))) {
        let call = format!("math::fast::{name}(x)");
        source.push_str(&entry(&format!("{name}_{t}"), &format!("Pack<{t}>"), 1, &call));
    }
    source.push_str(&entry("erf", "f32", 1, "math::fast::erf(x)"));
    for arch in ARCHS {
        let ptx = compile("fast_math", &source, arch);
        assemble(&ptx, arch);
        for (name, _, want) in FAST {
            assert_eq!(arithmetic(&ptx, name), want, "{arch} {name}");
        }
        assert_eq!(arithmetic(&ptx, "exp2_F16"), ["ex2.approx.f16x2"; 4], "{arch}");
        assert_eq!(arithmetic(&ptx, "tanh_F16"), ["tanh.approx.f16x2"; 4], "{arch}");
        if arch == Arch::SM_80 {
            let of = arithmetic(&ptx, "tanh_Bf16");
            assert_eq!(of.iter().filter(|i| *i == "tanh.approx.f32").count(), 8, "{of:?}");
        } else {
            assert_eq!(arithmetic(&ptx, "exp2_Bf16"), ["ex2.approx.ftz.bf16x2"; 4], "{arch}");
            assert_eq!(arithmetic(&ptx, "tanh_Bf16"), ["tanh.approx.bf16x2"; 4], "{arch}");
        }
        // Seven for each of two polynomials where the compiler makes two of them, the exponential, and what selects.
        let erf = arithmetic(&ptx, "erf");
        assert!(erf.len() <= 30, "{arch} {erf:?}");
        assert!(!ptx.contains("call") && !ptx.contains(".local"), "{arch}");
    }
}

/// The oldest GPUs lack some of the instructions.
#[test]
fn older_gpus_have_all_functions() {
    let mut source = entry("tanh", "Pack<F16>", 1, "math::fast::tanh(x)");
    source.push_str(&entry("exp2", "Pack<Bf16>", 1, "math::fast::exp2(x)"));
    source.push_str(&entry("tanh_f32", "f32", 1, "math::fast::tanh(x)"));
    source.push_str(&entry("min_nan", "f32", 2, "math::min_nan(x, y)"));
    let ptx = compile("old_math", &source, Arch::SM_70);
    for word in ["tanh.approx", "f16x2", ".NaN"] {
        assert!(!ptx.contains(word), "{word}");
    }
}

/// What `core` has on both targets.
#[test]
fn core_has_bits_and_signs() {
    let source = entry(
        "bits",
        "f32",
        3,
        "{ let b = x.to_bits(); \
            let n = b.count_ones() + b.leading_zeros() + b.trailing_zeros() + b.rotate_left(3) + b.reverse_bits() + b.swap_bytes(); \
            f32::from_bits(n).abs().copysign(y).clamp(-2.0, 2.0) + z.to_degrees() + z.signum() }",
    );
    let ptx = compile("bits", &source, Arch::SM_90);
    assemble(&ptx, Arch::SM_90);
    for instruction in ["popc.b32", "clz.b32", "brev.b32", "prmt.b32"] {
        assert!(ptx.contains(instruction), "{instruction}");
    }
}

/// Hooks as users write them, on eight bfloat16, and the most instructions of each.
const HOOKS: [(&str, &str, usize); 5] = [
    ("gelu", "x.map_f32(|x| 0.5 * x * (1.0 + math::fast::erf(x * core::f32::consts::FRAC_1_SQRT_2)))", 240),
    (
        "gelu_tanh",
        "x.map_f32(|x| { let half = 0.5 * x; \
            math::fma(half, math::fast::tanh(x * math::fma(0.035_677_41, x * x, 0.797_884_56)), half) })",
        72,
    ),
    ("silu", "x.map_f32(|x| x * math::fast::recip(1.0 + math::fast::exp(-x)))", 62),
    (
        "softmax",
        "{ let x = x.to_f32s(); \
            let largest = x[1..8].iter().fold(x[0], |m, &x| math::max(m, x)); \
            let e: [f32; 8] = core::array::from_fn(|k| math::fast::exp(x[k] - largest)); \
            let scale = math::fast::recip(e.iter().sum::<f32>()); \
            Pack::from_f32s(|k| e[k] * scale) }",
        70,
    ),
    (
        "rmsnorm",
        "{ let x = x.to_f32s(); \
            let squares = x[..8].iter().fold(0.0, |sum, &x| math::fma(x, x, sum)); \
            let scale = math::fast::rsqrt(math::fma(squares, 0.125, 1e-5)); \
            Pack::from_f32s(|k| x[k] * scale) }",
        44,
    ),
];

/// What eight elements cost, and no branch: loads, conversions and stores are some 25 of it.
#[test]
fn hooks_are_straight_code() {
    let source = HOOKS.map(|(name, code, _)| {
        format!(
            "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn {name}(from: *const u8, to: *mut u8) {{ unsafe {{ \
                let k = 16 * arch::lane_index() as usize; \
                let x = Pack::<Bf16>::from_words(arch::load_16(from.add(k))); \
                let y: Pack<Bf16> = {code}; arch::store_16(to.add(k), y.words()) }} }}\n"
        )
    });
    for arch in ARCHS {
        let ptx = compile("math_hooks", &source.concat(), arch);
        assert!(!ptx.contains("call") && !ptx.contains(".local") && !ptx.contains("bra"), "{arch}");
        for kernel in assemble(&ptx, arch).kernels {
            assert!(kernel.registers <= 64 && kernel.spill_stores == 0, "{arch} {kernel:?}");
        }
        for (name, _, most) in HOOKS {
            let body = body(&ptx, name);
            let count = instructions(&body).filter(|line| !["{", "}"].contains(line)).count();
            assert!(count <= most, "{arch} {name}: {count} instructions");
        }
    }
}
