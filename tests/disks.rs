//! Disk images and partition tables made by qemu-img, sgdisk and sfdisk, read, and compared with what those say.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sealroot::disk::partitions::{PartitionError, PartitionKind, PartitionTable, Scheme, read_table};
use sealroot::disk::{self, Format, Qcow2};
use sealroot::io::ReadAt;

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn path_str(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Bytes that differ everywhere.
fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    })
    .take(length)
    .collect()
}

/// A raw disk with text, noise and long holes, and an odd number of sectors.
fn make_raw(folder: &Path) -> PathBuf {
    let path = folder.join("disk.raw");
    let file = fs::File::create(&path).unwrap();
    file.set_len((40 << 20) + 3 * 512).unwrap();
    for (seed, offset) in [(1, 0), (2, 5 << 20), (3, (17 << 20) + 512 * 7)] {
        file.write_all_at(&noise(seed, 300_000), offset).unwrap();
        file.write_all_at("the same words again and again ".repeat(20_000).as_bytes(), offset + 400_000)
            .unwrap();
    }
    // The last, partial cluster.
    file.write_all_at(&noise(4, 600), (40 << 20) + 900).unwrap();
    path
}

/// Reads all of a disk in pieces that fit no cluster size, on four threads, and `next_data` besides.
fn read_all(disk: &impl ReadAt) -> Vec<u8> {
    let mut whole = vec![0; disk.size() as usize];
    let quarter = whole.len().div_ceil(4);
    std::thread::scope(|scope| {
        for (index, part) in whole.chunks_mut(quarter).enumerate() {
            scope.spawn(move || {
                let mut offset = index * quarter;
                for piece in part.chunks_mut(100_003) {
                    disk.read_exact_at(piece, offset as u64).unwrap();
                    offset += piece.len();
                }
            });
        }
    });
    let mut at = 0;
    loop {
        let data = disk.next_data(at).unwrap();
        let hole_end = data.as_ref().map_or(disk.size(), |data| data.start);
        assert!(whole[at as usize..hole_end as usize].iter().all(|byte| *byte == 0), "a hole is none");
        match data {
            None => return whole,
            Some(data) => {
                assert!(at <= data.start && data.start < data.end && data.end <= disk.size());
                at = data.end;
            }
        }
    }
}

#[test]
fn every_kind_of_qcow2_reads_as_the_raw_disk() {
    let folder = tempfile::tempdir().unwrap();
    let raw = make_raw(folder.path());
    let expected = fs::read(&raw).unwrap();
    let mut kinds = vec![
        ("-o compat=0.10".to_owned(), "v2"),
        ("-c -o compat=0.10".to_owned(), "v2-zlib"),
        ("-o lazy_refcounts=on,preallocation=metadata".to_owned(), "preallocated"),
    ];
    for size in ["512", "4k", "64k", "2M"] {
        kinds.push((format!("-o cluster_size={size}"), "plain"));
        kinds.push((format!("-c -o cluster_size={size}"), "zlib"));
        kinds.push((format!("-c -o cluster_size={size},compression_type=zstd"), "zstd"));
    }
    for (options, name) in kinds {
        let image = folder.path().join(format!("{name}.qcow2"));
        let mut args = vec!["convert", "-O", "qcow2"];
        args.extend(options.split(' '));
        args.extend([path_str(&raw), path_str(&image)]);
        run("qemu-img", &args);
        let disk = disk::open(&image).unwrap();
        assert_eq!(disk.format(), Format::Qcow2);
        assert_eq!(disk.metadata().len(), fs::metadata(&image).unwrap().len());
        assert!(read_all(&disk) == expected, "{options}");
        // Most of the disk is holes, and known as such.
        if name != "preallocated" {
            let mut data = 0;
            let mut at = 0;
            while let Some(range) = disk.next_data(at).unwrap() {
                data += range.end - range.start;
                at = range.end;
            }
            assert!(data < 12 << 20, "{options}: {data} bytes of data");
        }
        fs::remove_file(image).unwrap();
    }
    let disk = disk::open(&raw).unwrap();
    assert_eq!(disk.format(), Format::Raw);
    assert!(read_all(&disk) == expected);
}

#[test]
fn written_discarded_and_zeroed_clusters_read_as_qemu_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let raw = make_raw(folder.path());
    let image = folder.path().join("disk.qcow2");
    run("qemu-img", &["convert", "-c", "-O", "qcow2", path_str(&raw), path_str(&image)]);
    run(
        "qemu-io",
        &[
            "-c",
            "write -P 0x5a 100k 300k",
            "-c",
            "write -z 1M 1M",
            "-c",
            "write -z -u 5M 200k",
            "-c",
            "discard 17M 1M",
            "-c",
            "write -P 0x11 39M 700",
            path_str(&image),
        ],
    );
    let again = folder.path().join("again.raw");
    run("qemu-img", &["convert", "-O", "raw", path_str(&image), path_str(&again)]);
    assert!(read_all(&disk::open(&image).unwrap()) == fs::read(&again).unwrap());
}

/// Why `path` is not opened as a disk.
fn refusal(path: &Path) -> String {
    disk::open(path).expect_err(path_str(path)).to_string()
}

#[test]
fn a_qcow2_that_needs_more_than_itself_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let raw = make_raw(folder.path());
    let image = folder.path().join("base.qcow2");
    run("qemu-img", &["convert", "-O", "qcow2", path_str(&raw), path_str(&image)]);

    let path = folder.path().join("backed.qcow2");
    run("qemu-img", &["create", "-f", "qcow2", "-F", "qcow2", "-b", path_str(&image), path_str(&path)]);
    assert!(refusal(&path).contains("backing file") && refusal(&path).contains("qemu-img convert"));

    let path = folder.path().join("luks.qcow2");
    let secret = ["--object", "secret,id=s,data=not-a-secret"];
    let options = "encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10";
    run(
        "qemu-img",
        &[&["create"], &secret[..], &["-f", "qcow2", "-o", options, path_str(&path), "1M"]].concat(),
    );
    assert!(refusal(&path).contains("encrypted"));

    let path = folder.path().join("external.qcow2");
    let data_file = format!("data_file={}", path_str(&folder.path().join("data")));
    run("qemu-img", &["create", "-f", "qcow2", "-o", &data_file, path_str(&path), "1M"]);
    assert!(refusal(&path).contains("external file"));

    let path = folder.path().join("subclusters.qcow2");
    run("qemu-img", &["create", "-f", "qcow2", "-o", "extended_l2=on", path_str(&path), "1M"]);
    assert!(refusal(&path).contains("extended L2"));

    let path = folder.path().join("snapshots.qcow2");
    fs::copy(&image, &path).unwrap();
    run("qemu-img", &["snapshot", "-c", "before", path_str(&path)]);
    assert!(refusal(&path).contains("internal snapshots (1)"));
    run("qemu-img", &["snapshot", "-d", "before", path_str(&path)]);
    assert!(read_all(&disk::open(&path).unwrap()) == fs::read(&raw).unwrap());

    let path = folder.path().join("qcow1");
    run("qemu-img", &["convert", "-O", "qcow", path_str(&raw), path_str(&path)]);
    assert!(refusal(&path).contains("version 1"));

    for (bits, expected) in [(1u8, "marked dirty"), (2, "marked corrupt"), (0x20, "unknown features (0x20)")]
    {
        let path = folder.path().join("bits.qcow2");
        let mut bytes = fs::read(&image).unwrap();
        bytes[79] |= bits;
        fs::write(&path, bytes).unwrap();
        assert!(refusal(&path).contains(expected), "{}", refusal(&path));
    }

    // Cut short: what is missing is found at the latest when it is read.
    let mut bytes = fs::read(&image).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(&path, bytes).unwrap();
    let disk = disk::open(&path).unwrap();
    let mut whole = vec![0; disk.size() as usize];
    let error = disk.read_exact_at(&mut whole, 0).unwrap_err().to_string();
    assert!(error.contains("past the end of the file") && error.contains("cut short"), "{error}");
}

#[test]
fn files_that_are_no_disk_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let raw = make_raw(folder.path());
    for (format, options, name) in [
        ("vhdx", "subformat=dynamic", "VHDX"),
        ("vmdk", "subformat=monolithicSparse", "VMDK"),
        ("vmdk", "subformat=streamOptimized", "VMDK"),
        ("vdi", "static=off", "VDI"),
        ("vpc", "subformat=dynamic", "dynamic VHD"),
        ("vpc", "subformat=fixed", "fixed VHD"),
        ("qed", "cluster_size=65536", "QED"),
    ] {
        let path = folder.path().join(name);
        run("qemu-img", &["convert", "-O", format, "-o", options, path_str(&raw), path_str(&path)]);
        assert!(
            refusal(&path).contains(name) && refusal(&path).contains("qemu-img convert"),
            "{}",
            refusal(&path)
        );
    }
    let short = folder.path().join("short");
    fs::write(&short, noise(1, 10_000)).unwrap();
    let packed = folder.path().join("packed");
    for (command, name) in [("gzip", "a gzip file"), ("xz", "an xz file")] {
        let out = fs::File::create(&packed).unwrap();
        assert!(Command::new(command).arg("-c").arg(&short).stdout(out).status().unwrap().success());
        assert!(refusal(&packed).contains(name), "{}", refusal(&packed));
    }
    fs::write(&packed, zstd::encode_all(&b"disk"[..], 1).unwrap()).unwrap();
    assert!(refusal(&packed).contains("a zstd file"));
    let path = folder.path().join("disk.iso");
    run("genisoimage", &["-quiet", "-udf", "-o", path_str(&path), path_str(&short)]);
    assert!(refusal(&path).contains("ISO 9660"));
    fs::write(&path, b"\n <!doctype html><title>404</title>").unwrap();
    assert!(refusal(&path).contains("web page"));
    fs::write(&path, b"").unwrap();
    assert!(refusal(&path).contains("empty"));
    assert!(refusal(&short).contains("512-byte sectors"));
    assert!(refusal(&folder.path().join("absent")).contains("can't be opened"));
}

fn table(disk: &[u8]) -> Result<PartitionTable, PartitionError> {
    read_table(&disk)
}

const MIB: u64 = 1 << 20;

#[test]
fn a_gpt_is_read_as_sgdisk_wrote_it_and_from_its_backup() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.raw");
    fs::File::create(&path).unwrap().set_len(200 * MIB).unwrap();
    run(
        "sgdisk",
        &[
            "-n",
            "1:2048:+33M",
            "-t",
            "1:ef00",
            "-c",
            "1:EFI system partition",
            "-n",
            "2:0:+16M",
            "-t",
            "2:0c01",
            "-n",
            "3:0:+100M",
            "-t",
            "3:0700",
            "-c",
            "3:Größe",
            "-n",
            "4:0:+20M",
            "-t",
            "4:2700",
            "-n",
            "7:0:0",
            "-t",
            "7:8300",
            path_str(&path),
        ],
    );
    let disk = fs::read(&path).unwrap();
    let read = table(&disk).unwrap();
    assert_eq!((read.scheme, read.sector_size, &read.primary_damage), (Scheme::Gpt, 512, &None));
    let found: Vec<_> =
        read.partitions.iter().map(|p| (p.number, p.start / MIB, p.size / MIB, p.name.as_str())).collect();
    assert_eq!(found[..2], [(1, 1, 33, "EFI system partition"), (2, 34, 16, "")]);
    assert_eq!(found[2..4], [(3, 50, 100, "Größe"), (4, 150, 20, "")]);
    let kinds: Vec<_> = read.partitions.iter().map(|p| p.kind).collect();
    use PartitionKind::{BasicData, Esp, Gpt, Msr, Recovery};
    assert!(matches!(kinds[..], [Esp, Msr, BasicData, Recovery, Gpt(_)]), "{kinds:?}");
    for partition in &read.partitions {
        let info = run("sgdisk", &["-i", &partition.number.to_string(), path_str(&path)]);
        assert!(info.contains(&format!("First sector: {} ", partition.start / 512)), "{info}");
        assert!(info.contains(&format!("Partition size: {} sectors", partition.size / 512)), "{info}");
    }

    // The primary damaged, in its header and in its entries; then both.
    for place in [512 + 40, 1024 + 33] {
        let mut damaged = disk.clone();
        damaged[place] ^= 1;
        let backup = table(&damaged).unwrap();
        assert!(backup.primary_damage.unwrap().contains("checksum"));
        assert_eq!(backup.partitions, read.partitions);
        let last = damaged.len() - 512;
        damaged[last + 40] ^= 1;
        let error = table(&damaged).unwrap_err().to_string();
        assert!(error.contains("both partition tables") && error.contains("checksum"), "{error}");
    }
    let mut damaged = disk.clone();
    damaged[512..1024].fill(0);
    assert!(table(&damaged).unwrap().primary_damage.unwrap().contains("no GPT header"));
    // Cut short, the last partition is not whole.
    let error = table(&disk[..180 * MIB as usize]).unwrap_err().to_string();
    assert!(error.contains("partition 7 ends at") && error.contains("cut short"), "{error}");
}

/// The same table on sectors of 4096 bytes, as no tool at hand writes it to a file.
fn to_4096(disk: &[u8], partitions: &[(u64, u64)]) -> Vec<u8> {
    let crc = |bytes: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum().to_le_bytes()
    };
    let mut wide = vec![0; disk.len()];
    wide[..512].copy_from_slice(&disk[..512]);
    let mut entries = disk[1024..1024 + 128 * 128].to_vec();
    for (index, (first, last)) in partitions.iter().enumerate() {
        entries[index * 128 + 32..][..8].copy_from_slice(&first.to_le_bytes());
        entries[index * 128 + 40..][..8].copy_from_slice(&last.to_le_bytes());
    }
    let sectors = disk.len() as u64 / 4096;
    for (own, other, table) in [(1, sectors - 1, 2), (sectors - 1, 1, sectors - 5)] {
        let mut header = disk[512..512 + 92].to_vec();
        header[16..20].fill(0);
        header[24..32].copy_from_slice(&u64::to_le_bytes(own));
        header[32..40].copy_from_slice(&u64::to_le_bytes(other));
        header[72..80].copy_from_slice(&u64::to_le_bytes(table));
        header[88..92].copy_from_slice(&crc(&entries));
        let checksum = crc(&header);
        header[16..20].copy_from_slice(&checksum);
        wide[own as usize * 4096..][..92].copy_from_slice(&header);
        wide[table as usize * 4096..][..entries.len()].copy_from_slice(&entries);
    }
    wide
}

#[test]
fn a_gpt_on_4096_byte_sectors_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.raw");
    fs::File::create(&path).unwrap().set_len(64 * MIB).unwrap();
    run("sgdisk", &["-n", "1:0:+8M", "-t", "1:ef00", "-n", "2:0:+8M", "-t", "2:0700", path_str(&path)]);
    let wide = to_4096(&fs::read(&path).unwrap(), &[(256, 511), (512, 4095)]);
    let mut expected = None;
    for place in [None, Some(4096 + 24), Some(2 * 4096 + 3)] {
        let mut disk = wide.clone();
        if let Some(place) = place {
            disk[place] ^= 1;
        }
        let read = table(&disk).unwrap();
        assert_eq!((read.sector_size, read.primary_damage.is_some()), (4096, place.is_some()));
        let places: Vec<_> = read.partitions.iter().map(|p| (p.start / MIB, p.size / MIB, p.kind)).collect();
        assert_eq!(places, [(1, 1, PartitionKind::Esp), (2, 14, PartitionKind::BasicData)]);
        assert_eq!(*expected.get_or_insert(read.partitions.clone()), read.partitions);
    }
    let overlapping = to_4096(&fs::read(&path).unwrap(), &[(256, 512), (512, 4095)]);
    let error = table(&overlapping).unwrap_err().to_string();
    assert!(error.contains("partitions 1 and 2 overlap") && error.contains("2097152"), "{error}");
}

#[test]
fn an_mbr_is_read_as_sfdisk_wrote_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.raw");
    fs::File::create(&path).unwrap().set_len(300 * MIB).unwrap();
    let script = "label: dos\n\
        start=2048, size=102400, type=7, bootable\n\
        size=204800, type=7\n\
        type=f\n\
        size=20480, type=7\n\
        size=40960, type=27\n\
        size=10240, type=83\n";
    let mut sfdisk = Command::new("sfdisk")
        .arg("-q")
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    sfdisk.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(sfdisk.wait().unwrap().success());

    let disk = fs::read(&path).unwrap();
    let read = table(&disk).unwrap();
    assert_eq!((read.scheme, read.sector_size), (Scheme::Mbr, 512));
    let dump = run("sfdisk", &["-d", path_str(&path)]);
    let listed: Vec<_> =
        dump.lines().filter(|line| line.contains("start=") && !line.contains("type=f")).collect();
    assert_eq!(listed.len(), read.partitions.len(), "{dump}");
    for (partition, line) in read.partitions.iter().zip(listed) {
        let number = |key: &str| -> u64 {
            let rest = line.split(key).nth(1).unwrap();
            rest.split(',').next().unwrap().trim().parse().unwrap()
        };
        assert!(line.contains(&format!("disk.raw{} ", partition.number)), "{line}");
        assert_eq!(
            (partition.start / 512, partition.size / 512),
            (number("start="), number("size=")),
            "{line}"
        );
        let PartitionKind::Mbr(kind) = partition.kind else { panic!("{partition:?}") };
        assert!(line.contains(&format!("type={kind:x}")), "{line}");
        assert_eq!(partition.active, line.contains("bootable"), "{line}");
    }

    // A chain that leads back to itself ends.
    let extended = read.partitions.iter().find(|p| p.number == 5).unwrap().start - MIB;
    let mut looped = disk.clone();
    let record = &mut looped[extended as usize..][..512];
    record[446 + 16 + 8..446 + 16 + 12].fill(0);
    let error = table(&looped).unwrap_err().to_string();
    assert!(error.contains("does not end"), "{error}");
    assert!(table(&disk[..170 * MIB as usize]).unwrap_err().to_string().contains("past the disk's end"));
}

#[test]
fn disks_without_a_table_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.raw");
    fs::File::create(&path).unwrap().set_len(64 * MIB).unwrap();
    assert!(matches!(table(&fs::read(&path).unwrap()).unwrap_err(), PartitionError::None));
    run("mkntfs", &["-q", "-Q", "-F", "-p", "0", "-H", "255", "-S", "63", path_str(&path)]);
    assert!(matches!(table(&fs::read(&path).unwrap()).unwrap_err(), PartitionError::BareVolume("NTFS")));
    run("mkfs.vfat", &["-F", "32", path_str(&path)]);
    assert!(matches!(table(&fs::read(&path).unwrap()).unwrap_err(), PartitionError::BareVolume("FAT")));
    assert!(matches!(table(&[0; 100]).unwrap_err(), PartitionError::None));
}

#[test]
fn no_damage_makes_it_panic_or_hang() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("disk.raw");
    let file = fs::File::create(&raw).unwrap();
    file.set_len(2 * MIB).unwrap();
    file.write_all_at(&noise(1, 100_000), 1 << 20).unwrap();
    run("sgdisk", &["-a", "8", "-n", "1:64:1000", "-n", "2:0:0", path_str(&raw)]);
    let mut state = 99u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for options in ["compat=1.1,cluster_size=4k", "cluster_size=512", "compression_type=zstd,cluster_size=4k"]
    {
        let path = folder.path().join("disk.qcow2");
        run("qemu-img", &["convert", "-c", "-O", "qcow2", "-o", options, path_str(&raw), path_str(&path)]);
        let mut bytes = fs::read(&path).unwrap();
        for round in 0..1500 {
            let below = if round % 2 == 0 { 112 } else { bytes.len() };
            let at = random(below);
            let old = std::mem::replace(&mut bytes[at], [0, 0xff, random(256) as u8][random(3)]);
            if let Ok(image) = Qcow2::open(&bytes) {
                let mut buf = vec![0; image.size().min(4 << 20) as usize];
                let _ = image.read_exact_at(&mut buf, 0);
                let _ = image.next_data(0);
                let _ = image.next_data(image.size() / 2);
            }
            bytes[at] = old;
        }
        for cut in [0, 4, 71, 72, 104, 512, bytes.len() - 1] {
            let _ = Qcow2::open(&bytes[..cut]).map(|image| image.next_data(0));
        }
    }
    let mut bytes = fs::read(&raw).unwrap();
    for _ in 0..5000 {
        let at = random(34 * 512);
        let old = std::mem::replace(&mut bytes[at], random(256) as u8);
        let _ = table(&bytes);
        bytes[at] = old;
    }
    for cut in [0, 511, 512, 600, 1024, 5000, 34 * 512] {
        let _ = table(&bytes[..cut]);
    }
}
