//! Launches.

use crate::error::{checked, misuse, waiting};
use crate::handle::{Handle, Passed};
use crate::kernel::{Field, Kernel};
use crate::open::Open;
use crate::stream;
use crate::tensor::Tensor;
use crate::world::milliseconds;
use fusewire_capi::{
    FUSEWIRE_NOBODY, fusewire_call, fusewire_field, fusewire_launcher, fusewire_protocol,
    fusewire_type::{self, FUSEWIRE_OTHER, FUSEWIRE_U8},
    fusewire_value,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView, PyString, PyTuple};
use std::ffi::c_char;
use std::sync::Arc;

/// How a launch is cut; equal on all ranks. What is not given is chosen from the size.
#[pyclass(frozen, module = "fusewire._fusewire")]
pub struct Options(fusewire_call);

const NOTHING: fusewire_call = fusewire_call {
    root: 0,
    to: FUSEWIRE_NOBODY,
    from: FUSEWIRE_NOBODY,
    blocks: 0,
    elements: 0,
    rows: 0,
    cols: 0,
    protocol: fusewire_protocol::FUSEWIRE_BY_SIZE,
    channels: 0,
    threads: 0,
    most_blocks: 0,
    chunk: 0,
    deadline_ms: 0,
};

#[pymethods]
impl Options {
    #[new]
    #[pyo3(signature = (*, elements=None, shape=None, protocol=None, channels=None, threads=None, blocks=None, chunk=None, deadline=None))]
    fn new(
        py: Python<'_>,
        elements: Option<usize>,
        shape: Option<(usize, usize)>,
        protocol: Option<&str>,
        channels: Option<u32>,
        threads: Option<u32>,
        blocks: Option<u32>,
        chunk: Option<usize>,
        deadline: Option<f64>,
    ) -> PyResult<Self> {
        let by_name = |name: &str| {
            let found = name.parse().map_err(|error: fusewire::Error| misuse(py, error.to_string()))?;
            PyResult::Ok(fusewire_protocol::from(Some(found)))
        };
        let (rows, cols) = shape.unwrap_or_default();
        Ok(Options(fusewire_call {
            elements: elements.unwrap_or(0),
            rows,
            cols,
            protocol: protocol.map(by_name).transpose()?.unwrap_or(NOTHING.protocol),
            channels: channels.unwrap_or(0),
            threads: threads.unwrap_or(0),
            most_blocks: blocks.unwrap_or(0),
            chunk: chunk.unwrap_or(0),
            deadline_ms: milliseconds(py, deadline, "deadline")?,
            ..NOTHING
        }))
    }
}

/// A kernel that was prepared on a transport. Calling it launches: with the kernel's arguments, by position or by name.
#[pyclass(frozen, module = "fusewire._fusewire")]
pub struct Launcher {
    handle: Handle<fusewire_launcher>,
    on: Arc<Open>,
    title: String,
    fields: Vec<Field>,
    of: Vec<fusewire_type>,
    names: Vec<Py<PyString>>,
}

/// What a call is made of, beside its arguments.
struct Asked<'a, 'py> {
    stream: Option<&'a Bound<'py, PyAny>>,
    root: usize,
    to: Option<i64>,
    from: Option<i64>,
    blocks: u32,
    options: Option<&'a Options>,
}

/// Arguments of the C interface, and what they point to.
struct Values {
    values: Vec<fusewire_value>,
    /// The producers' current stream.
    current: Option<usize>,
    _bytes: Vec<Box<[u8]>>,
    tensors: Vec<Tensor>,
}

impl Launcher {
    pub fn new(py: Python<'_>, handle: Handle<fusewire_launcher>, on: Arc<Open>, kernel: &Kernel) -> Self {
        let raw = kernel.raw();
        // SAFETY: as many fields.
        let raw: &[fusewire_field] = unsafe { std::slice::from_raw_parts(raw.fields, raw.field_count) };
        Launcher {
            handle,
            on,
            title: kernel.__repr__(),
            fields: kernel.fields.clone(),
            of: raw.iter().map(|field| field.of).collect(),
            names: kernel.fields.iter().map(|field| PyString::intern(py, &field.name).unbind()).collect(),
        }
    }

    /// The argument of each field.
    fn given<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let py = args.py();
        let mut given = Vec::with_capacity(self.fields.len());
        let mut by_name = 0;
        for (k, (field, name)) in self.fields.iter().zip(&self.names).enumerate() {
            let found = named.map(|named| named.get_item(name.bind(py))).transpose()?.flatten();
            by_name += usize::from(found.is_some());
            let at_place = (k < args.len()).then(|| args.get_item(k)).transpose()?;
            match (at_place, found) {
                (Some(one), None) | (None, Some(one)) => given.push(one),
                (Some(_), Some(_)) => {
                    return Err(misuse(
                        py,
                        format!("argument `{}` of {} was given twice", field.name, self.title),
                    ));
                }
                (None, None) if field.optional => given.push(py.None().into_bound(py)),
                (None, None) => {
                    return Err(misuse(
                        py,
                        format!("argument `{}` of {} is missing", field.name, self.title),
                    ));
                }
            }
        }
        let extra = named.into_iter().flat_map(|named| named.keys());
        if args.len() > self.fields.len() || by_name < named.map_or(0, |named| named.len()) {
            let known = |key: &Bound<'_, PyAny>| {
                self.fields.iter().any(|f| key.extract::<String>().is_ok_and(|k| k == f.name))
            };
            let unknown = extra.into_iter().find(|key| !known(key)).map(|key| format!(" `{key}`"));
            return Err(misuse(
                py,
                format!(
                    "{} has no argument{}",
                    self.title,
                    unknown.unwrap_or_else(|| format!(" number {}", self.fields.len()))
                ),
            ));
        }
        Ok(given)
    }

    /// The values for the interface. `as_bytes`: elements of any type, as so many of the field's.
    fn values(&self, given: &[Bound<'_, PyAny>], stream: Option<usize>, as_bytes: bool) -> PyResult<Values> {
        let mut values = Values {
            values: Vec::with_capacity(given.len()),
            current: None,
            _bytes: Vec::new(),
            tensors: Vec::with_capacity(given.len()),
        };
        for ((field, of), object) in self.fields.iter().zip(&self.of).zip(given) {
            if field.optional && object.is_none() {
                values.values.push(fusewire_value { data: std::ptr::null(), len: 0, of: *of });
                continue;
            }
            if field.access == "value" {
                let bytes = plain(field, *of, object)?;
                let data = bytes.as_ptr().cast();
                values.values.push(fusewire_value { data, len: bytes.len(), of: *of });
                values._bytes.push(bytes);
                continue;
            }
            let tensor = Tensor::of(object, &field.name, stream)?;
            // The bytes of structs.
            let of = if *of == FUSEWIRE_OTHER { FUSEWIRE_U8 } else { *of };
            let len = self.fits(object.py(), field, of, &tensor, as_bytes)?;
            values.current = values.current.or(tensor.stream.filter(|_| tensor.device >= 0));
            values.values.push(fusewire_value { data: tensor.data, len, of });
            values.tensors.push(tensor);
        }
        Ok(values)
    }

    /// How many elements of the field a tensor is.
    fn fits(
        &self,
        py: Python<'_>,
        field: &Field,
        of: fusewire_type,
        tensor: &Tensor,
        as_bytes: bool,
    ) -> PyResult<usize> {
        let name = &field.name;
        if tensor.device != self.on.device {
            let at = |device: i32| if device < 0 { "the CPU".to_owned() } else { format!("GPU {device}") };
            let (own, found) = (at(self.on.device), at(tensor.device));
            return Err(misuse(
                py,
                format!("argument `{name}` is on {found}, but the kernel runs on {own}: move it there"),
            ));
        }
        if tensor.read_only && field.access != "read" {
            return Err(misuse(py, format!("argument `{name}` is read-only, but the kernel writes it")));
        }
        match as_bytes {
            // What is left over is seen when the sizes are compared.
            true => Ok(tensor.bytes / field.size),
            false if tensor.of == Some(of) => Ok(tensor.len),
            _ => {
                let should = match field.dtype {
                    "bytes" => "uint8, the bytes of its structs",
                    dtype => dtype,
                };
                let found = &tensor.dtype;
                Err(misuse(py, format!("argument `{name}` has dtype {found}, but should have {should}")))
            }
        }
    }

    fn launch(
        &self,
        py: Python<'_>,
        given: &[Bound<'_, PyAny>],
        asked: &Asked<'_, '_>,
        as_bytes: bool,
        sized: impl FnOnce(&Values) -> PyResult<()>,
    ) -> PyResult<()> {
        let stream = asked.stream.map(stream::raw).transpose()?;
        let values = self.values(given, stream, as_bytes)?;
        sized(&values)?;
        let stream = self.on.stream(py, stream, values.current)?;
        let call = called(asked);
        let (api, values) = (self.handle.api, &values.values);
        let (launcher, transport, at) = (self.handle.get(), self.on.handle.get(), stream.get());
        if self.on.device >= 0 {
            // SAFETY: objects of one library. The tensors' memory is given back in the order of the stream, and values are of their fields.
            let status = unsafe {
                (api.fusewire_launch)(launcher.0, transport.0, at.0, values.as_ptr(), values.len(), &call)
            };
            return checked(py, api, status);
        }
        let values = Passed(values.as_ptr().cast_mut());
        let count = self.fields.len();
        // SAFETY: as above, but that the tensors are kept until the launch has ended.
        waiting(py, api, move || unsafe {
            let status =
                (api.fusewire_launch)(launcher.get(), transport.get(), at.get(), values.get(), count, &call);
            match status {
                fusewire_capi::fusewire_status::FUSEWIRE_OK => (api.fusewire_stream_synchronize)(at.get(), 0),
                refused => refused,
            }
        })
    }
}

fn called(asked: &Asked<'_, '_>) -> fusewire_call {
    fusewire_call {
        root: asked.root,
        to: asked.to.unwrap_or(FUSEWIRE_NOBODY),
        from: asked.from.unwrap_or(FUSEWIRE_NOBODY),
        blocks: asked.blocks,
        ..asked.options.map_or(NOTHING, |options| options.0)
    }
}

#[pymethods]
impl Launcher {
    /// Queues one launch with one argument for each field, by position or by name. On CPU threads it has ended when this returns; on a GPU it
    /// runs on `stream`, or on the current stream of the tensors' library.
    #[pyo3(signature = (*args, stream=None, root=0, to=None, from_=None, blocks=0, options=None, **fields))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        stream: Option<&Bound<'py, PyAny>>,
        root: usize,
        to: Option<i64>,
        from_: Option<i64>,
        blocks: u32,
        options: Option<&Options>,
        fields: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        let asked = Asked { stream, root, to, from: from_, blocks, options };
        self.launch(py, &self.given(args, fields)?, &asked, false, |_| Ok(()))
    }

    /// A collective: `out` has `times / parts` as many bytes as `x`; without `x` it is in place. Of copies the elements are taken for bytes.
    #[pyo3(signature = (x, out, times, parts, stream, options, copies, root, to, from_, /))]
    fn _run(
        &self,
        py: Python<'_>,
        x: Option<Bound<'_, PyAny>>,
        out: Bound<'_, PyAny>,
        times: usize,
        parts: usize,
        stream: Option<&Bound<'_, PyAny>>,
        options: Option<&Options>,
        copies: bool,
        root: usize,
        to: Option<i64>,
        from_: Option<i64>,
    ) -> PyResult<()> {
        let sized = |values: &Values| match &values.tensors[..] {
            [x, out] if x.bytes.checked_mul(times) != out.bytes.checked_mul(parts) => {
                let should = x.bytes as f64 * times as f64 / parts as f64;
                Err(misuse(py, format!("`out` has {} bytes, but should have {should}", out.bytes)))
            }
            _ => Ok(()),
        };
        let asked = Asked { stream, root, to, from: from_, blocks: 0, options };
        match x {
            Some(x) => self.launch(py, &[x, out], &asked, copies, sized),
            None => self.launch(py, &[out], &asked, copies, sized),
        }
    }

    /// How such a launch would be cut, in words.
    #[pyo3(signature = (*args, root=0, to=None, from_=None, options=None, **fields))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        root: usize,
        to: Option<i64>,
        from_: Option<i64>,
        options: Option<&Options>,
        fields: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<String> {
        let values = self.values(&self.given(args, fields)?, None, false)?.values;
        let call = called(&Asked { stream: None, root, to, from: from_, blocks: 0, options });
        let (api, mut text) = (self.handle.api, [0u8; 1024]);
        let (launcher, transport) = (self.handle.get().0, self.on.handle.get().0);
        // SAFETY: objects of one library, and as much room.
        let status = unsafe {
            let room = text.as_mut_ptr().cast::<c_char>();
            (api.fusewire_explain)(
                launcher,
                transport,
                values.as_ptr(),
                values.len(),
                &call,
                room,
                text.len(),
            )
        };
        checked(py, api, status)?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    /// What it takes, in order.
    #[getter]
    fn fields(&self) -> Vec<Field> {
        self.fields.clone()
    }

    fn __repr__(&self) -> String {
        self.title.clone()
    }
}

/// The bytes of a value of the field's type, for every object: the launch relies on it.
fn plain(field: &Field, of: fusewire_type, object: &Bound<'_, PyAny>) -> PyResult<Box<[u8]>> {
    let py = object.py();
    let wrong = |why: String| {
        let of = field.__repr__();
        misuse(
            py,
            format!("{of} cannot be {}: {why}", object.repr().map_or("this".into(), |text| text.to_string())),
        )
    };
    if of == FUSEWIRE_OTHER {
        return given_bytes(field, object)?.map_err(wrong);
    }
    let number = |one: &Bound<'_, PyAny>| number(of, one).map_err(|error| wrong(error.to_string()));
    if field.count == 1 {
        return Ok(number(object)?.into());
    }
    let all: Vec<Bound<'_, PyAny>> = object.try_iter()?.collect::<PyResult<_>>()?;
    if all.len() != field.count {
        return Err(wrong(format!("it has {} values", all.len())));
    }
    Ok(all.iter().map(number).collect::<PyResult<Vec<_>>>()?.concat().into())
}

/// The bytes that stand for a value of a type without a number. The inner error says why these do not.
fn given_bytes(field: &Field, object: &Bound<'_, PyAny>) -> PyResult<Result<Box<[u8]>, String>> {
    let size = field.size;
    if !field.any_bytes {
        return Ok(Err("not all bytes are a value of its type in Rust, so Python cannot make one; give the type `#[derive(Element)]` (a struct of \
                       numbers without gaps), or make its parts fields of `Args`"
            .into()));
    }
    let should =
        format!("give {size} bytes, as a `ctypes.Structure`, a structured scalar of NumPy or `bytes`");
    let Ok(bytes) = PyMemoryView::from(object) else {
        return Ok(Err(format!("a {} has no bytes; {should}", object.get_type().name()?)));
    };
    match bytes.getattr("nbytes")?.extract::<usize>()? {
        found if found == size => Ok(Ok(bytes.call_method0("tobytes")?.extract::<Vec<u8>>()?.into())),
        found => Ok(Err(format!("it has {found} bytes; {should}"))),
    }
}

/// The bytes of a number of Python, or of a scalar of NumPy or torch.
fn number(of: fusewire_type, one: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    use fusewire_capi::fusewire_type::*;
    macro_rules! as_is {
        ($t:ty) => {
            one.extract::<$t>()?.to_ne_bytes().to_vec()
        };
    }
    Ok(match of {
        FUSEWIRE_U8 => as_is!(u8),
        FUSEWIRE_U16 => as_is!(u16),
        FUSEWIRE_U32 => as_is!(u32),
        FUSEWIRE_U64 | FUSEWIRE_USIZE => as_is!(u64),
        FUSEWIRE_I8 => as_is!(i8),
        FUSEWIRE_I16 => as_is!(i16),
        FUSEWIRE_I32 => as_is!(i32),
        FUSEWIRE_I64 | FUSEWIRE_ISIZE => as_is!(i64),
        FUSEWIRE_F32 => as_is!(f32),
        FUSEWIRE_F64 => as_is!(f64),
        FUSEWIRE_BOOL => vec![u8::from(one.extract::<bool>()?)],
        FUSEWIRE_F16 | FUSEWIRE_BF16 | FUSEWIRE_F8E4M3 | FUSEWIRE_F8E5M2 => narrow(of, one.extract()?),
        FUSEWIRE_OTHER => Vec::new(),
    })
}

/// A narrow float, rounded to nearest even as hooks do.
fn narrow(of: fusewire_type, value: f32) -> Vec<u8> {
    use fusewire::device::element::{Bf16, F8E4M3, F8E5M2, F16, Float};
    match of {
        fusewire_type::FUSEWIRE_F16 => F16::from_f32(value).to_bits().to_ne_bytes().to_vec(),
        fusewire_type::FUSEWIRE_BF16 => Bf16::from_f32(value).to_bits().to_ne_bytes().to_vec(),
        fusewire_type::FUSEWIRE_F8E4M3 => vec![F8E4M3::from_f32(value).to_bits()],
        _ => vec![F8E5M2::from_f32(value).to_bits()],
    }
}
