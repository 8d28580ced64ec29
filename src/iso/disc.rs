//! A disc and the one tree of it that is read.

use super::iso9660::{self, Iso9660};
use super::udf::{self, Udf};
use super::{DiscError, File, Volume, VolumeKind, volume};
use crate::io::ReadAt;

/// The most parts of a path that is looked for.
const MAX_DEPTH: usize = 64;

/// A disc image.
pub struct Disc<'a> {
    source: &'a dyn ReadAt,
    volume: Volume,
    system: System,
}

enum System {
    Udf(Udf),
    Iso9660(Iso9660),
}

/// Which of a disc's trees is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// UDF.
    Udf,
    /// ISO 9660 with Rock Ridge's names.
    RockRidge,
    /// Joliet's, of 16-bit characters.
    Joliet,
    /// ISO 9660:1999's, of long names.
    Enhanced,
    /// ISO 9660's own, of short names in capitals.
    Plain,
}

/// What an entry of a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file.
    File,
    /// A symbolic link: listed, and not followed.
    Symlink,
    /// A device or the like.
    Other,
}

/// An entry of a directory.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name: not empty, and otherwise as the medium has it.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub node: Node,
}

/// A file or directory, for the disc it came from.
#[derive(Debug, Clone)]
pub struct Node(Place);

#[derive(Debug, Clone)]
enum Place {
    Udf(udf::Icb),
    Iso9660(iso9660::Content),
}

impl<'a> Disc<'a> {
    /// Reads the descriptors of the image in `source`, and of its tree no more than the root.
    pub fn open(source: &'a dyn ReadAt) -> Result<Self, DiscError> {
        let volume = volume(source).map_err(|source| DiscError::Read { offset: 0, source })?;
        let volume = volume.ok_or(DiscError::NotADisc)?;
        let system = match volume.kind {
            VolumeKind::Udf | VolumeKind::UdfBridge => System::Udf(Udf::open(source)?),
            VolumeKind::Iso9660 => System::Iso9660(Iso9660::open(source)?),
        };
        Ok(Self { source, volume, system })
    }

    /// What the image says of itself.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Which tree is read.
    pub fn tree(&self) -> Tree {
        match &self.system {
            System::Udf(_) => Tree::Udf,
            System::Iso9660(iso) => iso.tree(),
        }
    }

    /// The root directory.
    pub fn root(&self) -> Node {
        Node(match &self.system {
            System::Udf(udf) => Place::Udf(udf.root()),
            System::Iso9660(iso) => Place::Iso9660(iso.root()),
        })
    }

    /// The entries of a directory, as the disc orders them; nothing for another disc's node.
    pub fn list(&self, directory: &Node) -> Result<Vec<Entry>, DiscError> {
        match (&self.system, &directory.0) {
            (System::Udf(udf), Place::Udf(icb)) => {
                let entries = udf.list(self.source, icb)?.into_iter();
                Ok(entries
                    .map(|(name, kind, icb)| Entry { name, kind, node: Node(Place::Udf(icb)) })
                    .collect())
            }
            (System::Iso9660(iso), Place::Iso9660(content)) => {
                let entries = iso.list(self.source, content)?.into_iter();
                Ok(entries
                    .map(|(name, kind, content)| Entry { name, kind, node: Node(Place::Iso9660(content)) })
                    .collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// A file's bytes; for a directory, those of its entries.
    pub fn file(&self, node: &Node) -> Result<File<'a>, DiscError> {
        match (&self.system, &node.0) {
            (System::Udf(udf), Place::Udf(icb)) => udf.file(self.source, icb),
            (_, Place::Iso9660(content)) => content.file(self.source),
            (System::Iso9660(_), Place::Udf(_)) => Err(DiscError::NotADisc),
        }
    }

    /// The entry of that path from the root, `/` between names. Names are compared as Windows does, without case;
    /// where several differ in case alone, the one that is spelt the same goes first.
    pub fn find(&self, path: &str) -> Result<Option<Entry>, DiscError> {
        let mut parts = path.split('/').filter(|part| !part.is_empty()).take(MAX_DEPTH).peekable();
        let mut directory = self.root();
        let mut way = vec![self.position(&directory)];
        while let Some(part) = parts.next() {
            let Some(entry) = pick(self.list(&directory)?, part) else { return Ok(None) };
            if parts.peek().is_none() {
                return Ok(Some(entry));
            }
            if entry.kind != Kind::Directory {
                return Ok(None);
            }
            directory = entry.node;
            let position = self.position(&directory);
            if way.contains(&position) {
                let why = "the directory leads back to itself";
                return Err(DiscError::Damaged { what: "directory", offset: position, why });
            }
            way.push(position);
        }
        Ok(None)
    }

    /// What tells a directory from others: where it, or what describes it, is.
    fn position(&self, node: &Node) -> u64 {
        match (&self.system, &node.0) {
            (System::Udf(udf), Place::Udf(icb)) => udf.offset(icb),
            (_, Place::Iso9660(content)) => content.offset(),
            (System::Iso9660(_), Place::Udf(_)) => 0,
        }
    }

    /// The file of that path, if there is one; see [`Disc::find`].
    pub fn find_file(&self, path: &str) -> Result<Option<File<'a>>, DiscError> {
        match self.find(path)? {
            Some(Entry { kind: Kind::File, node, .. }) => self.file(&node).map(Some),
            _ => Ok(None),
        }
    }

    /// The entries of the directory of that path; none where there is no such directory.
    pub fn find_directory(&self, path: &str) -> Result<Vec<Entry>, DiscError> {
        match self.find(path)? {
            Some(Entry { kind: Kind::Directory, node, .. }) => self.list(&node),
            _ => Ok(Vec::new()),
        }
    }
}

impl std::fmt::Debug for Disc<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Disc {{ {:?}, {:?} }}", self.volume, self.tree())
    }
}

fn pick(entries: Vec<Entry>, name: &str) -> Option<Entry> {
    let lower = name.to_lowercase();
    let mut found = None;
    for entry in entries {
        if entry.name == name {
            return Some(entry);
        }
        if found.is_none() && entry.name.to_lowercase() == lower {
            found = Some(entry);
        }
    }
    found
}
