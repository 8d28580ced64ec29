//! Registries: credentials, authentication, upload and verification.
