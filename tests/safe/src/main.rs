//! Programs that only safe code can write, each of which tries to crash the process, to read or write what it was not lent, or to race.
//!
//! Each file in `run` is named after what it tries; its first lines say how it ends. `tests/programs.rs` runs each in a process of its
//! own, so that a signal is seen. Those in `../fail` do not compile.
#![forbid(unsafe_code)]

/// What a program says of itself when it is through.
type Ended = Result<(), Box<dyn std::error::Error>>;

macro_rules! programs {
    ($($name:ident)*) => {
        mod run { $(pub mod $name;)* }

        /// Names, and what they run.
        const PROGRAMS: &[(&str, fn() -> Ended)] = &[$((stringify!($name), run::$name::run),)*];
    };
}
programs! {
    aliases_of_elements
    buffers_copied_by_two_threads
    buffers_shorter_than_chunks
    everything_dropped_at_once
    graph_behind_its_owners
    hook_that_launches
    hook_that_loops
    hook_that_loops_and_exit
    hook_that_recurses
    hook_that_recurses_in_many_blocks
    indices_past_the_end
    limits_without_end
    mesh_and_its_part
    numbers_that_cannot_be
    panics_in_every_block
    panics_whose_payload_goes_on
    panics_whose_payload_panics
    peers_that_are_not_there
    rank_that_recurses
    renew_while_others_launch
    signals_that_are_not_there
    stream_behind_a_panic
    threads_that_launch
    tile_of_too_many_packs
    tile_that_wraps
    transport_behind_its_launch
    two_streams
    views_that_overlap
    views_that_start_between
    waits_without_end
    window_behind_its_owners
    window_past_the_end
}

/// Checks something that must be so.
fn ensure(what: bool, message: impl FnOnce() -> String) -> Ended {
    if what { Ok(()) } else { Err(message().into()) }
}

fn main() -> std::process::ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some((_, run)) = PROGRAMS.iter().find(|(known, _)| *known == name) else {
        PROGRAMS.iter().for_each(|(known, _)| println!("{known}"));
        return std::process::ExitCode::FAILURE;
    };
    match run() {
        Ok(()) => {
            println!("ended well");
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            println!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
