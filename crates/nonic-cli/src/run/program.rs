//! A check whether a program goes through the C library: one that does not is reached by no library in front of it.
//!
//! It reads the program's file: the kernel starts a program without an interpreter by itself, and the loader is the
//! interpreter of all others. Go's programs make their system calls themselves, also when they have one.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// A program's headers that are looked at; none has as many.
const MAX_HEADERS: u64 = 256;
/// Scripts that name scripts; the kernel follows no more.
const MAX_SCRIPTS: usize = 5;

/// Whether the program does without the C library, for all that can be seen. What cannot be read is taken for one that
/// does not.
pub(crate) fn bypasses_libc(program: &OsStr) -> bool {
    let mut path = find(program);
    for _ in 0..MAX_SCRIPTS {
        let Some(file) = path.as_deref().and_then(|path| File::open(path).ok()) else {
            return false;
        };
        let Some(interpreter) = script_interpreter(&file) else {
            return is_static_or_go(&file).unwrap_or(false);
        };
        path = Some(interpreter);
    }
    false
}

/// Where the program is, as `exec` would find it.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let folders = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&folders).map(|folder| folder.join(program));
    candidates.find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The program that a script says it is for.
fn script_interpreter(file: &File) -> Option<PathBuf> {
    let mut line = Vec::new();
    file.take(256).read_to_end(&mut line).ok()?;
    let line = line.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let interpreter = PathBuf::from(OsStr::from_bytes(words.next()?));
    // `#!/usr/bin/env python3`: what matters is the second.
    match interpreter.file_name() {
        Some(name) if name == "env" => find(OsStr::from_bytes(words.next()?)),
        _ => Some(interpreter),
    }
}

/// What the headers of a 64-bit program say. Nothing, if it is none.
fn is_static_or_go(file: &File) -> Option<bool> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let number = |from: usize, to: usize| {
        let bytes = header.get(from..to).unwrap_or_default();
        bytes
            .iter()
            .rev()
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let (table, size, count) = (number(32, 40), number(54, 56), number(56, 58));
    let mut has_interpreter = false;
    for index in 0..count.min(MAX_HEADERS) {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table.checked_add(index * size)?)
            .ok()?;
        let kind = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let mut offset = [0; 8];
        offset.copy_from_slice(&entry[8..16]);
        has_interpreter |= kind == PT_INTERP;
        if kind == PT_NOTE && is_note_of_go(file, u64::from_le_bytes(offset)) {
            return Some(true);
        }
    }
    Some(!has_interpreter)
}

/// Go's linker leaves its name and a build id, as the first of the notes.
fn is_note_of_go(file: &File, offset: u64) -> bool {
    let mut note = [0; 16];
    file.read_exact_at(&mut note, offset).is_ok()
        && note[..4] == 4_u32.to_le_bytes()
        && note[12..] == *b"Go\0\0"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A program with these headers: kinds, and what is at their offsets.
    fn program(headers: &[(u32, &[u8])]) -> tempfile::NamedTempFile {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = u8::try_from(headers.len()).expect("a few");
        let mut contents = Vec::new();
        for (kind, content) in headers {
            let offset = 64 + 56 * headers.len() + contents.len();
            let mut entry = vec![0; 56];
            entry[..4].copy_from_slice(&kind.to_le_bytes());
            entry[8..16].copy_from_slice(&(offset as u64).to_le_bytes());
            bytes.extend(entry);
            contents.extend_from_slice(content);
        }
        bytes.extend(contents);
        file(&bytes)
    }

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(bytes).expect("it can be written");
        file
    }

    fn bypasses(file: &tempfile::NamedTempFile) -> bool {
        bypasses_libc(file.path().as_os_str())
    }

    #[test]
    fn a_program_without_an_interpreter_is_static() {
        assert!(bypasses(&program(&[(1, b"")])));
        assert!(!bypasses(&program(&[(1, b""), (PT_INTERP, b"/lib64/ld.so\0")])));
        assert!(!bypasses_libc(OsStr::new("sh")));
    }

    #[test]
    fn go_is_known_by_its_note() {
        let note = b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd";
        assert!(bypasses(&program(&[
            (PT_INTERP, b"/lib64/ld.so\0"),
            (PT_NOTE, note)
        ])));
        let other = b"\x04\0\0\0\x04\0\0\0\x04\0\0\0GNU\0abcd";
        assert!(!bypasses(&program(&[
            (PT_INTERP, b"/lib64/ld.so\0"),
            (PT_NOTE, other)
        ])));
    }

    #[test]
    fn of_a_script_the_interpreter_counts() {
        let program = program(&[(1, b"")]);
        let line = format!("#! {} -x\n", program.path().display());
        assert!(bypasses(&file(line.as_bytes())));
        assert!(!bypasses(&file(b"#!/usr/bin/env sh\n")));
        assert!(!bypasses(&file(b"")) && !bypasses(&file(b"\x7fELF\x02\x01")));
        assert!(!bypasses_libc(OsStr::new("/no/such/program")));
    }
}
