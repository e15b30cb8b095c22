//! The queue behind a channel that a program waits on: completion channels, and event channels of the connection manager.
//!
//! Its descriptor is readable exactly while the queue is not empty, with one exception: while a thread attends to the
//! queue ([`EventQueue::attend`]) and will look at it before it sleeps, the descriptor is not signalled, since that
//! would be four system calls for nothing. Every item signals the descriptor, also if it is readable already, as the
//! kernel's channels do: a program that watches edges (`EPOLLET`) and leaves items in the queue learns of the next one,
//! too. The descriptor is in blocking mode until the program says otherwise, and whether a call may wait depends on
//! that. So the queue itself never waits; a caller that may wait does so beside it.

use crate::errno::Errno;
use crate::eventfd;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The descriptor of a queue, an eventfd, as the library keeps it: closed with its owner.
pub trait Descriptor {
    /// Its number.
    fn number(&self) -> RawFd;

    /// Whether the program has closed it. Its number may be a file of the program's by now, which is neither read nor
    /// written.
    fn is_lost(&self) -> bool;
}

/// A queue of `T` with a descriptor to wait for.
#[derive(Debug)]
pub struct EventQueue<T, D: Descriptor>(Mutex<Contents<T, D>>);

#[derive(Debug)]
struct Contents<T, D> {
    items: VecDeque<T>,
    /// `None` when the program has destroyed the channel.
    descriptor: Option<D>,
    /// Whether the descriptor was made readable and not read by us since.
    signalled: bool,
    /// Whether something came since the descriptor was signalled last.
    unannounced: bool,
    /// Threads that look at the queue before they sleep.
    attended: u32,
}

impl<T, D: Descriptor> EventQueue<T, D> {
    /// An empty queue, with a descriptor that cannot be read yet.
    pub fn new(descriptor: D) -> Self {
        EventQueue(Mutex::new(Contents {
            items: VecDeque::new(),
            descriptor: Some(descriptor),
            signalled: false,
            unannounced: false,
            attended: 0,
        }))
    }

    /// Adds an item.
    pub fn push(&self, item: T) {
        let mut contents = self.lock();
        contents.items.push_back(item);
        contents.unannounced = true;
        contents.announce();
    }

    /// A thread begins to attend: it is awake, and will look at the queue and end this before it sleeps. A poll of the
    /// descriptor by another thread returns only then.
    pub fn attend(&self) {
        self.lock().attended += 1;
    }

    /// A thread attends no more.
    pub fn unattend(&self) {
        let mut contents = self.lock();
        contents.attended -= 1;
        contents.announce();
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.lock().items.is_empty()
    }

    /// The oldest item. It is shown to `taken` under the lock, so that no other thread can take an item meanwhile.
    pub fn pop(&self, taken: impl FnOnce(&T)) -> Option<T> {
        let mut contents = self.lock();
        let item = contents.items.pop_front()?;
        taken(&item);
        contents.settle();
        Some(item)
    }

    /// Takes out what fits, in order, and no more than `most`: a caller that knows how many there are finds them
    /// without looking at all that thousands of others have in the queue.
    pub fn take_out(&self, most: usize, fits: impl Fn(&T) -> bool) -> Vec<T> {
        let mut contents = self.lock();
        let mut taken = Vec::new();
        let mut at = 0;
        while taken.len() < most && at < contents.items.len() {
            if fits(&contents.items[at]) {
                taken.extend(contents.items.remove(at));
            } else {
                at += 1;
            }
        }
        if !taken.is_empty() {
            contents.settle();
        }
        taken
    }

    /// Whether the program has closed the descriptor.
    pub fn is_lost(&self) -> bool {
        self.lock().descriptor.as_ref().is_some_and(D::is_lost)
    }

    /// Whether the program has made the descriptor non-blocking; `None` after [`close`](Self::close).
    pub fn is_nonblocking(&self) -> Option<Result<bool, Errno>> {
        let contents = self.lock();
        let descriptor = contents.descriptor.as_ref()?;
        Some(eventfd::is_nonblocking(descriptor.number()))
    }

    /// The descriptor's number; `None` after [`close`](Self::close).
    pub fn number(&self) -> Option<RawFd> {
        self.lock().descriptor.as_ref().map(D::number)
    }

    /// Closes the descriptor. What is in the queue, or comes, can still be taken.
    pub fn close(&self) {
        let descriptor = self.lock().descriptor.take();
        drop(descriptor);
    }

    fn lock(&self) -> MutexGuard<'_, Contents<T, D>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, D: Descriptor> Contents<T, D> {
    /// The descriptor, while there is one and it is ours.
    fn usable(&self) -> Option<RawFd> {
        let descriptor = self.descriptor.as_ref()?;
        (!descriptor.is_lost()).then(|| descriptor.number())
    }

    /// Signals the descriptor if an item came that no thread attends to.
    fn announce(&mut self) {
        if self.unannounced && self.attended == 0 {
            if let Some(fd) = self.usable() {
                eventfd::signal(fd);
                self.signalled = true;
                self.unannounced = false;
            }
        }
    }

    /// Makes the descriptor unreadable if nothing is left of what made it readable.
    fn settle(&mut self) {
        if !self.items.is_empty() {
            return;
        }
        self.unannounced = false;
        if self.signalled {
            self.signalled = false;
            if let Some(fd) = self.usable() {
                eventfd::drain(fd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    struct Kept {
        fd: OwnedFd,
        lost: bool,
    }

    impl Descriptor for Kept {
        fn number(&self) -> RawFd {
            self.fd.as_raw_fd()
        }

        fn is_lost(&self) -> bool {
            self.lost
        }
    }

    fn queue(lost: bool) -> EventQueue<u32, Kept> {
        let fd = eventfd::new(0).expect("an eventfd");
        EventQueue::new(Kept { fd, lost })
    }

    fn is_readable(queue: &EventQueue<u32, Kept>) -> bool {
        let mut polled = libc::pollfd {
            fd: queue.number().expect("it is open"),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one structure of ours.
        unsafe { libc::poll(&raw mut polled, 1, 0) == 1 }
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_something_waits() {
        let queue = queue(false);
        assert!(!is_readable(&queue));
        queue.push(1);
        queue.push(2);
        queue.push(3);
        assert!(is_readable(&queue));
        assert_eq!(queue.pop(|_| ()), Some(1));
        assert!(is_readable(&queue));
        assert_eq!(queue.take_out(usize::MAX, |item| *item == 3), [3]);
        assert!(is_readable(&queue));
        assert_eq!(queue.take_out(usize::MAX, |item| *item == 2), [2]);
        assert!(!is_readable(&queue));
        assert_eq!(queue.pop(|_| ()), None);
        queue.push(4);
        assert!(is_readable(&queue));
    }

    /// Whether an event loop that watches edges, as tokio does, is told of something now.
    fn is_edge(epoll: &OwnedFd) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: one structure of ours.
        unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, 0) == 1 }
    }

    fn watch_edges(queue: &EventQueue<u32, Kept>) -> OwnedFd {
        let fd = queue.number().expect("it is open");
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET) as u32,
            u64: 0,
        };
        // SAFETY: a new descriptor, and one structure of ours.
        unsafe {
            let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            let watched = libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event);
            assert_eq!(watched, 0);
            epoll
        }
    }

    /// async-rdma waits for edges and takes no events: it learned of all completions but the first by a timer of 100 ms.
    #[test]
    fn whoever_watches_edges_is_told_of_each_item_though_none_is_taken() {
        let queue = queue(false);
        let epoll = watch_edges(&queue);
        assert!(!is_edge(&epoll));
        for item in 0..3 {
            queue.push(item);
            assert!(is_edge(&epoll), "item {item}");
            assert!(!is_edge(&epoll));
        }
        assert_eq!(queue.pop(|_| ()), Some(0));
        assert!(!is_edge(&epoll), "nothing came");
        // What came while a thread attended is one edge, and what was there before is none.
        queue.attend();
        queue.push(3);
        queue.push(4);
        assert!(!is_edge(&epoll));
        queue.unattend();
        assert!(is_edge(&epoll));
        queue.attend();
        queue.unattend();
        assert!(!is_edge(&epoll));
    }

    #[test]
    fn no_more_is_taken_out_than_was_asked_for_and_the_rest_stays_in_order() {
        let queue = queue(false);
        (1..=6).for_each(|item| queue.push(item));
        assert_eq!(queue.take_out(0, |_| true), []);
        assert_eq!(queue.take_out(2, |item| item % 2 == 0), [2, 4]);
        assert_eq!(queue.take_out(9, |item| *item > 4), [5, 6]);
        assert_eq!(queue.take_out(9, |_| true), [1, 3]);
    }

    #[test]
    fn whoever_attends_is_not_told_but_everybody_is_of_what_it_leaves() {
        let queue = queue(false);
        queue.attend();
        assert!(queue.is_empty());
        queue.push(1);
        queue.push(2);
        assert!(!queue.is_empty());
        assert!(!is_readable(&queue));
        assert_eq!(queue.pop(|_| ()), Some(1));
        queue.unattend();
        assert!(is_readable(&queue));
        queue.attend();
        assert_eq!(queue.pop(|_| ()), Some(2));
        queue.unattend();
        assert!(!is_readable(&queue));
    }

    #[test]
    fn taking_never_waits_even_if_the_program_has_read_from_the_descriptor() {
        let queue = queue(false);
        queue.push(1);
        let fd = queue.number().expect("it is open");
        eventfd::drain(fd);
        assert_eq!(queue.pop(|item| assert_eq!(*item, 1)), Some(1));
        assert!(!is_readable(&queue));
    }

    #[test]
    fn a_descriptor_that_the_program_has_closed_is_left_alone() {
        let queue = queue(true);
        queue.push(1);
        assert!(
            !is_readable(&queue),
            "nothing is written to what may be another file"
        );
        assert!(queue.is_lost());
        assert_eq!(queue.pop(|_| ()), Some(1));
    }

    #[test]
    fn a_closed_queue_still_holds_items() {
        let queue = queue(false);
        queue.push(1);
        assert_eq!(queue.is_nonblocking(), Some(Ok(false)));
        queue.close();
        assert_eq!(queue.is_nonblocking(), None);
        assert!(!queue.is_lost());
        queue.push(2);
        assert_eq!(queue.pop(|_| ()), Some(1));
        assert_eq!(queue.pop(|_| ()), Some(2));
    }
}
