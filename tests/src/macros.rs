//! One list of cases, from which tests and the GPU program are made.

/// Calls a macro with every case: its group, its name and the world sizes it is for.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_case {
    ({$($then:tt)*} $($args:tt)*) => {
        $($then)* ! { [$($args)*]
            copying {
                every_element_type: 1..=16,
                sendrecv_of_every_element_type: 2..=16,
                sendrecv_by_every_protocol: 2..=8,
                boundaries_of_packs_chunks_and_windows: 1..=8,
                many_times_the_staging: 1..=8,
                large: 1..=8,
                sizes_follow_each_other: 1..=16,
                element_by_element: 1..=8,
            }
            hooks {
                transpose: 1..=16,
                transpose_by_tiles: 1..=16,
                scale_and_accumulate: 1..=8,
                gather_by_index: 1..=8,
                rows_and_columns: 1..=8,
                histogram: 1..=8,
                wire_of_f8: 1..=8,
                wire_of_bf16: 1..=8,
                wire_wider_than_the_element: 1..=8,
                packs_wider_than_those_of_the_wire: 1..=8,
            }
            peers {
                send_alone_and_receive_alone: 2..=16,
                pairs: 2..=16,
                ring: 2..=16,
                crossing_rings: 2..=8,
                transposed_on_the_way: 2..=8,
            }
            collectives {
                of_every_size: 1..=8,
                many_times_the_staging: 1..=8,
                straight_into_outputs: 1..=8,
                refused: 1..=8,
                a_rank_never_launches: 2..=8,
                roots_that_differ: 2..=2,
                roots_that_differ_in_two_steps: 3..=8,
            }
            folds {
                of_every_size: 1..=16,
                many_times_the_staging: 1..=8,
                of_every_kind: 1..=16,
                whoever_is_late: 2..=8,
                refused: 1..=8,
                a_rank_never_launches: 2..=8,
                counts_that_differ: 2..=8,
            }
            results {
                quantised: 1..=9,
                rounded_rows: 1..=8,
                rounded: 1..=9,
            }
            matrix {
                sums: 1..=16,
            }
            domains {
                sums: 4..=16,
                chained: 4..=16,
                gathered: 4..=16,
                refused: 1..=8,
            }
            in_place {
                chained: 1..=8,
                rounded_sums: 1..=8,
                into_symmetric_memory: 1..=8,
                refused: 2..=8,
            }
            rows_in_place {
                chained: 1..=8,
                normed: 1..=8,
                quantised: 1..=8,
                summed: 1..=8,
                refused: 2..=8,
            }
            offsets {
                copies: 1..=8,
                hooks: 1..=8,
            }
            structs {
                folded: 1..=8,
                of_other_sizes: 1..=8,
                of_tuples_and_arrays: 1..=8,
            }
            rows {
                of_every_number: 1..=8,
                long_ones: 1..=8,
                of_wide_elements: 1..=8,
                with_scales: 1..=8,
                folded: 1..=8,
                longer_folded: 1..=8,
                longest_scaled: 1..=8,
                refused: 1..=8,
            }
            teams {
                folds_and_votes: 1..=2,
                shared_memory_and_heap: 1..=8,
                changes_by_all_threads: 1..=2,
                windows_by_teams: 1..=8,
                panics: 1..=3,
            }
            together {
                several_kernels_on_one_transport: 1..=8,
                two_transports_at_once: 1..=8,
                many_calls_in_other_orders: 1..=8,
                two_streams_on_one_transport: 1..=8,
                all_reduces_on_two_streams: 1..=8,
                all_reduces_in_other_orders: 2..=8,
                all_reduces_that_wait_for_each_other: 2..=8,
                transports_come_and_go: 1..=8,
            }
            shared {
                everything_comes_and_goes_beside_a_kernel_that_waits: 1..=8,
                what_goes_while_it_runs_waits_for_nobody: 2..=8,
                streams_of_the_whole_gpu_are_refused: 1..=8,
            }
            options {
                every_number_of_channels: 1..=8,
                channels_and_blocks_of_several_steps: 1..=8,
                chunk_sizes: 1..=8,
                variants: 1..=8,
                threads: 1..=8,
                elements_by_option: 1..=8,
                limits_of_blocks: 1..=8,
            }
            tuning {
                the_table_decides: 1..=8,
                tables_that_differ: 2..=8,
                all_that_can_be_tried: 1..=8,
                blocks_of_own_schedules: 1..=8,
                own_schedules_are_tuned: 1..=4,
            }
            flagged {
                of_every_element_type: 1..=16,
                of_every_size: 1..=8,
                of_hooks: 1..=8,
                between_staged_calls: 1..=8,
                faults_and_renewals: 2..=8,
            }
            symmetric {
                of_every_size: 1..=8,
                in_any_order: 1..=8,
                beside_a_capture: 1..=8,
                refused: 1..=8,
                a_rank_never_launches: 2..=8,
            }
            foreign {
                symmetric_outputs: 1..=8,
                kept_until_no_rank_has_it: 2..=8,
                refused: 2..=8,
                window_data: 2..=8,
            }
            graphs {
                replays_with_changing_inputs: 1..=8,
                several_graphs_and_eager_calls: 1..=8,
                of_send_and_receive: 2..=8,
                replayed_on_other_streams: 1..=8,
                in_another_graph: 1..=8,
                failed_capture_leaves_the_stream_usable: 1..=8,
            }
            schedules {
                ring_all_gather_by_tiles: 1..=8,
                ring_all_gather_by_packs: 1..=8,
                hooks_of_a_module: 1..=8,
                more_blocks_than_channels: 2..=8,
                tiles_in_a_row: 2..=8,
                tiles_by_ll128: 2..=8,
                forwarded: 2..=8,
                halo_by_put_and_signal: 2..=16,
                all_gather_by_get: 1..=8,
                rounds_and_barriers: 1..=8,
                replayed: 2..=8,
            }
            multi_peer {
                topology_and_accessors: 1..=16,
                handles_in_kernels: 1..=16,
                stages: 1..=8,
                mapped_memory: 1..=8,
                registration: 1..=8,
                foreign_memory: 1..=8,
                switches: 2..=8,
            }
            windows {
                configurations: 1..=8,
                signals_of_one_peer: 2..=8,
                comparisons: 2..=4,
                sums_over_peers: 2..=8,
                every_word_is_its_own: 2..=8,
                ping_pong: 2..=8,
                groups_at_once: 2..=8,
                barriers: 1..=8,
                barriers_of_grids: 1..=8,
                counters: 2..=8,
                puts: 2..=8,
                send_and_receive: 2..=8,
                epochs: 2..=8,
                reset_between_phases: 2..=8,
                stress: 2..=8,
                replays_with_changing_payload: 2..=8,
                windows_come_and_go: 2..=8,
            }
            window_faults {
                calls_that_cannot_be: 2..=4,
                waits_that_expire: 2..=8,
                within_a_tile: 2..=4,
                poisoned_until_renewed: 2..=8,
                over_an_adapter: 2..=8,
            }
            random {
                calls: 1..=8,
            }
            faults {
                a_rank_never_launches: 2..=8,
                a_receiver_never_comes: 2..=8,
                a_program_aborts: 2..=8,
                panic_in_produce: 1..=8,
                panic_in_consume: 1..=8,
                panics_with_values: 1..=8,
                index_out_of_range: 1..=8,
                sizes_differ: 2..=8,
                kernels_differ: 2..=8,
                poisoned_until_renewed: 2..=8,
                replayed_graph_reports: 2..=8,
                read_on_another_stream_reports: 2..=8,
                again_and_again: 2..=8,
                schedule_names_what_does_not_exist: 2..=8,
                more_blocks_than_channels: 2..=8,
            }
            alike {
                protocols_that_differ: 2..=8,
                roots_that_differ: 2..=8,
                kernels_in_another_order: 2..=8,
                graphs_that_differ: 2..=8,
                what_may_differ: 2..=8,
            }
            agreement {
                kernels_that_differ: 2..=8,
                options_that_differ: 2..=8,
                options_that_cannot_be: 1..=8,
            }
            misuse {
                of_buffers: 1..=8,
                of_sizes: 2..=8,
                of_options: 1..=8,
                of_peers: 2..=8,
                of_streams: 1..=8,
                of_devices: 1..=8,
            }
        }
    };
}

/// Makes a `#[test]` of every case of the suite for a transport, on worlds of threads of the given sizes.
///
/// `transport_tests!(shm, Shm, ranks = [1, 2, 3]);` makes a module `shm`. Each test prints the sizes it ran on; a case that none
/// of them is for fails.
#[macro_export]
macro_rules! transport_tests {
    ($name:ident, $transport:ty, ranks = $ranks:tt) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::for_each_case! { {$crate::__tests} $transport, $ranks }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ([$transport:ty, $ranks:tt] $($group:ident { $($case:ident: $for:expr,)* })*) => {$(
        mod $group {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $case() {
                    let name = concat!(stringify!($group), "::", stringify!($case));
                    $crate::run::test::<$transport>(name, &$ranks);
                }
            )*
        }
    )*};
}
