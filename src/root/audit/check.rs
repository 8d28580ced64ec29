//! The table of all checks: what each looks at, how much it weighs, why it matters, and what to do.

use serde::Serialize;

/// How much a check that does not pass weighs, unless the policy says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is done with such a root, whatever the policy says.
    Refuse,
    /// It is not published, unless the policy allows it.
    Fail,
    /// It should be known.
    Warn,
}

/// One check.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What a recipe calls it by.
    pub id: &'static str,
    /// What it weighs.
    pub severity: Severity,
    /// What holds in a root that passes it.
    pub asks: &'static str,
    /// What goes wrong otherwise.
    pub why: &'static str,
    /// What to do about it.
    pub cure: &'static str,
}

use Severity::{Fail, Refuse, Warn};

/// Declares the checks, and the table of all of them in this order.
macro_rules! checks {
    ($($name:ident $severity:ident $id:literal $asks:literal $why:literal $cure:literal)*) => {
        $(
            #[doc = $asks]
            pub static $name: Check =
                Check { id: $id, severity: $severity, asks: $asks, why: $why, cure: $cure };
        )*
        /// Every check, in the order of a report.
        pub static CHECKS: &[&Check] = &[$(&$name),*];
    };
}

checks! {
    PARTITION_TABLE Warn "partition-table"
        "The first partition table is sound."
        "Firmware and Windows may read the damaged copy."
        "repair it on a copy of the disk: sgdisk -e, then gdisk's recovery menu"
    BOOT_PARTITION Fail "boot-partition"
        "There is a partition to boot from: an EFI system partition, or an active one in an MBR."
        "A clone does not start."
        "install Windows anew with the answer file's own partitions"
    OTHER_VOLUMES Warn "other-volumes"
        "Every other NTFS volume could be searched for answer files."
        "Its files are published without having been looked at."
        "decrypt the volume or shut Windows down fully, or remove the partition"
    VOLUME_CLEAN Refuse "volume-clean"
        "The Windows volume was left clean: not marked dirty, its journal closed, its first records mirrored."
        "What is on the disk may not be what Windows last wrote; an edit could destroy it."
        "start Windows from it, run chkdsk /f, and shut it down (shutdown /s /t 0)"
    HIBERNATION Refuse "hibernation"
        "Windows is not hibernated on the volume."
        "It would go on from its saved memory and overwrite what was changed."
        "start Windows from it, run powercfg /h off, and shut it down (shutdown /s /t 0)"
    BITLOCKER Refuse "bitlocker"
        "The Windows volume is not encrypted with BitLocker."
        "It can't be read here, and its key is bound to a TPM that no clone has."
        "start Windows, run manage-bde -off C:, wait until it is fully decrypted, and generalise again"
    SHADOW_COPIES Warn "shadow-copies"
        "The Windows volume has no shadow copies."
        "They keep old files, deleted answer files among them, and the volume is shipped whole."
        "delete them in Windows before it is generalised: vssadmin delete shadows /all"
    CLUSTER_MAP Refuse "cluster-map"
        "The volume's cluster map agrees with the files that are relied on."
        "Clusters of a file that the map calls free would be left out, or overwritten."
        "start Windows from it, run chkdsk /f, generalise it again, and let it shut down by itself"
    HIVE_WHOLE Refuse "hive-whole"
        "The registry hives are whole, by themselves or with their logs."
        "Keys may be missing or half-written, and Windows may undo an edit."
        "start that Windows, generalise it again, and let it shut down by itself"
    HIVE_LOGS Warn "hive-logs"
        "No registry hive needs its logs."
        "Windows did not end in peace; its last changes were only in the logs."
        "nothing: sealing replays SYSTEM's logs into the image, and Windows replays the others when it starts"
    GENERALISED Refuse "generalised"
        "Sysprep has generalised the root: ImageState is IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE."
        "All clones would be one machine: the same identifiers, accounts and names."
        "run sysprep /generalize /oobe /shutdown /mode:vm in it, and don't start it again before sealing"
    SYSPREP_SETUP Warn "sysprep-setup"
        "SYSTEM\\Setup starts Setup at the next boot: SetupType 2, CmdLine with windeploy.exe."
        "The signs of sysprep disagree; the first boot may not be Setup's."
        "run sysprep again, and read \\Windows\\System32\\Sysprep\\Panther\\setuperr.log"
    SYSPREP_STATE_INI Warn "sysprep-state-ini"
        "\\Windows\\Setup\\State\\State.ini says what ImageState says."
        "The signs of sysprep disagree."
        "run sysprep again, and read \\Windows\\System32\\Sysprep\\Panther\\setuperr.log"
    SYSPREP_TAG Warn "sysprep-tag"
        "\\Windows\\System32\\Sysprep\\Sysprep_succeeded.tag is there."
        "Sysprep may not have come to its end."
        "run sysprep again, and read \\Windows\\System32\\Sysprep\\Panther\\setuperr.log"
    EDITION Fail "edition"
        "The edition is the one that the recipe expects."
        "The image would be another product than its name and licence say."
        "name the right disk, or correct media.windows.expect.edition_id"
    BUILD Warn "build"
        "The build is the one that the recipe expects; updates change only its second number."
        "The image is another release than its recipe says."
        "name the right disk, or correct media.windows.expect.build"
    ARCHITECTURE Fail "architecture"
        "The processor architecture is amd64, or the one that the recipe expects."
        "The image says linux/amd64, and its clones run on such nodes."
        "install the amd64 edition of Windows"
    LANGUAGE Warn "language"
        "The language that the recipe expects is installed."
        "Setup can't use a language that is not there, and asks."
        "install that language, or correct media.windows.expect.language"
    EVALUATION Warn "evaluation"
        "Windows is no evaluation edition and no preview that expires."
        "Clones shut themselves down when it has run out."
        "build from a licensed medium, or renew the image before that day"
    REARM Warn "rearm"
        "SkipRearm is not set, so that sysprep has reset the activation."
        "Clones share the activation's state, and the evaluation's remaining days."
        "set SkipRearm to 0 and run sysprep /generalize again"
    STORAGE_DRIVER Fail "storage-driver"
        "viostor or vioscsi starts at boot, and its .sys file is there."
        "A clone on a virtio disk stops with INACCESSIBLE_BOOT_DEVICE."
        "stage the driver with the answer file (offlineServicing), or install it in Windows on a virtio disk"
    NETWORK_DRIVER Warn "network-driver"
        "NetKVM is installed, and its .sys file is there."
        "A clone has no network on a virtio interface."
        "install NetKVM from the virtio-win medium: pnputil /add-driver netkvm.inf /install"
    SERIAL_DRIVER Warn "serial-driver"
        "The virtio serial driver is installed, and its .sys file is there."
        "The guest agent has no channel to the host."
        "install vioserial from the virtio-win medium: pnputil /add-driver vioser.inf /install"
    GUEST_AGENT Warn "guest-agent"
        "The QEMU guest agent's service starts by itself, and its program is there."
        "The host can't ask the clone anything: no addresses, no clean shutdown."
        "install guest-agent\\qemu-ga-x86_64.msi from the virtio-win medium"
    DEVICE_ENCRYPTION Warn "device-encryption"
        "PreventDeviceEncryption is 1."
        "Windows may encrypt a clone's disk by itself, bound to a TPM that may not be kept."
        "set HKLM\\SYSTEM\\CurrentControlSet\\Control\\BitLocker PreventDeviceEncryption to 1 before sysprep"
    FIRST_BOOT Fail "first-boot"
        "SYSTEM\\Setup's UnattendFile is what the chosen first boot needs."
        "Setup fails on a pointer to a file that is not there, and asks where it has none."
        "seal the root, or change root.first_boot in the recipe"
    POINTER_FILE Fail "pointer-file"
        "The file that UnattendFile names on the Windows volume is there."
        "Setup fails on a pointer to a file that is not there."
        "seal the root: that sets the pointer anew, or takes it away"
    CLOUDBASE_INIT Fail "cloudbase-init"
        "cloudbase-init is installed, if the first boot is its."
        "Nobody sets up a clone."
        "install cloudbase-init before sysprep, or choose another first_boot"
    CLOUDBASE_SERVICE Fail "cloudbase-init-service"
        "cloudbase-init's service starts by itself, if the first boot is its."
        "cloudbase-init never runs in a clone."
        "sc config cloudbase-init start= auto"
    CLOUDBASE_NOCLOUD Fail "cloudbase-init-nocloud"
        "cloudbase-init.conf names the NoCloud service, if the first boot is its."
        "cloudbase-init does not look at the seed CD; its own list has no NoCloud."
        "add cloudbaseinit.metadata.services.nocloudservice.NoCloudConfigDriveService to metadata_services"
    CLOUDBASE_UNUSED Fail "cloudbase-init-unused"
        "cloudbase-init has not run yet, if the first boot is its."
        "Its plugins remember that they ran, and don't run again in a clone with the same instance id."
        "remove HKLM\\SOFTWARE\\Cloudbase Solutions\\Cloudbase-Init's subkeys before sysprep"
    CLOUDBASE_ANSWERS Fail "cloudbase-init-answers"
        "cloudbase-init's answer file is where Setup finds it, without a password, if the first boot is its."
        "Setup stops and asks at a clone's first boot."
        "run sysprep with /unattend:Unattend.xml from cloudbase-init's conf folder"
    ANSWER_PASSWORD Fail "answer-file-password"
        "No cached answer file holds a password, plain or encoded."
        "Whoever pulls the image reads it."
        "seal it, which scrubs the file, or delete it in Windows before it is generalised"
    ANSWER_FILES Warn "answer-files"
        "No answer file, not even one without a password, is cached where Setup or sysprep looks for one."
        "Setup may use it at a clone's first boot, before or beside the clone's own."
        "seal it, which scrubs the file, or delete it in Windows before it is generalised"
    AUTO_LOGON Fail "auto-logon"
        "Nobody is logged on automatically: AutoAdminLogon is not 1."
        "Every clone opens a session without asking."
        "set HKLM\\SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion\\Winlogon AutoAdminLogon to 0"
    WINLOGON_PASSWORD Fail "winlogon-password"
        "Winlogon has no DefaultPassword."
        "It is a plain password that every user of every clone can read."
        "delete HKLM\\SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion\\Winlogon DefaultPassword"
    LSA_PASSWORD Warn "lsa-password"
        "LSA keeps no DefaultPassword."
        "It is the password of an automatic logon; its key lies beside it in the image."
        "turn the automatic logon off with the tool that turned it on (Autologon: Disable)"
    POLICY_PASSWORD Fail "policy-password"
        "No cached group policy preference holds a cpassword."
        "Its key is public: it is as good as plain."
        "take the password out of the policy, and delete \\ProgramData\\Microsoft\\Group Policy\\History"
    SETUP_SCRIPTS Warn "setup-scripts"
        "\\Windows\\Setup\\Scripts is empty."
        "Scripts for Setup often hold passwords and tokens, and run again in every clone."
        "read them, and delete what clones don't need"
    CLOUDBASE_FILES Warn "cloudbase-init-files"
        "cloudbase-init has left no logs, and its configuration names no password."
        "Its logs tell what it was given, and may hold user data."
        "delete the logs and the password before sysprep"
    POWERSHELL_HISTORY Warn "powershell-history"
        "No PowerShell history is kept."
        "Commands are kept with their arguments, passwords among them."
        "delete each ConsoleHost_history.txt before sysprep"
    PREVIOUS_WINDOWS Warn "previous-windows"
        "There is no Windows.old, and no folder of an upgrade."
        "An older Windows' files are published, its secrets among them."
        "remove it before sysprep: cleanmgr, Previous Windows installations"
    PROFILES Warn "profiles"
        "\\Users holds nobody's profile but Windows' own."
        "The build account's files, caches and tokens are published."
        "remove the profile before sysprep (System Properties, User Profiles), or copy what clones need to Default"
    FREE_SPACE Warn "free-space"
        "At least 1 GiB, or a tenth of the volume, is free."
        "A clone's first boot makes a page file and may need room for updates."
        "make the volume larger, or remove what is not needed"
}

/// The check of that id.
pub fn by_id(id: &str) -> Option<&'static Check> {
    CHECKS.iter().copied().find(|check| check.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_can_be_written_in_a_recipe() {
        for (n, check) in CHECKS.iter().enumerate() {
            assert!(check.id.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", check.id);
            assert!(CHECKS[..n].iter().all(|other| other.id != check.id), "{}", check.id);
            assert!(
                check.asks.ends_with('.') && check.why.ends_with('.') && !check.cure.ends_with('.'),
                "{}",
                check.id
            );
            assert_eq!(by_id(check.id).map(|found| found.id), Some(check.id));
        }
    }
}
