//! Symbol versions that a file needs and offers, as `objdump` shows them.

use super::output;
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The newest version of glibc that any of the files asks for.
pub(super) fn newest_glibc(files: &[PathBuf]) -> Result<(u32, u32)> {
    let mut newest = (0, 0);
    for file in files {
        newest = newest.max(needed_glibc(&dynamic_symbols(file)?));
    }
    Ok(newest)
}

/// The symbols that others can bind to, with their versions.
pub(super) fn exported(file: &Path) -> Result<BTreeSet<String>> {
    Ok(exported_in(&dynamic_symbols(file)?))
}

fn dynamic_symbols(file: &Path) -> Result<String> {
    output(Command::new("objdump").arg("-T").arg(file).env("LC_ALL", "C"))
}

/// The newest `GLIBC_2.x` among the undefined symbols. `GLIBC_2.2.5` counts as 2.2.
fn needed_glibc(table: &str) -> (u32, u32) {
    let undefined = table.lines().filter(|line| line.contains("*UND*"));
    let versions = undefined
        .flat_map(|line| line.split_whitespace())
        .filter_map(|word| {
            let version = word.trim_matches(['(', ')']).strip_prefix("GLIBC_")?;
            let mut numbers = version.split('.').map(str::parse);
            match (numbers.next(), numbers.next()) {
                (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
                // `GLIBC_PRIVATE` and whatever else is not a version belongs to one release only.
                _ => Some((u32::MAX, 0)),
            }
        });
    versions.max().unwrap_or_default()
}

/// Lines of a defined symbol end in its version and its name.
fn exported_in(table: &str) -> BTreeSet<String> {
    let defined = table
        .lines()
        .filter(|line| line.starts_with("0000") && !line.contains("*UND*"));
    defined
        .filter_map(|line| {
            let mut words = line.split_whitespace().rev();
            let (name, version) = (words.next()?, words.next()?);
            Some(format!("{name}@{version}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
librdmacm.so.1:     file format elf64-x86-64

DYNAMIC SYMBOL TABLE:
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.2.5) free
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.16) getauxval
0000000000000000  w   DF *UND*\t0000000000000000  Base        __gmon_start__
0000000000000000      DF *UND*\t0000000000000000 (IBVERBS_1.1) ibv_create_cq
0000000000000000 g    DO *ABS*\t0000000000000000  RDMACM_1.0  RDMACM_1.0
0000000000036010 g    DF .text\t0000000000000143  RDMACM_1.0  rdma_listen
0000000000036010 g    DF .text\t0000000000000143 (RDMACM_1.1) rdma_old
";

    #[test]
    fn the_newest_version_is_found_by_number() {
        assert_eq!(needed_glibc(TABLE), (2, 16));
        assert_eq!(needed_glibc(""), (0, 0));
    }

    #[test]
    fn a_version_of_one_release_only_is_too_new() {
        let line = "0000000000000000      DF *UND*\t0000000000000000 (GLIBC_PRIVATE) __libc_x";
        assert!(needed_glibc(line) > (2, 99));
    }

    #[test]
    fn what_is_exported_has_its_version() {
        let found = exported_in(TABLE);
        assert!(found.contains("rdma_listen@RDMACM_1.0"), "{found:?}");
        assert!(found.contains("rdma_old@(RDMACM_1.1)"), "{found:?}");
        assert!(
            !found.iter().any(|symbol| symbol.starts_with("free")),
            "{found:?}"
        );
    }
}
