//! NVIDIA's assembler takes what the compiler makes. Installs ptxas into the cache where there is none.

use std::path::Path;

use fusewire_toolchain::{
    Arch, Target, Toolchain, Unit,
    ptxas::{Ptxas, PtxasError},
};

const SOURCE: &str = r#"#![no_std]
#![feature(abi_ptx, asm_experimental_arch)]
#[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }

static mut COUNT: u32 = 0;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn sum(values: *mut u32, len: usize, at: usize) {
    let values = unsafe { core::slice::from_raw_parts_mut(values, len) };
    values[at] = values.iter().copied().filter(|x| x % 3 == 1).sum::<u32>().isqrt();
    values[at + 1] = values.iter().max().copied().unwrap();
    unsafe { core::arch::asm!("red.release.sys.global.add.u32 [{0}], 1;", in(reg64) &raw mut COUNT) };
}
"#;

fn toolchain() -> Toolchain {
    Toolchain::prepare(&mut |event| eprintln!("{event}")).unwrap_or_else(|error| panic!("{error}"))
}

fn ptxas() -> Ptxas {
    Ptxas::find_or_install().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_architecture_assembles() {
    let (toolchain, ptxas) = (toolchain(), ptxas());
    for arch in
        ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103", "sm_120", "sm_121"]
    {
        let arch: Arch = arch.parse().unwrap();
        for line_info in [false, true] {
            let target = Target::new(arch).with_line_info(line_info);
            let ptx = toolchain.kernel(&Unit::new("every", SOURCE, &target)).unwrap();
            let report = ptxas.check(&ptx.text, arch).unwrap_or_else(|error| panic!("{target}: {error}"));
            let sum = report.kernel("sum").unwrap();
            assert!((8..=64).contains(&sum.registers), "{target}: {report:?}");
            assert!(!report.spills(), "{target}: {report:?}");
        }
    }
}

#[test]
fn line_info_names_the_users_file() {
    let file = Path::new("/project/src/hooks.rs");
    let target = Target::new(Arch::SM_90).with_line_info(true);
    let unit = Unit { file: Some(file), ..Unit::new("lines", SOURCE, &target) };
    let ptx = toolchain().kernel(&unit).unwrap().text;
    let number = ptx.lines().find_map(|line| {
        let rest = line.trim().strip_prefix(".file")?;
        let (number, name) = rest.trim().split_once(|c: char| c.is_whitespace())?;
        name.contains("/project/src/hooks.rs").then(|| number.to_owned())
    });
    let number = number.expect("a .file line for the unit");
    let at = format!(".loc\t{number} 10 ");
    assert!(ptx.contains(&at), "{at}");
    let bare = toolchain().kernel(&Unit { file: None, ..unit.clone() }).unwrap().text;
    let files: Vec<&str> = bare.lines().filter(|line| line.contains(".file")).collect();
    assert!(files.iter().any(|line| line.ends_with("\"lines.rs\"")), "{files:?}");
    assert!(files.iter().all(|line| line.contains("lines.rs") || line.contains("\"/rustc/")), "{files:?}");
    let plain = Target::new(Arch::SM_90);
    let plain = toolchain().kernel(&Unit { target: &plain, ..unit }).unwrap().text;
    assert!(!plain.contains(".loc") && !plain.contains(".file"));
}

#[test]
fn wrong_ptx_is_refused_with_its_line() {
    let target = Target::new(Arch::SM_90);
    let text = toolchain().kernel(&Unit::new("wrong", SOURCE, &target)).unwrap().text;
    let error = ptxas().check(&text.replace("red.release.sys", "red.never.sys"), Arch::SM_90).unwrap_err();
    let PtxasError::Refused { messages, .. } = error else { panic!("{error}") };
    assert!(messages.contains("kernel.ptx, line "), "{messages}");
}
