//! The transport of another crate on GPUs, over memory of the host: `tube_on_gpus`, where there is one. Ranks may share it.

fusewire_conformance::conformance! {
    tube: pipe::Tube,
    ranks = [1, 2, 3],
    meet = |world, options| pipe::Tube::on_gpus(world, options).map_err(Into::into),
    put = false,
    get = false,
}

fn main() {
    tube::run();
}
