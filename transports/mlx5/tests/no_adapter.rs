//! Without an mlx5 adapter, opening one says so and what to do. A machine that has one passes by opening it.

use fusewire_mlx5::{Mlx5, Settings};
use fusewire_nic::Error;

/// Prints what it said: the suite in the virtual machine, which has a soft-RoCE adapter, looks for its words.
#[test]
fn what_is_missing_is_said() {
    match Mlx5::open(Settings::from_env().unwrap(), None) {
        Ok(adapter) => println!("opened {adapter:?}"),
        Err(error @ Error::NoAdapter { .. }) => {
            let said = error.to_string();
            println!("{said}");
            assert!(said.starts_with("no adapter: "), "{said}");
            assert!(
                said.contains("within a host") || said.contains("needs no adapter"),
                "what to do: {said}"
            );
            let rxe = std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut all| all.next().is_some());
            if rxe {
                assert!(said.contains("not an mlx5 adapter") || said.contains("DevX"), "{said}");
            }
        }
        Err(other) => panic!("another error than `no adapter`: {other}"),
    }
}
