//! Tables of tuned configurations: JSON lines, one row a key.

use super::key::{ANY, COPIES, Config, Key, Layout};
use crate::schedule::Protocol;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Names a file whose rows come before those of the embedded table; `off` leaves all tables out.
pub const VARIABLE: &str = "FUSEWIRE_TUNING";

const EMBEDDED: &str = include_str!("../../tuning.jsonl");
const VERSION: u32 = 1;

/// A tuned key.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// What was best.
    pub config: Config,
    /// Its time in microseconds, when it was tuned.
    pub us: f64,
    /// The time of what the launcher decides without a table, in the same run.
    pub default_us: f64,
}

/// Tuned configurations by key.
///
/// The file begins with `{"fusewire-tuning":1}`. Then each line is a row: the fields of a [`Key`], those of a [`Config`], and two times.
/// `element` and `variant` may be `*`. Lines that begin with `#` are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(BTreeMap<Key, Entry>);

#[derive(Deserialize, Serialize)]
struct Header {
    #[serde(rename = "fusewire-tuning")]
    version: u32,
}

/// A row as it stands in a file.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Row {
    world: usize,
    transport: String,
    device: String,
    schedule: String,
    variant: String,
    element: String,
    layout: Layout,
    bytes: usize,
    protocol: Protocol,
    channels: u32,
    self_copy: u32,
    threads: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chunk: Option<usize>,
    unroll: u32,
    us: f64,
    default_us: f64,
}

impl From<(Key, Entry)> for Row {
    fn from((key, entry): (Key, Entry)) -> Self {
        let Key { world, transport, device, schedule, variant, element, layout, bytes } = key;
        let Entry {
            config: Config { protocol, channels, self_copy, threads, chunk, unroll },
            us,
            default_us,
        } = entry;
        Row {
            world,
            transport,
            device,
            schedule,
            variant,
            element,
            layout,
            bytes,
            protocol,
            channels,
            self_copy,
            threads,
            chunk,
            unroll,
            us,
            default_us,
        }
    }
}

impl From<Row> for (Key, Entry) {
    fn from(row: Row) -> Self {
        let Row { world, transport, device, schedule, variant, element, layout, bytes, .. } = row;
        let Row { protocol, channels, self_copy, threads, chunk, unroll, us, default_us, .. } = row;
        let config = Config { protocol, channels, self_copy, threads, chunk, unroll };
        (
            Key { world, transport, device, schedule, variant, element, layout, bytes },
            Entry { config, us, default_us },
        )
    }
}

impl Table {
    /// The table that launchers use unless they are given one: the embedded rows, and over them those of the file that
    /// `FUSEWIRE_TUNING` names. Read once.
    ///
    /// # Errors
    /// [`Error::Misuse`] or [`Error::System`] if that file is no table or cannot be read.
    pub fn current() -> Result<Arc<Table>> {
        static CURRENT: OnceLock<Arc<Table>> = OnceLock::new();
        if let Some(table) = CURRENT.get() {
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(Self::named(std::env::var_os(VARIABLE).as_deref())?);
        Ok(Arc::clone(CURRENT.get_or_init(|| table)))
    }

    /// The table for a value of `FUSEWIRE_TUNING`.
    fn named(value: Option<&OsStr>) -> Result<Table> {
        Self::over(EMBEDDED, value)
    }

    /// As [`Table::named`], with another embedded table.
    fn over(embedded: &str, value: Option<&OsStr>) -> Result<Table> {
        if value.is_some_and(|v| v == "off") {
            return Ok(Table::default());
        }
        let mut table = Self::parse(embedded, "the embedded table")?;
        if let Some(path) = value.filter(|v| !v.is_empty()) {
            table.0.extend(Self::read(Path::new(path))?.0);
        }
        Ok(table)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::System`] if it cannot be read, [`Error::Misuse`] naming the line if it is no table.
    pub fn read(path: &Path) -> Result<Table> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::System { what: format!("reading `{}`", path.display()), source })?;
        Self::parse(&text, &format!("`{}`", path.display()))
    }

    /// Reads the text of a file; errors name `origin`.
    ///
    /// # Errors
    /// [`Error::Misuse`] naming the line: a row with unknown or missing fields, the same key twice, another version.
    pub fn parse(text: &str, origin: &str) -> Result<Table> {
        let wrong = |line: usize, why: String| {
            Error::misuse(format!(
                "line {} of {origin} is no part of a tuning table: {why}. Remove the file, or name another: `cargo fusewire tune` writes it anew",
                line + 1
            ))
        };
        let mut lines = text
            .lines()
            .map(str::trim)
            .enumerate()
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let (at, first) = lines.next().unwrap_or((0, ""));
        let header: Header = serde_json::from_str(first).map_err(|e| {
            wrong(at, format!("it should be {{\"fusewire-tuning\":{VERSION}}}, the format's version ({e})"))
        })?;
        if header.version != VERSION {
            let why = format!("version {}, but this library reads version {VERSION}", header.version);
            return Err(wrong(at, why));
        }
        let mut table = Table::default();
        for (at, line) in lines {
            let row: Row = serde_json::from_str(line).map_err(|e| wrong(at, e.to_string()))?;
            let (key, entry) = row.into();
            if key.bytes != super::bucket(key.bytes) {
                return Err(wrong(at, format!("{} bytes; a row has a power of two from 256 on", key.bytes)));
            }
            if let Some(before) = table.0.insert(key, entry) {
                return Err(wrong(at, format!("there is another row for its key, with {}", before.config)));
            }
        }
        Ok(table)
    }

    /// The text of a file.
    pub fn to_text(&self) -> String {
        let mut text = format!("{{\"fusewire-tuning\":{VERSION}}}\n");
        for (key, entry) in &self.0 {
            let row = serde_json::to_string(&Row::from((key.clone(), *entry))).unwrap_or_default();
            let _ = writeln!(text, "{row}");
        }
        text
    }

    /// Sets the row of a key.
    pub fn insert(&mut self, key: Key, entry: Entry) {
        self.0.insert(key, entry);
    }

    /// Rows by key.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&Key, &Entry)> {
        self.0.iter()
    }

    /// The row for a key: its own, else that of [`ANY`] element type; else the same of [`COPIES`], if the hooks are none, and of [`ANY`]
    /// variant.
    pub fn get(&self, key: &Key, copies: bool) -> Option<&Entry> {
        let variants = [Some(key.variant.as_str()), copies.then_some(COPIES), Some(ANY)];
        let ways = variants.into_iter().flatten().flat_map(|v| [key.element.as_str(), ANY].map(|e| (v, e)));
        ways.map(|(variant, element)| Key { variant: variant.into(), element: element.into(), ..key.clone() })
            .find_map(|key| self.0.get(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key {
            world: 4,
            transport: "Nvl".into(),
            device: "NVIDIA H200".into(),
            schedule: "all_to_all".into(),
            variant: "app::double".into(),
            element: "f32".into(),
            layout: Layout::default(),
            bytes: 65536,
        }
    }

    fn entry(channels: u32) -> Entry {
        let config = Config {
            protocol: Protocol::Ll128,
            channels,
            self_copy: 0,
            threads: 128,
            chunk: None,
            unroll: 1,
        };
        Entry { config, us: 3.25, default_us: 4.5 }
    }

    #[test]
    fn text_is_read_as_it_was_written() {
        let mut table = Table::default();
        table.insert(key(), entry(7));
        let staged = Config { protocol: Protocol::Simple, chunk: Some(262_144), ..entry(3).config };
        let shaped =
            Key { layout: Layout { shaped: true, ..Layout::default() }, variant: ANY.into(), ..key() };
        table.insert(shaped, Entry { config: staged, ..entry(3) });
        let text = table.to_text();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert_eq!(Table::parse(&text, "a test").unwrap(), table);
        let commented = format!("# tuned on a Sunday\n\n{text}  # the end\n");
        assert_eq!(Table::parse(&commented, "a test").unwrap(), table);
    }

    #[test]
    fn the_nearest_row_decides() {
        let (any_type, any_variant) =
            (Key { element: ANY.into(), ..key() }, Key { variant: ANY.into(), ..key() });
        let any = Key { element: ANY.into(), ..any_variant.clone() };
        let mut table = Table::default();
        for (n, row) in [any, any_variant, any_type, key()].into_iter().enumerate() {
            assert_eq!(table.get(&key(), false).map(|e| e.config.channels), (n as u32).checked_sub(1));
            table.insert(row, entry(n as u32));
        }
        assert_eq!(table.get(&key(), false).map(|e| e.config.channels), Some(3));
        for other in [
            Key { world: 2, ..key() },
            Key { bytes: 131_072, ..key() },
            Key { device: "NVIDIA H100".into(), ..key() },
            Key { layout: Layout { shaped: true, ..Layout::default() }, ..key() },
        ] {
            assert_eq!(table.get(&other, true), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_table_is_told_by_line() {
        let mut table = Table::default();
        table.insert(key(), entry(7));
        let good = table.to_text();
        let row = good.lines().nth(1).unwrap();
        let wrong = |text: &str| Table::parse(text, "`t.jsonl`").unwrap_err().to_string();
        for (text, want) in [
            (String::new(), "line 1 of `t.jsonl`"),
            ("[]".into(), "line 1"),
            ("{\"fusewire-tuning\":2}".into(), "version 2"),
            (
                format!("{good}{row}"),
                "line 3 of `t.jsonl` is no part of a tuning table: there is another row",
            ),
            (good.replace("channels", "chanels"), "unknown field `chanels`"),
            (good.replace("\"threads\":128,", ""), "missing field `threads`"),
            (good.replace("65536", "65537"), "a power of two"),
            (good.replace("ll128", "pigeons"), "unknown variant `pigeons`"),
            (good.replace("flat", "round"), "`round` is no layout"),
        ] {
            let error = wrong(&text);
            assert!(error.contains(want), "{want}: {error}");
        }
    }

    #[test]
    fn a_file_comes_before_the_embedded_rows() {
        let mut rows = Table::default();
        let other = Key { world: 2, ..key() };
        rows.insert(key(), entry(5));
        rows.insert(other.clone(), entry(6));
        let text = rows.to_text();
        let with = |value: Option<&OsStr>| Table::over(&text, value).unwrap();
        assert_eq!((with(None), with(Some(OsStr::new("")))), (rows.clone(), rows));
        assert_eq!(with(Some(OsStr::new("off"))), Table::default());
        let mut own = Table::default();
        own.insert(key(), entry(7));
        let file = std::env::temp_dir().join(format!("fusewire-table-{}.jsonl", std::process::id()));
        std::fs::write(&file, own.to_text()).unwrap();
        let both = with(Some(file.as_os_str()));
        std::fs::remove_file(&file).unwrap();
        assert_eq!((both.get(&key(), false), both.get(&other, false)), (Some(&entry(7)), Some(&entry(6))));
        assert_eq!(both.rows().len(), 2);
        // And the one that is really embedded is a table.
        Table::named(None).unwrap();
        let gone = Table::named(Some(file.as_os_str())).unwrap_err().to_string();
        assert!(gone.contains("fusewire-table-"), "{gone}");
    }
}
