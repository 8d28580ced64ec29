//! A disk as a containerDisk: allocation map, qcow2 stream, layer frames, OCI layout.
