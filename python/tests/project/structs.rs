/// Complex numbers times one that is given by value, and what else may be one.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
pub mod turned {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Complex {
        pub re: f32,
        pub im: f32,
    }

    #[derive(Clone, Copy, Plain)]
    #[repr(C)]
    pub struct Switch {
        pub level: u32,
        pub on: bool,
    }

    #[derive(Clone, Copy, Plain)]
    #[repr(u8)]
    pub enum Mode {
        Slow,
        Fast,
    }

    pub struct Args<'a> {
        pub input: &'a [Complex],
        pub output: Out<'a, Complex>,
        pub by: Complex,
        pub conjugate: bool,
        pub plus: Option<[Complex; 2]>,
        pub switch: Option<Switch>,
        pub mode: Option<Mode>,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> Complex {
        let (a, b) = (args.input[ctx.index()], args.by);
        let plus = args.plus.unwrap_or_default();
        let im = a.re * b.im + a.im * b.re;
        Complex {
            re: a.re * b.re - a.im * b.im + plus[0].re + plus[1].re,
            im: if args.conjugate { -im } else { im } + plus[0].im + plus[1].im,
        }
    }
}

fusewire_capi::export!(turned);
