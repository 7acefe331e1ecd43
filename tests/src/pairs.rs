//! Rows of choices, one from each of several lists: all that may be, or as few as have every two choices side by side.

use crate::data::Rng;
use std::collections::BTreeSet;

/// A choice from each list, by its number there.
pub type Row = Vec<usize>;

/// Every row that `may` be, of lists of so many choices.
pub fn all(lists: &[usize], may: impl Fn(&[usize]) -> bool) -> Vec<Row> {
    let mut rows = vec![Row::new()];
    for choices in lists {
        rows =
            rows.into_iter().flat_map(|row| (0..*choices).map(move |c| [&row[..], &[c]].concat())).collect();
    }
    rows.retain(|row| may(row));
    rows
}

/// Some of the rows that `may` be: every two choices that stand in one of those do in one of these, where a good part of all rows may be.
pub fn pairwise(lists: &[usize], may: impl Fn(&[usize]) -> bool, rng: &mut Rng) -> Vec<Row> {
    const DRAWN: usize = 400;
    const TRIED: usize = 40;
    let first: Row = lists.iter().map(|choices| choices - 1).collect();
    let mut left: BTreeSet<[usize; 4]> = pairs(&first)
        .flat_map(|[a, most, b, others]| {
            (0..=most).flat_map(move |x| (0..=others).map(move |y| [a, x, b, y]))
        })
        .collect();
    let mut rows = Vec::new();
    while let Some(pair) = left.first().copied() {
        let [a, x, b, y] = pair;
        let mut draw = || {
            let mut row: Row = lists.iter().map(|choices| rng.within(0, choices - 1)).collect();
            (row[a], row[b]) = (x, y);
            row
        };
        let drawn = (0..DRAWN).map(|_| draw()).filter(|row| may(row)).take(TRIED);
        let best = drawn.max_by_key(|row| pairs(row).filter(|pair| left.contains(pair)).count());
        // Without a row these two stand nowhere side by side.
        left.remove(&pair);
        for pair in best.iter().flat_map(|row| pairs(row)) {
            left.remove(&pair);
        }
        rows.extend(best);
    }
    rows
}

/// Every two choices of a row: list, choice, list, choice.
pub fn pairs(row: &[usize]) -> impl Iterator<Item = [usize; 4]> {
    (0..row.len()).flat_map(move |b| (0..b).map(move |a| [a, row[a], b, row[b]]))
}
