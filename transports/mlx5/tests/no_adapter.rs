//! Without an mlx5 adapter, opening one says so and what to do. A machine that has one passes by opening it.

use fusewire_mlx5::{Mlx5, Settings};
use fusewire_nic::Error;

/// Prints what it said: the virtual machine's script, which has adapters that are not mlx5 and then none, looks for its words.
#[test]
fn what_is_missing_is_said() {
    match Mlx5::open(Settings::from_env().unwrap(), None) {
        Ok(adapter) => println!("opened {adapter:?}"),
        Err(error @ Error::NoAdapter { .. }) => {
            let said = error.to_string();
            println!("{said}");
            assert!(said.starts_with("no adapter: "), "{said}");
            let advice = ["within a host", "needs no adapter", "FUSEWIRE_IB_HCA"];
            assert!(advice.iter().any(|words| said.contains(words)), "what to do: {said}");
        }
        Err(other) => panic!("another error than `no adapter`: {other}"),
    }
}
