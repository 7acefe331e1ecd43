//! One line a case, for people or for programs.

use fusewire_tests::{Outcome, Stop};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

/// Counts and prints.
pub struct Report {
    json: bool,
    start: Instant,
    passed: usize,
    failed: Vec<String>,
    left_out: BTreeMap<String, usize>,
}

impl Report {
    /// Prints JSON, or text.
    pub fn new(json: bool) -> Self {
        Report { json, start: Instant::now(), passed: 0, failed: Vec::new(), left_out: BTreeMap::new() }
    }

    /// Prints a remark.
    pub fn note(&self, text: &str) {
        self.line(if self.json { json!({ "note": text }).to_string() } else { text.to_owned() });
    }

    /// Runs and prints one case.
    pub fn case(&mut self, mode: &str, name: &str, body: impl FnOnce() -> Outcome) -> Outcome {
        let start = Instant::now();
        let outcome = body();
        let seconds = start.elapsed().as_secs_f64();
        let (word, why) = match &outcome {
            Ok(()) => ("passed", ""),
            Err(Stop::LeftOut(why)) => ("left out", why.as_str()),
            Err(Stop::Failed(why)) => ("FAILED", why.as_str()),
        };
        match &outcome {
            Ok(()) => self.passed += 1,
            Err(Stop::LeftOut(why)) => *self.left_out.entry(why.clone()).or_default() += 1,
            Err(Stop::Failed(_)) => self.failed.push(format!("{mode} {name}")),
        }
        self.line(match self.json {
            true => json!({ "mode": mode, "case": name, "outcome": word, "seconds": seconds, "why": why })
                .to_string(),
            false if why.is_empty() => format!("{mode:<9} {name:<48} {word:<8} {seconds:7.3} s"),
            false => format!("{mode:<9} {name:<48} {word:<8} {seconds:7.3} s  {why}"),
        });
        outcome
    }

    /// Counts cases that were not begun.
    pub fn leave_out(&mut self, cases: usize) {
        *self.left_out.entry("a case before them hangs".into()).or_default() += cases;
    }

    /// Prints the counts. Ends the process: threads that hang must not keep it.
    pub fn end(self) -> ExitCode {
        let (passed, failed, left_out) =
            (self.passed, self.failed.len(), self.left_out.values().sum::<usize>());
        let seconds = self.start.elapsed().as_secs_f64();
        if self.json {
            let (which, reasons) = (&self.failed, &self.left_out);
            let counts =
                json!({ "passed": passed, "failed": which, "left_out": reasons, "seconds": seconds });
            self.line(counts.to_string());
        } else {
            self.failed.iter().for_each(|name| self.line(format!("failed: {name}")));
            self.left_out.iter().for_each(|(why, count)| self.line(format!("left out, {count}: {why}")));
            self.line(format!("{passed} passed, {failed} failed, {left_out} left out in {seconds:.1} s"));
        }
        std::process::exit(i32::from(failed > 0 || passed == 0))
    }

    fn line(&self, text: String) {
        // A reader that has gone is no reason to stop.
        let _ = writeln!(std::io::stdout(), "{text}");
    }
}
