//! The kernels of the library, for C.

use crate::{export, fusewire_status, given, guard, misuse};
use fusewire::device::args::{Crosses, made_of};
use fusewire::dynamic::{Access, Field, Kernel};
use std::ffi::{CString, c_char};
use std::sync::LazyLock;

/// Types of elements and values.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fusewire_type {
    /// None of those below: a value of so many bytes.
    FUSEWIRE_OTHER = 0,
    /// `uint8_t`.
    FUSEWIRE_U8 = 1,
    /// `uint16_t`.
    FUSEWIRE_U16 = 2,
    /// `uint32_t`.
    FUSEWIRE_U32 = 3,
    /// `uint64_t`.
    FUSEWIRE_U64 = 4,
    /// `int8_t`.
    FUSEWIRE_I8 = 5,
    /// `int16_t`.
    FUSEWIRE_I16 = 6,
    /// `int32_t`.
    FUSEWIRE_I32 = 7,
    /// `int64_t`.
    FUSEWIRE_I64 = 8,
    /// `float`.
    FUSEWIRE_F32 = 9,
    /// `double`.
    FUSEWIRE_F64 = 10,
    /// IEEE half precision.
    FUSEWIRE_F16 = 11,
    /// bfloat16.
    FUSEWIRE_BF16 = 12,
    /// 8-bit float with 4 bits of exponent, without infinities.
    FUSEWIRE_F8E4M3 = 13,
    /// 8-bit float with 5 bits of exponent.
    FUSEWIRE_F8E5M2 = 14,
    /// `size_t`.
    FUSEWIRE_USIZE = 256,
    /// `ptrdiff_t`.
    FUSEWIRE_ISIZE = 257,
    /// One byte, 0 or 1.
    FUSEWIRE_BOOL = 258,
}
use fusewire_type::*;

const TYPES: [fusewire_type; 17] = [
    FUSEWIRE_U8,
    FUSEWIRE_U16,
    FUSEWIRE_U32,
    FUSEWIRE_U64,
    FUSEWIRE_I8,
    FUSEWIRE_I16,
    FUSEWIRE_I32,
    FUSEWIRE_I64,
    FUSEWIRE_F32,
    FUSEWIRE_F64,
    FUSEWIRE_F16,
    FUSEWIRE_BF16,
    FUSEWIRE_F8E4M3,
    FUSEWIRE_F8E5M2,
    FUSEWIRE_USIZE,
    FUSEWIRE_ISIZE,
    FUSEWIRE_BOOL,
];

impl fusewire_type {
    /// Its number among [`Crosses::CODE`]s; 0 for any other type.
    pub(crate) const fn code(self) -> u64 {
        self as u64
    }

    /// Bytes of one; 0 for any other type.
    pub(crate) const fn size(self) -> usize {
        match self {
            FUSEWIRE_OTHER => 0,
            FUSEWIRE_U8 | FUSEWIRE_I8 | FUSEWIRE_F8E4M3 | FUSEWIRE_F8E5M2 | FUSEWIRE_BOOL => 1,
            FUSEWIRE_U16 | FUSEWIRE_I16 | FUSEWIRE_F16 | FUSEWIRE_BF16 => 2,
            FUSEWIRE_U32 | FUSEWIRE_I32 | FUSEWIRE_F32 => 4,
            FUSEWIRE_U64 | FUSEWIRE_I64 | FUSEWIRE_F64 | FUSEWIRE_USIZE | FUSEWIRE_ISIZE => 8,
        }
    }
}
// A number here is the type's own.
const _: () = assert!(
    <f32 as Crosses>::CODE == FUSEWIRE_F32.code()
        && <fusewire::device::element::F8E5M2 as Crosses>::CODE == FUSEWIRE_F8E5M2.code()
        && <bool as Crosses>::CODE == FUSEWIRE_BOOL.code()
        && <usize as Crosses>::CODE == FUSEWIRE_USIZE.code()
);

/// What becomes of an argument.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fusewire_access {
    /// Elements that the kernel reads.
    FUSEWIRE_READ = 0,
    /// Elements that it writes.
    FUSEWIRE_WRITE = 1,
    /// Elements that it adds to.
    FUSEWIRE_ACCUMULATE = 2,
    /// A value.
    FUSEWIRE_VALUE = 3,
    /// Elements that it reads, and writes when they have been sent.
    FUSEWIRE_READ_WRITE = 4,
}

/// An argument of a kernel.
#[repr(C)]
#[derive(Debug)]
pub struct fusewire_field {
    /// Its name.
    pub name: *const c_char,
    /// What becomes of it.
    pub access: fusewire_access,
    /// Of elements: their type, `FUSEWIRE_OTHER` for structs, whose bytes a launch is given as `FUSEWIRE_U8`. Of a value: its type, or that of the
    /// elements of an array.
    pub of: fusewire_type,
    /// Of a value: how many of the type it is, 1 for a number.
    pub count: usize,
    /// Bytes of an element, or of the whole value.
    pub size: usize,
    /// Whether a value may be left out: then its `data` is null.
    pub optional: bool,
    /// Whether any bytes of its size are known to be one: of elements, and of values that are elements (in Rust, structs with
    /// `#[derive(Element)]` among them) or arrays of these. Of a `bool`, say, some bytes are no value.
    pub any_bytes: bool,
}

/// A kernel for one element type, number, schedule and transport. Valid as long as the library is loaded.
#[repr(C)]
#[derive(Debug)]
pub struct fusewire_kernel {
    /// The module or the function.
    pub name: *const c_char,
    /// What a generic module was compiled for: "Bf16", "8" or "Bf16, 8"; else empty.
    pub element: *const c_char,
    /// The schedule, such as "all_to_all"; "custom" for a function.
    pub schedule: *const c_char,
    /// The transport, such as "Nvl".
    pub transport: *const c_char,
    /// What a launch takes, in order.
    pub fields: *const fusewire_field,
    /// How many fields there are.
    pub field_count: usize,
    /// Its number, from 0.
    pub number: usize,
}

/// A kernel, what C sees of it, and the strings of that.
pub(crate) struct Described {
    pub(crate) kernel: Kernel,
    pub(crate) seen: fusewire_kernel,
    _strings: Vec<CString>,
    _fields: Box<[fusewire_field]>,
}

// SAFETY: the pointers are to the strings and fields beside them, which are never written.
unsafe impl Send for Described {}
// SAFETY: as above.
unsafe impl Sync for Described {}

static KERNELS: LazyLock<Vec<Described>> = LazyLock::new(|| {
    export::kernels().into_iter().enumerate().map(|(k, kernel)| described(k, kernel)).collect()
});

fn described(number: usize, kernel: Kernel) -> Described {
    let mut strings = Vec::new();
    let mut string = |text: &str| {
        let text = CString::new(text).unwrap_or_default();
        let at = text.as_ptr();
        strings.push(text);
        at
    };
    let [name, element, schedule, transport] =
        [kernel.name, kernel.element, kernel.schedule, kernel.transport].map(&mut string);
    let field = |field: &Field| {
        let (of, count) = made(field);
        let access = match field.access {
            Access::Read => fusewire_access::FUSEWIRE_READ,
            Access::Write => fusewire_access::FUSEWIRE_WRITE,
            Access::ReadWrite => fusewire_access::FUSEWIRE_READ_WRITE,
            Access::AddTo => fusewire_access::FUSEWIRE_ACCUMULATE,
            Access::Value => fusewire_access::FUSEWIRE_VALUE,
        };
        fusewire_field {
            name: string(field.name),
            access,
            of,
            count,
            size: field.size,
            optional: field.optional,
            any_bytes: field.any_bytes,
        }
    };
    let fields: Box<[_]> = kernel.fields.iter().map(field).collect();
    let seen = fusewire_kernel {
        name,
        element,
        schedule,
        transport,
        fields: fields.as_ptr(),
        field_count: fields.len(),
        number,
    };
    Described { kernel, seen, _strings: strings, _fields: fields }
}

/// What a value is made of: a number, or an array of numbers.
fn made(field: &Field) -> (fusewire_type, usize) {
    let own = TYPES.into_iter().find(|of| of.code() == field.code);
    let array = |of: &fusewire_type| {
        let count = field.size / of.size();
        made_of(made_of(2, count as u64), of.code()) == field.code
    };
    match own {
        Some(of) => (of, 1),
        None => match TYPES.into_iter().find(array) {
            Some(of) => (of, field.size / of.size()),
            None => (FUSEWIRE_OTHER, 1),
        },
    }
}

/// The kernel that C points to.
///
/// # Safety
/// It came from [`fusewire_kernel_at`] or is null.
pub(crate) unsafe fn kernel(at: *const fusewire_kernel) -> fusewire::Result<&'static Described> {
    // SAFETY: the caller's contract.
    let number = unsafe { given(at, "kernel")? }.number;
    KERNELS.get(number).ok_or_else(|| misuse(format!("there is no kernel {number}")))
}

/// How many kernels the library has.
#[unsafe(no_mangle)]
pub extern "C" fn fusewire_kernel_count() -> usize {
    KERNELS.len()
}

/// A kernel by its number; null if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn fusewire_kernel_at(number: usize) -> *const fusewire_kernel {
    KERNELS.get(number).map_or(std::ptr::null(), |described| &raw const described.seen)
}

/// Finds a kernel by its name, schedule, transport and element type; the last may be null or empty where there is one alone.
///
/// # Safety
/// As the crate says; `out` takes the kernel, which is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_kernel_find(
    name: *const c_char,
    schedule: *const c_char,
    transport: *const c_char,
    element: *const c_char,
    out: *mut *const fusewire_kernel,
) -> fusewire_status {
    guard(|| {
        let text = |at, name| match at {
            // SAFETY: the caller's contract.
            at if !<*const c_char>::is_null(at) => unsafe { crate::text(at, name) },
            _ => Ok(""),
        };
        let asked = [text(name, "name")?, text(schedule, "schedule")?, text(transport, "transport")?];
        let element = text(element, "element")?;
        let fits = |described: &&Described| {
            let Kernel { name, schedule, transport, element: of, .. } = described.kernel;
            [name, schedule, transport] == asked && (element.is_empty() || element == of)
        };
        let found: Vec<_> = KERNELS.iter().filter(fits).collect();
        let [only] = found[..] else {
            let [name, schedule, transport] = asked;
            let of = if element.is_empty() { String::new() } else { format!(" of {element}") };
            let there: Vec<_> =
                KERNELS.iter().filter(|d| d.kernel.name == name).map(|d| words(&d.kernel)).collect();
            let there = match there.is_empty() {
                true => "no kernel of that name was exported".to_owned(),
                false => format!("there are {}", there.join(", ")),
            };
            let what = match found.is_empty() {
                true => "no kernel of this library",
                false => "more than one kernel: name the element type",
            };
            return Err(misuse(format!("`{name}`{of} by {schedule} on {transport} is {what}; {there}")));
        };
        if out.is_null() {
            return Err(misuse("`out` is null"));
        }
        // SAFETY: the caller's contract.
        unsafe { out.write(&raw const only.seen) };
        Ok(())
    })
}

fn words(kernel: &Kernel) -> String {
    let of = if kernel.element.is_empty() { String::new() } else { format!(" of {}", kernel.element) };
    format!("{} on {}{of}", kernel.schedule, kernel.transport)
}
