//! Published counters, which other processes see: the sum over all processes that `nonic run` started, by device.
//!
//! The variable `NONIC_FILES` names a folder in which each device has a file of counters, which every process maps. A shard
//! adds to it what it has counted since the last time. So no process needs to be running when another reads the file, and a
//! process that is killed loses only what it counted in the last moments.
//!
//! The background thread does this when it goes to sleep, and now and then while it is awake: never for a packet. Without
//! the variable, and if the file cannot be opened, nothing is published.
//!
//! The file describes itself: after each other, 32 bytes with the name of a counter and its value. Its own name is made of
//! those, so that versions of nonic which count different things do not share one. `libnonic_files.so` reads it.

use crate::link::LinkCounters;
use nonic_core::{Counters, Time};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Bytes of a name, zeros behind it included.
const NAME: usize = 32;
/// Bytes of a name and its value.
const SLOT: usize = NAME + size_of::<u64>();
/// While the background thread is awake, counters are published this often.
const INTERVAL: Duration = Duration::from_millis(10);

/// The file of a device, and what of it is ours.
pub(crate) struct Published {
    /// The mapped file.
    map: *mut c_void,
    /// What this shard has added, in the order of the file.
    added: Vec<u64>,
    due: Time,
}

// SAFETY: the mapping belongs to no thread, and its values are only reached as atomics.
unsafe impl Send for Published {}

impl Published {
    /// The file of a device below `files`, if it can be had.
    pub(crate) fn open(files: &Path, device: &str) -> io::Result<Self> {
        let empty = content();
        let mut hasher = DefaultHasher::new();
        empty.hash(&mut hasher);
        let folder = files.join("counters").join(device);
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = folder.join(format!("{:016x}", hasher.finish()));
        if !path.exists() {
            create(&folder, &path, &empty)?;
        }
        let file = File::options().read(true).write(true).open(&path)?;
        if file.metadata()?.len() != empty.len() as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice. The file is as long, and no process shortens it.
        let map = unsafe {
            mmap(
                std::ptr::null_mut(),
                empty.len(),
                rights,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        Ok(Published {
            map,
            added: vec![0; empty.len() / SLOT],
            due: Time::ZERO,
        })
    }

    /// Whether it is time again.
    pub(super) fn is_due(&self, now: Time) -> bool {
        now >= self.due
    }

    /// Adds what was counted since the last time.
    pub(super) fn publish(&mut self, nic: &Counters, link: &LinkCounters, now: Option<Time>) {
        let counted = nic.named().chain(link.named());
        for (slot, ((_, counted), added)) in counted.zip(&mut self.added).enumerate() {
            let more = counted.wrapping_sub(*added);
            if more != 0 {
                // SAFETY: the mapping has so many slots and lives as long as `self`; a value is at a multiple of eight.
                let value = unsafe { &*self.map.byte_add(slot * SLOT + NAME).cast::<AtomicU64>() };
                value.fetch_add(more, Ordering::Relaxed);
                *added = counted;
            }
        }
        if let Some(now) = now {
            self.due = now + INTERVAL;
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // SAFETY: our mapping, to which no pointer is left. The kernel refuses only what is no mapping.
        let _ = unsafe { munmap(self.map, self.added.len() * SLOT) };
    }
}

/// A file in which nothing was counted yet.
fn content() -> Vec<u8> {
    let (nic, link) = (Counters::default(), LinkCounters::default());
    let mut content = Vec::new();
    for (name, _) in nic.named().chain(link.named()) {
        let mut slot = [0; SLOT];
        slot[..name.len()].copy_from_slice(name.as_bytes());
        content.extend_from_slice(&slot);
    }
    content
}

/// Makes the file in one step: another process may be at it as well, and the file must be whole when it has its name.
fn create(folder: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    let moment = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let beside = folder.join(format!(".{}-{moment}", std::process::id()));
    std::fs::write(&beside, content)?;
    let linked = std::fs::hard_link(&beside, path);
    std::fs::remove_file(&beside)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn value(folder: &Path, name: &str) -> u64 {
        let file = std::fs::read_dir(folder).expect("it is there").next();
        let file =
            std::fs::read(file.expect("a file").expect("it can be read").path()).expect("it can be read");
        let slot = file
            .chunks_exact(SLOT)
            .find(|slot| slot.starts_with(format!("{name}\0").as_bytes()));
        let bytes = slot.expect("it is counted")[NAME..].try_into();
        u64::from_ne_bytes(bytes.expect("eight bytes"))
    }

    #[test]
    fn several_add_to_one_sum() {
        let files = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(files.path().join("counters")).expect("a folder can be made");
        let open = || Published::open(files.path(), "roce_x").expect("it can be had");
        let (mut first, mut second) = (open(), open());
        let nic = Counters {
            tx_packets: 3,
            ..Counters::default()
        };
        let link = LinkCounters {
            send_errors: 1,
            ..LinkCounters::default()
        };
        for _ in 0..2 {
            first.publish(&nic, &link, None);
            second.publish(&nic, &LinkCounters::default(), None);
        }
        drop((first, second));
        let folder = files.path().join("counters/roce_x");
        assert_eq!(value(&folder, "tx_packets"), 6);
        assert_eq!(value(&folder, "send_errors"), 1);
        assert_eq!(value(&folder, "rx_packets"), 0);
    }

    #[test]
    fn without_a_folder_there_is_no_file() {
        let files = tempfile::tempdir().expect("a temporary folder");
        assert!(Published::open(files.path(), "roce_x").is_err());
    }

    #[test]
    fn names_have_room_and_a_zero_behind_them() {
        let (nic, link) = (Counters::default(), LinkCounters::default());
        assert!(nic.named().chain(link.named()).all(|(name, _)| name.len() < NAME));
    }
}
