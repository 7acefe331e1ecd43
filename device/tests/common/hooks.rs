//! Hook modules as text, and entries for them, as the macro writes them.

/// Arguments of every module: what [`Hooks::module`] unpacks.
pub const RAW: &str = "
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Raw<I, O> { a: RawSlice<I>, b: RawSlice<O>, scale: f32 }
";

/// A hook module.
pub struct Hooks {
    pub name: &'static str,
    /// Types of input, wire and output.
    pub types: [&'static str; 3],
    /// Packs in flight.
    pub unroll: u32,
    /// Whether `produce` is called by tiles.
    pub transposed: bool,
    /// The bodies of the two.
    pub produce: &'static str,
    pub consume: &'static str,
    /// A fold, if schedules of it fold: then `consume` is of no use.
    pub fold: Option<&'static str>,
}

impl Hooks {
    /// The module `m_name`.
    pub fn module(&self) -> String {
        let Hooks { name, types: [i, w, o], unroll, transposed, produce, consume, fold } = self;
        let fold = fold.map_or(format!("type Folded = {w};"), |fold| {
            format!(
                "type Folded = {o};
                    const RELAYS: usize = fold::relays::<{w}, {o}>();
                    #[inline(always)]
                    fn relay(ranks: u32, of: &impl fold::Contributions<{w}>, put: &impl Fn(usize, Pack<{o}>)) -> bool {{
                        fold::relay::<fold::{fold}, {w}, {o}>(ranks, of, fold::Settle::settle, put)
                    }}
                    #[inline(always)]
                    fn take(ctx: &Consume, args: &Args<'_>, folded: Pack<{o}>) {{ args.output.at(ctx).set_pack(folded) }}
                    const FOLDS: bool = true;
                    #[inline(always)]
                    fn fold(ctx: &Consume, args: &Args<'_>, ranks: u32, of: &impl fold::Contributions<{w}>) -> bool {{
                        fold::each::<fold::{fold}, {w}>(ctx, ranks, of, |ctx, value| args.output.at(ctx).set(fold::Settle::settle(value)))
                    }}"
            )
        });
        format!(
            "pub mod m_{name} {{
                use super::*;
                #[derive(Clone, Copy)]
                pub struct Args<'a> {{ input: &'a [{i}], output: Out<'a, {o}>, scale: f32 }}
                pub struct H;
                impl Hooks for H {{
                    type Args<'a> = Args<'a>;
                    type Wire = {w};
                    const UNROLL: usize = {unroll};
                    const TRANSPOSED: bool = {transposed};
                    #[inline(always)]
                    fn produce(ctx: &Produce, args: &Args<'_>) -> Pack<{w}> {{ {produce} }}
                    #[inline(always)]
                    fn consume(ctx: &Consume, args: &Args<'_>, value: Pack<{w}>) {{ {consume} }}
                    {fold}
                }}
                unsafe impl Unpack for H {{
                    type Raw = Raw<{i}, {o}>;
                    #[inline(always)]
                    unsafe fn unpack<'a>(raw: &Raw<{i}, {o}>) -> Args<'a> {{
                        let lent = Lent::<'a>::named();
                        unsafe {{ Args {{ input: raw.a.slice(lent), output: Out::from_raw(raw.b, lent), scale: raw.scale }} }}
                    }}
                }}
            }}"
        )
    }

    /// The kernel `symbol` of these hooks, by types of the schedule and the protocol.
    pub fn entry(&self, symbol: &str, schedule: &str, protocol: &str) -> String {
        let Hooks { name, types: [i, _, o], .. } = self;
        format!(
            "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn {symbol}(p: Params<Peers, {schedule}, Raw<{i}, {o}>>) {{
                let _ = unsafe {{ exchange::<{schedule}, protocol::{protocol}, Peers, m_{name}::H>(Grid::here(), &p) }};
            }}"
        )
    }
}
