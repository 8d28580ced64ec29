//! Packaging against the sum of its own parts: `cargo bench --bench package_parts -- DISK`.
//!
//! Each part is done alone, on one core, over the same bytes in the same pieces: reading the tar from the disk,
//! compressing its frames, hashing the tar, hashing the layer. Then the layer is made with all cores, into nothing.
//! Printed: the parts, their sum spread over the cores, the whole, and whole / sum; 1 would be no loss at all.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use sealroot::containerdisk::{Chunk, Compression, FRAME, Layer, Qcow2Image, Sink, Tar};
use sealroot::disk;
use sealroot::io::{Progress, ReadAt, Silent};
use sealroot::root::keep::Kept;
use sha2::{Digest, Sha256};

/// The default level of zstd.
const LEVEL: i32 = 3;
const RUNS: usize = 3;

/// Counts what it takes.
struct Nowhere(u64);

impl Sink for Nowhere {
    fn take(&mut self, chunk: &Chunk) -> io::Result<()> {
        self.0 = chunk.offset() + chunk.as_ref().len() as u64;
        Ok(())
    }
}

#[derive(Default)]
struct Parts {
    read: Duration,
    compress: Duration,
    hash_tar: Duration,
    hash_layer: Duration,
    layer: u64,
}

fn timed<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    *total += start.elapsed();
    done
}

fn parts(tar: &dyn ReadAt) -> Parts {
    let mut parts = Parts::default();
    let mut compressor = zstd::bulk::Compressor::new(LEVEL).unwrap();
    let (mut tar_hash, mut layer_hash) = (Sha256::new(), Sha256::new());
    let mut raw = Vec::new();
    for start in (0..tar.size()).step_by(FRAME as usize) {
        raw.resize(FRAME.min(tar.size() - start) as usize, 0);
        timed(&mut parts.read, || tar.read_exact_at(&mut raw, start).unwrap());
        let packed = timed(&mut parts.compress, || compressor.compress(&raw).unwrap());
        timed(&mut parts.hash_tar, || tar_hash.update(&raw));
        timed(&mut parts.hash_layer, || layer_hash.update(&packed));
        parts.layer += packed.len() as u64;
    }
    parts
}

fn main() {
    // cargo bench adds --bench.
    let Some(disk) = std::env::args().skip(1).find(|argument| !argument.starts_with("--")) else {
        println!("package_parts: no disk was named, nothing is measured");
        return;
    };
    let disk = disk::open(Path::new(&disk)).unwrap();
    let kept = Kept::in_use(&disk, &Silent).unwrap();
    let qcow2 = Qcow2Image::new(&kept);
    let tar = Tar::new(&qcow2);
    let cores = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let mut ratios = Vec::new();
    for _ in 0..RUNS {
        let parts = parts(&tar);
        let sum = parts.read + parts.compress + parts.hash_tar + parts.hash_layer;
        let mut sink = Nowhere(0);
        let start = Instant::now();
        let mut layer = Layer::new(&tar, Compression::zstd(Some(LEVEL)).unwrap(), cores);
        layer.write(0, &mut [&mut sink], &*Silent.task("", 0)).unwrap();
        let whole = start.elapsed();
        let spread = sum / u32::try_from(cores.get()).unwrap();
        let ratio = whole.as_secs_f64() / spread.as_secs_f64();
        println!(
            "read {:.2} s, compress {:.2} s, hash tar {:.2} s, hash layer {:.2} s; over {cores} cores {:.2} s; \
             whole {:.2} s; ratio {ratio:.2} (tar {} MiB, layer {} MiB)",
            parts.read.as_secs_f64(),
            parts.compress.as_secs_f64(),
            parts.hash_tar.as_secs_f64(),
            parts.hash_layer.as_secs_f64(),
            spread.as_secs_f64(),
            whole.as_secs_f64(),
            tar.size() >> 20,
            sink.0 >> 20,
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.2}", ratios[RUNS / 2]);
}
