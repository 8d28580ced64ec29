//! Partitions, and how much room is left.

use super::super::facts::RootFacts;
use super::super::installation::Installation;
use super::Findings;
use super::check::{BOOT_PARTITION, FREE_SPACE, OTHER_VOLUMES, PARTITION_TABLE};
use crate::disk::partitions::{PartitionKind, Scheme};

const GIB: u64 = 1 << 30;

pub fn check(installation: &Installation<'_, '_>, facts: &RootFacts, findings: &mut Findings<'_>) {
    let windows = installation.windows;
    let table = &windows.table;
    if let Some(damage) = &table.backup_damage {
        findings.object_with_cure(
            &PARTITION_TABLE,
            format!("the backup of the partition table, at the disk's end, is damaged: {damage}"),
            "if the disk was made larger: sgdisk -e; if it was cut short, copy or fetch it again",
        );
    }
    match &table.primary_damage {
        None if table.backup_damage.is_some() => {}
        Some(damage) => findings.object(
            &PARTITION_TABLE,
            format!("the first partition table is damaged ({damage}); its backup was read"),
        ),
        None => findings.pass(
            &PARTITION_TABLE,
            format!(
                "{}, {}-byte sectors, Windows on partition {}",
                facts.partition_scheme.to_uppercase(),
                facts.sector_size,
                facts.partition
            ),
        ),
    }
    let (bootable, what) = match table.scheme {
        Scheme::Gpt => (
            table.partitions.iter().find(|partition| partition.kind == PartitionKind::Esp),
            "EFI system partition",
        ),
        Scheme::Mbr => (table.partitions.iter().find(|partition| partition.active), "active partition"),
    };
    match bootable {
        Some(partition) => findings.pass(&BOOT_PARTITION, format!("{what}: {}", partition.number)),
        None => findings.object(&BOOT_PARTITION, format!("there is no {what}")),
    }
    let locked =
        windows.locked.iter().map(|number| format!("partition {number} is encrypted with BitLocker"));
    let unsearched = installation.cached.unsearched.iter().cloned().chain(locked).collect();
    findings.none_of(&OTHER_VOLUMES, unsearched, "every NTFS volume was searched");

    let enough = facts.volume_free >= GIB || facts.volume_free >= facts.volume_size / 10;
    let mib = |bytes: u64| bytes >> 20;
    findings.judge(
        &FREE_SPACE,
        enough,
        format!("{} of {} MiB are free", mib(facts.volume_free), mib(facts.volume_size)),
    );
}
