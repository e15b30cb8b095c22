//! Background tasks: what the library has to do later, when no thread of the program may be waiting for it.
//!
//! One thread runs them for the whole process. It starts with the first task or time, and ends when none is left. It
//! probes idle connections (`keepalive.rs`), sends the last bytes of dropped streams (nonic-stream), and wakes
//! tasks of any runtime at a time ([`wake_at`]).
//!
//! It is not a runtime for programs: tasks must not block, since all of them share the thread.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

/// Runs a task to its end. Without a thread to run it, the task is dropped and the error returned.
pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let mut work = BACKGROUND.lock();
    if let Err(error) = work.start_thread() {
        // The task may own the last share of a device: it is dropped without the lock.
        drop(work);
        return Err(error);
    }
    let number = work.next_number();
    let task = Task {
        future: Box::pin(task),
        waker: Waker::from(Arc::new(Ready(number))),
    };
    work.tasks.insert(number, task);
    work.ready.push_back(number);
    drop(work);
    BACKGROUND.changed.notify_one();
    Ok(())
}

/// Has `waker` woken at a time. It cannot be taken back: the woken task looks at the clock.
///
/// Without a thread nothing wakes at that time; the task waits for its next event.
pub fn wake_at(at: Instant, waker: Waker) {
    BACKGROUND.add_time(at, waker);
}

/// Completes at a time.
pub fn sleep_until(at: Instant) -> Sleep {
    Sleep { at, entry: None }
}

/// What a future comes to if it completes before a time.
pub async fn before<T>(deadline: Instant, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut sleep = pin!(sleep_until(deadline));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// A future that completes at a time.
#[derive(Debug)]
pub struct Sleep {
    at: Instant,
    /// The place among the times, and the waker that stands there.
    entry: Option<(u64, Waker)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.at {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !matches!(&self.entry, Some((_, known)) if known.will_wake(waker)) {
            self.forget();
            let number = BACKGROUND.add_time(self.at, waker.clone());
            self.entry = Some((number, waker.clone()));
        }
        Poll::Pending
    }
}

impl Sleep {
    /// The time is not waited for any more.
    fn forget(&mut self) {
        if let Some((number, _)) = self.entry.take() {
            // A waker is dropped without the lock: it may own the last share of a task.
            let _waker = BACKGROUND.lock().times.remove(&(self.at, number));
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.forget();
    }
}

static BACKGROUND: Background = Background {
    work: Mutex::new(Work {
        tasks: BTreeMap::new(),
        ready: VecDeque::new(),
        times: BTreeMap::new(),
        last_number: 0,
        has_thread: false,
    }),
    changed: Condvar::new(),
};

struct Background {
    work: Mutex<Work>,
    /// Told when a task is ready, or when a time comes before all others.
    changed: Condvar,
}

struct Work {
    /// All tasks but the one that is being polled.
    tasks: BTreeMap<u64, Task>,
    /// Numbers of tasks that are to be polled. A task that has ended may still be among them.
    ready: VecDeque<u64>,
    /// What is woken, by when; the number tells wakers of one time apart.
    times: BTreeMap<(Instant, u64), Waker>,
    last_number: u64,
    has_thread: bool,
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    waker: Waker,
}

/// What the thread does next.
enum Next {
    Poll(u64, Task),
    Wake(Waker),
    SleepUntil(Option<Instant>),
    End,
}

impl Background {
    fn add_time(&self, at: Instant, waker: Waker) -> u64 {
        let mut work = self.lock();
        let number = work.next_number();
        work.times.insert((at, number), waker);
        // The next time or task tries again to have a thread.
        let _ = work.start_thread();
        drop(work);
        self.changed.notify_one();
        number
    }

    fn run(&self) {
        let mut work = self.lock();
        loop {
            match work.next(Instant::now()) {
                Next::Poll(number, mut task) => {
                    // Tasks take locks of a device, under which a device's threads wake tasks.
                    drop(work);
                    let ended = task.poll();
                    // The last share of a device may be in it, and with that its threads end.
                    let unfinished = (!ended).then_some(task);
                    work = self.lock();
                    if let Some(task) = unfinished {
                        work.tasks.insert(number, task);
                    }
                }
                Next::Wake(waker) => {
                    drop(work);
                    waker.wake();
                    work = self.lock();
                }
                Next::SleepUntil(None) => {
                    work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
                }
                Next::SleepUntil(Some(at)) => {
                    let left = at.saturating_duration_since(Instant::now());
                    let slept = self.changed.wait_timeout(work, left);
                    work = slept.unwrap_or_else(PoisonError::into_inner).0;
                }
                Next::End => {
                    work.has_thread = false;
                    return;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    fn start_thread(&mut self) -> io::Result<()> {
        if !self.has_thread {
            let thread = std::thread::Builder::new().name("nonic-background".to_owned());
            thread.spawn(|| BACKGROUND.run())?;
            self.has_thread = true;
        }
        Ok(())
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn next(&mut self, now: Instant) -> Next {
        while let Some(number) = self.ready.pop_front() {
            if let Some(task) = self.tasks.remove(&number) {
                return Next::Poll(number, task);
            }
        }
        match self.times.first_entry() {
            Some(first) if first.key().0 <= now => Next::Wake(first.remove()),
            Some(first) => Next::SleepUntil(Some(first.key().0)),
            None if self.tasks.is_empty() => Next::End,
            None => Next::SleepUntil(None),
        }
    }
}

impl Task {
    /// Whether it has ended. One that panics has: the panic's text was printed, and the other tasks go on.
    fn poll(&mut self) -> bool {
        let Task { future, waker } = self;
        let polled = catch_unwind(AssertUnwindSafe(|| {
            future.as_mut().poll(&mut Context::from_waker(waker))
        }));
        !matches!(polled, Ok(Poll::Pending))
    }
}

/// Wakes the task of this number.
struct Ready(u64);

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        BACKGROUND.lock().ready.push_back(self.0);
        BACKGROUND.changed.notify_one();
    }
}
