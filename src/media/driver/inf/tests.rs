#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;

/// As virtio-win's are: tokens, trailing spaces, names in every case.
const VIOSTOR: &str = r#"
;  Copyright
[version]
Signature = "$WINDOWS NT$"
Class=SCSIAdapter
ClassGUID={4D36E97B-E325-11CE-BFC1-08002BE10318}
Provider=%VENDOR%
DriverVer = 07/02/2024,100.95.104.26200 ; stampinf
CatalogFile=viostor.cat
PnpLockdown=1

[SourceDisksNames]
1 = %DiskId1%,,,""

[SourceDisksFiles]
viostor.sys = 1,,

[DestinationDirs]
viostor_Files_Driver = 13

[Manufacturer]
%VENDOR%   = VioStor,NTamd64.10.0

[VioStor.NTamd64.10.0]
%VioStorScsi.DeviceDesc% = scsi_inst, PCI\VEN_1AF4&DEV_1001, PCI\VEN_1AF4&DEV_1042

[viostor_Files_Driver]
viostor.sys,,,2

[scsi_inst]
CopyFiles=viostor_Files_Driver

[scsi_inst.Services]
AddService = viostor, 0x00000002 , scsi_Service_Inst

[scsi_Service_Inst]
ServiceBinary  = %13%\viostor.sys

[Strings]
VENDOR = "Red Hat, Inc."
diskId1 = "Red Hat VirtIO SCSI controller Installation Disk"
"#;

fn parse(text: &str) -> Inf {
    Inf::parse(text.as_bytes()).unwrap()
}

fn version(rest: &str) -> Result<Inf, InfError> {
    Inf::parse(format!("[Version]\nSignature=$Windows NT$\n{rest}").as_bytes())
}

fn paths(inf: &Inf, architecture: &str) -> Vec<String> {
    inf.files_for(architecture).map(|file| file.path.clone()).collect()
}

#[test]
fn a_virtio_driver() {
    let inf = parse(VIOSTOR);
    assert_eq!(inf.class.as_deref(), Some("SCSIAdapter"));
    assert_eq!(inf.class_guid.as_deref(), Some("{4D36E97B-E325-11CE-BFC1-08002BE10318}"));
    assert_eq!(inf.provider.as_deref(), Some("Red Hat, Inc."));
    assert_eq!(inf.driver_ver.unwrap().to_string(), "100.95.104.26200 of 2024-07-02");
    assert_eq!(inf.catalogs, [CatalogName { platform: None, name: "viostor.cat".to_owned() }]);
    assert_eq!(paths(&inf, "amd64"), ["viostor.sys"]);
    assert_eq!(inf.service_binaries, ["viostor.sys"]);
}

#[test]
fn every_encoding_gives_the_same() {
    let expected = parse(VIOSTOR);
    let utf16: Vec<u8> = VIOSTOR.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(Inf::parse(&[b"\xff\xfe".as_slice(), &utf16].concat()).unwrap(), expected);
    assert_eq!(Inf::parse(&[b"\xef\xbb\xbf", VIOSTOR.as_bytes()].concat()).unwrap(), expected);
    assert_eq!(parse(&VIOSTOR.replace('\n', "\r\n")), expected);
    let accented = VIOSTOR.replace("Red Hat, Inc.", "Soci\u{e9}t\u{e9}");
    let ansi: Vec<u8> = accented.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    assert_eq!(Inf::parse(&ansi).unwrap(), parse(&accented));
}

#[test]
fn driver_ver() {
    let ver =
        |text: &str| version(&format!("DriverVer={text}")).map(|inf| inf.driver_ver.unwrap().to_string());
    assert_eq!(ver("06/21/2006").unwrap(), "0.0.0.0 of 2006-06-21");
    assert_eq!(ver("6-1-2006, 62.1").unwrap(), "62.1.0.0 of 2006-06-01");
    assert_eq!(ver("%d%,1.2.3.65535\n[strings]\nd=01/02/2003").unwrap(), "1.2.3.65535 of 2003-01-02");
    for wrong in [
        "",
        "13/01/2020,1.0",
        "00/01/2020",
        "1/32/2020",
        "1/1",
        "1/1/2020,1.2.3.4.5",
        "1/1/2020,+1",
        "1/1/2020,65536",
        "today",
    ] {
        assert!(matches!(ver(wrong), Err(InfError::DriverVer { line: 3, .. })), "{wrong}");
    }
}

#[test]
fn catalogs_by_platform() {
    let inf = version(
        "CatalogFile.NTamd64 = a64.cat\ncatalogfile = all.cat\nCatalogFile.nt=nt.cat\nCatalogFile.NTx86=",
    )
    .unwrap();
    assert_eq!(inf.catalog("AMD64"), Some("a64.cat"));
    assert_eq!(inf.catalog("x86"), Some("nt.cat"));
    assert_eq!(version("CatalogFile=c").unwrap().catalog("arm64"), Some("c"));
    assert_eq!(version("CatalogFile.NTx86=c").unwrap().catalog("amd64"), None);
}

#[test]
fn files_of_a_package() {
    let inf = version(
        r"
[SourceDisksNames]
1 = Disk,,,
2 = Disk,,,\bin
[SourceDisksFiles]
both.sys = 1
sub.dll = 2,x64,
[SourceDisksFiles.x86]
old.sys = 1
both.sys = 1
[SourceDisksFiles.amd64]
new.sys = 1
[inst.NT]
CopyFiles = @Direct.exe, List
[inst.NT.hw]
copyfiles = list,Missing.List
[list]
BOTH.SYS
renamed.sys, source.sys
[service]
ServiceBinary = %12%\Both.sys
[other service]
ServiceBinary = %13%\own.sys
",
    )
    .unwrap();
    assert_eq!(
        paths(&inf, "amd64"),
        ["bin\\x64\\sub.dll", "both.sys", "Direct.exe", "new.sys", "own.sys", "source.sys"]
    );
    assert_eq!(
        paths(&inf, "x86"),
        ["bin\\x64\\sub.dll", "both.sys", "Direct.exe", "old.sys", "own.sys", "source.sys"]
    );
    assert_eq!(inf.service_binaries, ["Both.sys", "own.sys"]);
}

#[test]
fn what_is_borrowed_from_windows_is_no_file_of_the_package() {
    let rest = "\n[SourceDisksFiles]\nown.sys=1\n[inst]\nInclude=usb.inf\nCopyFiles=@usbhub.sys\n[s]\nServiceBinary=%12%\\usbser.sys";
    let inf = version(rest).unwrap();
    assert_eq!(paths(&inf, "amd64"), ["own.sys"]);
    assert_eq!(inf.service_binaries, ["usbser.sys"]);
    let inf =
        version(&rest.replace("Include=usb.inf", "").replacen('\n', "LayoutFile=layout.inf\n", 1)).unwrap();
    assert_eq!(paths(&inf, "amd64"), ["own.sys"]);
}

#[test]
fn what_is_no_inf_is_refused() {
    assert_eq!(Inf::parse(b""), Err(InfError::NoSignature));
    assert_eq!(Inf::parse(b"[Version]\nSignature=\"$Other$\""), Err(InfError::NoSignature));
    assert_eq!(Inf::parse(b"[Setup]\nx=1"), Err(InfError::NoSignature));
    assert_eq!(Inf::parse(b"<html>"), Err(InfError::OutsideSection { line: 1 }));
    assert_eq!(Inf::parse(&vec![b' '; (4 << 20) + 1]), Err(InfError::TooLarge { size: (4 << 20) + 1 }));
    assert!(version("Signature=later").is_ok());
    let many: String = (0..=MAX_FILES).map(|n| format!("{n}.sys=1\n")).collect();
    assert_eq!(version(&format!("[SourceDisksFiles]\n{many}")), Err(InfError::TooManyFiles));
}

proptest! {
    #[test]
    fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = Inf::parse(&bytes);
    }

    #[test]
    fn arbitrary_lines(lines in proptest::collection::vec("[\\[\\]a-c=%,\"\\\\; ]{0,20}|CopyFiles=[@a-c,]{0,5}|\\[(a|strings|sourcedisksfiles\\.x86)\\]", 0..30)) {
        let text = format!("[Version]\nSignature=\"$Windows NT$\"\n{}", lines.join("\n"));
        if let Ok(inf) = Inf::parse(text.as_bytes()) {
            for file in &inf.files {
                prop_assert!(!file.path.is_empty() && !file.path.starts_with('\\'));
            }
        }
    }
}
