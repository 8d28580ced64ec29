//! Disk images and what partitions them: raw, qcow2, GPT and MBR.
