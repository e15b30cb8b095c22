//! Lingering: dropped streams whose last bytes are still on their way.
//!
//! With TCP the kernel sees to them. Here one thread does, which exists only while there are any. It gives a stream up
//! after [`LINGER`]. While it has [`MOST`] of them it takes no more: their peers see a reset.

use nonic_message::{Error, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long the peer may take to look.
const LINGER: Duration = Duration::from_secs(10);
/// How many are waited for at a time.
const MOST: usize = 1024;

static CLOSING: Mutex<Closing> = Mutex::new(Closing {
    new: Vec::new(),
    count: 0,
    thread: None,
});

struct Closing {
    /// Those the thread has not seen yet.
    new: Vec<(Sender, Instant)>,
    /// All of them.
    count: usize,
    thread: Option<Thread>,
}

/// Says that nothing follows, and waits until the peer has everything and our own last frames have left.
pub(crate) fn poll_closed(sender: &mut Sender, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
    ready!(sender.poll_close(context))?;
    // The peer may wait to hear that its long messages were read. If the connection ends meanwhile, it needed that no more.
    let _ = ready!(sender.poll_flush(context));
    Poll::Ready(Ok(()))
}

/// Ends a stream, in the background if that takes time.
pub(crate) fn close(mut sender: Sender) {
    if poll_closed(&mut sender, &mut Context::from_waker(Waker::noop())).is_ready() {
        return;
    }
    let mut closing = lock();
    if closing.count >= MOST {
        return;
    }
    if closing.thread.is_none() {
        let thread = std::thread::Builder::new().name("nonic-linger".into());
        match thread.spawn(run) {
            Ok(handle) => closing.thread = Some(handle.thread().clone()),
            // Without a thread the stream ends as it is.
            Err(_) => return,
        }
    }
    closing.count += 1;
    closing.new.push((sender, Instant::now() + LINGER));
    if let Some(thread) = &closing.thread {
        thread.unpark();
    }
}

fn run() {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut senders: Vec<(Sender, Instant)> = Vec::new();
    loop {
        {
            let mut closing = lock();
            senders.append(&mut closing.new);
            closing.count = senders.len();
            if senders.is_empty() {
                closing.thread = None;
                return;
            }
        }
        let now = Instant::now();
        senders.retain_mut(|(sender, until)| now < *until && poll_closed(sender, &mut context).is_pending());
        if let Some(first) = senders.iter().map(|(_, until)| *until).min() {
            std::thread::park_timeout(first.saturating_duration_since(now));
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn lock() -> MutexGuard<'static, Closing> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}
