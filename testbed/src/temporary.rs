//! Temporary files: names that no one else has, and folders that are gone when their value is.
//!
//! Programs under test run as another user, so every user may read and write there. Nothing secret belongs into it.

use anyhow::{Context, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A path for temporary files that no other process has, and no other thread of this one.
pub fn unique_path(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("nonic-{name}-{}-{count}", std::process::id()))
}

/// A folder for one run: scripts of ours that its processes read, and whatever they write. Every user may.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// A new one, which is empty.
    pub fn new() -> Result<Self> {
        let folder = unique_path("scratch");
        // A process that had our number may have been killed before it could remove its own.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let scratch = Self { folder };
        std::fs::set_permissions(&scratch.folder, PermissionsExt::from_mode(0o777))?;
        Ok(scratch)
    }

    /// Its path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes a file that every user may read; its path.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::write(&path, contents).with_context(|| format!("cannot write {}", path.display()))?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_is_gone_with_its_value() {
        let scratch = Scratch::new().expect("a folder");
        let file = scratch.write("script", "exit 0").expect("written");
        assert_eq!(file.parent(), Some(scratch.folder()));
        assert_ne!(scratch.folder(), Scratch::new().expect("another").folder());
        drop(scratch);
        assert!(!file.exists());
    }
}
