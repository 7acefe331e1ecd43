//! The header is that of the source.

use fusewire::Protocol;
use fusewire_capi::fusewire_protocol;
use std::path::Path;

#[test]
fn the_header_is_that_of_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let made = cbindgen::Builder::new().with_crate(root).with_config(config).generate().unwrap();
    let mut text = Vec::new();
    made.write(&mut text);
    let text = String::from_utf8(text).unwrap().replace("[`", "`").replace("`]", "`");
    // The header's own words say what is safe; of Rust's headings nothing is left.
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("# Safety")).collect();
    let mut text = String::new();
    for (k, line) in lines.iter().enumerate() {
        let ends = |line: &str| line.trim() == "//" || line.starts_with("// As the crate says.");
        let last = lines.get(k + 1).is_none_or(|next| !next.starts_with("//") || ends(next));
        if !(ends(line) && last) {
            text += &line.replace("As the crate says; ", "");
            text.push('\n');
        }
    }
    let file = root.join("include/fusewire.h");
    if std::env::var_os("FUSEWIRE_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == text,
        "include/fusewire.h is of another source: run with FUSEWIRE_BLESS=1 and read the difference"
    );
}

#[test]
fn protocols_have_one_name_in_each_language() {
    for protocol in Protocol::ALL {
        assert_eq!(Option::from(fusewire_protocol::from(Some(protocol))), Some(protocol));
        assert_eq!(protocol.name().parse::<Protocol>().unwrap(), protocol);
    }
    assert_eq!(Option::<Protocol>::from(fusewire_protocol::from(None)), None);
    assert!("Simple".parse::<Protocol>().unwrap_err().to_string().contains("simple, ll, ll128"));
}
