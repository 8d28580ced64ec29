//! Where an answer file's path leads: Windows expands, normalises and follows more than `C:\file.xml`.

/// What a path in the registry or in a junction names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A path on the Windows volume, which gives itself the letter C.
    WindowsVolume(String),
    /// A path on another drive.
    OtherDrive {
        /// Its letter, in upper case.
        letter: char,
        /// The path there.
        path: String,
    },
    /// Something that can't be told offline: a share, an unknown variable.
    Unknown,
}

/// Variables that mean the same on every Windows.
const VARIABLES: [(&str, &str); 9] = [
    ("%systemdrive%", "C:"),
    ("%systemroot%", "C:\\Windows"),
    ("%windir%", "C:\\Windows"),
    ("%programdata%", "C:\\ProgramData"),
    ("%allusersprofile%", "C:\\ProgramData"),
    ("%programfiles%", "C:\\Program Files"),
    ("%programw6432%", "C:\\Program Files"),
    ("%programfiles(x86)%", "C:\\Program Files (x86)"),
    ("%public%", "C:\\Users\\Public"),
];

/// Where a path leads, as far as its text tells.
pub fn place(path: &str) -> Place {
    let path = path.trim().trim_matches('"').trim().replace('/', "\\");
    let mut path = path.as_str();
    for prefix in ["\\\\?\\", "\\??\\", "\\\\.\\", "file:\\\\\\", "\\GLOBAL??\\"] {
        if let Some(start) = path.get(..prefix.len())
            && start.eq_ignore_ascii_case(prefix)
        {
            path = &path[prefix.len()..];
            break;
        }
    }
    let mut expanded = path.to_owned();
    for (variable, value) in VARIABLES {
        // Lower case of ASCII alone keeps every byte in its place.
        if let Some(at) = expanded.to_ascii_lowercase().find(variable) {
            expanded.replace_range(at..at + variable.len(), value);
        }
    }
    if expanded.contains('%') || expanded.starts_with("\\\\") {
        return Place::Unknown;
    }
    let (letter, rest) = match expanded.split_once(':') {
        _ if expanded.starts_with('\\') => ('C', expanded.as_str()),
        Some((drive, rest)) => match drive.as_bytes() {
            [letter] if letter.is_ascii_alphabetic() => (char::from(letter.to_ascii_uppercase()), rest),
            _ => return Place::Unknown,
        },
        None => return Place::Unknown,
    };
    let path = normal(rest);
    match letter {
        'C' => Place::WindowsVolume(path),
        letter => Place::OtherDrive { letter, path },
    }
}

/// Without `.`, `..`, what Windows drops at the end of names, and the name of the unnamed stream.
fn normal(path: &str) -> String {
    let lower = path.to_ascii_lowercase();
    let end = lower.strip_suffix("::$data").map_or(path.len(), str::len);
    let mut parts: Vec<&str> = Vec::new();
    for part in path[..end].split('\\') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => match name.trim_end_matches(['.', ' ']) {
                "" => {}
                name => parts.push(name),
            },
        }
    }
    parts.join("\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_path_leads_to_it() {
        for path in [
            "C:\\ProgramData\\ans\\x.xml",
            "c:/ProgramData/./ans//x.xml",
            " \"C:\\Windows\\..\\ProgramData\\ans\\x.xml\" ",
            "%SystemDrive%\\ProgramData\\ans\\x.xml",
            "%ProgramData%\\ans\\x.xml. ",
            "\\ProgramData\\ans\\x.xml::$DATA",
            "\\\\?\\C:\\ProgramData\\ans.\\x.xml",
            "\\??\\C:\\ProgramData\\ans\\x.xml",
            "file:///C:/ProgramData/ans/x.xml",
        ] {
            assert_eq!(place(path), Place::WindowsVolume("ProgramData\\ans\\x.xml".into()), "{path}");
        }
        assert_eq!(
            place("d:\\autounattend.xml"),
            Place::OtherDrive { letter: 'D', path: "autounattend.xml".into() }
        );
        for path in ["", "x.xml", "\\\\localhost\\c$\\x.xml", "%COMPUTERNAME%\\x", "\u{130}:\\x", "::"] {
            assert_eq!(place(path), Place::Unknown, "{path}");
        }
        assert_eq!(place("C:\\..\\..\\\u{130}"), Place::WindowsVolume("\u{130}".into()));
    }
}
