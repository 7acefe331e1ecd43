//! What a kernel is, once parsed.

mod instance;
mod ways;

pub use instance::{Given, Instance, Params};

use crate::crates::DeviceCrate;
use crate::syntax::calls::by_index;
use crate::tables::{Protocol, SCHEDULES, Schedule, Transport};
use proc_macro2::{Ident, Span, TokenStream};
use std::path::PathBuf;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Generics, Path, Type, Visibility};

/// A `#[comm_kernel]` item.
#[derive(Debug)]
pub struct Model {
    /// The attribute.
    pub options: Options,
    /// Module or function.
    pub item: Item,
    /// The item as written, without the attribute.
    pub tokens: TokenStream,
    /// The device crates that the attribute names, where it does.
    pub named: Vec<Ident>,
    /// Errors that were found in the attribute.
    pub attribute_errors: usize,
    /// The file that the tokens' lines and columns are of, where they were not read by the compiler.
    pub file: Option<SourceFile>,
}

/// A file that was read and parsed outside the compiler.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Its path.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// The two forms.
#[derive(Debug)]
pub enum Item {
    /// Hooks for shipped schedules.
    Hooks(Box<HookModule>),
    /// A schedule of the user's own.
    Schedule(Box<ScheduleFn>),
}

/// `#[comm_kernel(..)]`.
#[derive(Debug)]
pub struct Options {
    /// Asked-for transports, with the spans of their names.
    pub transports: Vec<(Transport, Span)>,
    /// Asked-for schedules.
    pub schedules: Vec<Schedule>,
    /// Architectures to make PTX for.
    pub archs: Vec<String>,
    /// Element types that a generic hook module is compiled for: name, path below the device crate, span.
    pub elements: Vec<(String, String, Span)>,
    /// Numbers that a hook module is compiled for, with their spans.
    pub values: Vec<(String, Span)>,
    /// Variants: packs in flight per thread. Empty: chosen from the hooks' grain.
    pub unroll: Vec<u32>,
    /// `layout(transposed)`, where it was written: `produce` reads the rows of a column side by side.
    pub transposed: Option<Span>,
    /// `grain = row(N)`: elements of a row, and where that was written.
    pub row: Option<(usize, Span)>,
    /// `reduce(..)`: how what ranks contribute becomes one value.
    pub reduce: Option<Reduce>,
    /// Whether the PTX names lines of the source.
    pub line_info: bool,
    /// Names of the options that were given, where they were.
    pub given: Vec<(String, Span)>,
    /// Path of the `fusewire` crate.
    pub krate: Path,
    /// Paths of other crates' transports and schedules, and where they stand.
    pub paths: Vec<(&'static str, Span)>,
    /// The device crates that the attribute names.
    pub crates: Vec<DeviceCrate>,
    /// The word `comm_kernel` has no span here; errors about the whole attribute go to its first token.
    pub span: Span,
}

impl Options {
    /// Whether the attribute has the option `name`, right or wrong.
    pub fn gives(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| given == name)
    }
}

/// `reduce(sum, f32, order = tree, result = Bf16)`, or `reduce(path::of::a::Fold)`.
#[derive(Clone, Debug)]
pub struct Reduce {
    /// The word `reduce`.
    pub span: Span,
    /// What folds.
    pub fold: Fold,
    /// What `consume` gets of it, if that is not the accumulator.
    pub result: Option<Type>,
}

impl Reduce {
    /// As the attribute has it.
    pub fn text(&self) -> String {
        let fold = self.fold.text();
        self.result
            .as_ref()
            .map_or_else(|| fold.clone(), |result| format!("{fold}, result = {}", bare(result)))
    }
}

/// Without spaces.
fn bare(tokens: impl quote::ToTokens) -> String {
    tokens.to_token_stream().to_string().split_whitespace().collect()
}

/// What folds.
#[derive(Clone, Debug)]
pub enum Fold {
    /// A type of `fusewire_device::fold`, its accumulator, and whether it goes from rank 0 up instead of by a tree.
    Shipped(&'static str, Box<Type>, bool),
    /// A type of the module's, or that it uses.
    Own(Path),
}

impl Fold {
    fn text(&self) -> String {
        match self {
            Fold::Shipped(name, accumulator, ranks) => {
                let order = if *ranks { "ranks" } else { "tree" };
                format!("{}, {}, order = {order}", name.to_lowercase(), bare(accumulator))
            }
            Fold::Own(path) => bare(path),
        }
    }
}

/// `mod m { pub struct Args; fn produce; fn consume }`.
#[derive(Debug)]
pub struct HookModule {
    /// Visibility of the module.
    pub vis: Visibility,
    /// Its name.
    pub ident: Ident,
    /// Attributes of the module (documentation).
    pub attrs: Vec<TokenStream>,
    /// `struct Args`.
    pub args: Option<Args>,
    /// `fn produce`.
    pub produce: Option<Hook>,
    /// `fn consume`.
    pub consume: Option<Hook>,
    /// Where a function first reads what stands at the transposed index.
    pub asks_shape: Option<Span>,
    /// Other functions: inlined too.
    pub fns: Vec<Span>,
    /// Their signatures: schedules may be among them.
    pub others: Vec<syn::Signature>,
    /// The contents with `#[inline(always)]` on each function: for the device.
    pub inlined: TokenStream,
    /// The contents with `#[inline]` on each function that says nothing of it: for the host, whose loops over packs vectorise with the
    /// hook in them alone.
    pub hosted: TokenStream,
    /// `Clone` and `Copy` where they are implemented for `Args` by hand.
    pub copies: Vec<&'static str>,
    /// Names of its structs, enums and unions but `Args`.
    pub types: Vec<Ident>,
    /// Those of them that are plain data.
    pub plain: Vec<PlainType>,
    /// The bodies of its other functions, by their names.
    pub bodies: Vec<(Ident, TokenStream)>,
    /// Names of all items but the hooks and `Args`.
    pub names: Vec<Ident>,
}

/// A type of a hook module that derives `Plain` or `Element`.
#[derive(Debug)]
pub struct PlainType {
    /// Its name.
    pub ident: Ident,
    /// What `__plain!` or `__element!` gets.
    pub parts: TokenStream,
    /// Whether it is an element.
    pub element: bool,
    /// The tokens that the device's text is to be without.
    pub word: Vec<Span>,
}

impl HookModule {
    fn fields(&self) -> &[Field] {
        self.args.as_ref().map_or(&[], |args| &args.fields)
    }

    /// What is sent and overwritten by what arrives, if there is such a field; of several the first.
    pub fn in_place(&self) -> Option<&Field> {
        in_place(self.fields())
    }

    /// What goes on the wire without `produce`.
    pub fn input(&self) -> Option<&Field> {
        input(self.fields())
    }

    /// What takes what arrives without `consume`.
    pub fn output(&self) -> Option<&Field> {
        output(self.fields())
    }
}

fn in_place(fields: &[Field]) -> Option<&Field> {
    fields.iter().find(|f| matches!(f.kind, Kind::InOut(_)))
}

/// The slice `input`, or what is input and output in one.
pub fn input(fields: &[Field]) -> Option<&Field> {
    let named = fields.iter().find(|f| f.ident == "input" && matches!(f.kind, Kind::Slice(_)));
    named.or_else(|| in_place(fields))
}

/// The `Out` named `output`, or what is input and output in one.
pub fn output(fields: &[Field]) -> Option<&Field> {
    let named = fields.iter().find(|f| f.ident == "output" && matches!(f.kind, Kind::Out(_)));
    named.or_else(|| in_place(fields))
}

/// The arguments of hooks, or of a schedule function.
#[derive(Debug)]
pub struct Args {
    /// Where `Args` is named.
    pub span: Span,
    /// Who sees it.
    pub vis: Visibility,
    /// Its generics.
    pub generics: Generics,
    /// Whether the fields have names; an error was reported where not.
    pub named: bool,
    /// The traits of `Clone` and `Copy` that it has already.
    pub has: Vec<&'static str>,
    /// Its fields in order.
    pub fields: Vec<Field>,
}

/// One argument.
#[derive(Debug)]
pub struct Field {
    /// Name.
    pub ident: Ident,
    /// Documentation.
    pub docs: Vec<TokenStream>,
    /// Type as written.
    pub ty: Type,
    /// What it is.
    pub kind: Kind,
}

/// How an argument crosses.
#[derive(Debug)]
pub enum Kind {
    /// `&'a [T]`.
    Slice(Type),
    /// `Out<'a, T>`.
    Out(Type),
    /// `PerRow<'a, T>` and `PerGroup<'a, T, G>`: an output that belongs to rows. Its element, and the type's own path.
    OfRows(Type, Path),
    /// `InOut<'a, T>`.
    InOut(Type),
    /// `Accumulate<'a, T>`.
    Accumulate(Type),
    /// `DeviceWindow` and `DevicePeers`: by value, made by a launch from their host halves. The type with its lifetime `'static`, as it
    /// crosses; hooks are lent it.
    Handle(Type),
    /// `Option<T>` of plain data: by value, in a form of its own.
    Option(Type),
    /// By value.
    Plain,
}

impl Kind {
    /// The element type of a slice or output.
    pub fn element(&self) -> Option<&Type> {
        match self {
            Kind::Slice(t) | Kind::Out(t) | Kind::InOut(t) | Kind::OfRows(t, _) | Kind::Accumulate(t) => {
                Some(t)
            }
            Kind::Handle(_) | Kind::Option(_) | Kind::Plain => None,
        }
    }
}

/// The types of what a tuple or an array holds.
pub fn values(ty: &Type) -> Option<Vec<Type>> {
    match ty {
        Type::Tuple(tuple) if !tuple.elems.is_empty() => Some(tuple.elems.iter().cloned().collect()),
        Type::Array(_) => Some(vec![ty.clone()]),
        _ => None,
    }
}

/// A hook function.
#[derive(Debug)]
pub struct Hook {
    /// Span of its first token, where `#[inline(always)]` goes.
    pub start: Span,
    /// Its signature.
    pub sig: syn::Signature,
    /// Wire type, and whether by pack. Of a row the type of its elements.
    pub wire: Option<(Type, bool)>,
    /// The wire type where that is a row.
    pub row: Option<Type>,
    /// Where it first asks for a field `peer`.
    pub peer: Option<Span>,
    /// Its body; empty where that is missing.
    pub body: TokenStream,
}

/// `fn ring<O: Put>(kernel: &Kernel<O>, ..) -> Flow`.
#[derive(Debug)]
pub struct ScheduleFn {
    /// Visibility.
    pub vis: Visibility,
    /// Attributes (documentation).
    pub attrs: Vec<TokenStream>,
    /// Signature.
    pub sig: syn::Signature,
    /// Span of the first token of visibility or signature.
    pub start: Span,
    /// Arguments after the kernel.
    pub args: Args,
    /// Whether its blocks send or receive tiles on the channels of their indices.
    pub by_index: bool,
}

/// One compiled entry point.
#[derive(Clone, Debug)]
pub struct Entry {
    /// `None` for a schedule function.
    pub schedule: Option<Schedule>,
    /// On which transport.
    pub transport: Transport,
    /// What stands for the parameters of a generic module.
    pub instance: Instance,
    /// How bytes travel.
    pub protocol: Protocol,
    /// Packs in flight.
    pub unroll: u32,
    /// Whether it is the first variant: the one used when none is named.
    pub default_variant: bool,
}

impl Model {
    /// Name of the module or function.
    pub fn ident(&self) -> &Ident {
        match &self.item {
            Item::Hooks(m) => &m.ident,
            Item::Schedule(f) => &f.sig.ident,
        }
    }

    /// The arguments.
    pub fn args(&self) -> Option<&Args> {
        match &self.item {
            Item::Hooks(m) => m.args.as_ref(),
            Item::Schedule(f) => Some(&f.args),
        }
    }

    /// The schedules that the module has a function for: the shipped ones, and those of other crates that were asked for. A name that the module
    /// has for something else stays its own, unless the attribute asks for that schedule.
    pub fn offered(&self) -> impl Iterator<Item = Schedule> {
        let named = &self.options.schedules;
        let foreign = named.iter().copied().filter(|s| s.krate.is_some());
        let names: &[Ident] = match &self.item {
            Item::Hooks(module) => &module.names,
            Item::Schedule(_) => &[],
        };
        let free = |s: &Schedule| s.implied || named.contains(s) || !names.iter().any(|name| name == s.name);
        SCHEDULES.iter().copied().filter(free).chain(foreign)
    }

    /// The names of those functions.
    pub fn prepared_by(&self) -> impl Iterator<Item = &'static str> {
        self.offered().map(|s| s.name)
    }

    /// The schedules whose blocks send or receive tiles on the channels of their indices, by their names.
    pub fn by_index(&self) -> Vec<&'static str> {
        let of = |name: &str, module: &HookModule| {
            let body = module.bodies.iter().find(|(function, _)| function == name);
            body.is_some_and(|(_, body)| by_index(body, &module.bodies))
        };
        match &self.item {
            Item::Hooks(m) => self.within().map(|s| s.name).filter(|name| of(name, m)).collect(),
            Item::Schedule(f) => f.by_index.then_some("custom").into_iter().collect(),
        }
    }

    /// The schedules that are functions of the module.
    pub fn within(&self) -> impl Iterator<Item = Schedule> {
        self.options.schedules.iter().copied().filter(Schedule::is_within)
    }

    /// Where a path of another crate stands in the attribute.
    pub fn span_of(&self, path: &str) -> Span {
        let named = self.options.paths.iter().find(|(named, _)| *named == path);
        named.map_or_else(Span::call_site, |(_, span)| *span)
    }

    /// Where the attribute names a device crate, or the one that uses it.
    pub fn span_of_crate(&self, name: &str) -> Option<Span> {
        if let Some(named) = self.named.iter().find(|named| *named == name) {
            return Some(named.span());
        }
        let by = self.options.crates.iter().find(|c| c.uses.iter().any(|used| used == name))?;
        self.span_of_crate(&by.name)
    }

    /// The wire type and whether hooks take packs, as the first hook that says it has them.
    fn written(&self) -> Option<(Type, bool)> {
        let Item::Hooks(m) = &self.item else { return None };
        // What `consume` takes of a fold does not cross the wire.
        let taken = if self.options.reduce.is_some() { &None } else { &m.consume };
        [&m.produce, taken].into_iter().find_map(|hook| hook.as_ref()?.wire.clone())
    }

    /// The wire type and whether hooks take packs, or `None` where both are left out and there is no `input` either.
    pub fn wire(&self) -> Option<(Type, bool)> {
        let Item::Hooks(m) = &self.item else { return None };
        match self.wire_values() {
            Some(ty) => Some((syn::parse_quote_spanned!(ty.span()=> __Wire), false)),
            None => self.written().or_else(|| Some((m.input()?.kind.element()?.clone(), true))),
        }
    }

    /// The tuple or array that crosses the wire, if one does: what [`Model::wire`] calls `__Wire` is a struct of its values.
    pub fn wire_values(&self) -> Option<Type> {
        self.written().filter(|(ty, by_pack)| !by_pack && values(ty).is_some()).map(|(ty, _)| ty)
    }

    /// Whether hooks have one buffer for what is sent and what arrives.
    pub fn is_in_place(&self) -> bool {
        matches!(&self.item, Item::Hooks(m) if m.in_place().is_some())
    }

    /// Every entry asked for, on every transport.
    pub fn entries(&self) -> Vec<Entry> {
        let schedules: Vec<_> = match &self.item {
            Item::Hooks(_) => self.options.schedules.iter().copied().map(Some).collect(),
            Item::Schedule(_) => vec![None],
        };
        let mut entries = Vec::new();
        for instance in &self.instances() {
            for schedule in &schedules {
                for (transport, _) in &self.options.transports {
                    let entry = |protocol, unroll, default_variant| Entry {
                        schedule: *schedule,
                        transport: *transport,
                        instance: instance.clone(),
                        protocol,
                        unroll,
                        default_variant,
                    };
                    for protocol in self.protocols(schedule.as_ref(), transport) {
                        let unrolls = match schedule.is_some_and(|s| s.is_within()) {
                            true => vec![self.unroll_within()],
                            false => self.unrolls(instance, protocol),
                        };
                        // Variants are of staging; the others have one.
                        let made = if protocol == Protocol::Simple { unrolls.len() } else { 1 };
                        for (k, unroll) in unrolls[..made].iter().enumerate() {
                            entries.push(entry(protocol, *unroll, k == 0));
                        }
                    }
                }
            }
        }
        entries
    }
}

impl Entry {
    /// The entry's symbol in PTX.
    pub fn symbol(&self, item: &Ident) -> String {
        let schedule = self.schedule.map_or("custom", |s| s.name);
        let (word, label) = (self.protocol.word(), self.transport.label);
        let suffix = if self.protocol == Protocol::Simple { String::new() } else { format!("_{word}") };
        let mut symbol = format!("{}__{schedule}{suffix}__{label}", item.unraw());
        let instance = self.instance.name();
        if !instance.is_empty() {
            symbol += &format!("__{instance}");
        }
        if !self.default_variant {
            symbol += &format!("__u{}", self.unroll);
        }
        symbol
    }
}
