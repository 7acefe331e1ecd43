//! How ranks meet: bootstrap, TCP store, launchers' environments, file descriptor passing.
