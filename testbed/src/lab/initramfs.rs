//! The guest's first file system: busybox, the modules, and two scripts. Written in the `newc` form of cpio.

use anyhow::Result;
use std::path::Path;

/// Writes it.
pub(super) fn write(to: &Path, modules: &Path) -> Result<()> {
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "host", "modules", "proc", "sys"] {
        archive.folder(folder);
    }
    // The kernel opens it for the first process, before anything could be mounted.
    archive.character_device("dev/console", 5, 1);
    archive.program("init", include_bytes!("init.sh"));
    archive.program("agent", include_bytes!("agent.sh"));
    archive.program("bin/busybox", &std::fs::read("/bin/busybox")?);
    let mut files: Vec<_> = std::fs::read_dir(modules)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        archive.program(&format!("modules/{name}"), &std::fs::read(&file)?);
    }
    let unfinished = to.with_extension(format!("unfinished-{}", std::process::id()));
    std::fs::write(&unfinished, archive.finish())?;
    std::fs::rename(&unfinished, to)?;
    Ok(())
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn folder(&mut self, name: &str) {
        self.entry(name, 0o040_755, (0, 0), &[]);
    }

    fn program(&mut self, name: &str, content: &[u8]) {
        self.entry(name, 0o100_755, (0, 0), content);
    }

    fn character_device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, 0o020_600, (major, minor), &[]);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    /// A header of thirteen numbers in eight hexadecimal digits, the name, the content; each part padded to four.
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("files of the initramfs are small");
        let name_size = u32::try_from(name.len() + 1).expect("names are short");
        let numbers = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            device.0,
            device.1,
            name_size,
            0,
        ];
        self.bytes.extend(b"070701");
        for number in numbers {
            self.bytes.extend(format!("{number:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_starts_at_a_multiple_of_four() {
        let mut archive = Archive::default();
        archive.program("init", b"12345");
        let bytes = archive.finish();
        assert_eq!(&bytes[..14], b"07070100000001");
        // 110 of the header and 5 of the name make 115.
        assert_eq!(&bytes[116..124], b"12345\0\0\0");
        assert_eq!(&bytes[124..130], b"070701");
    }
}
