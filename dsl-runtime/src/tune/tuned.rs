//! The rows of a table that one prepared kernel may use, so that a launch looks at few numbers.

use super::key::{Config, Key, Layout, bucket};
use super::table::Table;
use crate::schedule::LaunchOptions;
use std::fmt::Write;

/// What a table says about one kernel in one world.
#[derive(Debug, Default)]
pub(crate) struct Tuned(Vec<(Layout, usize, Config)>);

impl Tuned {
    /// Rows for the key, whatever its layout and bytes; `copies`: it is of hooks that leave all as it is.
    pub(crate) fn of(table: &Table, key: &Key, copies: bool) -> Self {
        let mut rows: Vec<_> = table.rows().map(|(k, _)| (k.layout, k.bytes)).collect();
        rows.sort_unstable();
        rows.dedup();
        let row = |(layout, bytes)| {
            let entry = table.get(&Key { layout, bytes, ..key.clone() }, copies)?;
            Some((layout, bytes, entry.config))
        };
        Tuned(rows.into_iter().filter_map(row).collect())
    }

    /// Differs when a decision may: what ranks compare.
    pub(crate) fn digest(&self) -> String {
        let mut text = String::new();
        for (layout, bytes, config) in &self.0 {
            let _ = writeln!(text, "{layout} {bytes} {config}");
        }
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        format!("{} rows, digest {hash:016x}", self.0.len())
    }

    /// Options with what the table says of that many wire bytes, where they leave something open.
    pub(crate) fn fill(
        &self,
        wire_bytes: usize,
        layout: Layout,
        options: &LaunchOptions,
    ) -> Option<LaunchOptions> {
        let bytes = bucket(wire_bytes);
        let (_, _, config) = self.0.iter().find(|row| (row.0, row.1) == (layout, bytes))?;
        config.fill(options)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ANY, COPIES, Entry};
    use super::*;
    use crate::schedule::Protocol;

    fn key(bytes: usize) -> Key {
        Key {
            world: 2,
            transport: "Shm".into(),
            device: "host".into(),
            schedule: "all_to_all".into(),
            variant: "app::copy".into(),
            element: "f32".into(),
            layout: Layout::default(),
            bytes,
        }
    }

    fn table(rows: &[(Key, u32)]) -> Table {
        let mut table = Table::default();
        for (key, channels) in rows {
            let config = Config {
                protocol: Protocol::Simple,
                channels: *channels,
                self_copy: 1,
                threads: 1,
                chunk: None,
                unroll: 4,
            };
            table.insert(key.clone(), Entry { config, us: f64::from(*channels), default_us: 0.0 });
        }
        table
    }

    #[test]
    fn a_kernel_sees_its_rows_and_those_of_any() {
        let any = Key { variant: ANY.into(), ..key(1024) };
        let far = Key { world: 3, ..key(4096) };
        let tuned = Tuned::of(&table(&[(any, 1), (key(2048), 2), (far, 3)]), &key(0), false);
        let (flat, open) = (Layout::default(), LaunchOptions::default());
        let channels = |bytes| tuned.fill(bytes, flat, &open).and_then(|o| o.channels);
        assert_eq!([1024, 1025, 2048, 4096, 512].map(channels), [Some(1), Some(2), Some(2), None, None]);
        assert_eq!(tuned.fill(1024, Layout { shaped: true, ..flat }, &open), None);
    }

    #[test]
    fn copies_have_rows_of_their_own() {
        let copies = Key { variant: COPIES.into(), ..key(1024) };
        let table = table(&[(Key { variant: ANY.into(), ..key(1024) }, 1), (copies, 2)]);
        for (copies, channels) in [(false, 1), (true, 2)] {
            let filled =
                Tuned::of(&table, &key(0), copies).fill(1024, Layout::default(), &LaunchOptions::default());
            assert_eq!(filled.and_then(|o| o.channels), Some(channels));
        }
    }

    #[test]
    fn the_digest_is_of_what_may_decide() {
        let digest = |rows: &[(Key, u32)]| Tuned::of(&table(rows), &key(0), false).digest();
        let here = digest(&[(key(1024), 1)]);
        assert_eq!(here, digest(&[(key(1024), 1), (Key { world: 3, ..key(4096) }, 3)]), "a row of others");
        assert_ne!(here, digest(&[(key(1024), 2)]), "another configuration");
        assert_ne!(here, digest(&[(key(2048), 1)]), "another size");
        assert_ne!(here, digest(&[]), "no rows");
    }
}
