//! The disk behind a target: a file or memory, and the threads that wait for it.
//!
//! Reading and writing a file may take any time, so no queue waits for it: [`DiskThreads`] does. Accesses to memory are
//! done at once by the caller. Nothing here knows of NVMe; ranges were checked before.

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that can be read and written by many threads at once.
pub trait Storage: Send + Sync + 'static {
    /// How many bytes there are. Never changes.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads all of `buffer`.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data`.
    fn write_at(&self, at: u64, data: &[u8]) -> io::Result<()>;

    /// Returns when everything written before is on stable storage.
    fn flush(&self) -> io::Result<()>;

    /// Whether accesses never wait for anything slower than memory.
    fn is_immediate(&self) -> bool {
        false
    }
}

/// A file as a disk.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    length: u64,
    in_memory: bool,
}

impl FileDisk {
    /// The file, or block device, at `path`. With a size, it is made if it is not there, and made longer if it is shorter.
    ///
    /// It is locked (`flock`) for as long as the value is there: two targets with one file would destroy each other's file systems. One
    /// that another process has locked is refused, as [`io::ErrorKind::ResourceBusy`].
    pub fn open(path: &Path, size: Option<u64>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(size.is_some())
            .truncate(false);
        let mut file = options.open(path)?;
        lock(&file, path)?;
        // A block device has no length of its own in its metadata; its end is where seeking leads.
        let mut length = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        if let Some(size) = size.filter(|size| *size > length) {
            file.set_len(size)?;
            length = size;
        }
        Ok(FileDisk {
            file,
            length,
            in_memory: false,
        })
    }

    /// Memory that is there as long as the value; all zeros, and used only where something was written.
    pub fn in_memory(size: u64) -> io::Result<Self> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("nonic-nvme", flags)?);
        file.set_len(size)?;
        Ok(FileDisk {
            file,
            length: size,
            in_memory: true,
        })
    }
}

impl Storage for FileDisk {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    fn write_at(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, at)
    }

    fn flush(&self) -> io::Result<()> {
        if self.in_memory {
            Ok(())
        } else {
            self.file.sync_data()
        }
    }

    fn is_immediate(&self) -> bool {
        self.in_memory
    }
}

/// How long to wait for another process's lock: a target that was just ended may still be closing its file.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

fn lock(file: &File, path: &Path) -> io::Result<()> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            Err(Errno::WOULDBLOCK) => {
                let holder = holder(file).unwrap_or_else(|| "another process".to_owned());
                let message = format!("{} is in use: {holder} has locked it", path.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
            }
            // Some file systems have no locks. Then no process has locked it.
            Err(_) => return Ok(()),
        }
    }
}

/// The process that has locked a file, as far as the system tells.
fn holder(file: &File) -> Option<String> {
    let status = rustix::fs::fstat(file).ok()?;
    let (major, minor) = (rustix::fs::major(status.st_dev), rustix::fs::minor(status.st_dev));
    let wanted = format!("{major:02x}:{minor:02x}:{}", status.st_ino);
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let line = locks.lines().find(|line| {
        let mut words = line.split_whitespace();
        words.clone().any(|word| word == "FLOCK") && words.any(|word| word == wanted)
    })?;
    // `1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF` (proc(5)).
    let process: u32 = line.split_whitespace().nth(4)?.parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(format!("process {process} ({})", name.trim_end()))
}

/// Something to do with the disk.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Threads that wait for a disk. The submitter bounds the number of jobs: each belongs to a command, of which a queue
/// takes a limited number.
pub(crate) struct DiskThreads {
    /// `None` for storage that does not wait.
    jobs: Option<Sender<Job>>,
}

impl DiskThreads {
    /// Starts so many; none for storage that does not wait. They end with the value, after what was submitted.
    pub(crate) fn start(storage: &dyn Storage, threads: usize) -> io::Result<Self> {
        if storage.is_immediate() {
            return Ok(DiskThreads { jobs: None });
        }
        let (jobs, todo) = channel();
        let todo = Arc::new(Mutex::new(todo));
        for _ in 0..threads.max(1) {
            let todo = Arc::clone(&todo);
            std::thread::Builder::new()
                .name("nvme-disk".to_owned())
                .spawn(move || work(&todo))?;
        }
        Ok(DiskThreads { jobs: Some(jobs) })
    }

    pub(crate) fn submit(&self, job: Job) {
        match &self.jobs {
            // The threads end after the sender.
            Some(jobs) => drop(jobs.send(job)),
            None => job(),
        }
    }
}

fn work(todo: &Mutex<Receiver<Job>>) {
    loop {
        // In a statement of its own: a job must not be done while others wait for the next.
        let job = todo.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_as_long_as_asked_and_never_shorter() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        assert!(FileDisk::open(&path, None).is_err());
        let disk = FileDisk::open(&path, Some(8192)).expect("made");
        disk.write_at(8000, b"here").expect("written");
        disk.flush().expect("flushed");
        drop(disk);
        let disk = FileDisk::open(&path, Some(4096)).expect("opened");
        assert_eq!(disk.len(), 8192);
        let mut found = [0; 4];
        disk.read_at(8000, &mut found).expect("read");
        assert_eq!(&found, b"here");
        assert!(disk.read_at(8190, &mut found).is_err());
    }

    #[test]
    fn a_file_is_the_disk_of_one_target_and_whoever_comes_second_is_told_of_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        let disk = FileDisk::open(&path, Some(4096)).expect("made");
        let refused = FileDisk::open(&path, None).expect_err("it is locked");
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        let said = refused.to_string();
        assert!(
            said.contains(&format!("is in use: process {} (", std::process::id())),
            "{said}"
        );
        drop(disk);
        FileDisk::open(&path, None).expect("it is free");
    }
}
