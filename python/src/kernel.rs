//! Libraries of kernels, and what these are.

use crate::api::{self, Api};
use crate::error::misuse;
use crate::tensor;
use fusewire_capi::{fusewire_access, fusewire_field, fusewire_kernel};
use pyo3::prelude::*;
use std::ffi::{CStr, c_char};
use std::path::PathBuf;

/// A library of kernels, with the C interface.
#[pyclass(frozen, module = "fusewire._fusewire")]
pub struct Library {
    pub api: &'static Api,
    path: Option<PathBuf>,
}

#[pymethods]
impl Library {
    /// The one that comes with the package.
    #[staticmethod]
    fn bundled() -> Self {
        Library { api: api::bundled(), path: None }
    }

    /// One of the user's, which stays loaded until the process ends.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        match api::load(&path) {
            Ok(api) => Ok(Library { api, path: Some(path) }),
            Err(what) => Err(misuse(py, what)),
        }
    }

    /// Its file; `None` for the one that comes with the package.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }

    /// Its kernels.
    fn kernels(&self) -> Vec<Kernel> {
        // SAFETY: a function of the interface.
        let count = unsafe { (self.api.fusewire_kernel_count)() };
        // SAFETY: below the count, so not null; valid as long as the library.
        (0..count).map(|k| Kernel::of(self.api, unsafe { &*(self.api.fusewire_kernel_at)(k) })).collect()
    }

    /// An id by which ranks meet, made by one of them.
    fn unique_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        let mut id = [0; fusewire_capi::FUSEWIRE_UNIQUE_ID_BYTES];
        let (api, room) = (self.api, &mut id);
        // SAFETY: as many bytes.
        crate::error::waiting(py, api, move || unsafe { (api.fusewire_unique_id)(room.as_mut_ptr()) })?;
        Ok(pyo3::types::PyBytes::new(py, &id))
    }

    pub fn __repr__(&self) -> String {
        match &self.path {
            Some(path) => format!("Library({path:?})"),
            None => "Library.bundled()".into(),
        }
    }
}

/// A kernel for one element type, schedule and transport.
#[pyclass(frozen, module = "fusewire._fusewire")]
#[derive(Clone)]
pub struct Kernel {
    /// The module or the function.
    #[pyo3(get)]
    name: String,
    /// What a generic module was compiled for, as Rust calls it: "Bf16", "8" or "Bf16, 8"; else empty.
    #[pyo3(get)]
    element: String,
    /// The schedule; "custom" for a function.
    #[pyo3(get)]
    schedule: String,
    /// The transport.
    #[pyo3(get)]
    transport: String,
    /// What a launch takes, in order.
    #[pyo3(get)]
    pub fields: Vec<Field>,
    number: usize,
    pub api: &'static Api,
}

/// An argument of a kernel.
#[pyclass(frozen, get_all, module = "fusewire._fusewire")]
#[derive(Clone)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// "read", "write", "read_write", "accumulate" or "value".
    pub access: &'static str,
    /// Of elements or of a value: "float32", say; "bytes" for structs, of which elements are a tensor of "uint8" as large.
    pub dtype: &'static str,
    /// How many of the type a value is.
    pub count: usize,
    /// Bytes of an element, or of the whole value.
    pub size: usize,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether any bytes of its size are known to be one: of elements, and of values that are elements (structs with `#[derive(Element)]` among
    /// them) or arrays of these.
    pub any_bytes: bool,
}

/// A string of a library.
fn words(at: *const c_char) -> String {
    // SAFETY: strings of kernels end with zero bytes and live as long as the library.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

impl Kernel {
    fn of(api: &'static Api, kernel: &fusewire_kernel) -> Self {
        // SAFETY: as many fields.
        let fields = unsafe { std::slice::from_raw_parts(kernel.fields, kernel.field_count) };
        Kernel {
            name: words(kernel.name),
            element: words(kernel.element),
            schedule: words(kernel.schedule),
            transport: words(kernel.transport),
            fields: fields.iter().map(Field::of).collect(),
            number: kernel.number,
            api,
        }
    }

    /// The kernel of the interface.
    pub fn raw(&self) -> &'static fusewire_kernel {
        // SAFETY: its own number.
        unsafe { &*(self.api.fusewire_kernel_at)(self.number) }
    }
}

impl Field {
    fn of(field: &fusewire_field) -> Self {
        let access = match field.access {
            fusewire_access::FUSEWIRE_READ => "read",
            fusewire_access::FUSEWIRE_WRITE => "write",
            fusewire_access::FUSEWIRE_READ_WRITE => "read_write",
            fusewire_access::FUSEWIRE_ACCUMULATE => "accumulate",
            fusewire_access::FUSEWIRE_VALUE => "value",
        };
        Field {
            name: words(field.name),
            access,
            dtype: tensor::name(field.of),
            count: field.count,
            size: field.size,
            optional: field.optional,
            any_bytes: field.any_bytes,
        }
    }
}

#[pymethods]
impl Kernel {
    pub fn __repr__(&self) -> String {
        let of = if self.element.is_empty() { String::new() } else { format!("[{}]", self.element) };
        let fields: Vec<_> = self.fields.iter().map(Field::__repr__).collect();
        format!("{}{of}.{} on {}({})", self.name, self.schedule, self.transport, fields.join(", "))
    }
}

#[pymethods]
impl Field {
    pub fn __repr__(&self) -> String {
        let of =
            if self.count > 1 { format!("{}[{}]", self.dtype, self.count) } else { self.dtype.to_owned() };
        format!("{}: {of} ({})", self.name, self.access)
    }
}
