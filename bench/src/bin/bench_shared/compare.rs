//! Rows of two versions, of several rounds in turn, beside each other.

use crate::Row;
use fusewire_examples::ranks::bytes_text;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Ranks, operation, hook, protocol and bytes.
type Key = (usize, String, String, String, usize);

/// The rows of one run.
type Round = Vec<Row>;

/// A smaller difference is none, however close the rounds lie.
const FLOOR: f64 = 0.02;

/// Rounds of each version that differ by chance in less than one row of 250.
const ENOUGH: usize = 5;

/// One time of one row in both versions.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    /// Medians over the rounds, microseconds.
    old: f64,
    new: f64,
    /// The range of old's rounds over their median.
    spread: f64,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Faster,
    Slower,
}

impl Times {
    /// Slower: the medians differ by more than the spread, and every round of the new takes longer than every one of the old.
    fn of(old: &[f64], new: &[f64]) -> Times {
        let ([least_old, median_old, most_old], [least_new, median_new, most_new]) = (three(old), three(new));
        let spread = (most_old - least_old) / median_old;
        let (limit, ratio) = (spread.max(FLOOR), median_new / median_old);
        let verdict = if ratio > 1.0 + limit && least_new > most_old {
            Verdict::Slower
        } else if ratio < 1.0 - limit && most_new < least_old {
            Verdict::Faster
        } else {
            Verdict::Same
        };
        Times { old: median_old, new: median_new, spread, verdict }
    }
}

/// The least, the median and the most of some.
fn three(times: &[f64]) -> [f64; 3] {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let n = times.len();
    [times[0], (times[(n - 1) / 2] + times[n / 2]) / 2.0, times[n - 1]]
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.verdict {
            Verdict::Same => "",
            Verdict::Faster => "faster",
            Verdict::Slower => "SLOWER",
        };
        let (ratio, spread) = (self.new / self.old, self.spread);
        write!(f, "{:>10.2} {:>10.2} {ratio:>6.3} {spread:>6.3} {mark:<6}", self.old, self.new)
    }
}

/// What two versions have in common, and what not.
#[derive(Debug)]
pub struct Report {
    title: String,
    /// Rounds of one side are.
    few: bool,
    /// Replayed and eager.
    rows: Vec<(Key, [Times; 2])>,
    only_old: Vec<Key>,
    only_new: Vec<Key>,
    /// Rows that cannot count, and why.
    bad: Vec<(Key, String)>,
}

impl Report {
    /// Whether nothing is slower, and every row counts.
    pub fn passed(&self) -> bool {
        self.bad.is_empty() && self.slower().next().is_none()
    }

    fn slower(&self) -> impl Iterator<Item = &Key> {
        let is = |times: &[Times; 2]| times.iter().any(|t| t.verdict == Verdict::Slower);
        self.rows.iter().filter(move |(_, times)| is(times)).map(|(key, _)| key)
    }
}

/// Reads and compares: files of each version, separated by commas, each a round.
pub fn files(old: &str, new: &str) -> Result<Report, String> {
    let read = |list: &str| list.split(',').map(round).collect::<Result<Vec<_>, _>>();
    compare(&read(old)?, &read(new)?)
}

fn round(path: &str) -> Result<Round, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("{path}: {e}; give files that `bench_shared` printed"))?;
    let parse = |(k, line): (usize, &str)| {
        let row: Row = serde_json::from_str(line)
            .map_err(|e| format!("{path}, line {}: no row of `bench_shared`: {e}", k + 1))?;
        let fits = |time: f64| time.is_finite() && time > 0.0;
        if fits(row.replay_us) && fits(row.eager_us) {
            return Ok(row);
        }
        Err(format!(
            "{path}, line {}: times are above 0, but these are {} and {} us; measure again",
            k + 1,
            row.replay_us,
            row.eager_us
        ))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

fn compare(old: &[Round], new: &[Round]) -> Result<Report, String> {
    let places: BTreeSet<_> = [old, new].iter().copied().flatten().flatten().map(place).collect();
    let [place] = places.iter().collect::<Vec<_>>()[..] else {
        return Err(match places.len() {
            0 => "no rows in any of the files: look at what `bench_shared` said".into(),
            _ => format!("rows of different places cannot be compared: {places:?}; run both on one GPU"),
        });
    };
    let (mut bad, a, b) = (Vec::new(), by_key(old), by_key(new));
    for (side, rounds, rows) in [("old", old.len(), &a), ("new", new.len(), &b)] {
        for (key, rows) in rows {
            if rows.len() != rounds {
                bad.push((key.clone(), format!("{} times in {rounds} rounds of the {side}", rows.len())));
            }
            if rows.iter().any(|row| !row.checked) {
                bad.push((key.clone(), format!("not checked by the {side}")));
            }
        }
    }
    let without = |a: &BTreeMap<Key, Vec<&Row>>, b: &BTreeMap<Key, Vec<&Row>>| {
        a.keys().filter(|key| !b.contains_key(*key)).cloned().collect::<Vec<_>>()
    };
    let (only_old, only_new) = (without(&a, &b), without(&b, &a));
    let times = |rows: &[&Row], time: fn(&Row) -> f64| rows.iter().map(|row| time(row)).collect::<Vec<_>>();
    let rows: Vec<_> = a
        .iter()
        .filter_map(|(key, a)| {
            let b = b.get(key)?;
            let both = |time| Times::of(&times(a, time), &times(b, time));
            Some((key.clone(), [both(|row| row.replay_us), both(|row| row.eager_us)]))
        })
        .collect();
    if rows.is_empty() {
        return Err("old and new have no row in common: give both the same ranks and sizes".into());
    }
    let ranks: BTreeSet<String> = rows.iter().map(|((ranks, ..), _)| ranks.to_string()).collect();
    let title = format!(
        "{}, {} ranks as {}; {} rounds of the old, {} of the new",
        place.0,
        ranks.into_iter().collect::<Vec<_>>().join(" and "),
        place.1,
        old.len(),
        new.len()
    );
    Ok(Report { title, few: old.len().min(new.len()) < ENOUGH, rows, only_old, only_new, bad })
}

fn place(row: &Row) -> (&str, &str) {
    (&row.gpu, &row.kind)
}

fn by_key(rounds: &[Round]) -> BTreeMap<Key, Vec<&Row>> {
    let mut all: BTreeMap<Key, Vec<&Row>> = BTreeMap::new();
    for row in rounds.iter().flatten() {
        let key = (row.ranks, row.op.clone(), row.hook.clone(), row.protocol.clone(), row.bytes);
        all.entry(key).or_default().push(row);
    }
    all
}

fn text((ranks, op, hook, protocol, bytes): &Key) -> String {
    format!("{ranks:>5} {op:>10} {hook:>16} {protocol:>8} {:>7}", bytes_text(*bytes))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        writeln!(
            f,
            "These ranks share one memory: figures are for old beside new alone, never for beside NVLink's."
        )?;
        writeln!(
            f,
            "us of one, medians over rounds; ratio: new / old; spread: the range of the old's rounds over their median. SLOWER: by more\n\
             than the spread (and {:.0}%), and every round of the new longer than each of the old.\n",
            FLOOR * 100.0
        )?;
        if self.few {
            writeln!(f, "Fewer than {ENOUGH} rounds of each: the spread says little.\n")?;
        }
        let half = |f: &mut fmt::Formatter<'_>| {
            write!(f, " | {:>10} {:>10} {:>6} {:>6} {:<6}", "old", "new", "ratio", "spread", "")
        };
        write!(f, "{:>5} {:>10} {:>16} {:>8} {:>7}", "ranks", "op", "hook", "protocol", "size")?;
        half(f)?;
        half(f)?;
        writeln!(f, "\n{:50} | replayed {:34} | eager", "", "")?;
        for (key, [replayed, eager]) in &self.rows {
            writeln!(f, "{} | {replayed} | {eager}", text(key))?;
        }
        writeln!(f)?;
        self.only_old.iter().try_for_each(|key| writeln!(f, "{}  only the old has it", text(key)))?;
        self.only_new.iter().try_for_each(|key| writeln!(f, "{}  only the new has it", text(key)))?;
        self.bad.iter().try_for_each(|(key, why)| writeln!(f, "{}  {why}: FAILED", text(key)))?;
        self.slower().try_for_each(|key| writeln!(f, "{}  SLOWER", text(key)))?;
        let (rows, slower) = (self.rows.len(), self.slower().count());
        write!(
            f,
            "{rows} rows compared, {slower} slower beyond the spread, {} that cannot count",
            self.bad.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(hook: &str, replay_us: f64) -> Row {
        Row {
            name: "fusewire".into(),
            op: "all_to_all".into(),
            hook: hook.into(),
            protocol: "ll128".into(),
            bytes: 1024,
            ranks: 2,
            kind: "threads".into(),
            gpu: "H200".into(),
            replay_us,
            eager_us: 10.0,
            blocks: 2,
            threads: 512,
            checked: true,
        }
    }

    /// One row, of these times in so many rounds.
    fn rounds<const N: usize>(times: [f64; N]) -> Vec<Round> {
        times.iter().map(|time| vec![row("copy", *time)]).collect()
    }

    fn verdict(old: &[Round], new: &[Round]) -> Verdict {
        compare(old, new).unwrap().rows[0].1[0].verdict
    }

    const OLD: [f64; 5] = [10.0, 10.2, 10.4, 10.1, 10.3];

    #[test]
    fn equal_rows_pass() {
        let report = compare(&rounds(OLD), &rounds(OLD)).unwrap();
        assert!(report.passed());
        let [replayed, eager] = report.rows[0].1;
        assert_eq!((replayed.old, replayed.new, replayed.verdict), (10.2, 10.2, Verdict::Same));
        assert!((replayed.spread - 0.4 / 10.2).abs() < 1e-9);
        assert_eq!((eager.spread, eager.verdict), (0.0, Verdict::Same));
        let text = report.to_string();
        assert!(text.contains("H200, 2 ranks as threads; 5 rounds of the old, 5 of the new"), "{text}");
        assert!(text.contains("1 rows compared, 0 slower"), "{text}");
    }

    #[test]
    fn slower_beyond_the_spread_fails_and_within_it_does_not() {
        let scaled = |by: f64| rounds(OLD.map(|time| time * by));
        assert_eq!(verdict(&rounds(OLD), &scaled(1.03)), Verdict::Same);
        assert_eq!(verdict(&rounds(OLD), &scaled(1.06)), Verdict::Slower);
        assert_eq!(verdict(&rounds(OLD), &scaled(0.9)), Verdict::Faster);
        let report = compare(&rounds(OLD), &scaled(1.06)).unwrap();
        assert!(!report.passed());
        assert!(report.to_string().contains("1 rows compared, 1 slower"), "{report}");
        // One round of the new was as short as the old's: no finding.
        assert_eq!(verdict(&rounds(OLD), &rounds([10.3, 12.0, 12.0, 12.0, 12.0])), Verdict::Same);
    }

    #[test]
    fn close_rounds_have_a_floor() {
        assert_eq!(verdict(&rounds([10.0; 3]), &rounds([10.19; 3])), Verdict::Same);
        assert_eq!(verdict(&rounds([10.0; 3]), &rounds([10.21; 3])), Verdict::Slower);
    }

    #[test]
    fn eager_launches_count_too() {
        let mut new = rounds(OLD);
        new.iter_mut().for_each(|round| round[0].eager_us = 11.0);
        let report = compare(&rounds(OLD), &new).unwrap();
        assert_eq!(report.rows[0].1.map(|times| times.verdict), [Verdict::Same, Verdict::Slower]);
        assert!(!report.passed());
    }

    #[test]
    fn rows_of_one_side_are_listed_and_no_failure() {
        let with = |hook: &str| vec![vec![row("copy", 1.0), row(hook, 1.0)]];
        let report = compare(&with("add"), &with("fp8")).unwrap();
        assert!(report.passed());
        assert_eq!((report.only_old[0].2.as_str(), report.only_new[0].2.as_str()), ("add", "fp8"));
        let text = report.to_string();
        assert!(text.contains("only the old has it") && text.contains("only the new has it"), "{text}");
    }

    #[test]
    fn rows_that_are_not_checked_or_not_in_every_round_fail() {
        let mut new = rounds(OLD);
        new[3][0].checked = false;
        let report = compare(&rounds(OLD), &new).unwrap();
        assert!(!report.passed() && report.to_string().contains("not checked by the new"), "{report}");
        let mut new = rounds(OLD);
        new[2].clear();
        let report = compare(&rounds(OLD), &new).unwrap();
        assert!(
            !report.passed() && report.to_string().contains("4 times in 5 rounds of the new"),
            "{report}"
        );
    }

    #[test]
    fn what_cannot_be_compared_is_an_error() {
        assert!(compare(&[], &[]).unwrap_err().contains("no rows"));
        let mut other = rounds(OLD);
        other.iter_mut().for_each(|round| round[0].gpu = "H100".into());
        assert!(compare(&rounds(OLD), &other).unwrap_err().contains("different places"));
        assert!(compare(&[vec![row("a", 1.0)]], &[vec![row("b", 1.0)]]).unwrap_err().contains("in common"));
        let folder = std::env::temp_dir().join(format!("bench-shared-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("old.jsonl");
        let path = file.to_str().unwrap();
        assert!(files(path, path).unwrap_err().contains(path));
        std::fs::write(&file, "{}\n").unwrap();
        assert!(files(path, path).unwrap_err().contains("line 1: no row"));
        std::fs::write(&file, serde_json::to_string(&row("copy", 0.0)).unwrap()).unwrap();
        assert!(files(path, path).unwrap_err().contains("above 0"));
        std::fs::write(&file, serde_json::to_string(&row("copy", 2.0)).unwrap() + "\n\n").unwrap();
        assert!(files(path, &format!("{path},{path}")).unwrap().passed());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
