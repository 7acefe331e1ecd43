//! Choosing among adapters by name: the syntax that users know from `NCCL_IB_HCA`.

/// Which adapters (and ports) may be used: names separated by commas, each the beginning of an adapter's name, `:port` behind it
/// if only that port is meant. `=` before the list makes names exact, `^` excludes instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    exact: bool,
    exclude: bool,
    names: Vec<(String, Option<u8>)>,
}

impl Filter {
    /// Reads a filter; an empty one lets everything through.
    ///
    /// # Errors
    /// A port that is no number.
    pub fn parse(text: &str) -> crate::Result<Self> {
        let mut filter = Filter::default();
        let mut rest = text.trim();
        loop {
            match rest.as_bytes().first() {
                Some(b'=') => filter.exact = true,
                Some(b'^') => filter.exclude = true,
                _ => break,
            }
            rest = &rest[1..];
        }
        for name in rest.split(',').map(str::trim).filter(|n| !n.is_empty()) {
            let (name, port) = match name.split_once(':') {
                None => (name, None),
                Some((name, port)) => match port.parse() {
                    Ok(port) => (name, Some(port)),
                    Err(_) => {
                        return Err(crate::Error::misuse(format!(
                            "`{port}` in the adapter filter `{text}` is no port number; write `mlx5_0:1`"
                        )));
                    }
                },
            };
            filter.names.push((name.to_owned(), port));
        }
        Ok(filter)
    }

    /// The filter in `FUSEWIRE_IB_HCA`.
    ///
    /// # Errors
    /// As [`Filter::parse`].
    pub fn from_env() -> crate::Result<Self> {
        Filter::parse(&std::env::var("FUSEWIRE_IB_HCA").unwrap_or_default())
    }

    /// Whether this adapter's port may be used.
    pub fn admits(&self, adapter: &str, port: u8) -> bool {
        if self.names.is_empty() {
            return true;
        }
        let named = self.names.iter().any(|(name, only)| {
            let fits = if self.exact { adapter == name } else { adapter.starts_with(name.as_str()) };
            fits && only.is_none_or(|p| p == port)
        });
        named != self.exclude
    }
}

#[cfg(test)]
mod tests {
    use super::Filter;

    #[test]
    fn names_are_prefixes_exact_or_excluded() {
        let admits = |filter: &str, adapter, port| Filter::parse(filter).unwrap().admits(adapter, port);
        assert!(admits("", "mlx5_0", 1) && admits(" ", "rxe0", 2));
        assert!(admits("mlx5", "mlx5_10", 1) && !admits("mlx5", "rxe0", 1));
        assert!(admits("=mlx5_1", "mlx5_1", 1) && !admits("=mlx5_1", "mlx5_10", 1));
        assert!(!admits("^mlx5_1", "mlx5_10", 1) && admits("^=mlx5_1", "mlx5_10", 1));
        assert!(admits("rxe0, mlx5_0:2", "mlx5_0", 2) && !admits("rxe0,mlx5_0:2", "mlx5_0", 1));
        assert!(Filter::parse("mlx5_0:one").is_err_and(|e| e.to_string().contains("`one`")));
    }
}
