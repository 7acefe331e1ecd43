//! The transport of another crate passes what every transport does.

fusewire_conformance::conformance! {
    tube: pipe::Tube,
    ranks = [1, 2, 3, 5],
    meet = |world, options| pipe::Tube::rendezvous(world, options).map_err(Into::into),
    put = false,
    get = false,
}
