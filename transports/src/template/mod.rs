//! The documented blank.
