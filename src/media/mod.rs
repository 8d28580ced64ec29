//! Installation media: hashing against a pin, and what a file is.
