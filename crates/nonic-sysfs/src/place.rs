//! The place of the folder: one to a user, a network namespace and what is in it.
//!
//! Folders are named after their content and never changed: a running program keeps what it was started with, and any
//! number of programs can be started at once. Each folder is written beside its place and renamed there when it is
//! complete. What lies at our place and belongs to another user is not used: where all places are taken, one with a
//! name that no other user can know beforehand is made, and its owner finds it again.
//!
//! Other users may read it: a service started by root that becomes another user must still see it, and it says nothing
//! that is not in `/sys/class/net` as well. Only the user who made it can write there.

use crate::tree::{Node, Tree};
use nonic_engine::{Config, Device};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fmt;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// How many folders of one network namespace are kept; those used longest ago go first.
const KEPT: usize = 32;
/// Others than the owner may look.
const MODE: u32 = 0o755;
/// Where processes leave their counters, beside the folders of files.
const COUNTERS: &str = "counters";

/// Why there is no folder.
#[derive(Debug)]
pub struct PlaceError {
    what: String,
    error: io::Error,
}

impl fmt::Display for PlaceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl std::error::Error for PlaceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Makes the folder for the devices that programs are shown now, or finds it; its real path.
pub fn place(config: &Config) -> Result<PathBuf, PlaceError> {
    let tree = tree(config)?;
    let mut refused = None;
    let parents = temporary();
    let fresh = parents.iter().filter_map(|parent| unforeseen(parent).ok());
    for base in bases(&parents).into_iter().chain(fresh) {
        match place_below(&base, &tree) {
            Ok(path) => return Ok(path),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        failed(
            "there is no folder for temporary files",
            io::ErrorKind::NotFound.into(),
        )
    }))
}

/// The same below a folder of the caller's.
pub fn place_in(base: &Path) -> Result<PathBuf, PlaceError> {
    place_below(base, &tree(&Config::default())?)
}

/// What there is to say of this host now.
fn tree(config: &Config) -> Result<Tree, PlaceError> {
    let devices =
        Device::list_with(config).map_err(|error| failed("cannot list the network interfaces", error))?;
    let processors = std::fs::read_to_string("/sys/devices/system/cpu/present")
        .ok()
        .and_then(|text| last_number(&text))
        .map_or_else(
            || std::thread::available_parallelism().map_or(1, usize::from),
            |last| last + 1,
        );
    Ok(Tree::of(&devices, processors))
}

fn failed(what: impl Into<String>, error: io::Error) -> PlaceError {
    PlaceError {
        what: what.into(),
        error,
    }
}

/// Where a user may put files that need not stay, best first.
fn bases(temporary: &[PathBuf]) -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.filter(|path| path.is_absolute());
    own.map(|path| path.join("nonic"))
        .into_iter()
        .chain(temporary.iter().map(|path| path.join(name())))
        .collect()
}

/// Where every user may put such files.
fn temporary() -> [PathBuf; 3] {
    [std::env::temp_dir(), "/tmp".into(), "/dev/shm".into()]
}

/// The name of a user's folder among those of others.
fn name() -> String {
    format!("nonic-{}", rustix::process::geteuid().as_raw())
}

/// A folder of ours whose name no other user could take before us: the one that was made so earlier, or a new one.
fn unforeseen(parent: &Path) -> io::Result<PathBuf> {
    let prefix = format!("{}-", name());
    let ours = std::fs::read_dir(parent)?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .find(|path| own_folder(path).is_ok());
    if let Some(found) = ours {
        return Ok(found);
    }
    // Keyed by the kernel's random numbers.
    let random = RandomState::new().hash_one(SystemTime::now());
    let path = parent.join(format!("{prefix}{random:016x}"));
    std::fs::DirBuilder::new().mode(MODE).create(&path)?;
    Ok(path)
}

fn place_below(base: &Path, tree: &Tree) -> Result<PathBuf, PlaceError> {
    let cannot = |error| failed(format!("cannot use {}", base.display()), error);
    own_folder(base).map_err(cannot)?;
    let base = base.canonicalize().map_err(cannot)?;
    let namespace = base.join(namespace());
    own_folder(&namespace).map_err(cannot)?;
    own_folder(&namespace.join(COUNTERS)).map_err(cannot)?;
    let place = namespace.join(format!("files-{:016x}", hash(tree)));
    if !is_complete(&place, tree) {
        write_at(&namespace, &place, tree).map_err(cannot)?;
    }
    // The folder's time is when it was used last.
    touch(&place);
    forget_old(&namespace, &place);
    Ok(place)
}

/// A name for this network namespace, which no other has while it lives.
fn namespace() -> String {
    let found = std::fs::metadata("/proc/self/ns/net");
    found.map_or_else(
        |_| "net".to_owned(),
        |namespace| format!("net-{:x}-{}", namespace.dev(), namespace.ino()),
    )
}

fn hash(tree: &Tree) -> u64 {
    let mut hasher = DefaultHasher::new();
    tree.hash(&mut hasher);
    hasher.finish()
}

/// Makes a folder, or finds that it is there and ours alone.
fn own_folder(path: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    let found = path.symlink_metadata()?;
    let ours = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && ours && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let complaint = format!("{} is there already, and others can write to it", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, complaint))
}

/// Whether everything is at its place: a cleaner of temporary files may have taken some of it.
fn is_complete(place: &Path, tree: &Tree) -> bool {
    tree.nodes().all(|(path, node)| {
        let path = place.join(path);
        match node {
            Node::File(text) => std::fs::read(&path).is_ok_and(|found| found == text.as_bytes()),
            Node::Link(target) => std::fs::read_link(&path).is_ok_and(|found| found == Path::new(target)),
            Node::Folder => path.is_dir(),
        }
    })
}

/// Writes a folder beside its place and renames it there.
fn write_at(namespace: &Path, place: &Path, tree: &Tree) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // Containers that share a folder may have processes of one number.
    let moment = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let beside = namespace.join(format!("unfinished-{}-{count}-{moment}", std::process::id()));
    let written = write(&beside, tree).and_then(|()| match std::fs::rename(&beside, place) {
        // Another process was faster, or it is there and incomplete.
        Err(_) if is_complete(place, tree) => Ok(()),
        Err(_) => {
            let _ = std::fs::remove_dir_all(place);
            std::fs::rename(&beside, place).or_else(|error| match is_complete(place, tree) {
                true => Ok(()),
                false => Err(error),
            })
        }
        renamed => renamed,
    });
    let _ = std::fs::remove_dir_all(&beside);
    written
}

fn write(folder: &Path, tree: &Tree) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(MODE).create(folder)?;
    symlink(Path::new("..").join(COUNTERS), folder.join(COUNTERS))?;
    for (path, node) in tree.nodes() {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            builder.create(parent)?;
        }
        match node {
            Node::File(text) => std::fs::write(&path, text)?,
            Node::Link(target) => symlink(target, &path)?,
            Node::Folder => builder.create(&path)?,
        }
    }
    Ok(())
}

fn touch(place: &Path) {
    let opened = rustix::fs::open(place, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let now = rustix::fs::Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_NOW,
    };
    let times = rustix::fs::Timestamps {
        last_access: now,
        last_modification: now,
    };
    // It may be forgotten sooner; that is all.
    let _ = opened.and_then(|folder| rustix::fs::futimens(folder, &times));
}

/// Removes what was used longest ago, if there is too much.
fn forget_old(namespace: &Path, used: &Path) {
    let Ok(entries) = std::fs::read_dir(namespace) else {
        return;
    };
    let is_ours = |name: &OsStr| name.to_string_lossy().starts_with("files-");
    let mut folders: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        .filter(|entry| is_ours(&entry.file_name()) && entry.path() != used)
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    folders.sort();
    let surplus = (folders.len() + 1).saturating_sub(KEPT);
    for (_, folder) in folders.into_iter().take(surplus) {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// The last number of a text, as in `0-63`.
fn last_number(text: &str) -> Option<usize> {
    let text = text.trim_end();
    let digits = text.rsplit(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    #[test]
    fn the_same_devices_have_the_same_folder() {
        let folder = scratch();
        let base = folder.path().join("nonic");
        let tree = Tree::of(&[], 2);
        let first = place_below(&base, &tree).expect("it can be written");
        assert_eq!(place_below(&base, &tree).expect("it is there"), first);
        let version = std::fs::read_to_string(first.join("sys/class/infiniband_verbs/abi_version"));
        assert_eq!(version.expect("it is there"), "6\n");
        assert!(first.join("counters").is_dir());
        let other = place_below(&base, &Tree::default()).expect("it can be written");
        assert_ne!(other, first);
    }

    #[test]
    fn what_was_cleaned_away_comes_back() {
        let folder = scratch();
        let tree = Tree::of(&[], 2);
        let place = place_below(folder.path(), &tree).expect("it can be written");
        let file = place.join("sys/class/infiniband_verbs/abi_version");
        std::fs::remove_file(&file).expect("it was there");
        place_below(folder.path(), &tree).expect("it can be written");
        assert!(file.is_file());
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = scratch();
        let base = folder.path().join("nonic");
        std::fs::create_dir(&base).expect("a folder can be made");
        std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o777)).expect("it is ours");
        let error = place_below(&base, &Tree::default()).expect_err("anybody can write there");
        assert_eq!(error.error.kind(), io::ErrorKind::PermissionDenied);
        std::fs::remove_dir(&base).expect("it is empty");
        symlink(folder.path(), &base).expect("a link can be made");
        place_below(&base, &Tree::default()).expect_err("a link leads elsewhere");
    }

    #[test]
    fn where_the_name_is_taken_another_is_made_and_found_again() {
        let folder = scratch();
        // A file is no user's folder, whichever user runs this.
        std::fs::write(folder.path().join(name()), "taken").expect("it can be written");
        std::fs::write(folder.path().join(format!("{}-0", name())), "taken").expect("it can be written");
        let bases = bases(&[folder.path().to_owned()]);
        let taken = bases.last().expect("one at least");
        place_below(taken, &Tree::default()).expect_err("it is no folder");
        let made = unforeseen(folder.path()).expect("nobody knew the name");
        assert_eq!(unforeseen(folder.path()).expect("it is there"), made);
        place_below(&made, &Tree::default()).expect("it is ours");
    }

    #[test]
    fn many_start_at_once() {
        let folder = scratch();
        let tree = Tree::of(&[], 2);
        std::thread::scope(|scope| {
            let places: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| place_below(folder.path(), &tree)))
                .collect();
            for place in places {
                let place = place
                    .join()
                    .expect("it does not panic")
                    .expect("it can be written");
                assert!(is_complete(&place, &tree));
            }
        });
    }

    #[test]
    fn folders_are_not_kept_for_ever() {
        let folder = scratch();
        for processors in 0..KEPT + 5 {
            let devices = [];
            let mut tree = Tree::of(&devices, processors);
            tree.line_for_tests(processors);
            place_below(folder.path(), &tree).expect("it can be written");
        }
        let namespace = folder.path().join(namespace());
        let left = std::fs::read_dir(namespace).expect("it is there").flatten();
        let folders = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("files-"));
        assert_eq!(folders.count(), KEPT);
    }

    #[test]
    fn the_last_processor_counts() {
        assert_eq!(last_number("0-63\n"), Some(63));
        assert_eq!(last_number("0\n"), Some(0));
        assert_eq!(last_number("none\n"), None);
    }
}
