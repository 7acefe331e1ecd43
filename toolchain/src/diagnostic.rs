//! What the compiler said, from `--error-format=json`.

use serde::Deserialize;

/// How grave a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// The source was refused.
    Error,
    /// The source was taken.
    Warning,
    /// More about the diagnostic this is a child of.
    Note,
    /// A way out.
    Help,
}

/// A place in the source. Lines and columns count from 1; columns count characters; the end is exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagSpan {
    /// The file, as given to the compiler ([`crate::Unit::file`] where set).
    pub file: String,
    /// First line.
    pub line: usize,
    /// First column.
    pub column: usize,
    /// Last line.
    pub end_line: usize,
    /// One past the last column.
    pub end_column: usize,
    /// Whether this is where the trouble is, and not only a place that has to do with it.
    pub is_primary: bool,
    /// What is said at this place.
    pub label: Option<String>,
    /// What a help proposes to put in this place.
    pub suggestion: Option<String>,
    /// Where the macro was called whose expansion this place is in.
    pub call_site: Option<Box<DiagSpan>>,
}

impl DiagSpan {
    /// This place, or the innermost call that led to it, in `file`.
    pub fn in_file(&self, file: &str) -> Option<&DiagSpan> {
        if self.file == file { Some(self) } else { self.call_site.as_ref()?.in_file(file) }
    }
}

/// One message of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How grave it is.
    pub level: Level,
    /// `E0308`, or the name of a lint.
    pub code: Option<String>,
    /// The message's first line.
    pub message: String,
    /// Places in the source.
    pub spans: Vec<DiagSpan>,
    /// Notes and helps.
    pub children: Vec<Diagnostic>,
    /// The whole message as rustc prints it, without colours. Empty in a child.
    pub rendered: String,
}

impl Diagnostic {
    /// The first primary place, or else the first one.
    pub fn primary(&self) -> Option<&DiagSpan> {
        self.spans.iter().find(|span| span.is_primary).or(self.spans.first())
    }

    /// The first place in `file`, primary ones before others; of a macro defined elsewhere, its call there.
    pub fn primary_in(&self, file: &str) -> Option<&DiagSpan> {
        let (primary, others): (Vec<_>, Vec<_>) = self.spans.iter().partition(|span| span.is_primary);
        primary.into_iter().chain(others).find_map(|span| span.in_file(file))
    }
}

#[derive(Deserialize)]
struct Json {
    message: String,
    code: Option<JsonCode>,
    level: String,
    #[serde(default)]
    spans: Vec<JsonSpan>,
    #[serde(default)]
    children: Vec<Json>,
    rendered: Option<String>,
}

#[derive(Deserialize)]
struct JsonCode {
    code: String,
}

#[derive(Deserialize)]
struct JsonSpan {
    file_name: String,
    line_start: usize,
    line_end: usize,
    column_start: usize,
    column_end: usize,
    is_primary: bool,
    label: Option<String>,
    suggested_replacement: Option<String>,
    expansion: Option<Box<JsonExpansion>>,
}

#[derive(Deserialize)]
struct JsonExpansion {
    span: JsonSpan,
}

impl From<JsonSpan> for DiagSpan {
    fn from(span: JsonSpan) -> DiagSpan {
        DiagSpan {
            file: span.file_name,
            line: span.line_start,
            column: span.column_start,
            end_line: span.line_end,
            end_column: span.column_end,
            is_primary: span.is_primary,
            label: span.label,
            suggestion: span.suggested_replacement,
            call_site: span.expansion.map(|expansion| Box::new(expansion.span.into())),
        }
    }
}

impl From<Json> for Diagnostic {
    fn from(json: Json) -> Diagnostic {
        let level = match json.level.as_str() {
            "warning" => Level::Warning,
            "help" => Level::Help,
            "note" | "failure-note" => Level::Note,
            // "error" and "error: internal compiler error".
            _ => Level::Error,
        };
        Diagnostic {
            level,
            code: json.code.map(|code| code.code),
            message: json.message,
            spans: json.spans.into_iter().map(DiagSpan::from).collect(),
            children: json.children.into_iter().map(Diagnostic::from).collect(),
            rendered: json.rendered.unwrap_or_default(),
        }
    }
}

/// The diagnostics in what rustc wrote, without its closing summary; and the lines that are no diagnostic.
pub(crate) fn parse(stderr: &str) -> (Vec<Diagnostic>, String) {
    let mut diagnostics = Vec::new();
    let mut rest = String::new();
    for line in stderr.lines() {
        match serde_json::from_str::<Json>(line) {
            Ok(json) => {
                let summary = json.level == "failure-note"
                    || (json.spans.is_empty()
                        && (json.message.starts_with("aborting due to")
                            || json.message.ends_with(" warning emitted")
                            || json.message.ends_with(" warnings emitted")));
                if !summary {
                    diagnostics.push(Diagnostic::from(json));
                }
            }
            Err(_) => {
                rest.push_str(line);
                rest.push('\n');
            }
        }
    }
    (diagnostics, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"$message_type":"diagnostic","message":"mismatched types","code":{"code":"E0308","explanation":"x"},"level":"error","spans":[{"file_name":"k.rs","byte_start":3,"byte_end":5,"line_start":6,"line_end":7,"column_start":24,"column_end":61,"is_primary":true,"text":[],"label":"expected `()`","suggested_replacement":null,"suggestion_applicability":null,"expansion":null}],"children":[{"message":"use a semicolon","code":null,"level":"help","spans":[],"children":[],"rendered":null}],"rendered":"error[E0308]: mismatched types\n"}"#;
    const SUMMARY: &str = r#"{"$message_type":"diagnostic","message":"aborting due to 1 previous error","code":null,"level":"error","spans":[],"children":[],"rendered":"error: aborting"}"#;
    const NOTE: &str = r#"{"$message_type":"diagnostic","message":"For more information","code":null,"level":"failure-note","spans":[],"children":[],"rendered":"For more"}"#;

    #[test]
    fn reads_places_and_children() {
        let (diagnostics, rest) = parse(&format!("{LINE}\n{SUMMARY}\n{NOTE}\nLLVM ERROR: no\n"));
        assert_eq!(rest, "LLVM ERROR: no\n");
        let [one] = &diagnostics[..] else { panic!("{diagnostics:?}") };
        assert_eq!((one.level, one.code.as_deref()), (Level::Error, Some("E0308")));
        let span = one.primary().unwrap();
        assert_eq!((span.line, span.column, span.end_line, span.end_column), (6, 24, 7, 61));
        assert_eq!(span.label.as_deref(), Some("expected `()`"));
        assert_eq!(
            (one.children[0].level, one.children[0].message.as_str()),
            (Level::Help, "use a semicolon")
        );
    }

    #[test]
    fn takes_any_text() {
        let (diagnostics, rest) = parse("{}\n{\"message\":1}\nplain");
        assert!(diagnostics.is_empty());
        assert_eq!(rest.lines().count(), 3);
    }
}
