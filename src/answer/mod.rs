//! Answer files: accounts and passwords, templates, the bootstrap folder.
