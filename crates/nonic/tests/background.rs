//! Background tasks: one thread runs all of them, and exists only while there is something to do.

use nonic::background::{before, sleep_until, spawn, wake_at};
use std::fs;
use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a task to its end and returns what it answers.
fn run<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> Receiver<T> {
    let (tell, told) = channel();
    spawn(async move {
        let _ = tell.send(task.await);
    })
    .expect("a thread");
    told
}

/// How many threads of this process run background tasks. The kernel keeps 15 letters of a thread's name.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("our own threads");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("nonic-backgroun")).count()
}

fn wait_for_no_thread() {
    let deadline = Instant::now() + PATIENCE;
    while threads() > 0 {
        assert!(Instant::now() < deadline, "the thread stays without a task");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn one_thread_runs_all_tasks_and_ends_with_the_last() {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let last = run(async move {
        while !stopped.load(Ordering::Relaxed) {
            sleep_until(Instant::now() + Duration::from_millis(1)).await;
        }
    });
    let soon = Instant::now() + Duration::from_millis(20);
    let answers: Vec<_> = (0..100).map(|_| run(sleep_until(soon))).collect();
    for answer in answers {
        answer.recv_timeout(PATIENCE).expect("the task ends");
    }
    assert!(Instant::now() >= soon);
    assert_eq!(threads(), 1);
    stop.store(true, Ordering::Relaxed);
    last.recv_timeout(PATIENCE).expect("the last task ends");
    wait_for_no_thread();
    // And comes back for the next.
    run(ready(())).recv_timeout(PATIENCE).expect("the task ends");
}

#[test]
fn before_answers_none_at_the_deadline() {
    let deadline = Instant::now() + Duration::from_millis(20);
    let late = run(before(deadline, pending::<()>()));
    assert_eq!(late.recv_timeout(PATIENCE), Ok(None));
    assert!(Instant::now() >= deadline);
    let far = Instant::now() + Duration::from_secs(3_600);
    let early = run(before(far, ready(7)));
    assert_eq!(early.recv_timeout(PATIENCE), Ok(Some(7)));
}

#[test]
fn a_time_that_is_not_waited_for_any_more_does_not_keep_the_thread() {
    let far = Instant::now() + Duration::from_secs(3_600);
    let task = run(async move {
        // Polled once, so that its time is known, then dropped.
        before(Instant::now() + Duration::from_millis(1), sleep_until(far)).await
    });
    assert_eq!(task.recv_timeout(PATIENCE), Ok(None));
    wait_for_no_thread();
}

#[test]
fn a_task_that_panics_ends_alone() {
    let soon = Instant::now() + Duration::from_millis(20);
    let other = run(sleep_until(soon));
    let panicking = run(async { panic!("on purpose") });
    let answer: Result<(), _> = panicking.recv_timeout(PATIENCE);
    assert!(answer.is_err(), "it never answers");
    other.recv_timeout(PATIENCE).expect("the other task goes on");
}

#[test]
fn a_waker_is_woken_at_its_time() {
    struct Tell(std::sync::mpsc::Sender<Instant>);
    impl Wake for Tell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(Instant::now());
        }
    }
    let (tell, told) = channel();
    let at = Instant::now() + Duration::from_millis(20);
    wake_at(at, Waker::from(Arc::new(Tell(tell))));
    let woken = told.recv_timeout(PATIENCE).expect("it is woken");
    assert!(woken >= at);
    wait_for_no_thread();
}
