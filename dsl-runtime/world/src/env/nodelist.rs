//! Slurm's compressed lists of hosts, as far as they are needed: the first host.

/// The first host of a list like `node[001-004,9],gpu7` or `r[1-2]n[1-8]`; `None` where it is not such a list.
pub(super) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim().chars();
    while let Some(c) = rest.next() {
        match c {
            ',' => break,
            '[' => {
                let mut first = String::new();
                // The first number, with its leading zeros, up to a range's dash or the next number.
                let end = loop {
                    match rest.next()? {
                        c if c.is_ascii_digit() => first.push(c),
                        c => break c,
                    }
                };
                if first.is_empty() || !"-,]".contains(end) {
                    return None;
                }
                if end != ']' {
                    rest.find(|&c| c == ']')?;
                }
                host.push_str(&first);
            }
            c if c.is_ascii_alphanumeric() || "-._:".contains(c) => host.push(c),
            _ => return None,
        }
    }
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_host_of_every_form() {
        for (list, host) in [
            ("node1", "node1"),
            ("node1,node2", "node1"),
            ("node[1-4]", "node1"),
            ("node[001-128]", "node001"),
            ("node[7,9-12],gpu3", "node7"),
            ("gpu-a[05]", "gpu-a05"),
            ("r[1-2]n[03-08]", "r1n03"),
            ("r[1-2]n[03-08].cluster,x", "r1n03.cluster"),
            ("login.example.org,node[1-2]", "login.example.org"),
            ("10.0.0.5", "10.0.0.5"),
            (" node[2-3] ", "node2"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(host), "{list}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for list in ["", ",", "node[", "node[]", "node[-3]", "node[1", "node[1-", "node[a-b]", "no de", "n]1"]
        {
            assert_eq!(first_host(list), None, "{list}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(list in "[a-z0-9,\\[\\]\\- .]{0,40}") {
            let _ = first_host(&list);
        }
    }
}
