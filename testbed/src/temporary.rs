//! Names for temporary files. It makes no files: the caller does, and removes them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A path for temporary files that no other process has, and no other thread of this one.
pub fn unique_path(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("nonic-{name}-{}-{count}", std::process::id()))
}
