//! A file to copy, and its copy; both are gone when the value is.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use testbed::temporary::Scratch;

/// A folder that every user may write to.
pub(super) struct Files {
    folder: Scratch,
}

/// How much is written and compared at a time.
const PIECE: usize = 1 << 20;

impl Files {
    /// A file of that length in which no two pieces are the same.
    pub(super) fn new(length: u64) -> Result<Self> {
        let folder = Scratch::new()?;
        let files = Self { folder };
        let mut out = BufWriter::with_capacity(PIECE, File::create(files.source())?);
        let mut state = 1_u64;
        for _ in 0..length.div_ceil(8) {
            // A generator of the simplest kind will do.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            out.write_all(&state.to_le_bytes())?;
        }
        out.flush()?;
        Ok(files)
    }

    /// A command line with their names.
    pub(super) fn fill_in(&self, line: &str) -> String {
        line.replace("{source}", &self.source().display().to_string())
            .replace("{copy}", &self.copy().display().to_string())
    }

    /// Both are the same.
    pub(super) fn compare(&self) -> Result<()> {
        let open = |path: &Path| -> Result<_> {
            let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            Ok((file.metadata()?.len(), BufReader::with_capacity(PIECE, file)))
        };
        let ((length, mut source), (copied, mut copy)) = (open(&self.source())?, open(&self.copy())?);
        ensure!(length == copied, "the copy has {copied} of {length} bytes");
        let (mut wanted, mut found) = (vec![0; PIECE], vec![0; PIECE]);
        let mut place = 0;
        while place < length {
            let piece = usize::try_from((length - place).min(PIECE as u64))?;
            source.read_exact(&mut wanted[..piece])?;
            copy.read_exact(&mut found[..piece])?;
            ensure!(wanted == found, "the copy differs after byte {place}");
            place += piece as u64;
        }
        Ok(())
    }

    fn source(&self) -> PathBuf {
        self.folder.path("source")
    }

    fn copy(&self) -> PathBuf {
        self.folder.path("copy")
    }
}
