//! Worlds, for C.

use crate::{elements, fusewire_status, given, guard, hand, misuse, take};
use fusewire::world::Options;
use fusewire::{UniqueId, World};
use std::time::Duration;

/// The ranks of a job.
pub struct fusewire_world(pub(crate) World);

/// Bytes of an id.
pub const FUSEWIRE_UNIQUE_ID_BYTES: usize = 128;
const _: () = assert!(UniqueId::LEN == FUSEWIRE_UNIQUE_ID_BYTES);

fn options(timeout_ms: u64) -> Options {
    match timeout_ms {
        0 => Options::default(),
        ms => Options::default().with_timeout(Duration::from_millis(ms)),
    }
}

/// Meets the ranks that the same launcher started: torchrun, Open MPI, Slurm, or the variables `FUSEWIRE_RANK` and so on. Collective. Each
/// collective may take `timeout_ms` milliseconds; 0 is one minute.
///
/// # Safety
/// As the crate says; `out` takes the world.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_world_from_env(
    timeout_ms: u64,
    out: *mut *mut fusewire_world,
) -> fusewire_status {
    // SAFETY: the caller's contract.
    guard(|| unsafe { hand(out, fusewire_world(World::from_env_with(&options(timeout_ms))?)) })
}

/// A world of this rank alone.
///
/// # Safety
/// As the crate says; `out` takes the world.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_world_single(out: *mut *mut fusewire_world) -> fusewire_status {
    // SAFETY: the caller's contract.
    guard(|| unsafe { hand(out, fusewire_world(World::single()?)) })
}

/// Makes an id, to be given to every rank by other means. This process then has the store in which they meet.
///
/// # Safety
/// As the crate says; `id` has room for `FUSEWIRE_UNIQUE_ID_BYTES`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_unique_id(id: *mut u8) -> fusewire_status {
    guard(|| {
        let made = UniqueId::create()?;
        // SAFETY: the caller's contract.
        unsafe { given(id, "id")? };
        // SAFETY: the caller's contract.
        unsafe { id.copy_from_nonoverlapping(made.as_bytes().as_ptr(), UniqueId::LEN) };
        Ok(())
    })
}

/// Meets the `size` ranks that have the same id. Collective.
///
/// # Safety
/// As the crate says; there are `FUSEWIRE_UNIQUE_ID_BYTES` at `id`, and `out` takes the world.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_world_connect(
    id: *const u8,
    rank: usize,
    size: usize,
    timeout_ms: u64,
    out: *mut *mut fusewire_world,
) -> fusewire_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let id = UniqueId::from_bytes(unsafe { elements(id, UniqueId::LEN, "id")? })?;
        // SAFETY: the caller's contract.
        unsafe { hand(out, fusewire_world(World::connect(&id, rank, size, &options(timeout_ms))?)) }
    })
}

/// The ranks with the same `color` as a world of their own, in the order of `key`. Collective.
///
/// # Safety
/// As the crate says; `out` takes the world.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_world_split(
    world: *const fusewire_world,
    color: u64,
    key: u64,
    out: *mut *mut fusewire_world,
) -> fusewire_status {
    // SAFETY: the caller's contract.
    guard(|| unsafe { hand(out, fusewire_world(given(world, "world")?.0.split(color, key)?)) })
}

/// This rank.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_world_rank(world: *const fusewire_world) -> usize {
    // SAFETY: the caller's contract.
    unsafe { world.as_ref() }.map_or(0, |world| world.0.rank())
}

/// Ranks.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_world_size(world: *const fusewire_world) -> usize {
    // SAFETY: the caller's contract.
    unsafe { world.as_ref() }.map_or(0, |world| world.0.size())
}

/// This rank among those of its host.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_world_local_rank(world: *const fusewire_world) -> usize {
    // SAFETY: the caller's contract.
    unsafe { world.as_ref() }.map_or(0, |world| world.0.local_rank())
}

/// Gives the `len` bytes of `root` to every rank. Collective.
///
/// # Safety
/// As the crate says; there are `len` bytes at `bytes`, which all ranks but the root have overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_world_broadcast(
    world: *const fusewire_world,
    root: usize,
    bytes: *mut u8,
    len: usize,
) -> fusewire_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let world = &unsafe { given(world, "world")? }.0;
        let own = match world.rank() == root {
            // SAFETY: the caller's contract.
            true => unsafe { elements(bytes.cast_const(), len, "bytes")? },
            false => &[],
        };
        let given = world.broadcast(root, own)?;
        if given.len() != len {
            return Err(misuse(format!(
                "rank {root} gives {} bytes, but there is room for {len}",
                given.len()
            )));
        }
        if world.rank() != root && len > 0 {
            // SAFETY: the caller's contract.
            unsafe { bytes.copy_from_nonoverlapping(given.as_ptr(), len) };
        }
        Ok(())
    })
}

/// Waits for every rank. Collective.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_world_barrier(world: *const fusewire_world) -> fusewire_status {
    // SAFETY: the caller's contract.
    guard(|| Ok(unsafe { given(world, "world")? }.0.barrier()?))
}

/// Waits until every rank is done with the world, or is gone, and leaves it: the last call before `fusewire_world_free`. Collective.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_world_teardown(world: *const fusewire_world) -> fusewire_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let world = &unsafe { given(world, "world")? }.0;
        let ended = world.teardown_barrier();
        world.leave();
        Ok(ended?)
    })
}

/// Leaves the world when its transports are gone too.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_world_free(world: *mut fusewire_world) {
    // SAFETY: the caller's contract.
    drop(unsafe { take(world) });
}
