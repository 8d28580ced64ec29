//! A small NBD client: one connection, several requests in flight, simple replies.
//!
//! Protocol: the network block device project's doc/proto.md; numbers are big-endian.

mod address;
mod connection;
mod handshake;

use std::io;
use std::ops::Range;

use thiserror::Error;

use super::file::write_zeros;
use super::{Clear, Target, TargetError};
use crate::io::Task;
pub use address::{NbdAddress, Server};
use connection::Connection;
use handshake::Export;

const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const WRITE_ZEROES: u16 = 6;
/// Keeps what is zeroed allocated.
const NO_HOLE: u16 = 1 << 1;

const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_WRITE_ZEROES: u16 = 1 << 6;

/// Bytes read or written by one request.
const PIECE: u32 = 1 << 20;
/// Requests sent and not answered. Their answers fit in any socket's buffer, so sending never waits for itself.
const IN_FLIGHT: usize = 16;
/// Bytes cleared by one request: a server that has to write the zeros answers in time, and a stop is heard.
const CLEAR_AT_ONCE: u64 = 64 << 20;

/// Why an export is not written to.
#[derive(Debug, Error)]
pub enum NbdError {
    /// The address makes no sense.
    #[error("this NBD address won't do: {why}")]
    Address {
        /// What is wrong with it.
        why: String,
    },
    /// No connection.
    #[error("the NBD server {server} can't be reached")]
    Connect {
        /// Host and port, or the socket.
        server: String,
        /// Why.
        source: io::Error,
    },
    /// Something else answers.
    #[error("what answers there is no NBD server")]
    NotNbd,
    /// The server does not open the export.
    #[error("the NBD server does not open export {export:?}: {why}{said}")]
    Refused {
        /// Its name.
        export: String,
        /// Why.
        why: &'static str,
        /// The server's own words.
        said: String,
    },
    /// Nothing may be written.
    #[error("the NBD export is read-only")]
    ReadOnly,
    /// An answer that the protocol does not have.
    #[error("the NBD server does not follow the protocol: {0}")]
    Protocol(&'static str),
    /// A request failed.
    #[error("the NBD server could not {doing} {length} bytes at offset {offset}: {why}")]
    Failed {
        /// Read, write, zero or flush.
        doing: &'static str,
        /// Where, in bytes.
        offset: u64,
        /// How much.
        length: u64,
        /// Its error code, in words.
        why: String,
    },
    /// The connection ended.
    #[error("the NBD server closed the connection before its answer was there")]
    Closed,
    /// The connection failed.
    #[error("the connection to the NBD server broke")]
    Broken(#[source] io::Error),
    /// No answer.
    #[error("the NBD server has not answered for {seconds} seconds")]
    Silent {
        /// How long it was waited for.
        seconds: u64,
    },
}

/// A request that is not answered yet.
#[derive(Debug, Clone, Copy)]
struct Pending {
    cookie: u64,
    kind: u16,
    offset: u64,
    length: u64,
}

/// An export that is open for writing.
pub struct Nbd {
    connection: Connection,
    export: Export,
    pending: Vec<Pending>,
    next_cookie: u64,
}

impl Nbd {
    /// Connects, and opens the export.
    pub fn open(address: &NbdAddress, task: &dyn Task) -> Result<Self, TargetError> {
        let mut connection = Connection::open(&address.server)?;
        let export = handshake::go(&mut connection, &address.export, task)?;
        connection.be_patient();
        if export.flags & READ_ONLY != 0 {
            return Err(NbdError::ReadOnly.into());
        }
        Ok(Self { connection, export, pending: Vec::new(), next_cookie: 1 })
    }

    /// The largest piece of one request: whole blocks of the server's.
    fn piece(&self) -> u32 {
        self.export.most.min(PIECE)
    }

    /// Sends a request once there is room for it.
    fn request(
        &mut self,
        (kind, flags): (u16, u16),
        range: Range<u64>,
        content: &[u8],
        task: &dyn Task,
    ) -> Result<u64, TargetError> {
        while self.pending.len() >= IN_FLIGHT {
            self.answer(&mut |_| None, task)?;
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let length = range.end - range.start;
        let mut bytes = Vec::with_capacity(28 + content.len());
        bytes.extend_from_slice(&REQUEST.to_be_bytes());
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&cookie.to_be_bytes());
        bytes.extend_from_slice(&range.start.to_be_bytes());
        bytes.extend_from_slice(&(length as u32).to_be_bytes());
        bytes.extend_from_slice(content);
        self.pending.push(Pending { cookie, kind, offset: range.start, length });
        self.connection.send(&bytes, task)?;
        Ok(cookie)
    }

    /// Takes one answer; `place` is where the content of a read goes.
    fn answer<'b>(
        &mut self,
        place: &mut dyn FnMut(u64) -> Option<&'b mut [u8]>,
        task: &dyn Task,
    ) -> Result<(), TargetError> {
        if u32::from_be_bytes(self.connection.array(task)?) != SIMPLE_REPLY {
            return Err(NbdError::Protocol("an answer without its magic number").into());
        }
        let code = u32::from_be_bytes(self.connection.array(task)?);
        let cookie = u64::from_be_bytes(self.connection.array(task)?);
        let Some(index) = self.pending.iter().position(|pending| pending.cookie == cookie) else {
            return Err(NbdError::Protocol("an answer to a request that was not sent").into());
        };
        let pending = self.pending.swap_remove(index);
        if code != 0 {
            let Pending { kind, offset, length, .. } = pending;
            let doing = match kind {
                READ => "read",
                WRITE => "write",
                FLUSH => "flush",
                _ => "zero",
            };
            return Err(NbdError::Failed { doing, offset, length, why: in_words(code) }.into());
        }
        if pending.kind == READ {
            let place = place(cookie).filter(|place| place.len() as u64 == pending.length);
            let place = place.ok_or(NbdError::Protocol("an answer with nowhere to go"))?;
            self.connection.receive(place, task)?;
        }
        Ok(())
    }

    fn drain(&mut self, task: &dyn Task) -> Result<(), TargetError> {
        while !self.pending.is_empty() {
            self.answer(&mut |_| None, task)?;
        }
        Ok(())
    }
}

fn in_words(code: u32) -> String {
    let words = match code {
        1 => "not permitted",
        5 => "input/output error",
        12 => "out of memory",
        22 => "invalid request",
        28 => "no space left",
        75 => "too large",
        95 => "not supported",
        108 => "it is shutting down",
        other => return format!("error {other}"),
    };
    format!("{words} (error {code})")
}

impl Target for Nbd {
    fn capacity(&self) -> Option<u64> {
        Some(self.export.size)
    }

    fn sector_size(&self) -> Option<u32> {
        None
    }

    fn is_new(&self) -> bool {
        false
    }

    fn set_size(&mut self, _: u64) -> Result<(), TargetError> {
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], offset: u64, task: &dyn Task) -> Result<(), TargetError> {
        let mut at = offset;
        for piece in bytes.chunks(self.piece() as usize) {
            let short =
                (piece.len() as u64).next_multiple_of(u64::from(self.export.least)) - piece.len() as u64;
            let end = at + piece.len() as u64;
            if short == 0 {
                self.request((WRITE, 0), at..end, piece, task)?;
            } else if end + short > self.export.size {
                return Err(NbdError::Protocol("its size is no whole number of its blocks").into());
            } else {
                // Only the disk's very end; what follows it is nobody's.
                let padded = [piece, &vec![0; short as usize]].concat();
                self.request((WRITE, 0), at..end + short, &padded, task)?;
            }
            at = end;
        }
        Ok(())
    }

    fn clear(&mut self, range: Range<u64>, how: Clear, task: &dyn Task) -> Result<(), TargetError> {
        let least = u64::from(self.export.least);
        let whole = range.start..range.end - range.end % least;
        if self.export.flags & SEND_WRITE_ZEROES == 0 || whole.is_empty() {
            return write_zeros(range, task, |zeros, at| self.write(zeros, at, task));
        }
        let flags = if how == Clear::Zero { NO_HOLE } else { 0 };
        let mut at = whole.start;
        while at < whole.end {
            task.advance(0)?;
            let end = (at + CLEAR_AT_ONCE).min(whole.end);
            self.request((WRITE_ZEROES, flags), at..end, &[], task)?;
            at = end;
        }
        match (range.end - whole.end) as usize {
            0 => Ok(()),
            left => self.write(&vec![0; left], whole.end, task),
        }
    }

    fn sync(&mut self, task: &dyn Task) -> Result<(), TargetError> {
        self.drain(task)?;
        if self.export.flags & SEND_FLUSH != 0 {
            self.request((FLUSH, 0), 0..0, &[], task)?;
            self.drain(task)?;
        }
        Ok(())
    }

    fn read(&mut self, buf: &mut [u8], offset: u64, task: &dyn Task) -> Result<(), TargetError> {
        self.drain(task)?;
        let least = u64::from(self.export.least);
        let end = offset + buf.len() as u64;
        let (start, whole_end) = (offset - offset % least, end.next_multiple_of(least));
        if (start, whole_end) != (offset, end) {
            // The disk's end, or a short device's last MiB.
            let mut wide = vec![0; (whole_end - start) as usize];
            self.read(&mut wide, start, task)?;
            let within = (offset - start) as usize;
            buf.copy_from_slice(&wide[within..within + buf.len()]);
            return Ok(());
        }
        let piece = self.piece();
        let batch = IN_FLIGHT * piece as usize;
        for (batch, at) in buf.chunks_mut(batch).zip((offset..).step_by(batch)) {
            let mut places = Vec::new();
            for (place, at) in batch.chunks_mut(piece as usize).zip((at..).step_by(piece as usize)) {
                let cookie = self.request((READ, 0), at..at + place.len() as u64, &[], task)?;
                places.push((cookie, place));
            }
            while !self.pending.is_empty() {
                let mut take = |cookie| {
                    let index = places.iter().position(|(of, _)| *of == cookie)?;
                    Some(places.swap_remove(index).1)
                };
                self.answer(&mut take, task)?;
            }
        }
        Ok(())
    }

    fn next_data(&mut self, from: u64) -> Option<Range<u64>> {
        (from < self.export.size).then_some(from..self.export.size)
    }
}

impl Drop for Nbd {
    /// Says goodbye; a server that is gone needs none.
    fn drop(&mut self) {
        let _ = self.request_goodbye();
    }
}

impl Nbd {
    fn request_goodbye(&mut self) -> Result<(), TargetError> {
        // Answers that are left are not waited for.
        self.pending.clear();
        self.request((DISCONNECT, 0), 0..0, &[], &crate::io::Silent).map(drop)
    }
}
