//! What Windows means by all this: is a root fit, and the patch that seals it.

pub mod keep;
