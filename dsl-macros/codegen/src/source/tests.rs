use super::*;

const FILE: &str = "\
use fusewire::prelude::*;

/// Größe ≤ 1.
#[comm_kernel(transports(Nvl))]
pub mod m {
    pub struct Args<'a> { pub input: &'a [f32] }
    /* ∑ */ pub fn produce(ctx: &Produce, args: &Args) -> f32 { args.input[0] }
    fn helper() {}
}

fn after() {}
";

/// The `#[comm_kernel]` item of a text, as the command line reads it.
fn item(text: &str) -> TokenStream {
    bare(&crate::find_kernels(text).unwrap().remove(0).item)
}

/// The span of the `n`th word `word`.
fn word(tokens: &TokenStream, word: &str, n: usize) -> Span {
    fn find(tokens: TokenStream, word: &str, out: &mut Vec<Span>) {
        for tree in tokens {
            match tree {
                TokenTree::Group(g) => find(g.stream(), word, out),
                other if other.to_string() == word => out.push(other.span()),
                _ => {}
            }
        }
    }
    let mut all = Vec::new();
    find(tokens.clone(), word, &mut all);
    all[n]
}

fn text(file: &str, tokens: &TokenStream, inline: &[Span], tail: Option<&str>) -> Text {
    let file = SourceFile { path: "src/kernels.rs".into(), text: file.to_owned() };
    let parts = Parts {
        item: tokens,
        inlined: tokens,
        inline,
        blank: &[],
        tail,
        header: "HEADER;",
        file: Some(&file),
    };
    Text::of(&parts)
}

/// Line and column, both from 1, of `part` in `text`: as compilers say it.
fn place(text: &str, part: &str) -> (usize, usize) {
    let (n, line) = text.lines().enumerate().find(|(_, l)| l.contains(part)).unwrap();
    (n + 1, line[..line.find(part).unwrap()].chars().count() + 1)
}

#[test]
fn lines_stay_and_insertions_lead_back() {
    let tokens = item(FILE);
    let inline = [word(&tokens, "pub", 2), word(&tokens, "fn", 1)];
    let made = text(FILE, &tokens, &inline, Some(" TAIL "));
    let lines: Vec<&str> = made.text.lines().collect();
    assert_eq!(lines[0], "HEADER;");
    assert_eq!(lines[1..4], ["", "", ""]);
    assert_eq!(lines[4], "    mod m {");
    assert!(lines[6].starts_with("    /* ∑ */ #[inline(always)] pub fn produce"), "{}", lines[6]);
    assert_eq!(lines[7], "    #[inline(always)] fn helper() {}");
    assert_eq!(lines[8], " TAIL }");
    assert_eq!(lines.len(), 9);
    for part in ["Produce", "args.input", "helper", "mod m", "pub input"] {
        let (line, column) = place(&made.text, part);
        let (own_line, own_column) = place(FILE, part);
        assert_eq!(made.user_place(line, column), (own_line, own_column - 1), "{part}");
    }
    // What was inserted leads to the place it was inserted at.
    let (line, column) = place(&made.text, "inline(always)] fn helper");
    assert_eq!(made.user_place(line, column), (8, 4));
}

#[test]
fn a_place_is_its_token() {
    let tokens = item(FILE);
    let inline = [word(&tokens, "pub", 2)];
    let made = text(FILE, &tokens, &inline, None);
    let (line, column) = place(&made.text, "Produce");
    let found = made.span_at(&tokens, line, column).unwrap();
    assert_eq!(found.start(), word(&tokens, "Produce", 0).start());
    assert_eq!(found.start(), LineColumn { line: 7, column: 33 });
}

#[test]
fn an_item_on_the_first_line_has_the_header_before_it() {
    let file = "#[comm_kernel] mod m { fn f() {} }";
    let tokens = item(file);
    let made = text(file, &tokens, &[word(&tokens, "fn", 0)], Some(" TAIL "));
    assert_eq!(made.text, format!("{:15}HEADER;mod m {{ #[inline(always)] fn f() {{}}  TAIL }}", ""));
    let (line, column) = place(&made.text, "f()");
    assert_eq!(made.user_place(line, column), (1, file.find("f()").unwrap()));
    let (line, column) = place(&made.text, "mod");
    assert_eq!(made.user_place(line, column), (1, 15));
}

#[test]
fn a_file_that_has_changed_is_not_believed() {
    let tokens = item(FILE);
    for changed in [
        FILE.replace("args.input[0]", "args.input[1]"),
        FILE.replace("use fusewire", "\n\nuse fusewire"),
        FILE.replace("fn helper() {}\n}", ""),
        String::new(),
    ] {
        let made = text(&changed, &tokens, &[], Some(" TAIL "));
        assert!(made.file.is_none(), "{}", made.text);
        assert!(made.text.starts_with("HEADER;\n"));
        assert!(made.text.trim_end().ends_with(" TAIL }"), "{}", made.text);
    }
    // A doc string inside may be spelt in two ways, and the rest of the file may be anything.
    let other = FILE.replace("fn after", "fn before");
    assert!(text(&other, &tokens, &[], None).file.is_some());
}

#[test]
fn tokens_of_a_macro_are_printed_and_found_again() {
    let tokens: TokenStream = "mod m { /// Doc.\n fn f ( x : f32 ) -> f32 { x + missing } }".parse().unwrap();
    let parts = Parts {
        item: &tokens,
        inlined: &tokens,
        inline: &[],
        blank: &[],
        tail: Some(" TAIL "),
        header: "HEADER;",
        file: None,
    };
    let made = Text::of(&parts);
    assert!(made.file.is_none());
    let (line, column) = place(&made.text, "missing");
    let found = made.span_at(&tokens, line, column).unwrap();
    assert_eq!(found.start(), word(&tokens, "missing", 0).start());
}

#[test]
fn what_a_macro_was_given_is_not_torn_apart() {
    let given = |text: &str| {
        let tokens: TokenStream = text.parse().unwrap();
        proc_macro2::Group::new(proc_macro2::Delimiter::None, tokens)
    };
    let (sum, path, meta, ty, one) =
        (given("1.0 + x"), given("a::b"), given("doc = \"a\nb\" "), given("&'a [f32]"), given("-2"));
    let tokens = quote::quote!(#[#meta] fn f(y: #ty) { 2.0 * #sum - #path.c(#one) ; missing });
    let printed = Printed::of(&tokens);
    let expected =
        "# [doc = \"a\nb\" ] fn f (y : & 'a [f32 ] ) {2.0 * (1.0 + x ) - a ::b . c ((- 2 ) ) ; missing } ";
    assert_eq!(
        printed.text.split_whitespace().collect::<String>(),
        expected.split_whitespace().collect::<String>()
    );
    let (line, column) = place(&printed.text, "missing");
    let found = printed.places.iter().find(|(at, _)| *at == (line - 1, column - 1)).unwrap();
    assert!(line == 2 && found.1.source_text().is_none_or(|text| text == "missing"));
}

#[test]
fn blanks_keep_lines_and_columns() {
    let file = FILE.replace("    fn helper", "    /* ∑ */ #[derive(Plain, Copy)] struct P;\n    fn helper");
    let tokens = item(&file);
    let blank = [word(&tokens, "Plain", 0), word(&tokens, ",", 1)];
    let source = SourceFile { path: "src/kernels.rs".into(), text: file.clone() };
    let parts = Parts {
        item: &tokens,
        inlined: &tokens,
        inline: &[],
        blank: &blank,
        tail: None,
        header: "HEADER;",
        file: Some(&source),
    };
    let made = Text::of(&parts);
    assert_eq!(made.text.lines().nth(7).unwrap(), "    /* ∑ */ #[derive(       Copy)] struct P;");
    let (line, column) = place(&made.text, "struct P");
    assert_eq!(made.span_at(&tokens, line, column).unwrap().start(), word(&tokens, "struct", 1).start());
}

#[test]
fn a_byte_order_mark_and_carriage_returns_do_not_count() {
    let file = format!("\u{feff}{}", FILE.replace('\n', "\r\n"));
    let made = text(&file, &item(&file), &[], None);
    assert!(made.file.is_some());
    assert!(!made.text.contains('\r'));
}

#[test]
fn what_the_host_may_know() {
    let made = text(FILE, &item(FILE), &[], None);
    assert!(made.host_may_know("after"));
    assert!(!made.host_may_know("missing"));
    // Names in the item itself are on the device too.
    assert!(!made.host_may_know("helper"));
    let globs = FILE.replace("fn after", "use crate::constants::*; fn after");
    assert!(text(&globs, &item(&globs), &[], None).host_may_know("missing"));
}
