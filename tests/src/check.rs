//! Comparison of every element with what it should be.

use crate::data::shares;
use fusewire::device::element::Element;
use std::fmt::Display;

/// Panics unless `got[i]` has the bits of `want(i)` for every `i`; says where they first differ, and how often.
#[track_caller]
pub fn same<T: Element>(what: impl Display, got: &[T], want: impl Fn(usize) -> T + Sync) {
    compare(&what, got, &want);
}

/// Compiled for each type of elements, and not for each of six hundred calls.
#[track_caller]
fn compare<T: Element>(what: &dyn Display, got: &[T], want: &(dyn Fn(usize) -> T + Sync)) {
    // Of larger structs there are none.
    let bits = |value: T| if T::SIZE <= 8 { value.to_bits64() } else { 0 };
    let differs = |i: &usize| match T::SIZE {
        ..=8 => bits(got[*i]) != bits(want(*i)),
        _ => got[*i] != want(*i),
    };
    // The first element that is wrong, and how many are.
    let wrong = |from: usize, to: usize| {
        let first = (from..to).find(differs)?;
        Some((first, (first..to).filter(differs).count()))
    };
    let (threads, each) = shares(got.len());
    let found: Vec<(usize, usize)> = if threads == 1 {
        wrong(0, got.len()).into_iter().collect()
    } else {
        std::thread::scope(|scope| {
            let part = |k| scope.spawn(move || wrong(k * each, got.len().min((k + 1) * each)));
            let parts: Vec<_> = (0..threads).map(part).collect();
            parts.into_iter().filter_map(|part| part.join().unwrap_or(None)).collect()
        })
    };
    if let Some((first, _)) = found.first() {
        let count: usize = found.iter().map(|f| f.1).sum();
        let (g, w) = (got[*first], want(*first));
        panic!(
            "{what}: {count} of {} elements are wrong; the first is element {first}: {g:?} ({:#x}) where {w:?} ({:#x}) should be",
            got.len(),
            bits(g),
            bits(w)
        );
    }
}

/// Panics unless `text` contains all `parts`.
#[track_caller]
pub fn says(text: impl Display, parts: &[&str]) {
    let text = text.to_string();
    for part in parts {
        assert!(text.contains(part), "this should say `{part}`: {text}");
    }
}
