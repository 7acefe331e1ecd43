//! Examples a person would copy.
