//! How every command that pushes is told how to send blobs, and what it says on the way.

use std::sync::Arc;
use std::time::Duration;

use super::Console;
use crate::containerdisk::Digest;
use crate::registry::{Limit, MAX_CHUNK, MIN_CHUNK, Notice, UploadOptions};

/// How blobs are sent: flattened into every command that pushes.
#[derive(Debug, clap::Args)]
pub struct UploadArgs {
    /// Upload in requests of this size, 64KiB to 64MiB, each held in memory.
    /// Otherwise a blob is one request, or several of 4MiB or less where
    /// the registry refuses that as too large.
    #[arg(long, value_name = "SIZE", value_parser = chunk_size, help_heading = "Registry")]
    chunk_size: Option<usize>,
    /// The pause after a first failure, in milliseconds: for tests.
    #[arg(long, value_name = "MS", hide = true)]
    retry_pause: Option<u64>,
}

impl UploadArgs {
    /// What the library is told; `console` is told what happens.
    pub fn options(&self, mount_from: Option<String>, console: &Console) -> UploadOptions {
        let console = console.clone();
        let default = UploadOptions::default();
        UploadOptions {
            chunk_size: self.chunk_size,
            mount_from,
            first_pause: self.retry_pause.map_or(default.first_pause, Duration::from_millis),
            notify: Arc::new(move |notice| match notice {
                Notice::Limit { limit, size, exact } => console.warn(limited(limit, *size, *exact)),
                Notice::TagMoves { tag, from } => console.warn(moved(tag, *from)),
                other => console.note(said(other)),
            }),
        }
    }
}

/// `4MiB`, `256KiB`, or bytes.
fn chunk_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "m" | "MiB" => 1 << 20,
        _ => return Err("a size is a number, with KiB or MiB after it".into()),
    };
    let size = digits.parse().ok().and_then(|number: usize| number.checked_mul(unit));
    size.filter(|size| (MIN_CHUNK..=MAX_CHUNK).contains(size))
        .ok_or_else(|| "a chunk has 64KiB to 64MiB".into())
}

fn said(notice: &Notice) -> String {
    match notice {
        Notice::Resumed { offset, why } => {
            format!("{why}; the upload goes on at {}, which the registry has", size(*offset))
        }
        Notice::Restarted { why } => format!("{why}; the upload begins again"),
        Notice::Chunks { size: chunk, status } => {
            format!(
                "the registry, or a proxy before it, takes no request as large as that ({status}): uploading {} at a time",
                size(*chunk as u64)
            )
        }
        Notice::Monolithic { status } => {
            format!("the registry takes no upload in parts ({status}): sending the blob in one request")
        }
        Notice::Limit { limit, size, exact } => limited(limit, *size, *exact),
        Notice::TagMoves { tag, from } => moved(tag, *from),
    }
}

fn moved(tag: &str, from: Digest) -> String {
    format!(
        "the tag {tag} led to {from} until now; that image is still there by its digest, if nothing collects it"
    )
}

/// What may be too much, in the units that registries use.
fn limited(limit: &Limit, size: u64, exact: bool) -> String {
    let giga = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    let what = match exact {
        true => format!("the layer has {}", giga(size)),
        false => format!("the layer has {} before it is compressed", giga(size)),
    };
    let time = limit.time.map_or_else(String::new, |time| {
        let minutes = time.as_secs() / 60;
        let rate = size.div_ceil(time.as_secs()).div_ceil(1_000_000);
        format!(" and ends an upload after {minutes} minutes, which takes up to {rate} MB/s")
    });
    format!("{what}; {} takes layers of up to {}{time}", limit.host, giga(limit.layer))
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes_are_read_and_bounded() {
        assert_eq!(chunk_size("4MiB"), Ok(4 << 20));
        assert_eq!(chunk_size("256K"), Ok(256 << 10));
        assert_eq!(chunk_size("65536"), Ok(65_536));
        for bad in ["", "MiB", "4 GB", "1K", "65MiB", "0", "-1", "18446744073709551615MiB", "4MB"] {
            assert!(chunk_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_warning_says_what_is_known() {
        let ghcr = Limit::of("ghcr.io").unwrap();
        assert_eq!(
            limited(ghcr, 12_000_000_000, false),
            "the layer has 12.0 GB before it is compressed; ghcr.io takes layers of up to 10.0 GB and ends an \
             upload after 10 minutes, which takes up to 20 MB/s"
        );
        let quay = Limit::of("quay.io").unwrap();
        assert_eq!(
            limited(quay, 30 << 30, true),
            "the layer has 32.2 GB; quay.io takes layers of up to 21.5 GB"
        );
    }
}
