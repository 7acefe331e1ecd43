//! Parts of a device's multiprocessors.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;

use crate::error::{Error, Result, check};
use crate::handle::Handle;
use crate::{Context, Device};

/// Multiprocessors that kernels of some streams run on: a green context of the driver's.
pub(crate) struct Partition {
    place: u32,
    of: u32,
    multiprocessors: u32,
    /// The green context as a current one. It is never destroyed: making one waits for kernels.
    current: Handle<sys::CUcontext>,
}

/// By device and number of parts.
type Splits = HashMap<(usize, u32), Vec<Arc<Partition>>>;

static SPLITS: Mutex<Option<Splits>> = Mutex::new(None);

/// Streams that there are of parts of each device.
static STREAMS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A stream of a part, for as long as there is one.
pub(crate) struct Counted {
    ordinal: usize,
}

impl Counted {
    pub(crate) fn new(ordinal: usize) -> Self {
        let mut all = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() <= ordinal {
            all.resize(ordinal + 1, 0);
        }
        all[ordinal] += 1;
        Self { ordinal }
    }

    /// How many there are.
    pub(crate) fn on(ordinal: usize) -> u32 {
        STREAMS.lock().unwrap_or_else(PoisonError::into_inner).get(ordinal).copied().unwrap_or(0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        STREAMS.lock().unwrap_or_else(PoisonError::into_inner)[self.ordinal] -= 1;
    }
}

impl Partition {
    pub(crate) fn get(whole: &Context, place: u32, of: u32) -> Result<Arc<Self>> {
        if place >= of {
            return Err(Error::misuse(format!("there is no part {place} of {of}: parts are counted from 0")));
        }
        let ordinal = whole.device().ordinal();
        let mut splits = SPLITS.lock().unwrap_or_else(PoisonError::into_inner);
        let splits = splits.get_or_insert_default();
        let in_use = |parts: &Vec<Arc<Self>>| parts.iter().any(|part| Arc::strong_count(part) > 1);
        let other =
            splits.iter().find(|((device, n), parts)| *device == ordinal && *n != of && in_use(parts));
        if let Some(((_, n), _)) = other {
            return Err(Error::misuse(format!(
                "{} is divided into {n} parts that are in use: it cannot be divided into {of} beside them",
                whole.device()
            )));
        }
        let parts = match splits.get(&(ordinal, of)) {
            Some(parts) => parts,
            None => splits.entry((ordinal, of)).or_insert(Self::split(whole, of)?),
        };
        Ok(Arc::clone(&parts[place as usize]))
    }

    /// Divides a device's multiprocessors evenly.
    fn split(whole: &Context, of: u32) -> Result<Vec<Arc<Self>>> {
        let device = whole.device();
        let each = device.part_of(of).ok_or_else(|| {
            Error::unsupported(format!(
                "{} multiprocessors of {device} do not divide by {of}",
                device.sm_count()
            ))
        })?;
        whole.bind()?;
        let kind = sys::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        // SAFETY: plain data that the driver fills in; all zero is a value of it.
        let mut all: sys::CUdevResource = unsafe { std::mem::zeroed() };
        let what = || format!("dividing {device} into {of} parts of {each} multiprocessors");
        // SAFETY: `all` is a valid out-pointer and the device exists.
        let result = unsafe { sys::cuDeviceGetDevResource(device.as_raw(), &mut all, kind) };
        check(result, "cuDeviceGetDevResource", what)?;
        let mut groups = vec![all; of as usize];
        let (mut count, mut rest) = (of, all);
        // SAFETY: `groups` has room for `count` of them; all pointers are valid and the resource is the driver's own.
        let result = unsafe {
            sys::cuDevSmResourceSplitByCount(groups.as_mut_ptr(), &mut count, &all, &mut rest, 0, each)
        };
        check(result, "cuDevSmResourceSplitByCount", what)?;
        if count < of {
            return Err(Error::unsupported(format!(
                "{device} divides into {count} parts of {each}, not {of}"
            )));
        }
        let make =
            |(place, mut group): (u32, sys::CUdevResource)| Self::new(device, place, of, &mut group, &what);
        (0..of).zip(groups).map(make).collect()
    }

    fn new(
        device: &Device,
        place: u32,
        of: u32,
        group: &mut sys::CUdevResource,
        what: &dyn Fn() -> String,
    ) -> Result<Arc<Self>> {
        // A driver of another layout would have filled in something else.
        if group.type_ as u32 != sys::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM as u32 {
            return Err(Error::unsupported(format!("the driver describes parts of {device} in another way")));
        }
        // SAFETY: the type says that this field is the one that is filled in.
        let multiprocessors = unsafe { group.__bindgen_anon_1.sm.smCount };
        let (mut description, mut green) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: both pointers are valid; the group came of a split.
        let result = unsafe { sys::cuDevResourceGenerateDesc(&mut description, group, 1) };
        check(result, "cuDevResourceGenerateDesc", what)?;
        let flags = sys::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM as u32;
        // SAFETY: `green` is a valid out-pointer, the description was just made and the device exists.
        let result = unsafe { sys::cuGreenCtxCreate(&mut green, description, device.as_raw(), flags) };
        check(result, "cuGreenCtxCreate", what)?;
        let mut current = std::ptr::null_mut();
        // SAFETY: `current` is a valid out-pointer; the green context was just made.
        let result = unsafe { sys::cuCtxFromGreenCtx(&mut current, green) };
        check(result, "cuCtxFromGreenCtx", what)?;
        Ok(Arc::new(Self { place, of, multiprocessors, current: Handle(current) }))
    }

    pub(crate) fn place(&self) -> (u32, u32) {
        (self.place, self.of)
    }

    pub(crate) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    pub(crate) fn set_current(&self) -> Result<()> {
        // SAFETY: green contexts are never destroyed.
        let result = unsafe { sys::cuCtxSetCurrent(self.current.0) };
        check(result, "cuCtxSetCurrent", || format!("making part {} of {} current", self.place, self.of))
    }
}

/// Multiprocessors of each of so many parts, in the steps in which an architecture hands them out; `None` if there are too few.
pub(crate) fn each(all: u32, of: u32, major: u32) -> Option<u32> {
    let (least, step) = if major >= 9 { (8, 8) } else { (4, 2) };
    let each = all / of.max(1) / step * step;
    (each >= least).then_some(each)
}

#[cfg(test)]
mod tests {
    use super::{Counted, each};

    #[test]
    fn streams_are_counted_by_device() {
        let (one, other) = (Counted::new(90), Counted::new(91));
        let two = Counted::new(90);
        assert_eq!([90, 91, 92].map(Counted::on), [2, 1, 0]);
        drop((one, other));
        assert_eq!([90, 91].map(Counted::on), [1, 0]);
        drop(two);
        assert_eq!(Counted::on(90), 0);
    }

    #[test]
    fn parts_are_even_and_of_whole_steps() {
        assert_eq!([1, 2, 4, 8, 16].map(|of| each(132, of, 9)), [128, 64, 32, 16, 8].map(Some));
        assert_eq!(each(132, 17, 9), None);
        assert_eq!([2, 5, 27].map(|of| each(108, of, 8)), [Some(54), Some(20), Some(4)]);
        assert_eq!(each(108, 28, 8), None);
    }
}
