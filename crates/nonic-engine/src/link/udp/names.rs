//! The names that a link has on its host: its blocks of queue pair numbers, and the services it listens on. Each has an
//! inbox.
//!
//! A process with a hundred thousand queue pairs has dozens of blocks, and a server may listen on thousands of services. Looking
//! into every inbox for each message would cost more the more there are, so the kernel is asked which of them have something.

use crate::host::{Block, BlockClaim, Inbox, ServiceClaim};
use crate::os::descriptors::InternalFd;
use nonic_core::cm::ListenerId;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

/// So many inboxes are read at a time; the others have their turn at the next look.
const INBOXES_PER_LOOK: usize = 16;

/// Names and their inboxes.
#[derive(Debug)]
pub(super) struct Names {
    /// Other processes know us by the first.
    blocks: Vec<BlockClaim>,
    /// Those listened on longest come first.
    services: BTreeMap<ListenerId, ServiceClaim>,
    by_service: HashMap<u64, ListenerId>,
    /// Watches all inboxes.
    watch: InternalFd,
    /// Inboxes that want to be looked at once more although nothing may come.
    unfinished: Vec<Key>,
}

/// The key of an inbox in the epoll set.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Key(u64);

impl Key {
    const SERVICE: u64 = 1 << 63;

    fn of_block(block: Block) -> Self {
        Key(block.number().into())
    }

    fn of_service(listener: ListenerId) -> Self {
        Key(listener.0 | Self::SERVICE)
    }
}

impl Names {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Names {
            blocks: Vec::new(),
            services: BTreeMap::new(),
            by_service: HashMap::new(),
            watch: epoll::create(CreateFlags::CLOEXEC)?.into(),
            unfinished: Vec::new(),
        })
    }

    /// A block is ours.
    pub(super) fn add_block(&mut self, claim: BlockClaim) -> io::Result<()> {
        self.watch(claim.inbox(), Key::of_block(claim.block()))?;
        self.blocks.push(claim);
        Ok(())
    }

    pub(super) fn remove_block(&mut self, block: Block) {
        if let Some(at) = self.blocks.iter().position(|claim| claim.block() == block) {
            // The first stays the first.
            let claim = self.blocks.remove(at);
            self.unwatch(claim.inbox());
        }
    }

    pub(super) fn has_block(&self, block: Block) -> bool {
        self.blocks.iter().any(|claim| claim.block() == block)
    }

    /// Whether a block of ours has this name.
    pub(super) fn has_block_named(&self, name: &str) -> bool {
        self.blocks.iter().any(|claim| claim.name().to_string() == name)
    }

    /// Our blocks; other processes know us by the first.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> {
        self.blocks.iter().map(BlockClaim::block)
    }

    /// A service is listened on.
    pub(super) fn add_service(&mut self, listener: ListenerId, claim: ServiceClaim) -> io::Result<()> {
        self.watch(claim.inbox(), Key::of_service(listener))?;
        self.by_service.insert(claim.name().service_id, listener);
        self.services.insert(listener, claim);
        Ok(())
    }

    pub(super) fn remove_service(&mut self, listener: ListenerId) {
        if let Some(claim) = self.services.remove(&listener) {
            self.by_service.remove(&claim.name().service_id);
            self.unwatch(claim.inbox());
        }
    }

    pub(super) fn has_service(&self, service_id: u64) -> bool {
        self.by_service.contains_key(&service_id)
    }

    /// The services listened on, the one for longest first.
    pub(super) fn services(&self) -> impl ExactSizeIterator<Item = u64> {
        self.services.values().map(|claim| claim.name().service_id)
    }

    /// The descriptors of all this.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let blocks = self.blocks.iter().map(|claim| claim.inbox().as_fd());
        let services = self.services.values().map(|claim| claim.inbox().as_fd());
        std::iter::once(self.watch.as_fd()).chain(blocks).chain(services)
    }

    /// Calls `read` for the inboxes that have messages, with their blocks; the inbox of a service has none.
    pub(super) fn read(&mut self, mut read: impl FnMut(Option<Block>, &mut Inbox)) {
        if let ([only], true) = (&mut self.blocks[..], self.services.is_empty()) {
            let block = only.block();
            return read(Some(block), only.inbox_mut());
        }
        let unfinished = std::mem::take(&mut self.unfinished);
        let mut events = [const { MaybeUninit::<Event>::uninit() }; INBOXES_PER_LOOK];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let ready: &[Event] = match epoll::wait(&self.watch, &mut events, Some(&now)) {
            Ok((ready, _)) => ready,
            Err(_) => &[],
        };
        let ready = ready.iter().map(|event| Key(event.data.u64()));
        for key in unfinished.into_iter().chain(ready) {
            // One that was given back meanwhile is not found.
            let Some((block, inbox)) = self.find(key) else {
                continue;
            };
            read(block, inbox);
            if inbox.has_guest() {
                self.unfinished.push(key);
            }
        }
    }

    fn find(&mut self, Key(key): Key) -> Option<(Option<Block>, &mut Inbox)> {
        if key & Key::SERVICE != 0 {
            let claim = self.services.get_mut(&ListenerId(key & !Key::SERVICE))?;
            return Some((None, claim.inbox_mut()));
        }
        let is_it = |claim: &&mut BlockClaim| u64::from(claim.block().number()) == key;
        let claim = self.blocks.iter_mut().find(is_it)?;
        Some((Some(claim.block()), claim.inbox_mut()))
    }

    fn watch(&self, inbox: &Inbox, Key(key): Key) -> io::Result<()> {
        epoll::add(&self.watch, inbox, EventData::new_u64(key), EventFlags::IN)?;
        Ok(())
    }

    /// A forked child may still have the descriptor: closing ours would not be enough.
    fn unwatch(&self, inbox: &Inbox) {
        let _ = epoll::delete(&self.watch, inbox);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{InboxBuffer, InboxName, Message, Outbox, ServiceName};
    use crate::netdev::LocalAddress;
    use std::net::IpAddr;

    /// Names with two blocks and so many services, at an address of their own.
    fn names(last: u8, services: u64) -> Names {
        let address = LocalAddress::from(IpAddr::from([127, 71, 4, last]));
        let mut names = Names::new().expect("descriptors");
        for _ in 0..2 {
            let claim = BlockClaim::claim(address).expect("plenty");
            names.add_block(claim).expect("it can be watched");
        }
        for service_id in 0..services {
            let name = ServiceName { address, service_id };
            let claim = ServiceClaim::claim(name).expect("it is free");
            let listener = ListenerId(service_id);
            names.add_service(listener, claim).expect("it can be watched");
        }
        names
    }

    /// The inboxes that are looked into, by block; each holds only questions.
    fn look(names: &mut Names) -> Vec<Option<Block>> {
        let (mut looked, mut buffer) = (Vec::new(), InboxBuffer::new());
        names.read(|block, inbox| {
            while let Some(message) = inbox.recv(&mut buffer).expect("it is open") {
                assert_eq!(message, Message::WhereAreYou);
            }
            looked.push(block);
        });
        looked
    }

    fn ask(outbox: &mut Outbox, whom: impl Into<InboxName>) {
        let delivery = outbox.post(whom, &Message::WhereAreYou);
        assert_eq!(delivery.expect("a line"), crate::host::Delivery::Sent);
    }

    #[test]
    fn only_inboxes_that_have_something_are_looked_into() {
        let mut names = names(1, 100);
        let mut outbox = Outbox::new().expect("descriptors");
        assert!(look(&mut names).is_empty(), "nobody wrote");
        let block = names.blocks[1].name();
        ask(&mut outbox, block);
        assert_eq!(look(&mut names), [Some(block.block)]);
        ask(&mut outbox, names.services[&ListenerId(57)].name());
        assert_eq!(look(&mut names), [None]);
        assert!(look(&mut names).is_empty(), "all was read");
    }

    #[test]
    fn all_have_their_turn() {
        let mut names = names(2, 50);
        let mut outbox = Outbox::new().expect("descriptors");
        for claim in names.services.values() {
            ask(&mut outbox, claim.name());
        }
        let looks: Vec<usize> =
            std::iter::from_fn(|| Some(look(&mut names).len()).filter(|n| *n > 0)).collect();
        assert_eq!(looks.iter().sum::<usize>(), 50, "{looks:?}");
    }

    #[test]
    fn what_was_given_back_is_neither_found_nor_looked_into() {
        let mut names = names(3, 2);
        let mut outbox = Outbox::new().expect("descriptors");
        let (block, service) = (names.blocks[1].name(), names.services[&ListenerId(1)].name());
        ask(&mut outbox, block);
        ask(&mut outbox, service);
        names.remove_block(block.block);
        names.remove_service(ListenerId(1));
        assert!(!names.has_block(block.block) && !names.has_service(1) && names.has_service(0));
        assert!(look(&mut names).is_empty());
        assert_eq!(names.services().collect::<Vec<_>>(), [0]);
    }
}
