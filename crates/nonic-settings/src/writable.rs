//! A check whether the file that a setting names can be written, before anything depends on it.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Whether the file can be written, without a change to it. Of a file that is not there yet, whether its folder takes one.
///
/// Pipes and devices are believed: to open one may wait for a reader.
pub fn check_writable(file: &Path) -> io::Result<()> {
    match file.metadata() {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => OpenOptions::new().append(true).open(file).map(drop),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_folder(file),
        Err(error) => Err(error),
    }
}

/// Makes a file of another name for a moment: another process may be about to make the one that is meant.
fn check_folder(file: &Path) -> io::Result<()> {
    let mut name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let trial = file.with_file_name(name);
    File::create_new(&trial)?;
    std::fs::remove_file(trial)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_found_and_nothing_is_left_behind() {
        let folder = std::env::temp_dir().join(format!("nonic-writable-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let file = folder.join("file");
        assert!(check_writable(&file).is_ok());
        assert!(!file.exists(), "only looked");
        std::fs::write(&file, "kept").expect("it can be written");
        assert!(check_writable(&file).is_ok());
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "kept");
        let kind = |path: &Path| check_writable(path).expect_err("refused").kind();
        assert_eq!(kind(&folder), io::ErrorKind::IsADirectory);
        assert_eq!(kind(&folder.join("missing/file")), io::ErrorKind::NotFound);
        assert_eq!(kind(&file.join("below a file")), io::ErrorKind::NotADirectory);
        assert!(check_writable(Path::new("/dev/null")).is_ok());
        let left = std::fs::read_dir(&folder).expect("a folder").count();
        assert_eq!(left, 1, "nothing is left behind");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
