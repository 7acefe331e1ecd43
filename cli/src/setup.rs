//! `cargo fusewire setup`: prepares the device compiler and tells what there is then.

use std::{process::ExitCode, time::Duration};

use fusewire_toolchain::{Progress, Toolchain, ptxas::Ptxas};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{report, toolchain_facts};

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
    let mut findings = vec![toolchain_facts::compiler(&Ok(toolchain))];
    if args.ptxas {
        findings.push(toolchain_facts::assembler(Some(&Ptxas::find_or_install()?)));
    }
    findings.push(toolchain_facts::cache());
    let done =
        if printer.worked { "The device compiler was prepared." } else { "Nothing was left to prepare." };
    report::print(&findings, &format!("{done} `cargo fusewire doctor` tells what this machine can run."));
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
