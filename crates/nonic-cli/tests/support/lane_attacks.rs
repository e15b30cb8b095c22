//! Attacks by a process of the same user through a lane that it has offered: everything but keeping to the rules.
//!
//! The layout of the ring is written down here once more: if it changes, attacks are refused and the tests that count what
//! was taken fail.

use nonic_engine::host::{Block, BlockName, Delivery, Heard, Message, Outbox};
use nonic_engine::netdev::LocalAddress;
use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::Shutdown;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

const MAGIC: u64 = 0x6e6f_6e69_6300_0005;
const HAZARD: u64 = 64;
const RECORDS_READ: u64 = 128;
const RECORDS: u64 = 4096;
const RING: u64 = 1 << 20;
const LENGTH: u64 = RECORDS + RING;
/// How long a victim may think about an offer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A lane that is offered to a block of an address.
pub(crate) struct Attack {
    to: BlockName,
    /// A queue pair of the victim's.
    qpn: u32,
    outbox: Outbox,
    /// What would wake us: never read, so that it is full soon.
    bell: UnixDatagram,
    dice: u64,
}

impl Attack {
    pub(crate) fn new(ip: IpAddr, victim: u32) -> Self {
        let block = |qpn: u32| (qpn >> 12) as u16;
        Attack {
            to: BlockName {
                address: LocalAddress::from(ip),
                block: Block::new(block(victim)).expect("a block"),
            },
            qpn: victim,
            outbox: Outbox::new().expect("an outbox"),
            bell: bell(),
            dice: 7,
        }
    }

    fn random(&mut self) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice
    }

    /// Offers something; whether it was taken.
    fn offer(&mut self, fd: impl AsFd) -> bool {
        let from = SocketAddr::new(self.to.address.ip, 9);
        let offer = Message::OfferLane { from };
        // Lines that are open already are for lanes that were.
        self.outbox = Outbox::new().expect("an outbox");
        let sent = self
            .outbox
            .post_with(self.to, &offer, &[fd.as_fd(), self.bell.as_fd()]);
        assert_eq!(sent.expect("sent"), Delivery::Sent);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.outbox.poll() {
                Some(Heard::Lane { taken, .. }) => return taken,
                Some(_) => return false,
                None => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        panic!("no answer to an offer");
    }

    /// Runs an attack; what it says in the end.
    pub(crate) fn run(mut self, name: &str) -> String {
        match name {
            "nonsense" => self.offer_nonsense(),
            "garbage" => self.write_garbage(),
            "without-end" => self.write_without_end(),
            "many" => self.offer_many(),
            "hazard" => self.never_end(),
            "bell" => self.seize_bell(),
            "hold" => self.never_end_by_queue_pair(),
            other => panic!("there is no attack called {other}"),
        }
    }

    /// Memory that is too short, too long, not sealed; and what is no memory.
    fn offer_nonsense(&mut self) -> String {
        let length = LENGTH;
        let mut taken = 0;
        for (length, seals) in [
            (length - 4096, SealFlags::SHRINK | SealFlags::GROW),
            (length + 4096, SealFlags::SHRINK | SealFlags::GROW),
            (0, SealFlags::SHRINK | SealFlags::GROW),
            (length, SealFlags::GROW),
            (length, SealFlags::empty()),
        ] {
            let memory = memory(length, seals);
            write(&memory, 0, MAGIC);
            taken += u32::from(self.offer(&memory));
        }
        let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
        taken += u32::from(self.offer(&pipe));
        taken += u32::from(self.offer(File::open("/proc/self/exe").expect("a file")));
        let unnamed = memory(length, SealFlags::SHRINK | SealFlags::GROW);
        taken += u32::from(self.offer(&unnamed));
        format!("{taken} taken")
    }

    /// Rings with records of random lengths and bytes.
    fn write_garbage(&mut self) -> String {
        let mut taken = 0;
        for _ in 0..200 {
            let memory = ring();
            taken += u32::from(self.offer(&memory));
            for _ in 0..20 {
                self.write_garbage_record(&memory);
                std::thread::sleep(Duration::from_micros(self.random() % 200));
            }
        }
        format!("{taken} taken")
    }

    /// A record where the victim looks next, of random lengths and random bytes.
    fn write_garbage_record(&mut self, memory: &File) {
        let mut next = [0; 8];
        memory.read_exact_at(&mut next, RECORDS_READ).expect("our own");
        let next = u64::from_ne_bytes(next);
        let at = RECORDS + next % RING;
        let length = [self.random() % 300, self.random() % (1 << 32)][self.random() as usize % 2];
        let request = [length, self.random() % 300][self.random() as usize % 2];
        for word in 2..8 {
            write(memory, at + 8 * word, self.random());
        }
        write(memory, at + 8, length | request << 32);
        write(memory, at, next.wrapping_add(1));
    }

    /// Hangs up, and goes on writing as fast as it is read.
    fn write_without_end(&mut self) -> String {
        /// What the shortest record takes, and how many of them are there to be read.
        const SLOT: u64 = 64;
        const AHEAD: u64 = 64;
        let memory = ring();
        let taken = self.offer(&memory);
        // Longer than any process waits for an answer.
        let begun = Instant::now();
        let mut hung_up = false;
        while begun.elapsed() < Duration::from_secs(4) {
            let mut read = [0; 8];
            memory.read_exact_at(&mut read, RECORDS_READ).expect("our own");
            let read = u64::from_ne_bytes(read);
            for ahead in 0..AHEAD {
                let position = read + ahead * SLOT;
                let at = RECORDS + position % RING;
                write(&memory, at + 8, 16 | 16 << 32);
                write(&memory, at, position + 1);
            }
            if !hung_up && begun.elapsed() > Duration::from_millis(50) {
                self.outbox = Outbox::new().expect("an outbox");
                hung_up = true;
            }
        }
        format!("{} taken", u32::from(taken))
    }

    /// More lanes than a process needs, each broken at once, and all of them kept.
    fn offer_many(&mut self) -> String {
        let mut kept = Vec::new();
        let mut taken = 0;
        for _ in 0..600 {
            let memory = ring();
            taken += u32::from(self.offer(&memory));
            // A record longer than any.
            write(&memory, RECORDS + 8, RING | 16 << 32);
            write(&memory, RECORDS, 1);
            kept.push(std::mem::replace(
                &mut self.outbox,
                Outbox::new().expect("an outbox"),
            ));
        }
        format!("{taken} taken")
    }

    /// Says that an access is under way, through every key in turn, and never that one has ended.
    fn never_end(&mut self) -> String {
        let memory = ring();
        let taken = self.offer(&memory);
        let until = Instant::now() + Duration::from_secs(2);
        let mut key = 0;
        while Instant::now() < until {
            key = key % (1 << 16) + 1;
            write(&memory, HAZARD, 1 << 32 | key);
        }
        format!("{} taken", u32::from(taken))
    }

    /// Says that an access by the victim's queue pair is under way, and never that it has ended.
    fn never_end_by_queue_pair(&mut self) -> String {
        let memory = ring();
        let taken = self.offer(&memory);
        write(&memory, HAZARD, (u64::from(self.qpn) % (1 << 14) + 1) << 32);
        // As long as this line is open, the lane is.
        let line = std::mem::replace(&mut self.outbox, Outbox::new().expect("an outbox"));
        std::mem::forget((memory, line));
        format!("{} taken", u32::from(taken))
    }

    /// Does to what wakes the victim whatever its descriptor lets it: has calls wait, reads what others have written, fills
    /// it, and makes it lead elsewhere.
    fn seize_bell(&mut self) -> String {
        let taken = self.offer(ring());
        let fds = self.outbox.take_fds();
        let bell = fds.first().expect("a lane that was taken has a bell");
        rustix::fs::fcntl_setfl(bell, OFlags::empty()).expect("our own descriptor");
        std::thread::sleep(Duration::from_secs(2));
        let mut rung = 0;
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            rustix::fs::fcntl_setfl(bell, OFlags::NONBLOCK).expect("our own descriptor");
            for word in [1, u64::MAX - 1] {
                let written = rustix::io::write(bell, &u64::to_ne_bytes(word));
                rung += u32::from(written.is_ok());
            }
            let _ = rustix::io::read(bell, &mut [0; 8]);
            rustix::fs::fcntl_setfl(bell, OFlags::empty()).expect("our own descriptor");
            std::thread::sleep(Duration::from_millis(1));
            // From here on it leads nowhere, if it is a socket.
            if Instant::now() + Duration::from_secs(1) > until {
                let _ = rustix::net::shutdown(bell, Shutdown::Both);
            }
        }
        assert!(rung > 0, "it can be rung");
        format!("{} taken", u32::from(taken))
    }
}

fn memory(length: u64, seals: SealFlags) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd: OwnedFd = memfd_create("nonic-lane", flags).expect("memory");
    ftruncate(&fd, length).expect("it grows");
    if !seals.is_empty() {
        fcntl_add_seals(&fd, seals).expect("seals");
    }
    File::from(fd)
}

/// A socket that leads to another which nobody reads.
fn bell() -> UnixDatagram {
    let (bell, other) = UnixDatagram::pair().expect("sockets");
    std::mem::forget(other);
    bell
}

fn ring() -> File {
    let memory = memory(LENGTH, SealFlags::SHRINK | SealFlags::GROW);
    write(&memory, 0, MAGIC);
    memory
}

fn write(memory: &File, at: u64, word: u64) {
    // Memory that is too short for it is one of the attacks.
    let _ = memory.write_all_at(&word.to_ne_bytes(), at);
}
