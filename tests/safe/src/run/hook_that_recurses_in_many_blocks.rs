//! The same in threads of a crew, with frames that are larger than a guard page.
//! Ends: signal 6
//! Says: a hook of `fusewire_safe::run::hook_that_recurses::deep`

pub fn run() -> crate::Ended {
    super::hook_that_recurses::launch(0, 4)
}
