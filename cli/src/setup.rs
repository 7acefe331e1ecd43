//! `cargo fusewire setup`: makes the device compiler ready and tells what was done.

use std::{process::ExitCode, time::Duration};

use fusewire_toolchain::{Progress, Toolchain, cache, ptxas::Ptxas};
use indicatif::{ProgressBar, ProgressStyle};

/// What `setup` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also fetch NVIDIA's ptxas where there is none, to check PTX without a GPU.
    #[arg(long)]
    pub ptxas: bool,
}

/// Prepares the toolchain.
pub fn run(args: &Args) -> Result<ExitCode, crate::Error> {
    let mut printer = Printer::default();
    let toolchain = Toolchain::prepare(&mut |event| printer.print(&event))?;
    printer.end_step();
    println!(
        "{}",
        if printer.worked { "The device compiler is ready." } else { "The device compiler was ready." }
    );
    println!("  version {}", toolchain.version());
    println!("  source  {}", toolchain.source());
    if args.ptxas {
        let ptxas = Ptxas::find_or_install()?;
        let (major, minor) = ptxas.release();
        println!("  ptxas   CUDA {major}.{minor}, {}", ptxas.path().display());
    }
    let folder = cache::dir();
    println!("  cache   {} ({:.0} MB)", folder.display(), cache::size(&folder) as f64 / 1e6);
    println!("Next: `cargo fusewire doctor` tells what this machine can run.");
    Ok(ExitCode::SUCCESS)
}

/// Prints events: a spinner for the step under way where a person looks, and a line for each step done.
#[derive(Default)]
struct Printer {
    spinner: Option<ProgressBar>,
    worked: bool,
}

impl Printer {
    fn print(&mut self, event: &Progress) {
        self.end_step();
        match event {
            Progress::Started { .. } | Progress::Waiting { .. } => {
                self.worked = true;
                let spinner = ProgressBar::new_spinner().with_style(ProgressStyle::default_spinner());
                if spinner.is_hidden() {
                    eprintln!("{event}");
                } else {
                    spinner.set_message(event.to_string());
                    spinner.enable_steady_tick(Duration::from_millis(120));
                    self.spinner = Some(spinner);
                }
            }
            _ => eprintln!("{event}"),
        }
    }

    fn end_step(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}
