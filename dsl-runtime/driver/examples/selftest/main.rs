//! Exercises the driver layer on a machine with GPUs: `cargo run --example selftest`.
//!
//! Prints a line per check and the count. Exit code: 0 all passed, 1 something failed, 2 bad arguments, 3 no
//! usable CUDA (the error is printed), 4 it took too long. It always ends by itself.

mod graphs;
mod kernels;
mod peers;
mod processes;
mod report;
mod single;

use std::time::Duration;

use fusewire_driver::memory::{DeviceMemory, DeviceRegion};
use fusewire_driver::{
    Context, Device, DevicePtr, Driver, Function, JitOptions, LaunchConfig, Module, Params, Result, Stream,
    launch,
};

use report::{Report, pass};

/// No wait in the self-test lasts longer.
const DEADLINE: Duration = Duration::from_secs(20);

/// The whole self-test, or a child of it, is ended after this long.
const LONGEST: Duration = Duration::from_secs(240);

/// A context with a stream and the kernels.
pub struct Rig {
    /// The context.
    pub context: Context,
    /// Where its work is queued.
    pub stream: Stream,
    /// [`kernels::PTX`], loaded.
    pub module: Module,
    /// The kernel that most checks use.
    pub add_one: Function,
}

impl Rig {
    /// Opens the device and compiles the kernels.
    pub fn new(device: &Device) -> Result<Self> {
        let context = Context::new(device)?;
        let stream = Stream::new(&context)?;
        let module = Module::load_ptx(&context, kernels::PTX, &JitOptions::default())?;
        let add_one = module.function("add_one")?;
        Ok(Self { context, stream, module, add_one })
    }

    /// Queues adding 1 to `count` words at `data`.
    ///
    /// # Safety
    /// The words are valid for this device until the kernel, and every replay of it, has ended.
    pub unsafe fn queue_add_one(&self, data: DevicePtr, count: u32) -> Result<()> {
        let config = LaunchConfig::new(count.div_ceil(128), 128);
        let params = Params::new().with(data).with(count);
        // SAFETY: the caller vouches for the words; the rig keeps kernel and stream, and each of its uses
        // waits for the stream before the rig is dropped.
        unsafe { launch(&self.add_one, &config, &self.stream, &params) }
    }

    /// Waits for the stream, with the deadline.
    pub fn wait(&self) -> Result<()> {
        self.stream.synchronize_deadline(DEADLINE)
    }

    /// Device memory with these words in it.
    pub fn words(&self, words: &[u32]) -> Result<DeviceMemory> {
        let memory = DeviceMemory::new(&self.context, size_of_val(words))?;
        memory.write(0, words)?;
        Ok(memory)
    }
}

/// The first `count` words of a memory.
pub fn read_words(memory: &impl DeviceRegion, count: usize) -> Result<Vec<u32>> {
    let mut words = vec![0; count];
    memory.read(0, &mut words)?;
    Ok(words)
}

fn main() {
    std::thread::spawn(|| {
        std::thread::sleep(LONGEST);
        println!("FAIL  the self-test took longer than {LONGEST:?}");
        std::process::exit(4);
    });
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let code = match arguments[..] {
        [] => run(),
        [processes::IMPORT, ordinal, count] => processes::import(ordinal, count),
        [processes::FAULT] => processes::fault(),
        _ => {
            eprintln!("usage: selftest");
            2
        }
    };
    std::process::exit(code);
}

fn run() -> i32 {
    let devices = Driver::load().and_then(|driver| {
        println!("CUDA {}", driver.version());
        driver.devices()
    });
    let devices = match devices {
        Ok(devices) => devices,
        Err(error) => {
            println!("{error}");
            return 3;
        }
    };
    let mut report = Report::default();
    for device in &devices {
        println!("-- {device}");
        match Rig::new(device) {
            Ok(rig) => {
                single::checks(&mut report, &rig);
                graphs::checks(&mut report, &rig);
            }
            Err(error) => report.check("context, stream and module", || Err(error.into())),
        }
    }
    println!("-- between devices");
    peers::checks(&mut report, &devices);
    println!("-- between processes");
    processes::checks(&mut report, &devices);
    report.check("the driver still works at the end", || {
        let rig = Rig::new(&devices[0])?;
        let memory = rig.words(&[1; 64])?;
        // SAFETY: the memory holds 64 words and outlives the wait.
        unsafe { rig.queue_add_one(memory.ptr(), 64)? };
        rig.wait()?;
        pass(format!("{:?}", &read_words(&memory, 2)?))
    });
    report.finish()
}
