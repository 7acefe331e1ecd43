//! What may not be called where some of a block's threads are elsewhere, and how much memory they share. What teams compute is in the suite of every
//! transport.

#[path = "common/world.rs"]
mod world;

use fusewire_device::kernel::{Kernel, Tile, custom};
use fusewire_device::launch::Grid;
use fusewire_device::wait::Flow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{NO_ELEMENTS, Peers, World};

/// Runs a schedule on one rank of one block.
fn schedule(body: impl FnOnce(&Kernel<Peers>) -> Flow) -> Flow {
    let world = World::new(1, 1, 1024);
    let grid = Grid { block: 0, blocks: 1 };
    // SAFETY: the world's words; the one block runs it.
    unsafe { custom(grid, world.ops(0), world.control(0, 1000), NO_ELEMENTS, body) }
}

/// What it panics with.
fn panic_of(body: impl FnOnce(&Kernel<Peers>) -> Flow) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| schedule(body))).expect_err("should panic");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default()
}

const TILE: Tile = Tile { start: 0, len: 4 };

#[test]
fn a_hook_is_one_threads_and_waits_for_nobody() {
    type Body = Box<dyn Fn(&Kernel<Peers>)>;
    let cases: [Body; 6] = [
        Box::new(|k| _ = k.signal(0, 0)),
        Box::new(|k| _ = k.wait(0, 0)),
        Box::new(|k| k.sync()),
        Box::new(|k| _ = k.team()),
        Box::new(|k| _ = k.teams::<1>(1, |_, _| Ok(()))),
        Box::new(|k| k.shared::<u8, 1, _>(|_| ())),
    ];
    type Within = fn(&Kernel<Peers>, &dyn Fn());
    // SAFETY: the hooks write nothing.
    let tiles: [Within; 4] = [
        |k, hook| _ = k.send_tile(0, TILE, |_| (hook(), 1u8).1),
        |k, hook| unsafe { k.keep_tile(TILE, 0, |_| (hook(), 1u8).1, |_, _| ()) },
        |k, hook| unsafe { k.keep_tile(TILE, 0, |_| 1u8, |_, _| hook()) },
        |k, hook| unsafe { k.local_tile(TILE, |_| hook()) },
    ];
    for (body, tile) in cases.iter().flat_map(|body| tiles.map(|tile| (body, tile))) {
        let said = panic_of(|kernel| {
            tile(kernel, &|| body(kernel));
            Ok(())
        });
        assert_eq!(said, "a tile's hook may neither send nor receive, wait nor signal, nor use a team");
    }
    for tile in tiles {
        let said = panic_of(|kernel| {
            let team = kernel.team();
            tile(kernel, &|| _ = team.count(4, |_| true));
            Ok(())
        });
        assert_eq!(said, "a tile's hook may not use a team");
    }
}

/// A tile that stays uses the heap, and is done after a stop as well: what was stopped stays so.
#[test]
fn tiles_that_stay_leave_a_kernel_as_it_was() {
    let stays = |kernel: &Kernel<Peers>| {
        let calls = Cell::new(0);
        let count = || calls.set(calls.get() + 1);
        let set = |index: usize| {
            // SAFETY: this rank's own heap, which nobody else uses.
            unsafe { kernel.heap_set(index, 7u8) };
            count();
        };
        // SAFETY: the hooks write their own indices of the heap.
        unsafe { kernel.local_tile(TILE, |ctx| set(ctx.index())) };
        // SAFETY: as above.
        unsafe { kernel.keep_tile(TILE, 4, |_| 1u8, |ctx, _| set(ctx.index())) };
        // SAFETY: nobody else writes it.
        assert_eq!((calls.get(), unsafe { kernel.heap_get::<u8>(7) }), (8, 7));
    };
    let flow = schedule(|kernel| {
        stays(kernel);
        kernel.signal(0, 0)?;
        kernel.wait(0, 0)?;
        assert!(kernel.signal(9, 0).is_err());
        stays(kernel);
        assert!(kernel.signal(0, 0).is_err());
        kernel.teams::<1>(1, |_, _| Ok(()))
    });
    assert!(flow.is_err());
}

#[test]
fn what_is_the_blocks_is_not_a_teams() {
    type Body = Box<dyn Fn(&Kernel<Peers>)>;
    let cases: [Body; 5] = [
        Box::new(|k| _ = k.signal(0, 0)),
        Box::new(|k| _ = k.send_tile(0, TILE, |_| 1u8)),
        Box::new(|k| k.sync()),
        Box::new(|k| _ = k.teams::<2>(1, |_, _| Ok(()))),
        Box::new(|k| k.shared::<u8, 1, _>(|_| ())),
    ];
    for body in cases {
        let said = panic_of(|kernel| {
            kernel.teams::<1>(1, |_, _| {
                body(kernel);
                Ok(())
            })
        });
        assert_eq!(said, "within `teams` this is not for the whole block: use the team's methods");
    }
    let said = panic_of(|kernel| {
        let block = kernel.team();
        kernel.teams::<1>(1, |_, _| {
            block.sync();
            Ok(())
        })
    });
    assert_eq!(said, "the block's team may not work within `teams`");
}

/// What a team is refused stops the block, as everything later is.
#[test]
fn a_team_that_stops_stops_its_block() {
    let flow = schedule(|kernel| {
        let mut items = 0;
        let ran = Cell::new(0);
        let stopped = kernel.teams::<1>(3, |_, item| {
            ran.set(ran.get() + 1);
            if item == 1 { Err(fusewire_device::wait::Stopped) } else { Ok(()) }
        });
        items += ran.get();
        assert!(stopped.is_err() && items == 2);
        assert!(kernel.signal(0, 0).is_err());
        assert!(kernel.teams::<1>(1, |_, _| panic!("no team works in a block that has stopped")).is_err());
        stopped
    });
    assert!(flow.is_err());
}

#[test]
fn shared_memory_is_lent_as_far_as_it_goes() {
    let flow = schedule(|kernel| {
        for _ in 0..3 {
            kernel.shared::<u64, 2048, _>(|whole| {
                assert_eq!((whole.len(), whole.get(2047)), (2048, 0));
                whole.set(2047, 1);
                kernel.shared::<u8, 16384, _>(|rest| {
                    rest.set(16383, 2);
                    assert_eq!((rest.get(16383), whole.get(2047)), (2, 1));
                });
            });
        }
        Ok(())
    });
    assert!(flow.is_ok());
    let said = panic_of(|k| k.shared::<u8, 17, _>(|_| k.shared::<u8, 32768, _>(|_| Ok(()))));
    assert_eq!(said, "a block shares at most 32 KiB, of all that is lent at a time");
    let said = panic_of(|k| {
        k.shared::<u16, 3, _>(|memory| memory.set(3, 1));
        Ok(())
    });
    assert_eq!(said, "index past the end of shared memory");
}
