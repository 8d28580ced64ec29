//! Registry hives (regf) over ReadAt: reading, and editing as a patch.
