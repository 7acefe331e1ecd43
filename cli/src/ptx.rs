//! `cargo fusewire ptx`: the PTX of a kernel, for any schedule, transport and architecture.

mod find;

use std::{io::Write, path::PathBuf, process::ExitCode};

use find::Kernel;
use fusewire_codegen::{
    CompileOptions, ELEMENTS, Entry, Instance, Item, Model, SCHEDULES, Schedule, TRANSPORTS, Transport,
    compile, nearest,
};
use fusewire_toolchain::{Arch, Toolchain, ptxas::Ptxas};

/// What `ptx` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The hook module or schedule function: its name, or the end of its path (`hooks::copy`).
    #[arg(required_unless_present = "list")]
    pub kernel: Option<String>,
    /// The package whose kernels are meant: its Cargo.toml or its folder.
    #[arg(long, value_name = "PATH", default_value = ".")]
    pub manifest_path: PathBuf,
    /// List every kernel of the package with what it is compiled for. Those that its macros write are known when they were built since the last edit of
    /// its sources; else the macros' calls are listed.
    #[arg(long)]
    pub list: bool,
    /// A shipped schedule, also one that the attribute does not name. Default: the first one of the attribute.
    #[arg(long)]
    pub schedule: Option<String>,
    /// A transport on GPUs, also one that the attribute does not name. Default: the first one of the attribute.
    #[arg(long)]
    pub transport: Option<String>,
    /// A GPU architecture, such as `sm_90`. Default: the first one of the attribute.
    #[arg(long)]
    pub arch: Option<String>,
    /// Element type, for a generic module. Default: the first one of the attribute.
    #[arg(long)]
    pub element: Option<String>,
    /// Number, for a module that is generic over one. Default: the first one of the attribute.
    #[arg(long)]
    pub value: Option<String>,
    /// Packs in flight: 1, 2, 4 or 8. Default: as the attribute says.
    #[arg(long, value_parser = ["1", "2", "4", "8"])]
    pub unroll: Option<String>,
    /// How bytes travel: `simple` through rings, small chunks by `ll128` in lines that carry their flags or by `ll` in words that do, `direct` into symmetric outputs,
    /// there by `bulk` copies, or by the engine that makes a `copy`; all-reduces, broadcasts and reduces in two steps, `two_shot`, and all-reduces by
    /// `ll128_two_shot`; on meshes `hierarchical`, by domains: all-reduces, broadcasts, reduces, all-gathers and reduce-scatters.
    #[arg(long, value_parser = fusewire::Protocol::ALL.map(fusewire::Protocol::name), default_value = "simple")]
    pub protocol: String,
    /// Name lines of the source in the PTX.
    #[arg(long)]
    pub line_info: bool,
    /// Print what ptxas makes of it instead: registers, spills, stack. (`cargo fusewire setup --ptxas` fetches ptxas.)
    #[arg(long)]
    pub explain: bool,
}

/// Prints; whoever reads may have enough before the end (`| head`).
fn out(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

macro_rules! say {
    ($($what:tt)*) => { out(&(format!($($what)*) + "\n")) };
}

/// Shows PTX.
pub fn run(args: &Args) -> Result<ExitCode, crate::Error> {
    let package = find::kernels(&args.manifest_path)?;
    let Some(name) = args.kernel.as_ref().filter(|_| !args.list) else {
        for kernel in package.kernels.iter().filter(|k| args.kernel.as_ref().is_none_or(|name| k.is(name))) {
            say!("{}", describe(kernel));
        }
        // Any of them may be of that name.
        for call in &package.written {
            let within = if call.within.is_empty() { String::new() } else { format!(" in {}", call.within) };
            say!("written by `{}!`{within}  {}:{}", call.by, call.file.display(), call.line);
            say!(
                "    its kernels are listed at the lines of their names, if they were built since the last edit"
            );
        }
        return Ok(ExitCode::SUCCESS);
    };
    let kernel = find::one(&package, name)?;
    let model = kernel.model.as_ref().map_err(|refused| crate::Error::Misuse(refused.clone()))?;
    let entry = entry(model, args)?;
    let arch = args.arch.clone().unwrap_or_else(|| model.options.archs[0].clone());
    let target: Arch = arch.parse().map_err(|e| crate::Error::Misuse(format!("{e}")))?;
    let toolchain = Toolchain::find()?;
    let options = CompileOptions { arch, line_info: args.line_info || model.options.line_info };
    let compiled = compile(&toolchain, model, std::slice::from_ref(&entry), &options).map_err(|errors| {
        let told = errors.placed().into_iter().map(|(line, column, what)| match kernel.expanded {
            // Lines are those of what the macro was given.
            true => format!("{}:{}: {what}", kernel.file.display(), kernel.line),
            false => format!("{}:{line}:{}: {what}", kernel.file.display(), column + 1),
        });
        crate::Error::Misuse(told.collect::<Vec<_>>().join("\n"))
    })?;
    if !args.explain {
        out(&compiled.text);
        return Ok(ExitCode::SUCCESS);
    }
    let report =
        Ptxas::find()?.check(&compiled.text, target).map_err(|e| crate::Error::Misuse(e.to_string()))?;
    for k in &report.kernels {
        say!("{} for {target}", k.name);
        say!("  registers  {:>6} a thread", k.registers);
        say!("  shared     {:>6} bytes a block, static", k.shared_bytes);
        say!("  barriers   {:>6}", k.barriers);
        say!("  stack      {:>6} bytes a thread", k.stack_bytes);
        say!("  spills     {:>6} bytes stored, {} loaded", k.spill_stores, k.spill_loads);
    }
    for f in &report.functions {
        say!("  calls      {} ({} bytes of stack)", f.name, f.stack_bytes);
    }
    let lines = compiled.text.lines().count();
    let how = if compiled.from_cache { "from the cache" } else { "compiled" };
    say!("  PTX        {lines:>6} lines, {how} in {:.2} s", compiled.seconds);
    Ok(ExitCode::SUCCESS)
}

/// One line of `--list`.
fn describe(kernel: &Kernel) -> String {
    let place = format!("{}:{}", kernel.file.display(), kernel.line);
    let model = match &kernel.model {
        Ok(model) => model,
        Err(refused) => return format!("{}  {place}\n    refused: {refused}", kernel.path),
    };
    let names = |all: &mut dyn Iterator<Item = &str>| all.collect::<Vec<_>>().join(" ");
    let options = &model.options;
    let mut text = format!("{}  {place}\n", kernel.path);
    if let Item::Hooks(_) = &model.item {
        text += &format!("    schedules   {}\n", names(&mut options.schedules.iter().map(|s| s.name)));
    } else {
        text += "    a schedule of its own\n";
    }
    text += &format!("    transports  {}\n", names(&mut options.transports.iter().map(|(t, _)| t.name)));
    if !options.elements.is_empty() {
        text += &format!("    elements    {}\n", names(&mut options.elements.iter().map(|e| e.0.as_str())));
    }
    if !options.values.is_empty() {
        text += &format!("    values      {}\n", names(&mut options.values.iter().map(|v| v.0.as_str())));
    }
    text + &format!("    archs       {}", names(&mut options.archs.iter().map(String::as_str)))
}

/// The entry that the command line asks for.
fn entry(model: &Model, args: &Args) -> Result<Entry, crate::Error> {
    let options = &model.options;
    let refuse = |why: String| Err(crate::Error::Misuse(why));
    let transport: Transport = match &args.transport {
        Some(name) => *named("transport", name, TRANSPORTS, |t| t.name)?,
        None => match options.transports.iter().find(|(t, _)| t.cuda).or(options.transports.first()) {
            Some((t, _)) => *t,
            None => TRANSPORTS[0],
        },
    };
    if !transport.cuda {
        let gpus: Vec<_> = TRANSPORTS.iter().filter(|t| t.cuda).map(|t| t.name).collect();
        return refuse(format!(
            "kernels on `{}` run on CPU threads and have no PTX; name one of {} with `--transport`",
            transport.name,
            gpus.join(", ")
        ));
    }
    let schedule: Option<Schedule> = match (&model.item, &args.schedule) {
        (Item::Schedule(_), None) => None,
        (Item::Schedule(_), Some(_)) => {
            return refuse(format!("`{}` is a schedule itself: leave `--schedule` out", model.ident()));
        }
        (Item::Hooks(_), Some(name)) => Some(*named("schedule", name, SCHEDULES, |s| s.name)?),
        (Item::Hooks(_), None) => Some(*options.schedules.first().unwrap_or(&SCHEDULES[0])),
    };
    let element = match (&args.element, options.elements.first()) {
        (None, first) => first.map(|(name, path, _)| (name.as_str(), path.as_str())),
        (Some(_), None) => {
            return refuse(format!(
                "`{}` is not generic over an element type: leave `--element` out",
                model.ident()
            ));
        }
        (Some(name), Some(_)) => {
            let (name, path) = named("element type", name, ELEMENTS, |e| e.0)?;
            Some((*name, *path))
        }
    };
    let value = match (&args.value, options.values.first()) {
        (None, first) => first.map(|(value, _)| value.as_str()),
        (Some(_), None) => {
            return refuse(format!("`{}` is not generic over a number: leave `--value` out", model.ident()));
        }
        (Some(value), Some(_)) if value.parse::<u64>().is_ok() || value.parse::<bool>().is_ok() => {
            Some(value.as_str())
        }
        (Some(value), Some(_)) => {
            return refuse(format!("`{value}` is no value for `--value`: a whole number, `true` or `false`"));
        }
    };
    let instance = Instance::of(element, value);
    let protocols = model.protocols(schedule.as_ref(), &transport);
    let Some(&protocol) = protocols.iter().find(|p| p.word() == args.protocol) else {
        let names: Vec<_> = protocols.iter().map(|p| p.word()).collect();
        return refuse(format!(
            "`{}` is not compiled to travel by `{}` here: there is {}",
            model.ident(),
            args.protocol,
            names.join(", ")
        ));
    };
    let own = model.unrolls(&instance, protocol);
    let unroll = match (&args.unroll, &model.item) {
        (Some(_), Item::Schedule(_)) => {
            return refuse(format!("`{}` is a schedule itself: leave `--unroll` out", model.ident()));
        }
        (Some(text), _) => text.parse().unwrap_or(own[0]),
        (None, _) => own[0],
    };
    Ok(Entry { schedule, transport, instance, protocol, unroll, default_variant: unroll == own[0] })
}

fn named<'a, T>(
    what: &str,
    name: &str,
    all: &'a [T],
    of: impl Fn(&T) -> &'static str,
) -> Result<&'a T, crate::Error> {
    if let Some(found) = all.iter().find(|t| of(t) == name) {
        return Ok(found);
    }
    let names: Vec<_> = all.iter().map(&of).collect();
    let hint = nearest(name, names.iter().copied())
        .map(|n| format!(": did you mean `{n}`?"))
        .unwrap_or_else(|| ".".into());
    Err(crate::Error::Misuse(format!("there is no {what} `{name}`{hint} There are {}", names.join(", "))))
}
