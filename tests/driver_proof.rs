//! Driver packages are proved by their catalogs, offline; `osslsigncode` and `openssl` are the judges.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sealroot::io::ReadAt;
use sealroot::media::driver::{
    Algorithm, Catalog, Chain, FileDigests, FolderFile, Inf, Judge, MAX_DRIVER_FILE, Proof, ProofError,
    Reason, SignatureError, SigningTime, TrustRoots, authenticode, prove,
};
use time::OffsetDateTime;

const INF: &str = "viostor.inf";
const SYS: &str = "viostor.sys";
const CAT: &str = "viostor.cat";
/// 2023-06-01 12:00:00 UTC, when all is countersigned.
const STAMPED: i64 = 1_685_620_800;

struct Drivers {
    folder: tempfile::TempDir,
    roots: TrustRoots,
}

/// The files of one package, to be changed.
#[derive(Clone)]
struct Package(Vec<(String, Vec<u8>)>);

impl Drivers {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/make-drivers.sh");
        let made = Command::new("bash").arg(script).arg(folder.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let roots = TrustRoots::from_pem(&fs::read(folder.path().join("pki/root.pem")).unwrap()).unwrap();
        Self { folder, roots }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn package(&self, case: &str) -> Package {
        let read = |name: &str| (name.to_owned(), fs::read(self.path(case).join(name)).unwrap());
        Package([INF, SYS, CAT].map(read).to_vec())
    }

    fn prove(&self, package: &Package) -> Result<Proof, ProofError> {
        package.prove(Some(&self.roots))
    }

    /// What fails in a case of the fixtures.
    fn failure(&self, case: &str) -> (String, Reason) {
        only_failure(self.prove(&self.package(case)))
    }
}

impl Package {
    fn bytes(&mut self, name: &str) -> &mut Vec<u8> {
        &mut self.0.iter_mut().find(|(other, _)| other == name).unwrap().1
    }

    fn without(mut self, name: &str) -> Self {
        self.0.retain(|(other, _)| other != name);
        self
    }

    fn prove(&self, roots: Option<&TrustRoots>) -> Result<Proof, ProofError> {
        let files: Vec<_> = self.0.iter().map(|(name, bytes)| FolderFile { name, bytes }).collect();
        let mut proofs = prove(&files, "amd64", judge(roots));
        assert_eq!(proofs.len(), 1);
        proofs.remove(0)
    }
}

fn judge(roots: Option<&TrustRoots>) -> Judge<'_> {
    Judge { roots, now: OffsetDateTime::now_utc() }
}

fn only_failure(proof: Result<Proof, ProofError>) -> (String, Reason) {
    let mut error = proof.unwrap_err();
    assert_eq!(error.inf, INF);
    assert_eq!(error.failures.len(), 1, "{error}");
    let failure = error.failures.remove(0);
    (failure.file, failure.reason)
}

/// Whether osslsigncode finds the SYS in the catalog, and the signature and timestamp right.
fn osslsigncode(drivers: &Drivers, case: &str) -> bool {
    let folder = drivers.path(case);
    let root = drivers.path("pki/root.pem");
    let run = Command::new("osslsigncode")
        .args(["verify", "-catalog"])
        .arg(folder.join(CAT))
        .arg("-in")
        .arg(folder.join(SYS))
        .arg("-CAfile")
        .arg(&root)
        .arg("-TSA-CAfile")
        .arg(&root)
        .output()
        .unwrap();
    run.status.success()
}

#[test]
fn packages_that_hold() {
    let drivers = Drivers::new();
    // The hash that was signed, the least hash of a file, whether countersigned.
    let cases = [
        ("right", Algorithm::Sha256, Algorithm::Sha256, true),
        ("osslsigncode", Algorithm::Sha256, Algorithm::Sha256, true),
        ("pkcs9", Algorithm::Sha256, Algorithm::Sha256, true),
        ("octets", Algorithm::Sha256, Algorithm::Sha256, true),
        ("fraction", Algorithm::Sha256, Algorithm::Sha256, true),
        ("now", Algorithm::Sha256, Algorithm::Sha256, false),
        ("sha1", Algorithm::Sha1, Algorithm::Sha1, true),
        ("sha384", Algorithm::Sha384, Algorithm::Sha256, true),
        ("sha512", Algorithm::Sha512, Algorithm::Sha256, true),
        ("p256", Algorithm::Sha256, Algorithm::Sha256, true),
        ("p384", Algorithm::Sha384, Algorithm::Sha256, true),
        ("many", Algorithm::Sha256, Algorithm::Sha256, true),
        ("utf16", Algorithm::Sha256, Algorithm::Sha256, true),
        ("odd", Algorithm::Sha256, Algorithm::Sha256, true),
        ("embedded", Algorithm::Sha256, Algorithm::Sha256, true),
    ];
    for (case, digest, least, countersigned) in cases {
        let package = drivers.package(case);
        let proof = drivers.prove(&package).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert!(osslsigncode(&drivers, case), "{case}: osslsigncode does not take it");
        assert_eq!(proof.catalog, CAT);
        assert_eq!(proof.os.as_deref(), Some("v100_X64_24H2"));
        assert_eq!(proof.driver_ver.unwrap().to_string(), "100.95.104.26200 of 2023-05-31");
        let names: Vec<_> = proof.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, [INF, SYS], "{case}");
        assert_eq!(proof.files.iter().map(|file| file.digest.algorithm()).min(), Some(least), "{case}");
        assert_eq!(proof.signature.digest, digest, "{case}");
        assert_eq!(proof.is_weak(), case == "sha1");
        assert_eq!(proof.signature.signer.organization.as_deref(), Some("Sealroot fixtures"));
        assert_eq!(proof.signature.signer.issuer, "Sealroot intermediate");
        match &proof.signature.time {
            SigningTime::Countersigned { time, by } => {
                assert!(countersigned, "{case}");
                assert_eq!((time.unix_timestamp(), by.name.as_str()), (STAMPED, "Sealroot tsa"), "{case}");
                // An expired certificate is normal.
                assert!(proof.signature.signer.not_after < OffsetDateTime::now_utc());
            }
            SigningTime::NotCountersigned { claimed } => {
                assert!(!countersigned && claimed.is_none(), "{case}");
            }
        }
        let root = "Sealroot root".to_owned();
        let countersignature_root = countersigned.then(|| root.clone());
        assert_eq!(proof.signature.chain, Chain::Trusted { root, countersignature_root }, "{case}");
        // Without roots all else is the same.
        let unjudged = package.prove(None).unwrap();
        assert_eq!(unjudged.signature.chain, Chain::NotJudged);
        assert_eq!((unjudged.files, unjudged.signature.time), (proof.files, proof.signature.time));
    }
    hashes_are_those_of_others(&drivers);
    catalogs_are_read_whole(&drivers);
    names_have_no_case(&drivers);
}

/// What osslsigncode computes of a PE file whose size is no multiple of eight, and of one with a signature inside.
fn hashes_are_those_of_others(drivers: &Drivers) {
    for case in ["right", "odd", "embedded"] {
        let file = drivers.path(case).join(SYS);
        let digests = authenticode(&fs::read(&file).unwrap()).unwrap().unwrap();
        // It tells the hash of an unsigned file only when it signs it.
        let (signed, pki) = (drivers.path(case).join("signed"), drivers.path("pki"));
        let run = Command::new("osslsigncode")
            .args(["sign", "-h", "sha256", "-key"])
            .arg(pki.join("signer.key"))
            .arg("-certs")
            .arg(pki.join("signer.pem"))
            .arg("-in")
            .arg(&file)
            .arg("-out")
            .arg(&signed)
            .output()
            .unwrap();
        assert!(run.status.success());
        assert_eq!(authenticode(&fs::read(&signed).unwrap()).unwrap(), Some(digests), "{case}");
        let told = Command::new("osslsigncode").args(["verify", "-in"]).arg(&signed).output().unwrap();
        let told = String::from_utf8_lossy(&told.stdout).to_lowercase();
        let line = told.lines().find(|line| line.starts_with("calculated message digest")).unwrap();
        assert!(line.contains(&digests.sha256.to_string()), "{case}: {line} is not {}", digests.sha256);
    }
    let inf = drivers.path("right").join(INF);
    let flat = FileDigests::flat(&fs::read(&inf).unwrap()).unwrap();
    for (name, digest) in [("-sha1", flat.sha1), ("-sha256", flat.sha256)] {
        let told = Command::new("openssl").args(["dgst", "-r", name]).arg(&inf).output().unwrap();
        assert!(String::from_utf8_lossy(&told.stdout).starts_with(&digest.to_string()));
    }
}

fn catalogs_are_read_whole(drivers: &Drivers) {
    let bytes = fs::read(drivers.path("many").join(CAT)).unwrap();
    let catalog = Catalog::parse(&bytes).unwrap();
    assert_eq!(catalog.members.len(), 10_004);
    assert_eq!(catalog.members[0].file.as_deref(), Some(INF));
    assert_eq!(catalog.members[10_003].file.as_deref(), Some("file9999.dat"));
    assert_eq!(catalog.attribute("hwid1"), Some(r"pci\ven_1af4&dev_1042&subsys_11001af4&rev_01"));
    assert_eq!(catalog.made.unix_timestamp(), STAMPED - 60);
    let inf = Inf::parse(&fs::read(drivers.path("utf16").join(INF)).unwrap()).unwrap();
    assert_eq!(inf.provider.as_deref(), Some("Sealroot fixtures"));
}

fn names_have_no_case(drivers: &Drivers) {
    let mut package = drivers.package("right");
    for (name, _) in &mut package.0 {
        *name = name.to_uppercase();
    }
    assert_eq!(package.prove(None).unwrap().inf, "VIOSTOR.INF");
    // Windows could not say which of the two is meant.
    let mut package = drivers.package("right");
    package.0.push(("VioStor.sys".to_owned(), b"other".to_vec()));
    let (file, reason) = only_failure(drivers.prove(&package));
    assert!(file == SYS && matches!(reason, Reason::Ambiguous));
    let text = b"no driver".to_vec();
    assert!(prove(&[FolderFile { name: "readme.txt", bytes: &text }], "amd64", judge(None)).is_empty());
}

#[test]
fn packages_that_do_not_hold() {
    let drivers = Drivers::new();
    for case in ["late", "never", "server", "stranger"] {
        assert!(!osslsigncode(&drivers, case), "{case}: osslsigncode takes it");
    }
    certificates_are_judged(&drivers);
    what_is_missing_or_altered_is_named(&drivers);
    nothing_signed_can_be_changed(&drivers);
    encodings_that_are_no_catalog(&drivers);
}

fn certificates_are_judged(drivers: &Drivers) {
    let (file, reason) = drivers.failure("late");
    let text = reason.to_string();
    assert_eq!(file, CAT);
    assert!(text.contains("valid from 2023-01-01 to 2024-01-01"), "{text}");
    assert!(text.contains("was made on 2025-06-01"), "{text}");
    let (_, reason) = drivers.failure("never");
    assert!(reason.to_string().contains("has no countersignature that tells its time; today is"), "{reason}");
    let (_, reason) = drivers.failure("server");
    assert_eq!(reason.to_string(), "signature: the certificate of Sealroot server is not for signing code");
    let other = fs::read(drivers.path("pki/other-root.pem")).unwrap();
    let other = TrustRoots::from_pem(&other).unwrap();
    for case in ["right", "now"] {
        let (file, reason) = only_failure(drivers.package(case).prove(Some(&other)));
        assert_eq!(file, CAT);
        assert!(reason.to_string().ends_with("it leads to none of the given roots"), "{reason}");
    }
    // Among several roots the right one is found, and named.
    let both = [
        fs::read(drivers.path("pki/other-root.pem")).unwrap(),
        fs::read(drivers.path("pki/root.pem")).unwrap(),
    ];
    let both = TrustRoots::from_pem(&both.join(&b'\n')).unwrap();
    let proof = drivers.package("now").prove(Some(&both)).unwrap();
    let expected = Chain::Trusted { root: "Sealroot root".to_owned(), countersignature_root: None };
    assert_eq!(proof.signature.chain, expected);
}

fn what_is_missing_or_altered_is_named(drivers: &Drivers) {
    let right = || drivers.package("right");
    let mut package = right();
    package.bytes(SYS)[1000] ^= 1;
    let (file, reason) = only_failure(drivers.prove(&package));
    assert!(file == SYS && matches!(&reason, Reason::Altered { catalog } if catalog == CAT), "{reason}");

    let mut package = right();
    package.bytes(INF).extend(b"; a comment\r\n");
    let (file, reason) = only_failure(drivers.prove(&package));
    assert!(file == INF && matches!(reason, Reason::Altered { .. }));

    let (file, reason) = drivers.failure("stranger");
    assert!(file == SYS && matches!(reason, Reason::NotMember { .. }));

    let (file, reason) = only_failure(drivers.prove(&right().without(SYS)));
    assert_eq!((file.as_str(), reason.to_string().as_str()), (SYS, "missing: viostor.inf names it"));
    let (file, reason) = only_failure(drivers.prove(&right().without(CAT)));
    assert!(file == CAT && matches!(reason, Reason::Missing { .. }));

    // No longer a PE file, and a PE file whose headers are cut off.
    let mut package = right();
    package.bytes(SYS)[0] = 0;
    assert!(matches!(only_failure(drivers.prove(&package)), (file, Reason::Altered { .. }) if file == SYS));
    let mut package = right();
    package.bytes(SYS).truncate(120);
    assert!(matches!(only_failure(drivers.prove(&package)), (file, Reason::Io(_)) if file == SYS));

    // All that is wrong is told.
    let mut package = right();
    package.bytes(SYS)[1000] ^= 1;
    package.bytes(INF).push(b'\n');
    let error = drivers.prove(&package).unwrap_err();
    assert_eq!(error.failures.len(), 2);
    assert_eq!(error.to_string().lines().count(), 3);

    let mut package = right();
    *package.bytes(INF) = b"<html>".to_vec();
    assert!(matches!(only_failure(drivers.prove(&package)), (file, Reason::Inf(_)) if file == INF));
    let text = String::from_utf8(right().bytes(INF).clone()).unwrap();
    *package.bytes(INF) = text.replace("CatalogFile=", "CatalogFile.NTarm64=").into_bytes();
    let (file, reason) = only_failure(drivers.prove(&package));
    assert!(file == INF && reason.to_string().contains("no catalog (CatalogFile) for amd64"), "{reason}");

    let huge = Huge(MAX_DRIVER_FILE + 1);
    let package = right();
    let mut files: Vec<_> = package.0.iter().map(|(name, bytes)| FolderFile { name, bytes }).collect();
    files[1].bytes = &huge;
    let (file, reason) = only_failure(prove(&files, "amd64", judge(None)).remove(0));
    assert!(file == SYS && matches!(reason, Reason::TooLarge { .. }));
}

/// A file of a size that is never read.
struct Huge(u64);

impl ReadAt for Huge {
    fn size(&self) -> u64 {
        self.0
    }
    fn read_exact_at(&self, _: &mut [u8], _: u64) -> std::io::Result<()> {
        panic!("read, though it is too large")
    }
}

/// Whichever byte of a catalog changes: there is no proof, or the very same.
fn nothing_signed_can_be_changed(drivers: &Drivers) {
    for case in ["right", "pkcs9", "p256"] {
        let mut package = drivers.package(case);
        let expected = drivers.prove(&package).unwrap();
        let (mut same, mut different) = (0, 0);
        for at in (0..package.bytes(CAT).len()).step_by(3) {
            package.bytes(CAT)[at] ^= 1;
            match drivers.prove(&package) {
                Ok(proof) => {
                    assert_eq!(proof, expected, "{case}: byte {at}");
                    same += 1;
                }
                Err(_) => different += 1,
            }
            package.bytes(CAT)[at] ^= 1;
        }
        // Versions, parameters of algorithms and certificates that are not needed.
        assert!(different > same * 3, "{case}: {same} of {} changes pass", same + different);
    }
    // The list alone: the signature tells who it was.
    let mut package = drivers.package("right");
    let catalog = package.bytes(CAT);
    let os: Vec<u8> = "24H2".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let at = catalog.windows(os.len()).position(|part| part == os).unwrap();
    catalog[at] = b'9';
    let (file, reason) = only_failure(drivers.prove(&package));
    assert_eq!(file, CAT);
    assert!(matches!(reason, Reason::Signature(SignatureError::Altered { .. })), "{reason}");
    // The timestamp of another catalog.
    let (one, other) =
        (drivers.package("right").bytes(CAT).clone(), drivers.package("odd").bytes(CAT).clone());
    let (one, other) = (split_at_timestamp(&one), split_at_timestamp(&other));
    assert_eq!(one.1.len(), other.1.len(), "the tokens differ in length: splice them otherwise");
    let mut package = drivers.package("right");
    *package.bytes(CAT) = [one.0, other.1].concat();
    let (_, reason) = only_failure(drivers.prove(&package));
    assert_eq!(reason.to_string(), "signature: countersignature: the timestamp is of another signature");
}

/// Before and from 1.3.6.1.4.1.311.3.3.1.
fn split_at_timestamp(catalog: &[u8]) -> (&[u8], &[u8]) {
    let oid = b"\x06\x0a\x2b\x06\x01\x04\x01\x82\x37\x03\x03\x01";
    catalog.split_at(catalog.windows(oid.len()).position(|part| part == oid).unwrap())
}

fn encodings_that_are_no_catalog(drivers: &Drivers) {
    let error = |bytes: &[u8]| Catalog::parse(bytes).unwrap_err().to_string();
    // As BER: the length of the outermost element is not told.
    let catalog = drivers.package("right").bytes(CAT).clone();
    let inner = &catalog[4..];
    let ber = [b"\x30\x80".as_slice(), inner, b"\0\0"].concat();
    assert_eq!(error(&ber), "catalog, offset 0: a length that is not told (BER), where DER belongs");
    // An element in an element, and so on, to the depth of a megabyte.
    let mut nested = Vec::new();
    for depth in 0..200_000u32 {
        nested.extend([0x30, 0x83]);
        nested.extend(&((200_000 - depth - 1) * 5).to_be_bytes()[1..]);
    }
    assert!(error(&nested).contains("offset"), "{}", error(&nested));
    // Cut short anywhere.
    for length in (0..catalog.len()).step_by(7) {
        assert!(error(&catalog[..length]).contains("catalog") || length == 0, "{length}");
    }
    assert!(error(&[catalog.as_slice(), b"more"].concat()).contains("offset"));
    assert!(Catalog::parse(&[catalog.as_slice(), &[0; 8]].concat()).is_ok());
    assert!(error(&vec![0x30; (16 << 20) + 1]).contains("bytes"));
    assert_eq!(error(b""), "catalog, offset 0: the end, where SEQUENCE belongs");
    // A signature, but of something else.
    let folder = drivers.path("pki");
    let run = |arguments: &[&str]| {
        let run = Command::new("openssl").current_dir(&folder).args(arguments).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    };
    fs::write(folder.join("text"), "no list").unwrap();
    run(&[
        "cms",
        "-sign",
        "-in",
        "text",
        "-nodetach",
        "-binary",
        "-outform",
        "DER",
        "-out",
        "text.p7",
        "-signer",
        "now.pem",
        "-inkey",
        "now.key",
    ]);
    assert!(error(&fs::read(folder.join("text.p7")).unwrap()).contains("1.2.840.113549.1.7.1"));
    // OpenSSL's own idea of the catalogs.
    for case in ["right", "octets", "p384"] {
        let catalog = drivers.path(case).join(CAT);
        let catalog = catalog.to_str().unwrap();
        run(&["pkcs7", "-inform", "DER", "-in", catalog, "-noout", "-print_certs"]);
    }
}
