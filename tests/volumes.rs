//! NTFS volumes made by mkntfs and ntfs-3g in every state, read, and judged by ntfs-3g's tools.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

#[path = "support/ntfs_volume.rs"]
mod ntfs_volume;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use ntfs_volume::{Mounted, leave_holes, make_volume, noise, path_str, run};
use sealroot::io::{ReadAt, SourceFile};
use sealroot::ntfs::{Contradiction, Extent, File, NtfsError, Probe, Reason, Volume, probe};

fn open(image: &Path) -> Volume<SourceFile> {
    Volume::open(SourceFile::open(image).unwrap()).unwrap()
}

fn read_all(file: &impl ReadAt) -> Vec<u8> {
    let mut content = vec![0; file.size() as usize];
    file.read_exact_at(&mut content, 0).unwrap();
    content
}

#[test]
fn a_tree_is_listed_and_read_as_ntfs_3g_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 64 << 20, &["-c", "4096", "-L", "Windows"]);
    let mounted = Mounted::new(&image, "");
    let mut files = vec![
        ("Windows/System32/config/SYSTEM".to_owned(), noise(1, 300_000)),
        ("Windows/System32/config/small".to_owned(), b"resident".to_vec()),
        ("Windows/empty".to_owned(), Vec::new()),
        ("pagefile.sys".to_owned(), noise(5, 70_000)),
        ("Grün/Ελληνικά.TXT".to_owned(), noise(2, 5000)),
    ];
    for number in 0..1500 {
        files
            .push((format!("Windows/many/a rather long file name, number {number}.dat"), noise(number, 700)));
    }
    for (path, content) in &files {
        mounted.write(path, content);
    }
    mounted.unmount();

    let volume = open(&image);
    assert_eq!(volume.state().unwrap().reasons, []);
    for (path, content) in &files {
        let path = path.replace('/', "\\");
        for path in [path.clone(), path.to_uppercase(), path.to_lowercase()] {
            let file = volume.file(&path).unwrap().unwrap_or_else(|| panic!("{path} is missing"));
            assert!(read_all(&file) == *content, "{path}");
        }
    }
    let names: Vec<_> = volume.list("windows\\MANY").unwrap().unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names.len(), 1500);
    assert!(names.iter().all(|name| name.starts_with("a rather long file name")));
    assert!(volume.file("Windows\\many\\nothing").unwrap().is_none());
    assert!(volume.file("Windows\\empty\\below").unwrap().is_none());
    assert!(volume.list("Windows\\absent").unwrap().is_none());
    assert!(matches!(volume.file("Windows").unwrap_err(), NtfsError::IsDirectory { .. }));
    assert!(volume.file("Windows\\System32\\config\\small").unwrap().unwrap().is_resident());

    assert!(read_by_crate(&image, "PageFile.sys") == noise(5, 70_000));

    let hive = volume.file("Windows\\System32\\config\\SYSTEM").unwrap().unwrap();
    assert!(
        through_map(&hive, &image)
            == run("ntfscat", &["-f", path_str(&image), "Windows/System32/config/SYSTEM"])
    );
    assert_eq!(clusters(&hive, 4096), clusters_by_ntfscluster(&image, "/Windows/System32/config/SYSTEM"));
}

/// A file of the root as the ntfs crate reads it.
fn read_by_crate(image: &Path, name: &str) -> Vec<u8> {
    use ntfs::indexes::NtfsFileNameIndex;
    use ntfs::{Ntfs, NtfsReadSeek};
    let mut image = fs::File::open(image).unwrap();
    let mut volume = Ntfs::new(&mut image).unwrap();
    volume.read_upcase_table(&mut image).unwrap();
    let root = volume.root_directory(&mut image).unwrap();
    let index = root.directory_index(&mut image).unwrap();
    let mut finder = index.finder();
    let entry = NtfsFileNameIndex::find(&mut finder, &volume, &mut image, name).unwrap().unwrap();
    let file = entry.to_file(&volume, &mut image).unwrap();
    let data = file.data(&mut image, "").unwrap().unwrap();
    let mut value = data.to_attribute().unwrap().value(&mut image).unwrap();
    let mut content = vec![0; value.len() as usize];
    value.read_exact(&mut image, &mut content).unwrap();
    content
}

/// A file's bytes taken from the image at the places that the map names.
fn through_map<R: ReadAt>(file: &File<'_, R>, image: &Path) -> Vec<u8> {
    let image = fs::File::open(image).unwrap();
    let mut content = Vec::new();
    for piece in file.map(0, file.size()).unwrap() {
        let mut bytes = vec![0; piece.length as usize];
        image.read_exact_at(&mut bytes, piece.volume_offset).unwrap();
        content.extend(bytes);
    }
    content
}

/// (in the file, on the volume, how many), in clusters; -1 for a hole.
type Clusters = Vec<(u64, i64, u64)>;

fn clusters<R: ReadAt>(file: &File<'_, R>, size: u64) -> Clusters {
    let place = |extent: &Extent| extent.volume_offset.map_or(-1, |offset| (offset / size) as i64);
    file.extents().iter().map(|e| (e.file_offset / size, place(e), e.length / size)).collect()
}

/// The same from ntfscluster, which lists the data's extents record by record.
fn clusters_by_ntfscluster(image: &Path, path: &str) -> Clusters {
    let output = String::from_utf8(run("ntfscluster", &["-F", path, path_str(image)])).unwrap();
    let mut in_data = false;
    let mut found = Vec::new();
    for line in output.lines() {
        if line.trim_start().starts_with("0x") {
            in_data = line.contains("0x80 - non-resident");
        }
        let numbers: Vec<i64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        // -2 stands for what is in another record.
        if let ([file, volume, count], true) = (&numbers[..], in_data)
            && *volume != -2
        {
            found.push((*file as u64, *volume, *count as u64));
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn a_file_in_hundreds_of_pieces_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 24 << 20, &["-c", "512"]);
    let mounted = Mounted::new(&image, "");
    leave_holes(&mounted, 1024);
    let content = noise(7, 2000 * 1024);
    mounted.write("SYSTEM", &content);
    mounted.unmount();

    let volume = open(&image);
    let file = volume.file("system").unwrap().unwrap();
    let found = clusters(&file, 512);
    assert!(found.len() > 100, "{} pieces", found.len());
    assert!(found.windows(2).any(|pair| pair[1].1 < pair[0].1), "no backward jump");
    assert_eq!(found, clusters_by_ntfscluster(&image, "/SYSTEM"));
    let info = String::from_utf8(run("ntfsinfo", &["-F", "/SYSTEM", path_str(&image)])).unwrap();
    assert!(info.contains("$ATTRIBUTE_LIST"), "the file's extents fit into one record");
    assert!(read_all(&file) == content);
    assert!(through_map(&file, &image) == content);
    // From and to places inside of pieces.
    for (offset, length) in [(1, 1), (511, 2), (40_000, 70_001), (2000 * 1024 - 5, 5)] {
        let mut buf = vec![0; length];
        file.read_exact_at(&mut buf, offset).unwrap();
        assert!(buf == content[offset as usize..offset as usize + length]);
        let mapped: u64 = file.map(offset, length as u64).unwrap().iter().map(|piece| piece.length).sum();
        assert_eq!(mapped, length as u64);
    }
}

#[test]
fn an_mft_in_hundreds_of_pieces_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 24 << 20, &["-c", "512"]);
    let mounted = Mounted::new(&image, "");
    // Holes of one cluster: $MFT grows through them, half a record at a time.
    leave_holes(&mounted, 512 * 3);
    let mut made = Vec::new();
    fs::create_dir(mounted.point.join("new")).unwrap();
    for number in 0..4000 {
        let name = format!("new/{number}");
        let content = noise(number, 100);
        if fs::write(mounted.point.join(&name), &content).is_err() {
            break;
        }
        made.push((name, content));
    }
    mounted.unmount();
    let info = String::from_utf8(run("ntfsinfo", &["-i", "0", path_str(&image)])).unwrap();
    assert!(info.contains("$ATTRIBUTE_LIST"), "$MFT fits into one record after {} files", made.len());

    let volume = open(&image);
    for (name, content) in &made {
        assert!(read_all(&volume.file(name).unwrap().unwrap()) == *content, "{name}");
    }
    assert_eq!(volume.list("new").unwrap().unwrap().len(), made.len());
}

#[test]
fn free_clusters_are_those_ntfs_3g_counts() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (512, 512, (9 << 20) + 512),
        (512, 4096, (80 << 20) + 5 * 512),
        (512, 65536, 64 << 20),
        (512, 2 << 20, 512 << 20),
        (4096, 4096, 64 << 20),
    ];
    for (sector, cluster, size) in cases {
        let image =
            make_volume(folder.path(), size, &["-s", &sector.to_string(), "-c", &cluster.to_string()]);
        let mounted = Mounted::new(&image, "");
        for number in 0..20 {
            mounted.write(&number.to_string(), &noise(number, 60_000));
        }
        for number in (0..20).step_by(3) {
            fs::remove_file(mounted.point.join(number.to_string())).unwrap();
        }
        mounted.unmount();

        let volume = open(&image);
        assert_eq!((volume.sector_size(), volume.cluster_size()), (sector, cluster));
        assert!(read_all(&volume.file("1").unwrap().unwrap()) == noise(1, 60_000));
        let bitmap = run("ntfscat", &["-f", "-i", "6", path_str(&image)]);
        let expected: Vec<bool> =
            (0..volume.clusters() as usize).map(|n| bitmap[n / 8] >> (n % 8) & 1 == 1).collect();
        let mut found = vec![false; expected.len()];
        let mut map = volume.bitmap().unwrap();
        let mut from = 0;
        while let Some(run) = map.next_allocated(from).unwrap() {
            found[run.start as usize..run.end as usize].fill(true);
            from = run.end;
        }
        assert!(found == expected, "cluster size {cluster}");
        for at in [0, 1, 100, volume.clusters() - 1] {
            assert_eq!(map.is_allocated(at).unwrap(), expected[at as usize]);
        }
        assert!(!map.is_allocated(volume.clusters()).unwrap());
        let info = String::from_utf8(run("ntfsinfo", &["-m", path_str(&image)])).unwrap();
        assert!(info.contains(&format!("Volume Size in Clusters: {}\n", volume.clusters())), "{info}");
        // The boot sector's copy is in the last sector, behind the last cluster.
        let raw = fs::read(&image).unwrap();
        let copy = volume.boot_copy().unwrap();
        assert!(raw[copy.start as usize..copy.end as usize] == raw[..sector as usize]);
        assert!(volume.tail().start <= copy.start && volume.tail().end == size);
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn compressed_sparse_and_half_written_files_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 32 << 20, &["-c", "4096"]);
    let mounted = Mounted::new(&image, ",compression");
    fs::create_dir(mounted.point.join("packed")).unwrap();
    // FILE_ATTRIBUTE_COMPRESSED on a folder: what is made in it is compressed.
    let packed = mounted.point.join("packed");
    let attributes = 0x0800u32.to_le_bytes();
    rustix::fs::setxattr(&packed, "system.ntfs_attrib", &attributes, rustix::fs::XattrFlags::empty())
        .unwrap();
    mounted.write("packed/SYSTEM", &vec![b'x'; 500_000]);
    let sparse = fs::File::create(mounted.point.join("sparse")).unwrap();
    sparse.write_all_at(b"start", 0).unwrap();
    sparse.write_all_at(b"end", 1_000_000).unwrap();
    drop(sparse);
    let half = noise(9, 50_001);
    mounted.write("half", &half);
    mounted.write("secret", &noise(10, 30_001));
    // Reparse points: tag, length of the data, reserved, data. ntfs-3g takes any tag but its own.
    mounted.write("Windows/notepad.exe", &noise(11, 20_000));
    mounted.write("Junction/below", b"");
    fs::remove_file(mounted.point.join("Junction/below")).unwrap();
    for (path, tag) in [("Windows/notepad.exe", 0x8000_0017u32), ("Junction", 0xa000_0003)] {
        let data = [&tag.to_le_bytes()[..], &16u16.to_le_bytes(), &[0; 18]].concat();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(mounted.point.join(path), "system.ntfs_reparse_data", &data, flags).unwrap();
    }
    mounted.unmount();
    // What Windows does when a file is lengthened: its size grows, its clusters keep what they held.
    let sizes = |values: [u64; 3]| values.map(u64::to_le_bytes).concat();
    let mut raw = fs::read(&image).unwrap();
    replace(&mut raw, &sizes([53248, 50_001, 50_001]), &sizes([53248, 50_001, 20_000]));
    // The attribute's flags are 12 bytes into it, its sizes 40.
    let attribute = raw.windows(24).position(|bytes| bytes == sizes([32768, 30_001, 30_001])).unwrap() - 40;
    raw[attribute + 12..attribute + 14].copy_from_slice(&0x4000u16.to_le_bytes());
    fs::write(&image, raw).unwrap();

    let volume = open(&image);
    let file = volume.file("packed\\SYSTEM").unwrap().unwrap();
    assert!(file.is_compressed());
    let error = file.read_exact_at(&mut [0; 10], 0).unwrap_err().to_string();
    assert!(error.contains("compressed by NTFS") && error.contains("compact /u"), "{error}");
    assert!(file.map(0, 10).unwrap_err().to_string().contains("compressed by NTFS"));

    let file = volume.file("secret").unwrap().unwrap();
    assert!(file.is_encrypted());
    let error = file.read_exact_at(&mut [0; 10], 0).unwrap_err().to_string();
    assert!(error.contains("encrypted (EFS)"), "{error}");
    let file = volume.file("Windows\\notepad.exe").unwrap().unwrap();
    assert_eq!(file.reparse_tag(), Some(0x8000_0017));
    let error = file.read_exact_at(&mut [0; 10], 0).unwrap_err().to_string();
    assert!(error.contains("WOF") && error.contains("compact /u /exe"), "{error}");
    for error in [volume.list("junction").unwrap_err(), volume.file("junction\\below").unwrap_err()] {
        assert!(matches!(error, NtfsError::ReparsePoint { tag: 0xa000_0003, .. }), "{error}");
    }

    let file = volume.file("sparse").unwrap().unwrap();
    assert!(read_all(&file) == run("ntfscat", &["-f", path_str(&image), "sparse"]));
    assert!(file.extents().iter().any(|extent| extent.volume_offset.is_none()));
    assert!(file.map(500_000, 10).unwrap_err().to_string().contains("hole"));
    assert_eq!(file.map(0, 5).unwrap().len(), 1);
    assert!(file.next_data(100_000).unwrap().unwrap().start >= 900_000);

    let file = volume.file("half").unwrap().unwrap();
    let content = read_all(&file);
    assert!(content[..20_000] == half[..20_000] && content[20_000..].iter().all(|byte| *byte == 0));
    assert!(content == run("ntfscat", &["-f", path_str(&image), "half"]));
    assert!(file.map(0, 20_000).is_ok());
    assert!(file.map(0, 20_001).unwrap_err().to_string().contains("never written"));
    assert_eq!(file.next_data(10).unwrap(), Some(10..20_000));
}

/// Replaces the one place where `old` is.
fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    let places: Vec<_> = (0..bytes.len() - old.len()).filter(|at| bytes[*at..].starts_with(old)).collect();
    assert_eq!(places.len(), 1, "places of {old:x?}");
    bytes[places[0]..places[0] + new.len()].copy_from_slice(new);
}

fn reasons(image: &Path) -> Vec<Reason> {
    open(image).state().unwrap().reasons
}

/// What ntfs-3g says to writing: 0 is yes, 14 hibernated, 15 not closed.
fn probe_exit(image: &Path) -> i32 {
    let mut probe = Command::new("ntfs-3g.probe");
    probe.args(["--readwrite", path_str(image)]).stderr(Stdio::null()).status().unwrap().code().unwrap()
}

/// Both restart pages of a $LogFile, as Windows writes them.
fn write_restart_pages(image: &Path, version: (u16, u16), in_use: [u16; 2], flags: [u16; 2]) {
    let listed = String::from_utf8(run("ntfscluster", &["-I", "2", path_str(image)])).unwrap();
    let line = listed.trim_end().lines().last().unwrap();
    let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let (start, size) = (numbers[1] * 4096, numbers[2] * 4096);
    for (index, offset) in [0, 4096].into_iter().enumerate() {
        let mut page = vec![0; 4096];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"RSTR");
        put(4, &30u16.to_le_bytes());
        put(6, &9u16.to_le_bytes());
        put(16, &4096u32.to_le_bytes());
        put(20, &4096u32.to_le_bytes());
        put(24, &48u16.to_le_bytes());
        put(26, &version.1.to_le_bytes());
        put(28, &version.0.to_le_bytes());
        // The update sequence: number 1; the bytes it stands for are zeros.
        put(30, &1u16.to_le_bytes());
        for block in 1..=8 {
            put(block * 512 - 2, &1u16.to_le_bytes());
        }
        let area = 48;
        put(area, &(1000 + index as u64).to_le_bytes());
        put(area + 8, &1u16.to_le_bytes());
        put(area + 10, &(if in_use[index] == 0 { 0xffffu16 } else { 0 }).to_le_bytes());
        put(area + 12, &in_use[index].to_le_bytes());
        put(area + 14, &flags[index].to_le_bytes());
        put(area + 16, &(67 - (64 - size.leading_zeros())).to_le_bytes());
        put(area + 20, &224u16.to_le_bytes());
        put(area + 22, &64u16.to_le_bytes());
        put(area + 24, &size.to_le_bytes());
        put(area + 36, &48u16.to_le_bytes());
        put(area + 38, &64u16.to_le_bytes());
        put(area + 64 + 16, &[0xff; 4]);
        let file = fs::OpenOptions::new().write(true).open(image).unwrap();
        file.write_all_at(&page, start + offset).unwrap();
    }
}

#[test]
fn the_journal_is_judged_as_ntfs_3g_judges_it() {
    const NONE: u16 = 0xffff;
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 32 << 20, &["-c", "4096"]);
    assert_eq!((reasons(&image), probe_exit(&image)), (vec![], 0), "emptied");
    // The second page is the newer one.
    let cases = [
        ((1, 1), [0, 0], [0, 2], vec![], 0),
        ((1, 1), [0, NONE], [0, 0], vec![], 0),
        ((1, 1), [NONE, 0], [2, 0], vec![Reason::LogInUse], 15),
        ((2, 0), [0, 0], [0, 0], vec![Reason::FastStartup], 14),
        ((3, 0), [NONE, NONE], [2, 2], vec![Reason::LogDamaged], 15),
    ];
    for (version, in_use, flags, expected, exit) in cases {
        write_restart_pages(&image, version, in_use, flags);
        assert_eq!(reasons(&image), expected, "{version:?} {in_use:?} {flags:?}");
        assert_eq!(probe_exit(&image), exit, "{version:?} {in_use:?} {flags:?}");
    }
    let state = open(&image).state().unwrap();
    assert!(!state.is_editable() && !state.is_trimmable());
}

#[test]
fn dirty_hibernated_and_shadowed_volumes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 32 << 20, &["-c", "4096"]);
    let mounted = Mounted::new(&image, "");
    mounted.write("hiberfil.sys", &noise(3, 10_000));
    mounted.unmount();
    assert_eq!(reasons(&image), []);
    for (signature, hibernated) in [(b"hibr", true), (b"HIBR", true), (b"wake", false), (b"\0\0\0\0", false)]
    {
        let mounted = Mounted::new(&image, ",remove_hiberfile");
        let mut content = noise(3, 10_000);
        content[..4].copy_from_slice(signature);
        mounted.write("hiberfil.sys", &content);
        mounted.unmount();
        let expected = if hibernated { vec![Reason::Hibernated] } else { vec![] };
        assert_eq!(reasons(&image), expected, "{signature:?}");
        assert_eq!(probe_exit(&image), if hibernated { 14 } else { 0 }, "{signature:?}");
    }

    let mounted = Mounted::new(&image, "");
    let catalogue = "{1c2d3e4f-0000-1111-2222-333344445555}{3808876B-c176-4e48-b7ae-04046e6cc752}";
    mounted.write(&format!("System Volume Information/{catalogue}"), b"diff area");
    mounted.unmount();
    let state = open(&image).state().unwrap();
    assert_eq!(state.reasons, [Reason::ShadowCopies]);
    assert!(state.is_editable() && !state.is_trimmable());

    // $VOLUME_INFORMATION: eight zeros, version 3.1, flags.
    let mut raw = fs::read(&image).unwrap();
    let clean = b"\0\0\0\0\0\0\0\0\x03\x01\0\0";
    // $MFT, and its mirror: where their first clusters are is in the boot sector.
    for field in [48, 56] {
        let cluster = u64::from_le_bytes(raw[field..field + 8].try_into().unwrap());
        let record = &mut raw[cluster as usize * 4096 + 3 * 1024..][..1000];
        replace(record, clean, b"\0\0\0\0\0\0\0\0\x03\x01\x01\0");
    }
    fs::write(&image, &raw).unwrap();
    let info = String::from_utf8(run("ntfsinfo", &["-f", "-m", path_str(&image)])).unwrap();
    assert!(info.contains("Volume Flags: 0x0001"), "{info}");
    assert_eq!(reasons(&image), [Reason::DirtyFlag, Reason::ShadowCopies]);
    assert!(!open(&image).state().unwrap().is_editable());
}

#[test]
fn a_mirror_that_is_no_copy_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for cluster in [512, 4096, 16384] {
        let image = make_volume(folder.path(), 32 << 20, &["-c", &cluster.to_string()]);
        assert_eq!((reasons(&image), probe_exit(&image)), (vec![], 0));
        let whole = fs::read(&image).unwrap();
        let mirror = u64::from_le_bytes(whole[56..64].try_into().unwrap()) as usize * cluster;
        // The sequence number of a record; its signature; a byte behind its end, which is nobody's.
        for (at, differs) in [(16, true), (1024 + 16, true), (3 * 1024, true), (3 * 1024 + 1000, false)] {
            let mut raw = whole.clone();
            raw[mirror + at] ^= 1;
            fs::write(&image, &raw).unwrap();
            let state = open(&image).state().unwrap();
            assert_eq!(
                state.reasons,
                if differs { vec![Reason::MirrorDiffers] } else { vec![] },
                "{cluster} {at}"
            );
            assert_eq!(state.is_editable(), !differs);
            assert_eq!(probe_exit(&image) != 0, differs, "{cluster} {at}");
        }
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn a_name_of_another_directory_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 32 << 20, &["-c", "4096"]);
    let mounted = Mounted::new(&image, "");
    mounted.write("Panther/unattend.xml", b"<unattend/>");
    mounted.unmount();
    let mut raw = fs::read(&image).unwrap();
    let name: Vec<u8> = "unattend.xml".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let places: Vec<_> = (0..raw.len() - name.len()).filter(|at| raw[*at..].starts_with(&name)).collect();
    // In the file's own record and in its directory, after a number that says which directory that is.
    assert_eq!(places.len(), 2);
    assert!(open(&image).file("Panther\\unattend.xml").unwrap().is_some());
    places.iter().for_each(|at| raw[at - 66] ^= 1);
    fs::write(&image, &raw).unwrap();
    let volume = open(&image);
    for error in [volume.list("Panther").unwrap_err(), volume.file("Panther\\unattend.xml").unwrap_err()] {
        assert!(error.to_string().contains("is of another directory"), "{error}");
    }
}

#[test]
fn a_cluster_of_two_files_is_a_contradiction() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 32 << 20, &["-c", "4096"]);
    let mounted = Mounted::new(&image, "");
    for name in ["one", "two"] {
        mounted.write(name, &noise(1, 20_000));
    }
    mounted.unmount();
    let volume = open(&image);
    assert_eq!(volume.contradiction().unwrap(), None);
    let place = |name| volume.file(name).unwrap().unwrap().map(0, 1).unwrap()[0].volume_offset / 4096;
    let (one, two) = (place("one"), place("two"));
    let record = volume.file("two").unwrap().unwrap().reference().record;
    let at = volume.mft().unwrap().map(record * 1024, 1024).unwrap()[0].volume_offset as usize;
    let mut raw = fs::read(&image).unwrap();
    // A run of five clusters: the sizes of both numbers, the length, the place.
    let run = |place: u64| [&[0x21, 5][..], &u16::try_from(place).unwrap().to_le_bytes()].concat();
    replace(&mut raw[at..at + 1024], &run(two), &run(one));
    fs::write(&image, &raw).unwrap();
    assert_eq!(open(&image).contradiction().unwrap(), Some(Contradiction::Shared(record)));
}

#[test]
fn the_shadow_copies_catalogue_is_found_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 32 << 20, &["-c", "4096"]);
    let whole = fs::read(&image).unwrap();
    // The header: its identifier, version, type, offsets; at 48 the catalogue's place.
    let mut header = [0; 128];
    header[..16].copy_from_slice(b"\x6b\x87\x08\x38\x76\xc1\x48\x4e\xb7\xae\x04\x04\x6e\x6c\xc7\x52");
    header[16] = 1;
    header[20] = 1;
    header[32..40].copy_from_slice(&0x1e00u64.to_le_bytes());
    for (catalogue, expected) in [(0u64, vec![]), (0x8000, vec![Reason::ShadowCopies])] {
        header[48..56].copy_from_slice(&catalogue.to_le_bytes());
        let mut raw = whole.clone();
        assert!(raw[0x1e00..0x1e80].iter().all(|byte| *byte == 0), "it is within $Boot");
        raw[0x1e00..0x1e80].copy_from_slice(&header);
        fs::write(&image, &raw).unwrap();
        let state = open(&image).state().unwrap();
        assert_eq!(state.reasons, expected);
        assert_eq!((state.is_editable(), state.is_trimmable()), (true, catalogue == 0));
        assert_eq!(probe_exit(&image), 0);
    }
    // Another's bytes there are no header.
    let mut raw = fs::read(&image).unwrap();
    raw[0x1e0f] ^= 1;
    fs::write(&image, raw).unwrap();
    assert_eq!(reasons(&image), []);
}

#[test]
fn what_a_partition_holds_is_told_by_its_first_sector() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 8 << 20, &["-c", "4096"]);
    let mut raw = fs::read(&image).unwrap();
    assert_eq!(probe(&raw).unwrap(), Probe::Ntfs);
    raw[3..11].copy_from_slice(b"-FVE-FS-");
    assert_eq!(probe(&raw).unwrap(), Probe::BitLocker);
    assert!(Volume::open(&raw).unwrap_err().to_string().contains("manage-bde -off"));
    assert_eq!(probe(&vec![0; 4096]).unwrap(), Probe::Other);
    assert_eq!(probe(&vec![0; 100]).unwrap(), Probe::Other);
    assert!(matches!(Volume::open(&vec![0; 4096]).unwrap_err(), NtfsError::NotNtfs));
    let cut = SourceFile::open(&image).unwrap();
    let cut = sealroot::io::Window::new(cut, 0, 4 << 20).unwrap();
    assert!(Volume::open(cut).unwrap_err().to_string().contains("cut short"));
}

/// Reads all there is to read; errors are fine, anything else is not.
fn use_all_of(volume: &[u8]) {
    let Ok(volume) = Volume::open(volume) else { return };
    let _ = volume.state();
    let Ok(Some(entries)) = volume.list("") else { return };
    for entry in entries {
        if entry.is_directory {
            let _ = volume.list_by_reference(entry.file);
        } else if let Ok(file) = volume.file_by_reference(entry.file) {
            let mut content = vec![0; file.size().min(64 << 10) as usize];
            let _ = file.read_exact_at(&mut content, 0);
            let _ = file.map(0, file.size());
            let _ = file.next_data(0);
        }
        let _ = volume.file(&entry.name);
    }
    let _ = volume.file("folder\\500");
    if let Ok(mut bitmap) = volume.bitmap() {
        let mut from = 0;
        while let Ok(Some(run)) = bitmap.next_allocated(from) {
            from = run.end;
        }
    }
}

#[test]
fn no_damage_makes_it_panic_or_hang() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 4 << 20, &["-c", "512"]);
    let mounted = Mounted::new(&image, "");
    for number in 0..300 {
        mounted.write(&format!("folder/{number}"), b"x");
    }
    leave_holes(&mounted, 1024);
    mounted.write("fragmented", &noise(1, 60_000));
    mounted.unmount();
    let whole = fs::read(&image).unwrap();
    use_all_of(&whole);
    for cut in [0, 3, 511, 512, 4096, 16 << 10, whole.len() - 1] {
        use_all_of(&whole[..cut]);
    }
    // Where structures are: the boot sector, file records, index nodes.
    let places: Vec<_> = (0..whole.len())
        .step_by(512)
        .filter(|at| *at == 0 || whole[*at..].starts_with(b"FILE") || whole[*at..].starts_with(b"INDX"))
        .collect();
    let mut state = 12345u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let mut bytes = whole.clone();
    for round in 0..1500 {
        // The system files and the root more often than the rest.
        let place = places[if round % 2 == 0 { random(30.min(places.len())) } else { random(places.len()) }];
        let mut changed = Vec::new();
        for _ in 0..1 + random(3) {
            let at = place + random(512);
            let old = bytes[at];
            changed.push((at, old));
            bytes[at] = [old ^ 1 << random(8), 0, 0xff, random(256) as u8][random(4)];
        }
        use_all_of(&bytes);
        for (at, old) in changed.into_iter().rev() {
            bytes[at] = old;
        }
    }
    assert!(bytes == whole);
}
