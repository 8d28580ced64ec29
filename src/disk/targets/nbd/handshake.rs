//! The fixed newstyle handshake: magics, then `NBD_OPT_GO` (NBD's doc/proto.md).

use super::NbdError;
use super::connection::Connection;
use crate::disk::targets::TargetError;
use crate::io::Task;

const MAGIC: &[u8; 8] = b"NBDMAGIC";
const OPTION: &[u8; 8] = b"IHAVEOPT";
const REPLY: u64 = 0x0003_e889_0455_65a9;
const FIXED_NEWSTYLE: u16 = 1 << 0;
const NO_ZEROES: u16 = 1 << 1;
const GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_ERROR: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
/// Of a reply's text or information, in bytes; the protocol's strings are no longer.
const MAX_REPLY: u32 = 8 << 10;
/// More replies to one option than any server has to say.
const MAX_REPLIES: u32 = 100;
/// What a server takes that says nothing of it (proto.md, "Block size constraints").
const USUAL_MOST: u32 = 32 << 20;

/// What a server says of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Export {
    /// In bytes.
    pub size: u64,
    /// Transmission flags.
    pub flags: u16,
    /// Requests are whole multiples of this, in bytes.
    pub least: u32,
    /// And no longer than this.
    pub most: u32,
}

/// Opens `export`.
pub(super) fn go(connection: &mut Connection, export: &str, task: &dyn Task) -> Result<Export, TargetError> {
    if connection.array::<8>(task)? != *MAGIC {
        return Err(NbdError::NotNbd.into());
    }
    if connection.array::<8>(task)? != *OPTION {
        return Err(NbdError::Protocol("it speaks only the oldstyle negotiation").into());
    }
    let flags = u16::from_be_bytes(connection.array(task)?);
    if flags & FIXED_NEWSTYLE == 0 {
        return Err(NbdError::Protocol("it does not speak the fixed newstyle negotiation").into());
    }
    let mut request = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes().to_vec();
    request.extend_from_slice(OPTION);
    request.extend_from_slice(&GO.to_be_bytes());
    // The name's length, the name, and one information request.
    request.extend_from_slice(&(export.len() as u32 + 8).to_be_bytes());
    request.extend_from_slice(&(export.len() as u32).to_be_bytes());
    request.extend_from_slice(export.as_bytes());
    request.extend_from_slice(&1u16.to_be_bytes());
    request.extend_from_slice(&INFO_BLOCK_SIZE.to_be_bytes());
    connection.send(&request, task)?;
    let (mut found, mut sizes) = (None, (1, USUAL_MOST));
    for _ in 0..MAX_REPLIES {
        let (kind, content) = reply(connection, task)?;
        if kind & REPLY_ERROR != 0 {
            return Err(refusal(kind, &content, export).into());
        }
        match (kind, content.split_first_chunk()) {
            (REPLY_ACK, _) => {
                let (size, flags) =
                    found.ok_or(NbdError::Protocol("it opens the export and says no size"))?;
                return checked(Export { size, flags, least: sizes.0, most: sizes.1 });
            }
            (REPLY_INFO, Some((kind, info))) => match (u16::from_be_bytes(*kind), info) {
                (INFO_EXPORT, [size @ .., f1, f2]) => {
                    let size =
                        size.try_into().map_err(|_| NbdError::Protocol("the export's size is no number"))?;
                    found = Some((u64::from_be_bytes(size), u16::from_be_bytes([*f1, *f2])));
                }
                (INFO_BLOCK_SIZE, &[a, b, c, d, _, _, _, _, e, f, g, h]) => {
                    sizes = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
                }
                (INFO_EXPORT | INFO_BLOCK_SIZE, _) => {
                    return Err(NbdError::Protocol("what it says of the export has the wrong length").into());
                }
                _ => {}
            },
            _ => return Err(NbdError::Protocol("a reply of an unknown kind").into()),
        }
    }
    Err(NbdError::Protocol("its replies to one option do not end").into())
}

/// One reply to our one option.
fn reply(connection: &mut Connection, task: &dyn Task) -> Result<(u32, Vec<u8>), TargetError> {
    if u64::from_be_bytes(connection.array(task)?) != REPLY {
        return Err(NbdError::Protocol("a reply without its magic number").into());
    }
    if u32::from_be_bytes(connection.array(task)?) != GO {
        return Err(NbdError::Protocol("a reply to an option that was not sent").into());
    }
    let kind = u32::from_be_bytes(connection.array(task)?);
    let length = u32::from_be_bytes(connection.array(task)?);
    if length > MAX_REPLY {
        return Err(NbdError::Protocol("a reply longer than any may be").into());
    }
    let mut content = vec![0; length as usize];
    connection.receive(&mut content, task)?;
    Ok((kind, content))
}

fn checked(mut export: Export) -> Result<Export, TargetError> {
    if !export.least.is_power_of_two() || export.least > 64 << 10 || export.most < export.least {
        return Err(NbdError::Protocol("block sizes that can't be so").into());
    }
    export.most -= export.most % export.least;
    Ok(export)
}

fn refusal(kind: u32, content: &[u8], export: &str) -> NbdError {
    let why = match kind & !REPLY_ERROR {
        1 => "it does not know NBD_OPT_GO; it is too old",
        2 => "it is forbidden",
        4 => "not on this server's system",
        5 => "it wants TLS, which is not spoken here; use a tunnel, or a socket",
        6 => "there is no export of that name",
        7 => "it is shutting down",
        8 => "it does not take the block size",
        _ => "it does not say why in a way that is known",
    };
    let text = String::from_utf8_lossy(content);
    let said: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
    NbdError::Refused {
        export: export.into(),
        why,
        said: if said.is_empty() { said } else { format!(" ({said})") },
    }
}
