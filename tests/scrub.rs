//! Cached answer files scrubbed: judged by ntfs-3g's listings before and after, ntfsresize, ntfsinfo, a raw scan.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/ntfs_listing.rs"]
mod ntfs_listing;
#[path = "support/ntfs_volume.rs"]
mod ntfs_volume;
#[path = "support/root_disk.rs"]
mod root_disk;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ntfs_listing::{Listing, clusters_agree, holds, listing, use_heavily};
use ntfs_volume::{Mounted, leave_holes, make_volume, noise, path_str, run};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use sealroot::io::{ReadAt, SourceFile};
use sealroot::ntfs::{NtfsError, Unlinked, Volume, unlink};

const SECRET: &str = "Correct-Horse-7-Battery";

/// Unlinks files one after the other, in the image itself.
fn scrub(image: &Path, paths: &[String]) -> Vec<Unlinked> {
    let mut done = Vec::new();
    for path in paths {
        let source = SourceFile::open(image).unwrap();
        let reference = {
            let volume = Volume::open(&source).unwrap();
            volume.file(path).unwrap().unwrap_or_else(|| panic!("no {path}")).reference()
        };
        let unlinked = unlink(&source, reference).unwrap_or_else(|error| panic!("{path}: {error}"));
        drop(source);
        let file = fs::OpenOptions::new().write(true).open(image).unwrap();
        for change in &unlinked.changes {
            file.write_all_at(&change.bytes, change.offset).unwrap();
        }
        done.push(unlinked);
    }
    done
}

fn refused(image: &Path, path: &str) -> NtfsError {
    let source = SourceFile::open(image).unwrap();
    let reference = Volume::open(&source).unwrap().file(path).unwrap().unwrap().reference();
    unlink(&source, reference).expect_err(path)
}

/// What is scrubbed is gone; everything else is as it was, before and after heavy use.
fn judge(image: &Path, before: &Listing, scrubbed: &[String], folder: &str, count: usize) {
    clusters_agree(image);
    let mut expected = before.clone();
    for path in scrubbed {
        assert!(expected.remove(Path::new(path)).is_some(), "{path}");
    }
    let after = listing(image);
    let missing: Vec<_> = expected.keys().filter(|path| !after.contains_key(*path)).take(5).collect();
    let left: Vec<_> = after.keys().filter(|path| !expected.contains_key(*path)).take(5).collect();
    assert!(after == expected, "missing {missing:?}, left {left:?}");
    run("ntfsinfo", &["-v", "-F", &format!("/{folder}"), path_str(image)]);
    use_heavily(image, folder, &expected, count);
}

#[test]
fn names_go_from_every_place_of_a_deep_index() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 96 << 20, &["-c", "4096"]);
    let mounted = Mounted::new(&image, "");
    let mut names = Vec::new();
    for number in 0..3000u32 {
        let path = format!("Windows/Panther/{number:04} {} unattend.xml", "x".repeat(number as usize % 40));
        let content = match number % 3 {
            0 => SECRET.as_bytes().to_vec(),
            1 => SECRET.repeat(400).into_bytes(),
            _ => noise(number, 300),
        };
        mounted.write(&path, &content);
        names.push(path);
    }
    mounted.unmount();
    let before = listing(&image);
    // A single one here and there, as it comes; then hundreds in a row, which empties leaves and inner nodes.
    let mut chosen: Vec<_> = (0..1000).step_by(9).collect();
    chosen.extend(1400..1700);
    chosen.extend((2400..2700).rev());
    chosen.extend([0, 2999, 2998].into_iter().filter(|n| *n != 0));
    let scrubbed: Vec<_> = chosen.iter().map(|number| names[*number].clone()).collect();
    let done = scrub(&image, &scrubbed);
    assert!(done.iter().all(|unlinked| unlinked.emptied.is_none()));
    let sizes: Vec<usize> =
        done.iter().map(|unlinked| unlinked.changes.iter().map(|c| c.bytes.len()).sum()).collect();
    let rebuilt = sizes.iter().filter(|size| **size > 60_000).count();
    println!("{} scrubbed, {rebuilt} with the index put together anew", scrubbed.len());
    assert!(rebuilt > 3 && rebuilt < sizes.len() / 4, "{rebuilt} of {}", sizes.len());
    // With the secrets of those that stay deleted through ntfs-3g nothing could be told: look at the scrubbed only.
    judge(&image, &before, &scrubbed, "Windows/Panther", 4000);
    // Everything goes, down to the last name: what can't be removed is empty.
    let left: Vec<_> = names.iter().filter(|name| !scrubbed.contains(name)).cloned().collect();
    let done = scrub(&image, &left);
    let emptied = done.iter().filter(|unlinked| unlinked.emptied.is_some()).count();
    println!("{emptied} of {} emptied, not removed", left.len());
    assert!(emptied <= 3, "{emptied}");
    assert!(!holds(&fs::read(&image).unwrap(), SECRET));
    clusters_agree(&image);
    let after = listing(&image);
    assert_eq!(after.len(), 2 + emptied);
    assert!(after.values().all(|(size, ..)| *size == 0));
    use_heavily(&image, "Windows/Panther", &after, 500);
}

#[test]
fn links_short_names_streams_and_attribute_lists_go_whole() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 40 << 20, &["-c", "512"]);
    let mounted = Mounted::new(&image, "");
    for number in 0..60 {
        mounted.write(&format!("Panther/other {number}"), &noise(number, 900));
        mounted.write(&format!("Panther/sub/folder/{number}"), b"small");
    }
    let at = |path: &str| mounted.point.join(path);
    mounted.write("Panther/unattend-long-name.xml", SECRET.as_bytes());
    setxattr(
        at("Panther/unattend-long-name.xml"),
        "system.ntfs_dos_name",
        b"UNATTE~1.XML",
        XattrFlags::empty(),
    )
    .unwrap();
    setxattr(
        at("Panther/unattend-long-name.xml"),
        "user.hidden",
        SECRET.repeat(90).as_bytes(),
        XattrFlags::empty(),
    )
    .unwrap();
    mounted.write("Panther/linked unattend.xml", SECRET.repeat(100).as_bytes());
    fs::hard_link(at("Panther/linked unattend.xml"), at("Panther/sub/a unattend.xml")).unwrap();
    fs::hard_link(at("Panther/linked unattend.xml"), at("Panther/sub/folder/notes.txt")).unwrap();
    // Too many names for one record.
    mounted.write("Panther/sub/many-names-unattend.xml", SECRET.repeat(9).as_bytes());
    let links: Vec<_> = (0..25)
        .map(|n| format!("Panther/{}/{n} {}", ["sub", "sub/folder"][n % 2], "l".repeat(120)))
        .collect();
    links.iter().for_each(|link| fs::hard_link(at("Panther/sub/many-names-unattend.xml"), at(link)).unwrap());
    mounted.unmount();
    let info = run("ntfsinfo", &["-F", "/Panther/sub/many-names-unattend.xml", path_str(&image)]);
    let info = String::from_utf8(info).unwrap();
    assert!(info.contains("$ATTRIBUTE_LIST"), "{info}");
    let before = listing(&image);
    assert!(holds(&fs::read(&image).unwrap(), SECRET));
    let scrubbed = ["unattend-long-name.xml", "linked unattend.xml", "sub/many-names-unattend.xml"]
        .map(|n| format!("Panther/{n}"));
    let done = scrub(&image, &scrubbed);
    assert!(done.iter().all(|unlinked| unlinked.emptied.is_none()));
    assert!(!holds(&fs::read(&image).unwrap(), SECRET));
    let gone: Vec<_> = scrubbed
        .into_iter()
        .chain(["sub/a unattend.xml", "sub/folder/notes.txt"].map(|n| format!("Panther/{n}")))
        .chain(links)
        .collect();
    assert!(
        Volume::open(SourceFile::open(&image).unwrap())
            .unwrap()
            .file("Panther\\UNATTE~1.XML")
            .unwrap()
            .is_none()
    );
    judge(&image, &before, &gone, "Panther/sub", 1500);
}

#[test]
fn a_file_in_hundreds_of_pieces_goes_whole() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 24 << 20, &["-c", "512"]);
    let mounted = Mounted::new(&image, "");
    leave_holes(&mounted, 1024);
    mounted.write("unattend.xml", SECRET.repeat(90_000).as_bytes());
    mounted.unmount();
    let info = run("ntfsinfo", &["-F", "/unattend.xml", path_str(&image)]);
    assert!(String::from_utf8(info).unwrap().contains("$ATTRIBUTE_LIST"));
    let before = listing(&image);
    let scrubbed = ["unattend.xml".to_owned()];
    assert!(scrub(&image, &scrubbed)[0].emptied.is_none());
    assert!(!holds(&fs::read(&image).unwrap(), SECRET));
    judge(&image, &before, &scrubbed, "pad", 200);
}

#[test]
fn what_is_no_plain_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 32 << 20, &["-c", "4096"]);
    let mounted = Mounted::new(&image, ",compression");
    let at = |path: &str| mounted.point.join(path);
    fs::create_dir(at("packed")).unwrap();
    setxattr(at("packed"), "system.ntfs_attrib", &0x0800u32.to_le_bytes(), XattrFlags::empty()).unwrap();
    mounted.write("packed/unattend.xml", &vec![b'x'; 500_000]);
    let sparse = fs::File::create(at("sparse.xml")).unwrap();
    sparse.write_all_at(b"end", 1_000_000).unwrap();
    drop(sparse);
    mounted.write("wof.xml", &noise(11, 20_000));
    let reparse = [&0x8000_0017u32.to_le_bytes()[..], &16u16.to_le_bytes(), &[0; 18]].concat();
    setxattr(at("wof.xml"), "system.ntfs_reparse_data", &reparse, XattrFlags::empty()).unwrap();
    mounted.unmount();
    for (path, word) in
        [("packed/unattend.xml", "compressed"), ("sparse.xml", "sparse"), ("wof.xml", "reparse")]
    {
        let said = refused(&image, path).to_string();
        assert!(said.contains(word), "{path}: {said}");
    }
}

/// Sets a file's object identifier, or reads all that there is of it: 64 bytes, where the index knows it.
fn object_id(mounted: &Mounted, path: &str, id: Option<&[u8]>) -> usize {
    let path = mounted.point.join(path);
    if let Some(id) = id {
        setxattr(&path, "system.ntfs_object_id", id, XattrFlags::empty()).unwrap();
    }
    getxattr(&path, "system.ntfs_object_id", &mut [0; 64]).unwrap()
}

#[test]
fn a_file_with_an_object_identifier_leaves_its_index() {
    let folder = tempfile::tempdir().unwrap();
    for count in [3u32, 400] {
        let image = make_volume(folder.path(), 32 << 20, &["-c", "4096"]);
        let mounted = Mounted::new(&image, "");
        let id = |number: u32| noise(number * 977 + 5, 16);
        let path = |number: u32| format!("Panther/{number} unattend.xml");
        for number in 0..count {
            mounted.write(&path(number), SECRET.repeat(if number % 2 == 0 { 3 } else { 300 }).as_bytes());
            assert_eq!(object_id(&mounted, &path(number), Some(&id(number))), 64);
        }
        mounted.unmount();
        let before = listing(&image);
        let goes = |number: &u32| *number % 3 == 1 || (100..250).contains(number);
        let scrubbed: Vec<_> = (0..count).filter(goes).map(path).collect();
        assert!(scrub(&image, &scrubbed).iter().all(|unlinked| unlinked.emptied.is_none()));
        judge(&image, &before, &scrubbed, "Panther", 200);
        // The others are found by theirs, and those that went are free for others.
        let mounted = Mounted::new(&image, "");
        for number in (0..count).filter(|number| !goes(number)) {
            assert_eq!(object_id(&mounted, &path(number), None), 64, "{number}");
        }
        for number in (0..count).filter(goes) {
            let path = format!("new {number}");
            mounted.write(&path, b"new");
            assert_eq!(object_id(&mounted, &path, Some(&id(number))), 64, "{number}");
        }
        mounted.unmount();
        clusters_agree(&image);
        let left: Vec<_> = (0..count).filter(|number| !goes(number)).map(path).collect();
        assert!(scrub(&image, &left).iter().all(|unlinked| unlinked.emptied.is_none()));
        assert!(!holds(&fs::read(&image).unwrap(), SECRET));
        clusters_agree(&image);
        let mounted = Mounted::new(&image, "");
        (0..count).filter(goes).for_each(|n| assert_eq!(object_id(&mounted, &format!("new {n}"), None), 64));
        mounted.unmount();
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn the_only_file_of_a_folder_goes() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 16 << 20, &["-c", "4096"]);
    let mounted = Mounted::new(&image, "");
    mounted.write("small/unattend.xml", SECRET.as_bytes());
    // It had many, and has room for as many again.
    let many = |number: u32| format!("large/{number:03} a name of some length");
    (0..100).for_each(|number| mounted.write(&many(number), b""));
    mounted.write("large/unattend.xml", SECRET.repeat(300).as_bytes());
    (0..100).for_each(|number| fs::remove_file(mounted.point.join(many(number))).unwrap());
    mounted.unmount();
    let before = listing(&image);
    let scrubbed = ["small/unattend.xml", "large/unattend.xml"].map(str::to_owned);
    assert!(scrub(&image, &scrubbed).iter().all(|unlinked| unlinked.emptied.is_none()));
    assert!(!holds(&fs::read(&image).unwrap(), SECRET));
    judge(&image, &before, &scrubbed, "small", 300);
    use_heavily(&image, "large", &listing(&image), 300);
}

#[test]
fn what_contradicts_the_cluster_map_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 16 << 20, &["-c", "4096"]);
    let mounted = Mounted::new(&image, "");
    mounted.write("p/unattend.xml", &noise(1, 9000));
    for number in 0..100 {
        mounted.write(&format!("p/a long name, number {number}"), b"");
    }
    mounted.unmount();
    let whole = fs::read(&image).unwrap();
    let refused_with = |raw: Vec<u8>| {
        fs::write(&image, raw).unwrap();
        refused(&image, "p/unattend.xml").to_string()
    };
    let volume = Volume::open(whole.as_slice()).unwrap();
    let cluster = volume.file("p/unattend.xml").unwrap().unwrap().extents()[0].volume_offset.unwrap() / 4096;
    let map = volume.bitmap().unwrap().extents()[0].volume_offset.unwrap();
    let without = |cluster: u64| {
        let mut raw = whole.clone();
        raw[(map + cluster / 8) as usize] &= !(1 << (cluster % 8));
        raw
    };
    assert!(refused_with(without(cluster)).contains("free"));
    // One of its folder's index.
    let node = whole.chunks(4096).rposition(|bytes| bytes.starts_with(b"INDX")).unwrap();
    assert!(refused_with(without(node as u64)).contains("free"));
    // One of the file system's own: $MFT.
    assert!(refused_with(without(4)).contains("record 0: it uses a cluster that $Bitmap calls free"));
    // Its run of three clusters leads to $MFT, or into its folder's index.
    let place = cluster.to_le_bytes();
    let length = place.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let run = |cluster: u64| [&[(length as u8) << 4 | 1, 3], &cluster.to_le_bytes()[..length], &[0]].concat();
    let at = whole.windows(length + 3).position(|bytes| bytes == run(cluster)).unwrap();
    for other in [4, node as u64] {
        let mut raw = whole.clone();
        raw[at..at + length + 3].copy_from_slice(&run(other));
        let said = refused_with(raw);
        assert!(said.contains("belongs to the file system") || said.contains("free"), "{said}");
    }
    fs::write(&image, &whole).unwrap();
    assert!(scrub(&image, &["p/unattend.xml".to_owned()])[0].emptied.is_none());
}

#[test]
fn the_root_folder_of_every_cluster_size() {
    for (cluster, size) in [(512, 9 << 20), (4096, 16 << 20), (8192, 32 << 20), (65536, 128 << 20)] {
        let folder = tempfile::tempdir().unwrap();
        let image = make_volume(folder.path(), size, &["-c", &cluster.to_string()]);
        let mounted = Mounted::new(&image, "");
        for name in ["autounattend.xml", "unattend.xml", "a", "z"] {
            mounted.write(name, SECRET.repeat(if name == "a" { 1 } else { 200 }).as_bytes());
        }
        fs::write(mounted.point.join("a"), "a").unwrap();
        fs::write(mounted.point.join("z"), noise(1, 5000)).unwrap();
        mounted.unmount();
        let before = listing(&image);
        let scrubbed = ["unattend.xml", "autounattend.xml"].map(str::to_owned);
        assert!(scrub(&image, &scrubbed).iter().all(|unlinked| unlinked.emptied.is_none()));
        // Mounting compares $MFTMirr with $MFT.
        judge(&image, &before, &scrubbed, "", 200);
    }
}

#[test]
fn any_files_of_any_folders() {
    let mut state = 20_240_501u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for round in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let cluster = [512, 1024, 4096][round % 3].to_string();
        let image = make_volume(folder.path(), 48 << 20, &["-c", &cluster]);
        let mounted = Mounted::new(&image, "");
        let mut files = BTreeSet::new();
        for _ in 0..100 + random(700) {
            let length = 1 + random(if round % 2 == 0 { 12 } else { 200 });
            let name: String = (0..length).map(|_| ['a', 'B', 'é', '7', 'ж', '-', 'Z'][random(7)]).collect();
            let path = format!("{}/{name}.xml", ["p", "p/q", "p/r"][random(3)]);
            mounted.write(&path, &noise(random(1000) as u32, [0, 10, 600, 3000, 20_000][random(5)]));
            files.insert(path);
        }
        mounted.unmount();
        let before = listing(&image);
        let share = [2, 10, 1][round % 3];
        let mut scrubbed: Vec<_> =
            before.keys().map(|p| p.to_str().unwrap().to_owned()).filter(|p| p.ends_with(".xml")).collect();
        scrubbed.retain(|_| random(share) == 0);
        let done = scrub(&image, &scrubbed);
        // Where what goes up in its place is too long for the root, a name is left without content.
        let gone: Vec<_> =
            scrubbed.iter().zip(&done).filter(|(_, u)| u.emptied.is_none()).map(|(p, _)| p.clone()).collect();
        assert!(
            scrubbed.len() - gone.len() <= 3,
            "{} of {} emptied",
            scrubbed.len() - gone.len(),
            scrubbed.len()
        );
        let mut expected = before.clone();
        let after = listing(&image);
        for path in scrubbed.iter().filter(|path| !gone.contains(path)) {
            expected.insert(path.into(), after[Path::new(path)]);
            assert_eq!(after[Path::new(path)].0, 0);
        }
        judge(&image, &expected, &gone, "p", 300);
        println!("{} of {} emptied", scrubbed.len() - gone.len(), scrubbed.len());
    }
}

fn sealroot(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sealroot")).args(args).output().unwrap()
}

#[test]
fn folders_that_loop_or_go_deep_are_searched_to_their_end() {
    let disk = root_disk::RootDisk::standard().edit_volume(|volume| {
        let mounted = Mounted::new(volume.path(), "");
        let deep = "d/".repeat(25);
        mounted.write(
            &format!("Windows/Panther/{deep}unattend.xml"),
            root_disk::ANSWER_WITH_PASSWORD.as_bytes(),
        );
        mounted.write("Windows/Panther/a/loop-here/kept.txt", b"kept");
        mounted.unmount();
        // The entry `loop-here` leads to the folder it is in: its first field becomes its key's first.
        let mut bytes = fs::read(volume.path()).unwrap();
        let name: Vec<u8> = "loop-here".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut changed = 0;
        for at in 82..bytes.len() - name.len() {
            let key_length = usize::from(u16::from_le_bytes([bytes[at - 72], bytes[at - 71]]));
            if bytes[at] == b'l' && bytes[at..].starts_with(&name) && key_length == 66 + name.len() {
                bytes.copy_within(at - 66..at - 58, at - 82);
                changed += 1;
            }
        }
        assert_eq!(changed, 1);
        fs::write(volume.path(), bytes).unwrap();
    });
    let output = sealroot(&["audit", "--disk", path_str(disk.path())]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    let path = format!(r"\Windows\Panther\{}unattend.xml holds a password", r"d\".repeat(25));
    assert!(said.contains(&path), "{said}");
}

#[test]
fn a_sealed_root_has_no_answer_files_and_not_their_bytes() {
    let answer = root_disk::ANSWER_WITH_PASSWORD;
    let utf16: Vec<u8> =
        [0xFEFF].into_iter().chain(answer.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let large = answer.replace("<settings", &format!("<!--{}--><settings", " ".repeat(9000)));
    let disk = root_disk::RootDisk::standard()
        .with_cached_answer()
        .file("Windows/Panther/unattend-original.xml", &utf16)
        .file("Windows/System32/Sysprep/unattend.xml", large.as_bytes())
        .file("autounattend.xml", large.as_bytes())
        .file("Windows/System32/Sysprep/sysprep.inf", format!("AdminPassword={SECRET}\r\n").as_bytes());
    // The second partition, of 16 MiB at 37 MiB, as another NTFS volume.
    let data = make_volume(disk.folder(), 16 << 20, &["-c", "4096"]);
    let mounted = Mounted::new(&data, "");
    mounted.write("Unattend.xml", answer.as_bytes());
    mounted.write("kept.xml", b"<kept/>");
    mounted.unmount();
    let whole = fs::OpenOptions::new().read(true).write(true).open(disk.path()).unwrap();
    whole.write_all_at(&fs::read(&data).unwrap(), 37 << 20).unwrap();
    let before = fs::read(disk.path()).unwrap();
    let path = path_str(disk.path());

    // As it is, it must not be published.
    let audit = sealroot(&["audit", "--disk", path]);
    assert_eq!(audit.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&audit.stdout).contains("holds a password"));

    let sealed = disk.folder().join("sealed.qcow2");
    let output = sealroot(&["prepare-sealed-root", "--disk", path, "--output", path_str(&sealed), "--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(fs::read(disk.path()).unwrap() == before, "the input was changed");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names = [
        r"Windows\Panther\unattend-original.xml",
        r"Windows\Panther\unattend.xml",
        r"Windows\System32\Sysprep\sysprep.inf",
        r"Windows\System32\Sysprep\unattend.xml",
        "autounattend.xml",
        r"partition 2:\Unattend.xml",
    ];
    assert_eq!(report["answerFilesScrubbed"], serde_json::json!(names));
    assert_eq!(report["answerFilesEmptied"], serde_json::json!([]));
    println!("{} bytes in {} places", report["changedBytes"], report["changedPlaces"]);

    let raw = disk.folder().join("sealed.raw");
    run("qemu-img", &["convert", "-O", "raw", path_str(&sealed), path_str(&raw)]);
    let bytes = fs::read(&raw).unwrap();
    assert!(holds(&before, SECRET) && !holds(&bytes, SECRET));
    let part = disk.folder().join("part.img");
    fs::write(&part, &bytes[37 << 20..53 << 20]).unwrap();
    clusters_agree(&part);
    assert_eq!(listing(&part).into_keys().collect::<Vec<_>>(), [PathBuf::from("kept.xml")]);

    let (old, new) = (root_disk::Volume::of(disk.path()), root_disk::Volume::of(&sealed));
    assert!(new.clusters_agree());
    let (mut expected, mut found) = (listing(old.path()), listing(new.path()));
    for name in &names[..5] {
        assert!(expected.remove(Path::new(&name.replace('\\', "/"))).is_some());
    }
    // The hive with the pointer.
    for listing in [&mut expected, &mut found] {
        listing.remove(Path::new(root_disk::SYSTEM)).unwrap();
    }
    assert!(found == expected);
    assert_eq!(new.hive_value(root_disk::SYSTEM, "Setup", "UnattendFile"), r"D:\autounattend.xml");

    let audit = sealroot(&["audit", "--disk", path_str(&sealed), "--json"]);
    assert!(audit.status.success(), "{}", String::from_utf8_lossy(&audit.stderr));
    let audit: serde_json::Value = serde_json::from_slice(&audit.stdout).unwrap();
    assert_eq!(audit["facts"]["answerFiles"], serde_json::json!([]));
    // Sealing it again finds nothing to do.
    let again = sealroot(&[
        "prepare-sealed-root",
        "--disk",
        path_str(&sealed),
        "--patch",
        path_str(&data.with_extension("patch")),
        "--json",
    ]);
    let again: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&again["changedBytes"], &again["answerFilesScrubbed"]), (&0.into(), &serde_json::json!([])));
}

#[test]
fn no_damage_makes_it_panic_or_hang() {
    let folder = tempfile::tempdir().unwrap();
    let image = make_volume(folder.path(), 4 << 20, &["-c", "512"]);
    let mounted = Mounted::new(&image, "");
    for number in 0..120 {
        mounted.write(
            &format!("p/{number} unattend.xml"),
            &noise(number, if number % 2 == 0 { 10 } else { 1500 }),
        );
    }
    mounted.unmount();
    let whole = fs::read(&image).unwrap();
    let references: Vec<_> = {
        let volume = Volume::open(whole.as_slice()).unwrap();
        (0..120).map(|n| volume.file(&format!("p\\{n} unattend.xml")).unwrap().unwrap().reference()).collect()
    };
    let places: Vec<_> = (0..whole.len())
        .step_by(512)
        .filter(|at| *at == 0 || whole[*at..].starts_with(b"FILE") || whole[*at..].starts_with(b"INDX"))
        .collect();
    let mut state = 777u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let (mut bytes, mut went) = (whole.clone(), 0);
    for _ in 0..1500 {
        let place = places[random(places.len())];
        let within = if random(2) == 0 { 120 } else { 512 };
        let at = place + random(within);
        let old = bytes[at];
        bytes[at] = [old ^ 1 << random(8), 0, 0xff, random(256) as u8][random(4)];
        if let Ok(unlinked) = unlink(&bytes, references[random(references.len())]) {
            assert!(unlinked.changes.iter().all(|c| c.offset + c.bytes.len() as u64 <= bytes.size()));
            went += 1;
        }
        bytes[at] = old;
    }
    assert!(went > 100 && bytes == whole);
}
