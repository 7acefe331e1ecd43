//! A transport of fusewire's own, which has `put` and `get`.

fusewire_conformance::conformance! {
    shm: Shm,
    ranks = [1, 2, 4],
    meet = |world, options| Shm::rendezvous(world, options).map_err(Into::into),
    put = true,
    get = true,
}
